//! Names for clients of other id generators: tables of settings map each name that they use to `namespace:key`.
//!
//! After the namespace stands a key, or the parameters of a format and its key, `key=42,table=0`. `{name}` in the place of
//! the key, or of a value, is what a request says in its parameter of that name. A row whose own name stands in braces is for
//! every name without a row: `{tag} = "leaf:{tag}"`. There the namespace may be the name that is asked for, too.

use std::collections::BTreeMap;

use crate::sequence::{Key, WrittenKey, check_name};

/// A table, and how its clients ask.
#[derive(Debug, Clone, Copy)]
pub struct MappedNames<'a> {
    /// The setting that has it.
    pub setting: &'static str,
    /// The parameter in which a request says which name it asks for.
    pub parameter: &'static str,
    /// Whether a row may take other parameters of a request.
    pub takes_others: bool,
    /// The rows.
    pub rows: &'a BTreeMap<String, String>,
}

impl<'a> MappedNames<'a> {
    /// The text that a name is mapped to, and whether by the row for names that have none of their own.
    pub fn row(&self, name: &str) -> Option<(&'a str, bool)> {
        let (row, is_for_any) = row_of(self.rows, self.parameter, name)?;
        Some((row.as_str(), is_for_any))
    }

    /// Checks that each name is mapped to a key.
    ///
    /// # Errors
    /// A text with the setting's name, the row, and what to write.
    pub fn check(&self) -> Result<(), String> {
        let setting = self.setting;
        for (name, to) in self.rows {
            if name.is_empty() {
                return Err(format!(
                    "{setting} maps an empty name to {to:?}; give the name that clients ask for"
                ));
            }
            self.check_name(name, to)?;
            if !self.is_key(to) {
                return Err(format!(
                    "{setting} maps {name:?} to {to:?}; write namespace:key, as in {name}=order:1. A namespace has 1 to 64 \
                     characters out of A-Z a-z 0-9 . _ -, a key 1 to 256 bytes"
                ));
            }
            self.check_braces(name, to)?;
        }
        Ok(())
    }

    /// Braces around a name are for the row that is for any name.
    fn check_name(&self, name: &str, to: &str) -> Result<(), String> {
        let any = in_braces(self.parameter);
        match name.contains(['{', '}']) && name != any {
            false => Ok(()),
            true => Err(format!(
                "{} maps {name:?} to {to:?}; braces stand around {} alone, as in {any}=order:{any}, which is for every name \
                 without a row",
                self.setting, self.parameter
            )),
        }
    }

    /// Whether a row names a key. Which kind of key the namespace takes is not known yet. A valid id is a valid name, too.
    fn is_key(&self, to: &str) -> bool {
        let Some((namespace, key)) = to.split_once(':') else { return false };
        let names_namespace = RowPart::of(namespace) == RowPart::Asked(self.parameter);
        (names_namespace || check_name(namespace).is_ok()) && Key::name(key.as_bytes()).is_ok()
    }

    /// Braces stand in a row only where a parameter of a request is the key, or a value.
    fn check_braces(&self, name: &str, to: &str) -> Result<(), String> {
        let (setting, any) = (self.setting, in_braces(self.parameter));
        let row = to.split_once(':').map_or("", |(_, row)| row);
        if has_stray_braces(row) {
            let asked = if self.takes_others { "{bookid}" } else { &any };
            return Err(format!(
                "{setting} maps {name:?} to {to:?}; a parameter in braces stands alone in the place of the key or of a value, \
                 as in {name}=book:{asked} or {name}=chapters:key={asked},table=0"
            ));
        }
        match asked_by(row).find(|asked| !self.takes_others && *asked != self.parameter) {
            None => Ok(()),
            Some(other) => Err(format!(
                "{setting} maps {name:?} to {to:?}, and its clients say no {other:?}; they say {any} alone"
            )),
        }
    }

