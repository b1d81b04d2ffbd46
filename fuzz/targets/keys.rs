//! Keys as text: an accepted text is the key that was written, and a refused one is refused with a short reason.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ratchet::{
    sequence::{Key, KeyKind, WrittenKey},
    server::fuzzing::{self, written_key},
};

/// The most bytes of a reason.
const REASON_BYTES_MAX: usize = 512;

fuzz_target!(|input: &[u8]| {
    assert_eq!(fuzzing::integer(input), number(input));
    let colon = input.iter().position(|byte| *byte == b':');
    let (namespace, key) = match colon {
        Some(at) => (&input[..at], Some(&input[at + 1..])),
        None => (input, None),
    };
    let is_name = matches!(namespace.len(), 1..=64)
        && (namespace.iter()).all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte));
    let written = match (written_key(input), key) {
        (Ok(written), Some(key)) => {
            assert!(is_name, "the namespace is no name");
            assert_eq!((written.namespace.as_bytes(), written.key), (namespace, key));
            written
        }
        (Ok(_), None) => panic!("a key without a namespace is accepted"),
        (Err(refused), key) => {
            assert!(!is_name || key.is_none(), "refused: {}", refused.why);
            return check_reason(&refused.why);
        }
    };
    for kind in [KeyKind::Id, KeyKind::Name] {
        check_key(written, kind);
    }
});

/// Checks a key in a namespace of `kind`.
fn check_key(written: WrittenKey<'_>, kind: KeyKind) {
    let read = fuzzing::key(kind, written.namespace, written.key);
    match (&read, kind) {
        (Ok(Key::Id(id)), KeyKind::Id) => assert_eq!(number(written.key), Some(*id)),
        (Ok(Key::Name(name)), KeyKind::Name) => {
            assert!((1..=256).contains(&name.len()));
            assert_eq!(*name, written.key);
        }
        (Ok(other), _) => panic!("a key of the other kind: {other}"),
        (Err(refused), KeyKind::Id) => {
            assert_eq!(number(written.key), None, "refused: {refused}");
        }
        (Err(refused), KeyKind::Name) => {
            let length = written.key.len();
            assert!(!(1..=256).contains(&length), "refused: {refused}");
        }
    }
    match read {
        Ok(key) => {
            let mut again = format!("{}:", written.namespace).into_bytes();
            match key {
                Key::Id(id) => again.extend(id.to_string().as_bytes()),
                Key::Name(name) => again.extend(name),
            }
            let again = WrittenKey::parse(&again).expect("what was accepted is accepted again");
            let again = fuzzing::key(kind, again.namespace, again.key);
            assert_eq!(again.ok(), Some(key));
        }
        Err(refused) => check_reason(refused.message()),
    }
}

/// The integer that is written, by other means than the product's.
fn number(digits: &[u8]) -> Option<u64> {
    let add = |number: u64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    match digits {
        [] => None,
        digits => digits.iter().try_fold(0, add),
    }
}

/// A caller can read the reason, and it is short for any input.
fn check_reason(why: &str) {
    assert!(why.len() <= REASON_BYTES_MAX, "{} bytes: {why}", why.len());
    assert!(why.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{why:?}");
}
