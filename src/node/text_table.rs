//! Settings that are tables of texts, and the rows of those for clients of other id generators.

use std::{collections::BTreeMap, convert::Infallible, str::FromStr};

use serde::Deserialize;

use crate::sequence::{Key, WrittenKey};

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
/// empty name: whoever checks the table refuses that.
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

impl FromStr for SecretTable {
    type Err = Infallible;

    fn from_str(list: &str) -> Result<Self, Infallible> {
        Ok(SecretTable::from(list))
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

// Checks the tables of what clients of other id generators may ask for. Each maps the name that they use to
// `namespace:key`.

/// Checks that each name of a table is mapped to a key.
///
/// # Errors
/// A text with the setting's name, the row, and what to write.
pub fn check_keys(setting: &str, table: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, to) in table {
        if name.is_empty() {
            return Err(format!(
                "{setting} maps an empty name to {to:?}; give the name that clients ask for"
            ));
        }
        let written = WrittenKey::parse(to.as_bytes());
        // Which kind of key the namespace takes is not known yet. A valid id is a valid name, too.
        if !written.is_ok_and(|written| Key::name(written.key).is_ok()) {
            return Err(format!(
                "{setting} maps {name:?} to {to:?}; write namespace:key, as in {name}=order:1. A namespace has 1 to 64 \
                 characters out of A-Z a-z 0-9 . _ -, a key 1 to 256 bytes"
            ));
        }
    }
    Ok(())
}

/// Checks that braces stand in a table's rows only where a parameter of a request is the key, or a value.
///
/// # Errors
/// A text with the setting's name, the row, and what to write.
pub fn check_braces(setting: &str, table: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, to) in table {
        let row = to.split_once(':').map_or("", |(_, row)| row);
        if has_stray_braces(row) {
            return Err(format!(
                "{setting} maps {name:?} to {to:?}; a parameter in braces stands alone in the place of the key or of a value,                  as in {name}=book:{{bookid}} or {name}=chapters:key={{bookid}},table=0"
            ));
        }
    }
    Ok(())
}

/// Checks that those types have tokens that are in `tinyid_types`, and no others. No token is shown.
///
/// # Errors
/// A text with the type and what to write.
pub fn check_tokens(
    types: &BTreeMap<String, String>, tokens: &BTreeMap<String, String>,
) -> Result<(), String> {
    if tokens.contains_key("") {
        return Err(
            "a row of tinyid_tokens has no '=' or no bizType, or its bizType has another row; write \
             bizType=token,bizType=token, and several tokens of one bizType with spaces between them"
                .to_owned(),
        );
    }
    let has_token = |of_type: &String| {
        let tokens = tokens.get(of_type);
        tokens.is_some_and(|tokens| !tokens.trim().is_empty())
    };
    if let Some(without) = types.keys().find(|of_type| !has_token(of_type)) {
        return Err(format!(
            "tinyid_types has {without:?}, and tinyid_tokens has no token for it; add {without}=TOKEN there"
        ));
    }
    if let Some(unknown) = tokens.keys().find(|of_type| !types.contains_key(*of_type)) {
        return Err(format!(
            "tinyid_tokens has {unknown:?}, which tinyid_types does not have; add {unknown}=namespace:key there, or \
             remove the token"
        ));
    }
    Ok(())
}

// A row of `yuewen_types`, after the namespace: a key, or the parameters of a format and its key, `key=42,table=0`.
// `{name}` in the place of the key, or of a value, is what a request says in its parameter of that name.

