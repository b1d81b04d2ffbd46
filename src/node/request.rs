//! What can be asked of sequences, and the answers. The doors translate into these types and back; no
//! wire format is in here.
//!
//! Invariant: a request that exists has valid keys. What depends on this node's settings is checked when
//! the request is served.

use bytes::Bytes;

use super::route::{KnownRoute, Route};
use crate::{
    proto::{Refusal, refusal},
    sequence::{InvalidKey, Key, Lifetime, MessageId, NamespaceId, OwnedKey, RequestId},
};

/// The most keys that one request has.
pub const REQUEST_KEYS_MAX: usize = 65_536;

/// An answer, and the route where the caller's is older.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<A> {
    /// The answer.
    pub answer: A,
    /// Who leads.
    pub route: Option<Route>,
}

/// The next `count` numbers of a key. Answered with a [`Range`](crate::sequence::Range).
#[derive(Debug, Clone)]
pub struct Next {
    /// The namespace's name.
    pub namespace: String,
    /// The key.
    pub key: OwnedKey,
    /// How many numbers.
    pub count: u64,
    /// What the caller calls the request, so that it can ask again.
    pub id: Option<MessageId>,
    /// The route that the caller knows.
    pub known: KnownRoute,
}

/// The last number handed out for a key. Answered with that number; `None` before the first one.
#[derive(Debug, Clone)]
pub struct Current {
    /// The namespace's name.
    pub namespace: String,
    /// The key.
    pub key: OwnedKey,
    /// The route that the caller knows.
    pub known: KnownRoute,
}

/// The next numbers of many keys of one namespace. Answered with [`ManyRanges`].
#[derive(Debug, Clone)]
pub struct NextMany {
    pub(super) namespace: String,
    pub(super) keys: Keys,
    /// Empty: one number of each key.
    pub(super) counts: Vec<u64>,
    /// What the caller calls the request, so that it can ask again.
    pub(super) id: Option<MessageId>,
    pub(super) known: KnownRoute,
    /// The namespace that has answered for the message's other keys, if these are late keys of one.
    pub(super) meant: Option<NamespaceId>,
}

/// The keys of a request, all of one kind.
#[derive(Debug, Clone)]
pub enum Keys {
    /// Unsigned 64-bit integers.
    Ids(Vec<u64>),
    /// Byte strings.
    Names(Vec<Bytes>),
}

/// The numbers of many keys.
#[derive(Debug, Clone, Default)]
pub struct ManyRanges {
    /// The first number of each key, in the order of the keys; 0 for a key that got none.
    pub firsts: Vec<u64>,
    /// The distance between two numbers of a key.
    pub increment: u64,
    /// The keys that got none, because too few are left.
    pub exhausted: Option<Exhausted>,
    /// The keys that got none for other reasons.
    pub refused: Vec<RefusedKeys>,
    /// Whether the namespace is gapless.
    pub gapless: bool,
    /// The namespace that the numbers are of, if this node knows it.
    pub namespace: Option<NamespaceId>,
}

/// Keys that got no numbers for one reason.
#[derive(Debug, Clone)]
pub struct RefusedKeys {
    /// Their places in the request, from 0.
    pub places: Vec<u32>,
    /// What was wrong, and what to do.
    pub why: Refusal,
}

/// The keys that got no numbers, because fewer than they asked for are left below the namespace's `max`.
#[derive(Debug, Clone)]
pub struct Exhausted {
    /// Their places in the request, from 0.
    pub places: Vec<u32>,
    /// How many numbers each of them has left, in the order of `places`.
    pub left: Vec<u64>,
    /// OUT_OF_RANGE, and what to do. One text serves all keys: a request has up to 65 536.
    pub why: Refusal,
}

impl ManyRanges {
    /// Why the key at `place` got no numbers, if it was refused.
    pub fn refused_at(&self, place: usize) -> Option<&Refusal> {
        let place = u32::try_from(place).ok()?;
        // Places grow.
        let refused = |places: &[u32]| places.binary_search(&place).is_ok();
        let exhausted = self.exhausted.iter().find(|one| refused(&one.places));
        let why = exhausted.map(|exhausted| &exhausted.why);
        why.or_else(|| Some(&self.refused.iter().find(|one| refused(&one.places))?.why))
    }
}

