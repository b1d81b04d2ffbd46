//! The keys of a message, borrowed from it and checked. All keys of a message are of one kind, and there is a bound on their
//! number.

use bytes::Bytes;

use crate::{
    proto::{
        Refusal, refusal, refuse,
        v1::{self, key::Kind},
    },
    sequence::{InvalidKey, Key, OwnedKey},
};

/// The most keys that one request has.
pub const REQUEST_KEYS_MAX: usize = 65_536;

/// The keys of a message, all of one kind.
#[derive(Debug, Clone, Copy)]
pub enum Keys<'a> {
    /// Unsigned 64-bit integers.
    Ids(&'a [u64]),
    /// Byte strings.
    Names(&'a [Bytes]),
}

impl<'a> Keys<'a> {
    /// The keys of a message that was checked: its ids, or its names.
    pub fn of(ids: &'a [u64], names: &'a [Bytes]) -> Self {
        match names.is_empty() {
            true => Keys::Ids(ids),
            false => Keys::Names(names),
        }
    }

    /// The keys of a message that is not checked yet: its ids, or its names.
    ///
    /// # Errors
    /// INVALID_ARGUMENT unless they are of one kind, there are 1 to [`REQUEST_KEYS_MAX`] of them, and each name has 1 to 256
    /// bytes. The text names the place of a wrong one.
    pub fn checked(ids: &'a [u64], names: &'a [Bytes]) -> Result<Self, Refusal> {
        if !ids.is_empty() && !names.is_empty() {
            refuse!(
                InvalidRequest,
                "the message has {} ids and {} names; give keys that are all of one kind",
                ids.len(),
                names.len()
            );
        }
        let asked = ids.len() + names.len();
        if asked == 0 || asked > REQUEST_KEYS_MAX {
            refuse!(
                InvalidRequest,
                "the message has {asked} keys; give between 1 and {REQUEST_KEYS_MAX}, all of one kind"
            );
        }
        for (place, name) in names.iter().enumerate() {
            Key::name(name)
                .map_err(|invalid| refusal!(InvalidRequest, "place {place}: {invalid}"))?;
        }
        Ok(Keys::of(ids, names))
    }

    /// How many there are.
    pub fn len(self) -> usize {
        match self {
            Keys::Ids(ids) => ids.len(),
            Keys::Names(names) => names.len(),
        }
    }

    /// Key number `place`.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn at(self, place: usize) -> Key<'a> {
        match self {
            Keys::Ids(ids) => Key::Id(ids[place]),
            Keys::Names(names) => Key::Name(&names[place]),
        }
    }

    /// How many bytes they hold.
    pub fn bytes(self) -> usize {
        match self {
            Keys::Ids(ids) => size_of_val(ids),
            Keys::Names(names) => names.iter().map(|name| size_of_val(name) + name.len()).sum(),
        }
    }
}

/// The key of a message.
///
/// # Errors
/// INVALID_ARGUMENT if it is missing, or a name that is empty or too long.
pub fn key_of(key: &Option<v1::Key>) -> Result<Key<'_>, Refusal> {
    match key.as_ref().and_then(|key| key.kind.as_ref()) {
        Some(Kind::Id(id)) => Ok(Key::Id(*id)),
        Some(Kind::Name(name)) => Key::name(name).map_err(invalid_key),
        None => Err(refusal!(
            InvalidRequest,
            "the key is missing; give key.id (an unsigned 64-bit integer) or key.name (bytes)"
        )),
    }
}

/// The message that stands for a key.
pub fn to_key(key: &OwnedKey) -> Option<v1::Key> {
    let kind = match key {
        OwnedKey::Id(id) => Kind::Id(*id),
        OwnedKey::Name(name) => Kind::Name(name.clone()),
    };
    Some(v1::Key { kind: Some(kind) })
}

/// The refusal of a key that is none.
pub fn invalid_key(invalid: InvalidKey) -> Refusal {
    refusal!(InvalidRequest, "{invalid}")
}

/// How many bytes the key of a message holds beside it.
pub(in crate::node) fn heap_bytes(key: &Option<v1::Key>) -> usize {
    match key_of(key) {
        Ok(Key::Name(name)) => name.len(),
        Ok(Key::Id(_)) | Err(_) => 0,
    }
}