/// What stands in the place of a key, or of the value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowPart<'a> {
    /// This.
    Written(&'a str),
    /// What a request says in its parameter of this name.
    Asked(&'a str),
}

impl<'a> RowPart<'a> {
    /// What a text stands for.
    pub fn of(text: &'a str) -> RowPart<'a> {
        let name = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        match name.filter(|name| is_name(name)) {
            Some(name) => RowPart::Asked(name),
            None => RowPart::Written(text),
        }
    }

    fn asked(self) -> Option<&'a str> {
        match self {
            RowPart::Asked(name) => Some(name),
            RowPart::Written(_) => None,
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['{', '}', ',', '='])
}

/// The parameters of a format that a row gives: none if it has no `=`.
///
/// # Errors
/// The part that is not `name=value`.
pub fn row_fields(row: &str) -> Result<Vec<(&str, RowPart<'_>)>, &str> {
    if !row.contains('=') {
        return Ok(Vec::new());
    }
    let fields = row.split(',').map(|field| {
        let (name, value) = field.split_once('=').ok_or(field)?;
        Ok((name, RowPart::of(value)))
    });
    fields.collect()
}

/// The names of the parameters that a row takes from a request.
pub fn asked_by(row: &str) -> impl Iterator<Item = &str> {
    let values = row.split(',').filter_map(|field| Some(field.split_once('=')?.1));
    let key = (!row.contains('=')).then_some(row);
    key.into_iter().chain(values).filter_map(|part| RowPart::of(part).asked())
}

/// Whether braces stand in a row only where they take what a request says.
pub fn has_stray_braces(row: &str) -> bool {
    let braces = row.chars().filter(|letter| matches!(letter, '{' | '}'));
    braces.count() != 2 * asked_by(row).count()
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

    fn table(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
        let rows = rows.iter();
        rows.map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_name_is_mapped_to_a_namespace_and_a_key_or_refused_with_both() {
        let check = |name: &str, to: &str| check_keys("leaf_tags", &table(&[(name, to)]));
        assert_eq!(check("order", "order:1"), Ok(()));
        assert_eq!(check("order", "chat:a:b/c"), Ok(()));
        let long = format!("chat:{}", "x".repeat(257));
        for to in ["", "order", "order:", ":1", "or der:1", &long] {
            let refused = check("tag", to).unwrap_err();
            assert!(refused.starts_with("leaf_tags maps \"tag\""), "{refused}");
            assert!(refused.contains(&format!("{to:?}")), "{refused}");
            assert!(refused.contains("tag=order:1"), "{refused}");
        }
        let refused = check("", "order:1").unwrap_err();
        assert!(refused.contains("empty name"), "{refused}");
    }

    #[test]
    fn braces_stand_alone_or_are_refused_with_the_row() {
        let check = |to: &str| check_braces("yuewen_types", &table(&[("2", to)]));
        assert_eq!(check("book:{bookid}"), Ok(()));
        assert_eq!(check("chapters:key={bookid},table=0,database={db}"), Ok(()));
        let refused = check("book:x{bookid}").unwrap_err();
        assert!(refused.starts_with("yuewen_types maps \"2\" to \"book:x{bookid}\""), "{refused}");
        assert!(refused.contains("2=book:{bookid}"), "{refused}");
    }

    #[test]
    fn each_type_has_a_token_and_no_token_is_left_over() {
        let types = table(&[("a", "order:1"), ("b", "order:2")]);
        let check = |tokens: &[(&str, &str)]| check_tokens(&types, &table(tokens));
        assert_eq!(check(&[("a", "x"), ("b", "x y")]), Ok(()));
        let missing = check(&[("a", "x")]).unwrap_err();
        assert!(missing.contains("\"b\""), "{missing}");
        let empty = check(&[("a", " "), ("b", "x")]).unwrap_err();
        assert!(empty.contains("\"a\""), "{empty}");
        let unknown = check(&[("a", "x"), ("b", "x"), ("c", "secret")]).unwrap_err();
        assert!(unknown.contains("\"c\"") && !unknown.contains("secret"), "{unknown}");
    }

    #[test]
    fn a_name_in_braces_is_what_a_request_says_if_it_stands_alone() {
        use RowPart::{Asked, Written};
        for (text, part) in [
            ("42", Written("42")),
            ("{bookid}", Asked("bookid")),
            ("{book id}", Asked("book id")),
            ("{}", Written("{}")),
            ("a{b}", Written("a{b}")),
            ("{a}{b}", Written("{a}{b}")),
            ("{a,b}", Written("{a,b}")),
        ] {
            assert_eq!(RowPart::of(text), part, "{text}");
        }
        assert_eq!(row_fields("42"), Ok(vec![]));
        assert_eq!(row_fields("{a}"), Ok(vec![]));
        let fields = vec![("key", Asked("bookid")), ("table", Written("0"))];
        assert_eq!(row_fields("key={bookid},table=0"), Ok(fields));
        assert_eq!(row_fields("key=1,2"), Err("2"));
    }

    #[test]
    fn the_parameters_that_a_row_reads_are_those_in_braces() {
        let asked = |row: &'static str| asked_by(row).collect::<Vec<_>>().join(" ");
        assert_eq!(asked("42"), "");
        assert_eq!(asked("{bookid}"), "bookid");
        assert_eq!(asked("key={bookid},table=3,database={db}"), "bookid db");
        for row in ["42", "{a}", "key={a},table={a}", "key=1"] {
            assert!(!has_stray_braces(row), "{row}");
        }
        for row in ["a{b}", "{", "{}", "{a},{b}", "key={a}1", "{k}=1", "key={a},{b}", "{a b}}"] {
            assert!(has_stray_braces(row), "{row}");
        }
    }
}
