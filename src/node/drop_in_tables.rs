//! Pure: checks the tables of what clients of other id generators may ask for. Each maps the name that they use to
//! `namespace:key`.

use std::collections::BTreeMap;

use super::drop_in_row::has_stray_braces;
use crate::sequence::{Key, WrittenKey};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
