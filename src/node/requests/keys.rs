//! The keys of a message: borrowed from it, what they hold while they wait, and those that a leader left to the next
//! one.

use std::sync::Arc;

use bytes::Bytes;

use super::refused::partly_raised;
use crate::{
    allocator::{Unserved, WAITING_KEY_BYTES},
    node::{
        request_memory::{RequestMemory, Reservation},
        way::search::Unanswered,
    },
    proto::{
        Refusal, refusal, refuse,
        v1::{self, Exhausted, NextManyRequest, NextManyResponse, RefusedKeys, key::Kind},
    },
    sequence::{InvalidKey, Key, Lifetime, MessageId, OwnedKey, RequestId},
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

/// What a caller is told of a key that is none.
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

/// What a caller calls a message: the request id in `bytes`, if there is one, for as long as the retry window says. Without a
/// window it is remembered as long as the settings say. The message was made at `made_ms`.
///
/// # Errors
/// INVALID_ARGUMENT if the bytes are no id, the window is longer than [`Lifetime::WINDOW_MS_MAX`] or stands without the time,
/// or one of them stands without an id.
pub(in crate::node) fn message_id(
    bytes: Option<&[u8]>, window_ms: Option<u64>, made_ms: Option<u64>,
) -> Result<Option<MessageId>, Refusal> {
    const WINDOW_MAX: u64 = Lifetime::WINDOW_MS_MAX;
    let why = match (bytes, window_ms, made_ms) {
        (None, None, None) => return Ok(None),
        (Some(bytes), None, _) | (Some(bytes), Some(..=WINDOW_MAX), Some(_)) => {
            let id = RequestId::new(bytes);
            let id = id.map_err(|invalid| refusal!(InvalidRequest, "{invalid}"))?;
            let lifetime = window_ms.map_or(Lifetime::CONFIGURED, Lifetime::of_window_ms);
            return Ok(Some(MessageId { id, lifetime, made_ms, caller: None }));
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

// Keys of a message that a leader left to the next one, because it handed over before they had their numbers. The node
// that the caller asked gets them from there, so that what the others were given is not skipped. If another namespace
// has the name by then, it gets none: their numbers would not fit in with those of the others.
//
// Invariant: nothing was taken of a late key, and no key has numbers at a later place of the message. All numbers of a
// message are of one namespace.

/// The places of the late keys.
fn late_places(answer: &NextManyResponse) -> impl Iterator<Item = u32> {
    let late = answer.refused.iter().filter(|refused| refused.left_to_next_leader);
    late.flat_map(|refused| refused.places.iter().copied())
}

/// The request for the late keys of an answer. `None` if there are none.
pub(in crate::node) fn late(
    message: &NextManyRequest, answer: &NextManyResponse,
) -> Option<NextManyRequest> {
    let late: Vec<usize> = late_places(answer).map(|place| place as usize).collect();
    let keys = Keys::of(&message.ids, &message.names).len();
    // The parts of a message with an id are counted from its first key: such a message is asked again as a whole.
    if message.request_id.is_some() || late.is_empty() || late.iter().any(|at| *at >= keys) {
        return None;
    }
    Some(NextManyRequest {
        namespace: message.namespace.clone(),
        ids: at_places(&message.ids, &late),
        names: at_places(&message.names, &late),
        counts: at_places(&message.counts, &late),
        route_version: message.route_version,
        members_version: message.members_version,
        ..NextManyRequest::default()
    })
}

/// What stands at `places` of a column. Nothing if the message does not have the column.
fn at_places<T: Clone>(column: &[T], places: &[usize]) -> Vec<T> {
    places.iter().filter_map(|place| column.get(*place).cloned()).collect()
}

/// True if it is the answer to a message of `keys` keys.
fn is_of(answer: &NextManyResponse, keys: usize) -> bool {
    let refused = answer.refused.iter().flat_map(|refused| &refused.places);
    let exhausted = answer.exhausted.iter().flat_map(|exhausted| &exhausted.places);
    answer.firsts.len() == keys && refused.chain(exhausted).all(|place| (*place as usize) < keys)
}

/// Gives the late keys of an answer what the next leader answered, or why it did not.
pub(in crate::node) fn add_late(
    answer: &mut NextManyResponse, rest: Result<NextManyResponse, Refusal>,
) {
    let places: Vec<u32> = late_places(answer).collect();
    answer.refused.retain(|refused| !refused.left_to_next_leader);
    let rest = match rest {
        Ok(rest) if !is_of(&rest, places.len()) => Err(refusal!(
            Internal,
            "the next leader's answer has other keys than it was asked for: ask again for this key"
        )),
        rest => rest,
    };
    let rest = match rest {
        Ok(rest) => rest,
        Err(why) => {
            return answer.refused.push(RefusedKeys {
                places,
                failure: Some(why.into()),
                left_to_next_leader: false,
            });
        }
    };
    for (place, first) in places.iter().zip(rest.firsts) {
        answer.firsts[*place as usize] = first;
    }
    let at = |place: u32| places[place as usize];
    answer.refused.extend(rest.refused.into_iter().map(|refused| RefusedKeys {
        places: refused.places.into_iter().map(at).collect(),
        ..refused
    }));
    if let Some(more) = rest.exhausted {
        let (mut places, mut left) = (Vec::new(), Vec::new());
        let before = answer.exhausted.take();
        let before = before.into_iter().flat_map(|one| one.places.into_iter().zip(one.left));
        let more_places = more.places.into_iter().map(at).zip(more.left);
        let mut all: Vec<(u32, u64)> = before.chain(more_places).collect();
        all.sort_unstable();
        for (place, numbers) in all {
            places.push(place);
            left.push(numbers);
        }
        answer.exhausted = Some(Exhausted { places, left, failure: more.failure });
    }
}

/// Why late keys get no numbers: another namespace has the name by now.
pub(in crate::node) fn replaced() -> Refusal {
    refusal!(
        HandoverLost,
        "the namespace was replaced while the leader handed over: ask again for this key"
    )
}

// What the keys of a request hold while they wait in a term's memory.
//
// A request for many keys reserves this for those of its keys that really wait, as they begin to. Otherwise requests
// for keys that have numbers would use up the memory that requests may hold: they wait, too, under the `quorum` fence,
// at a follower, and while others get their turn.
//
// Invariant: what all keys hold that wait is reserved in `RequestMemory`.

/// The keys of a request that wait.
pub struct WaitingKeys<'a> {
    memory: &'a Arc<RequestMemory>,
    key_bytes: usize,
    bytes: usize,
    /// What is reserved for those that wait, or why they may not.
    reserved: Option<Result<Reservation, Refusal>>,
}

impl<'a> WaitingKeys<'a> {
    /// None of `keys` waits yet.
    pub fn new(memory: &'a Arc<RequestMemory>, keys: Keys<'_>) -> Self {
        // A name is held by its slot and by the call.
        let names = match keys {
            Keys::Ids(_) => 0,
            Keys::Names(_) => 2 * keys.bytes() / keys.len(),
        };
        WaitingKeys { memory, key_bytes: WAITING_KEY_BYTES + names, bytes: 0, reserved: None }
    }

    /// So many more of them wait. False if they may not, as [`RequestMemory::reserve`] says.
    pub fn add(&mut self, keys: usize) -> bool {
        if keys == 0 {
            return true;
        }
        self.bytes += keys * self.key_bytes;
        // Released first: the new reservation contains the bytes of the old one.
        self.reserved = None;
        self.reserved.insert(self.memory.reserve(self.bytes)).is_ok()
    }

    /// What it comes to that the term did not serve the request. `failed` says it, unless keys may not wait.
    pub fn no_answer(
        self, unserved: impl Into<Unserved>, failed: impl FnOnce(Unserved) -> Unanswered,
    ) -> Unanswered {
        let unserved = unserved.into();
        match self.reserved {
            Some(Err(refusal)) => partly_raised(refusal, unserved.may_be_done).into(),
            Some(Ok(_)) | None => failed(unserved),
        }
    }
}

#[cfg(test)]
mod tests;
