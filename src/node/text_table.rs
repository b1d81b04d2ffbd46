//! Settings that are tables of texts. A file may have a table; a flag or a variable has a list. Both are read as the same. The
//! texts of a `SecretTable` are shown in no error.

use std::{collections::BTreeMap, str::FromStr};

use serde::Deserialize;

/// A table of texts, as it is given. No name occurs twice. Spaces around names and texts are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "InFile")]
pub struct TextTable(BTreeMap<String, String>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "write a table of texts, or one text as name=value,name=value")]
enum InFile {
    List(String),
    Table(BTreeMap<String, String>),
}

impl TextTable {
    fn of<'a>(rows: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let mut table = BTreeMap::new();
        for (name, text) in rows {
            let (name, text) = (name.trim(), text.trim());
            if table.insert(name.to_owned(), text.to_owned()).is_some() {
                return Err(format!("{name:?} is named twice; remove one"));
            }
        }
        Ok(TextTable(table))
    }

    /// Parses a list. `row` is how a row of it is written, for an error.
    ///
    /// # Errors
    /// A text if a row has no '=', or names a name again.
    pub fn parse(list: &str, row: &str) -> Result<Self, String> {
        let rows = list.split(',').filter(|row| !row.trim().is_empty());
        let rows = rows.map(|given| {
            given.split_once('=').ok_or_else(|| format!("{given:?} has no '='; write {row},{row}"))
        });
        TextTable::of(rows.collect::<Result<Vec<_>, _>>()?.into_iter())
    }
}

impl TryFrom<InFile> for TextTable {
    type Error = String;

    fn try_from(given: InFile) -> Result<Self, String> {
        match given {
            InFile::List(list) => list.parse(),
            InFile::Table(table) => {
                TextTable::of(table.iter().map(|(name, text)| (&name[..], &text[..])))
            }
        }
    }
}

impl FromStr for TextTable {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        TextTable::parse(list, "name=value")
    }
}

/// As [`TextTable`], for texts that no error may show. A row that is none, or that names a name again, is kept under an
/// empty name: the check of the table refuses that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "InFile")]
pub struct SecretTable(BTreeMap<String, String>);

impl SecretTable {
    fn of<'a>(rows: impl Iterator<Item = Option<(&'a str, &'a str)>>) -> Self {
        let mut table = BTreeMap::new();
        for row in rows {
            let (name, text) = row.unwrap_or_default();
            let text = text.trim().to_owned();
            if table.insert(name.trim().to_owned(), text).is_some() {
                table.insert(String::new(), String::new());
            }
        }
        SecretTable(table)
    }
}

impl From<InFile> for SecretTable {
    fn from(given: InFile) -> Self {
        match given {
            InFile::List(list) => SecretTable::from(list.as_str()),
            InFile::Table(table) => {
                SecretTable::of(table.iter().map(|(name, text)| Some((&name[..], &text[..]))))
            }
        }
    }
}

impl From<&str> for SecretTable {
    fn from(list: &str) -> Self {
        let rows = list.split(',').filter(|row| !row.trim().is_empty());
        SecretTable::of(rows.map(|row| row.split_once('=')))
    }
}

impl From<SecretTable> for BTreeMap<String, String> {
    fn from(SecretTable(table): SecretTable) -> Self {
        table
    }
}

impl From<TextTable> for BTreeMap<String, String> {
    fn from(TextTable(table): TextTable) -> Self {
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct File {
        tags: TextTable,
    }

    #[test]
    fn a_list_and_a_table_are_the_same_and_each_name_occurs_once() {
        let list: TextTable = "a=b:1, c = d:x=y ,".parse().unwrap();
        let rows = [("a", "b:1"), ("c", "d:x=y")];
        let rows = rows.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(list, TextTable(BTreeMap::from(rows)));
        for file in ["tags = \"a=b:1,c=d:x=y\"", "[tags]\na = \"b:1\"\nc = \"d:x=y\""] {
            assert_eq!(toml::from_str::<File>(file).unwrap().tags, list, "{file}");
        }
        assert_eq!("".parse(), Ok(TextTable::default()));
    }

    #[test]
    fn a_bad_row_of_secrets_is_told_without_them() {
        for list in ["a=1,secret", "a=1,a=2", "=1"] {
            let table: BTreeMap<String, String> = SecretTable::from(list).into();
            assert!(table.contains_key(""), "{list}");
        }
        let table: BTreeMap<String, String> = SecretTable::from("a=1, b=2 3").into();
        assert_eq!(table["b"], "2 3");
        assert!(!table.contains_key(""));
    }

    #[test]
    fn a_row_that_is_none_and_a_name_that_occurs_twice_are_refused_with_their_text() {
        let refused = |list: &str| list.parse::<TextTable>().unwrap_err();
        assert!(refused("a=b:1,c").contains("\"c\""));
        assert!(refused("a=b:1,a=c:1").contains("\"a\""));
        let file = toml::from_str::<File>("[tags]\na = \"1\"\n\" a\" = \"2\"");
        let refused = file.unwrap_err().to_string();
        assert!(refused.contains("\"a\" is named twice"), "{refused}");
        let refused = toml::from_str::<File>("tags = [\"a\"]").unwrap_err();
        assert!(refused.to_string().contains("write a table of texts"), "{refused}");
    }
}
