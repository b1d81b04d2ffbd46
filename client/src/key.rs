//! The key of a sequence.

use bytes::Bytes;

use crate::api::{self as v1, key::Kind};

/// A key, to which a sequence belongs. All keys of a namespace are of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// An unsigned 64-bit integer.
    Id(u64),
    /// 1 to 256 bytes.
    Name(Bytes),
}

impl Key {
    /// How many bytes the key takes in a message, at most.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Key::Id(_) => 10,
            // 11 bytes are enough for tag and length.
            Key::Name(name) => name.len() + 11,
        }
    }
}

// Only `u64` has a `From`: with a second integer type, `next("book", 42)` would not compile.
impl From<u64> for Key {
    fn from(id: u64) -> Self {
        Key::Id(id)
    }
}

impl From<&str> for Key {
    fn from(name: &str) -> Self {
        Key::Name(Bytes::copy_from_slice(name.as_bytes()))
    }
}

impl From<String> for Key {
    fn from(name: String) -> Self {
        Key::Name(name.into_bytes().into())
    }
}

impl From<&String> for Key {
    fn from(name: &String) -> Self {
        name.as_str().into()
    }
}

impl From<Vec<u8>> for Key {
    fn from(name: Vec<u8>) -> Self {
        Key::Name(name.into())
    }
}

impl From<&[u8]> for Key {
    fn from(name: &[u8]) -> Self {
        Key::Name(Bytes::copy_from_slice(name))
    }
}

impl From<Bytes> for Key {
    fn from(name: Bytes) -> Self {
        Key::Name(name)
    }
}

impl From<Key> for v1::Key {
    fn from(key: Key) -> Self {
        let kind = match key {
            Key::Id(id) => Kind::Id(id),
            Key::Name(name) => Kind::Name(name),
        };
        v1::Key { kind: Some(kind) }
    }
}