impl Keys {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Keys::Ids(ids) => ids.len(),
            Keys::Names(names) => names.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Key number `place`.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn at(&self, place: usize) -> Key<'_> {
        match self {
            Keys::Ids(ids) => Key::Id(ids[place]),
            Keys::Names(names) => Key::Name(&names[place]),
        }
    }

    /// Checks how many there are, and each name.
    ///
    /// # Errors
    /// INVALID_ARGUMENT unless there are 1 to [`REQUEST_KEYS_MAX`] keys, and each name has 1 to 256 bytes. The text names
    /// the place of a wrong one.
    pub fn check(&self) -> Result<(), Refusal> {
        let asked = self.len();
        if asked == 0 || asked > REQUEST_KEYS_MAX {
            return Err(refusal!(
                InvalidRequest,
                "the message has {asked} keys; give between 1 and {REQUEST_KEYS_MAX}, all of one kind"
            ));
        }
        if let Keys::Names(names) = self {
            for (place, name) in names.iter().enumerate() {
                Key::name(name)
                    .map_err(|invalid| refusal!(InvalidRequest, "place {place}: {invalid}"))?;
            }
        }
        Ok(())
    }

    /// How many bytes they hold.
    pub fn bytes(&self) -> usize {
        match self {
            Keys::Ids(ids) => size_of_val(&ids[..]),
            Keys::Names(names) => names.iter().map(|name| size_of_val(name) + name.len()).sum(),
        }
    }
}

impl NextMany {
    /// A request for the numbers of `keys`: as many of each as `counts` says at its place, or one of
    /// each if there are no counts.
    ///
    /// # Errors
    /// INVALID_ARGUMENT unless there are 1 to [`REQUEST_KEYS_MAX`] keys, each name has 1 to 256 bytes,
    /// and there are as many counts as keys, or none.
    pub fn new(
        namespace: String, keys: Keys, counts: Vec<u64>, id: Option<MessageId>, known: KnownRoute,
    ) -> Result<NextMany, Refusal> {
        let (n, counted) = (keys.len(), counts.len());
        keys.check()?;
        if counted != 0 && counted != n {
            return Err(refusal!(
                InvalidRequest,
                "the message has {n} keys and {counted} counts; give a count for each key, or none at \
                 all for one number of each"
            ));
        }
        Ok(NextMany { namespace, keys, counts, id, known, meant: None })
    }

    /// The keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }
}

/// What a caller is told of a key that is none.
pub fn invalid_key(invalid: InvalidKey) -> Refusal {
    refusal!(InvalidRequest, "{invalid}")
}

/// What a caller calls a message: the request id in `bytes`, if there is one, for as long as the retry window says. Without a
/// window it is remembered as long as the settings say. The message was made at `made_ms`.
///
/// # Errors
/// INVALID_ARGUMENT if the bytes are no id, the window is longer than [`Lifetime::WINDOW_MS_MAX`] or stands without the time,
/// or one of them stands without an id.
pub fn message_id(
    bytes: Option<&[u8]>, window_ms: Option<u64>, made_ms: Option<u64>,
) -> Result<Option<MessageId>, Refusal> {
    const WINDOW_MAX: u64 = Lifetime::WINDOW_MS_MAX;
    let why = match (bytes, window_ms, made_ms) {
        (None, None, None) => return Ok(None),
        (Some(bytes), None, _) | (Some(bytes), Some(..=WINDOW_MAX), Some(_)) => {
            let id = RequestId::new(bytes);
            let id = id.map_err(|invalid| refusal!(InvalidRequest, "{invalid}"))?;
            let lifetime = window_ms.map_or(Lifetime::CONFIGURED, Lifetime::of_window_ms);
            return Ok(Some(MessageId { id, lifetime, made_ms }));
        }
        (None, None, Some(made_ms)) => format!("made_ms is {made_ms}; it goes with a request id"),
        (Some(_), Some(window_ms @ ..=WINDOW_MAX), None) => format!(
            "retry_window_ms is {window_ms}, and made_ms is missing: a copy of the message that comes late would take other \
             numbers; give 0, and the answer says what to give"
        ),
        (_, Some(window_ms), _) => format!(
            "retry_window_ms is {window_ms}; it goes with a request id, and is at most {WINDOW_MAX}"
        ),
    };
    Err(refusal!(InvalidRequest, "{why}"))
}
