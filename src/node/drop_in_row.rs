//! Pure: a row of `yuewen_types`, after the namespace: a key, or the parameters of a format and its key, `key=42,table=0`.
//! `{name}` in the place of the key, or of a value, is what a request says in its parameter of that name.

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