    /// The names that are mapped to a key of `namespace` which the row writes out, and these keys.
    pub fn keys_in(self, namespace: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let rows = self.rows.iter().filter_map(move |(name, to)| {
            let written = WrittenKey::parse(to.as_bytes()).ok()?;
            let is_there = written.namespace == namespace;
            let (_, key) = to.split_once(':').filter(|_| is_there)?;
            Some((name.as_str(), key))
        });
        rows.filter(|(_, key)| asked_by(key).next().is_none())
    }
}

/// The row of a name, or else the one in braces, which is for any name: then true.
pub fn row_of<'a, T>(
    rows: &'a BTreeMap<String, T>, parameter: &str, name: &str,
) -> Option<(&'a T, bool)> {
    let own = rows.get(name).map(|row| (row, false));
    own.or_else(|| Some((rows.get(&in_braces(parameter))?, true)))
}

/// How a row says that it is for any name, or takes it.
pub fn in_braces(parameter: &str) -> String {
    format!("{{{parameter}}}")
}

/// The parameter in which a client of Tinyid says what it asks for.
pub const TINYID_PARAMETER: &str = "bizType";

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
        let tokens = row_of(tokens, TINYID_PARAMETER, of_type);
        tokens.is_some_and(|(tokens, _)| !tokens.trim().is_empty())
    };
    if let Some(without) = types.keys().find(|of_type| !has_token(of_type)) {
        return Err(format!(
            "tinyid_types has {without:?}, and tinyid_tokens has no token for it; add {without}=TOKEN there"
        ));
    }
    if let Some(unknown) = without_type(types, tokens) {
        return Err(format!(
            "tinyid_tokens has {unknown:?}, which tinyid_types does not have; add {unknown}=namespace:key there, or \
             remove the token"
        ));
    }
    Ok(())
}

/// The first name of a table that is no type of `tinyid_types`.
fn without_type<'a, T>(
    types: &BTreeMap<String, String>, table: &'a BTreeMap<String, T>,
) -> Option<&'a String> {
    table.keys().find(|name| row_of(types, TINYID_PARAMETER, name).is_none())
}

/// Checks the sizes of segments: none has more numbers than `count_max`, and each is of a type in `tinyid_types`.
///
/// # Errors
/// A text with the type and what to write.
pub fn check_segments(
    types: &BTreeMap<String, String>, segments: &BTreeMap<String, u64>, count_max: u64,
) -> Result<(), String> {
    let any = in_braces(TINYID_PARAMETER);
    for (of_type, numbers) in segments {
        let of = if *of_type == any { String::new() } else { format!(" for {of_type:?}") };
        if !(1..=count_max).contains(numbers) {
            return Err(format!(
                "tinyid_segment is {numbers}{of}; it must lie between 1 and count_max ({count_max}): change it, or raise \
                 count_max"
            ));
        }
        if *of_type != any && row_of(types, TINYID_PARAMETER, of_type).is_none() {
            return Err(format!(
                "tinyid_segment has {of_type:?}, which tinyid_types does not have; add {of_type}=namespace:key there, or \
                 remove the row"
            ));
        }
    }
    Ok(())
}

