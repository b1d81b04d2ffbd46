//! Keys. Each key of a namespace has a sequence of its own.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The greatest length of a byte-string key, in bytes.
pub const KEY_NAME_BYTES_MAX: usize = 256;

/// Which kind of key a namespace takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyKind {
    /// Unsigned 64-bit integers.
    Id,
    /// Byte strings of 1 to [`KEY_NAME_BYTES_MAX`] bytes.
    Name,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyKind::Id => "id (an unsigned 64-bit integer)",
            KeyKind::Name => "name (a byte string)",
        })
    }
}

/// The key that a sequence belongs to: a book, a user, a conversation. Borrowed from its message, so that handing
/// out numbers allocates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key<'a> {
    /// An unsigned 64-bit integer.
    Id(u64),
    /// A byte string.
    Name(&'a [u8]),
}

/// A key that outlives its message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OwnedKey {
    /// An unsigned 64-bit integer.
    Id(u64),
    /// A byte string.
    Name(Bytes),
}

impl OwnedKey {
    /// The key, borrowed.
    pub fn as_key(&self) -> Key<'_> {
        match self {
            OwnedKey::Id(id) => Key::Id(*id),
            OwnedKey::Name(name) => Key::Name(name),
        }
    }

    /// How many bytes it holds besides its own size.
    pub fn heap_bytes(&self) -> usize {
        match self {
            OwnedKey::Id(_) => 0,
            OwnedKey::Name(name) => name.len(),
        }
    }
}

impl From<Key<'_>> for OwnedKey {
    fn from(key: Key<'_>) -> Self {
        match key {
            Key::Id(id) => OwnedKey::Id(id),
            Key::Name(name) => OwnedKey::Name(Bytes::copy_from_slice(name)),
        }
    }
}

/// Why a byte string is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// It has no bytes.
    #[error("the key is empty; give an id or a name of 1 to {KEY_NAME_BYTES_MAX} bytes")]
    Empty,
    /// It has too many bytes.
    #[error("the key has {0} bytes; a name has at most {KEY_NAME_BYTES_MAX}")]
    TooLong(usize),
}

impl<'a> Key<'a> {
    /// A byte-string key.
    ///
    /// # Errors
    /// [`InvalidKey`] if it is empty or has more than [`KEY_NAME_BYTES_MAX`] bytes.
    pub fn name(bytes: &'a [u8]) -> Result<Self, InvalidKey> {
        match bytes.len() {
            0 => Err(InvalidKey::Empty),
            1..=KEY_NAME_BYTES_MAX => Ok(Key::Name(bytes)),
            longer => Err(InvalidKey::TooLong(longer)),
        }
    }

    /// The kind of this key.
    pub fn kind(&self) -> KeyKind {
        match self {
            Key::Id(_) => KeyKind::Id,
            Key::Name(_) => KeyKind::Name,
        }
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Id(id) => write!(f, "{id}"),
            Key::Name(name) => write!(f, "\"{}\"", name.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_1_to_256_bytes() {
        assert_eq!(Key::name(b""), Err(InvalidKey::Empty));
        assert!(Key::name(&[7; 256]).is_ok());
        assert_eq!(Key::name(&[7; 257]), Err(InvalidKey::TooLong(257)));
    }
}
