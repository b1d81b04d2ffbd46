//! Integers and keys that callers write as text, over HTTP, as Redis clients and in files. Each has one written form, whichever
//! interface reads it. Errors show the beginning of a text alone.

use tokio::time::Instant;

use crate::{
    node::{Asker, NodeContext, invalid_key},
    proto::{Refusal, refusal},
    sequence::{Key, KeyKind, OwnedKey, Wanted},
};

/// How many bytes of what a caller wrote an error shows.
const SHOWN_MAX: usize = 64;

/// An unsigned integer, in digits alone.
pub fn integer(bytes: &[u8]) -> Option<u64> {
    let are_digits = bytes.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(bytes).ok().filter(|_| are_digits)?;
    text.parse().ok()
}

/// A key of `kind`, as it was written.
///
/// # Errors
/// INVALID_ARGUMENT if it is none: not an integer, or a name that is empty or too long.
pub fn key<'a>(kind: KeyKind, namespace: &str, written: &'a [u8]) -> Result<Key<'a>, Refusal> {
    match kind {
        KeyKind::Name => Key::name(written).map_err(invalid_key),
        KeyKind::Id => integer(written).map(Key::Id).ok_or_else(|| {
            refusal!(
                KeyKindMismatch,
                "namespace '{namespace}' takes ids from 0 to {} as keys, not '{}'",
                u64::MAX,
                shown(written)
            )
        }),
    }
}

/// As [`key`]. The leader says which kind the namespace has, before `deadline`, if this node does not know it.
///
/// # Errors
/// Also if there is no such namespace, or no leader says so in time.
pub async fn key_in(
    context: &NodeContext, wanted: Wanted<'_>, (written, by): (&[u8], &Asker), deadline: Instant,
) -> Result<OwnedKey, Refusal> {
    let kind = context.namespaces.key_kind(wanted, by, deadline).await?;
    key(kind, wanted.namespace().unwrap_or_default(), written).map(OwnedKey::from)
}

/// The beginning of what a caller wrote, for an error.
pub fn shown(bytes: &[u8]) -> String {
    let rest = if bytes.len() > SHOWN_MAX { "..." } else { "" };
    let part = &bytes[..bytes.len().min(SHOWN_MAX)];
    format!("{}{rest}", part.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_digits_alone_and_fits_64_bits() {
        assert_eq!(integer(b"007"), Some(7));
        assert_eq!(integer(u64::MAX.to_string().as_bytes()), Some(u64::MAX));
        for none in ["", "+5", "-5", " 5", "5x", "18446744073709551616", "\u{665}"] {
            assert_eq!(integer(none.as_bytes()), None, "{none}");
        }
    }
}