/// The text in the place of a key, or of the value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowPart<'a> {
    /// This.
    Written(&'a str),
    /// The text that a request has in its parameter of this name.
    Asked(&'a str),
}

impl<'a> RowPart<'a> {
    /// Reads a text.
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
fn has_stray_braces(row: &str) -> bool {
    let braces = row.chars().filter(|letter| matches!(letter, '{' | '}'));
    braces.count() != 2 * asked_by(row).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
        let rows = rows.iter();
        rows.map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    fn leaf(rows: &BTreeMap<String, String>) -> MappedNames<'_> {
        MappedNames { setting: "leaf_tags", parameter: "tag", takes_others: false, rows }
    }

    fn yuewen(rows: &BTreeMap<String, String>) -> MappedNames<'_> {
        MappedNames { setting: "yuewen_types", parameter: "type", takes_others: true, rows }
    }

    #[test]
    fn a_name_is_mapped_to_a_namespace_and_a_key_or_refused_with_both() {
        let check = |name: &str, to: &str| leaf(&table(&[(name, to)])).check();
        assert_eq!(check("order", "order:1"), Ok(()));
        assert_eq!(check("order", "chat:a:b/c"), Ok(()));
        let long = format!("chat:{}", "x".repeat(257));
        for to in ["", "order", "order:", ":1", "or der:1", "{x}:1", &long] {
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
        let check = |to: &str| yuewen(&table(&[("2", to)])).check();
        assert_eq!(check("book:{bookid}"), Ok(()));
        assert_eq!(check("chapters:key={bookid},table=0,database={db}"), Ok(()));
        let refused = check("book:x{bookid}").unwrap_err();
        assert!(refused.starts_with("yuewen_types maps \"2\" to \"book:x{bookid}\""), "{refused}");
        assert!(refused.contains("or of a value, as in 2=book:{bookid}"), "{refused}");
    }

    #[test]
    fn a_row_in_braces_is_for_every_name_without_a_row() {
        let rows = table(&[("order", "leaf:1"), ("{tag}", "{tag}:{tag}")]);
        let names = leaf(&rows);
        assert_eq!(names.check(), Ok(()));
        assert_eq!(names.row("order"), Some(("leaf:1", false)));
        assert_eq!(names.row("new"), Some(("{tag}:{tag}", true)));
        let exact = table(&[("order", "leaf:1")]);
        assert_eq!(leaf(&exact).row("new"), None);
        for (name, to, says) in [
            ("{other}", "leaf:1", "braces stand around tag alone, as in {tag}=order:{tag}"),
            ("a{tag}", "leaf:1", "braces stand around tag alone"),
            ("{tag}", "leaf:{bookid}", "say no \"bookid\"; they say {tag} alone"),
            ("{tag}", "leaf:x{tag}", "as in {tag}=book:{tag}"),
            ("{tag}", "x{tag}:1", "write namespace:key"),
        ] {
            let refused = leaf(&table(&[(name, to)])).check().unwrap_err();
            assert!(refused.contains(says), "{refused}");
        }
        // A type of Yuewen's is a parameter as others.
        let any = table(&[("{type}", "idc:{type}"), ("7", "book:{bookid}")]);
        assert_eq!(yuewen(&any).check(), Ok(()));
    }

    #[test]
    fn the_keys_of_a_namespace_are_those_that_rows_write_out() {
        let rows = table(&[
            ("a", "leaf:Order"),
            ("b", "leaf:x:y"),
            ("c", "other:Order"),
            ("{tag}", "leaf:{tag}"),
        ]);
        let keys: Vec<_> = leaf(&rows).keys_in("leaf").collect();
        assert_eq!(keys, [("a", "Order"), ("b", "x:y")]);
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
        // A token for any type has types for it, and one of a type that has no row is of those.
        let unknown = check(&[("a", "x"), ("{bizType}", "secret")]).unwrap_err();
        assert!(unknown.contains("\"{bizType}\"") && !unknown.contains("secret"), "{unknown}");
        let any = table(&[("a", "order:1"), ("{bizType}", "tinyid:{bizType}")]);
        let missing = check_tokens(&any, &table(&[("a", "x")])).unwrap_err();
        assert!(missing.contains("\"{bizType}\""), "{missing}");
        for tokens in [&[("{bizType}", "x")][..], &[("{bizType}", "x"), ("new", "y")]] {
            assert_eq!(check_tokens(&any, &table(tokens)), Ok(()), "{tokens:?}");
        }
    }

    #[test]
    fn a_segment_has_at_most_count_max_numbers_and_a_type() {
        let types = table(&[("a", "order:1")]);
        let check = |of_type: &str, numbers: u64| {
            check_segments(&types, &BTreeMap::from([(of_type.to_owned(), numbers)]), 1_000)
        };
        for of_type in ["a", "{bizType}"] {
            assert_eq!(check(of_type, 1_000), Ok(()));
            for numbers in [0, 1_001] {
                let refused = check(of_type, numbers).unwrap_err();
                assert!(refused.contains(&format!("tinyid_segment is {numbers}")), "{refused}");
                assert!(refused.contains("(1000)"), "{refused}");
            }
        }
        let refused = check("b", 7).unwrap_err();
        assert!(refused.contains("tinyid_segment has \"b\""), "{refused}");
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
