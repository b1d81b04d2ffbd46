//! Which texts name a key.

use super::*;

#[test]
fn the_namespace_ends_at_the_first_colon_and_has_a_valid_name() {
    let parse = |text: &'static str| WrittenKey::parse(text.as_bytes());
    let written = |namespace, key| Ok(WrittenKey { namespace, key });
    assert_eq!(parse("book:42"), written("book", b"42"));
    assert_eq!(parse("chat:a:b"), written("chat", b"a:b"));
    assert_eq!(parse("chat:"), written("chat", b""));
    assert_eq!(parse("42"), Err(InvalidWrittenKey::NoNamespace));
    assert_eq!(parse(":42"), Err(InvalidWrittenKey::BadNamespace("")));
    assert_eq!(parse("a b:1"), Err(InvalidWrittenKey::BadNamespace("a b")));
    let no_text = WrittenKey::parse(b"\xff:1");
    assert_eq!(no_text, Err(InvalidWrittenKey::NoNamespace));
}
