//! The memory that keys of a request hold while they wait in a term.
//!
//! A request for many keys reserves this for those of its keys that really wait, as they begin to. Otherwise requests
//! for keys that have numbers would use up the memory that requests may hold: they wait, too, under the `quorum` fence,
//! at a follower, and while others get their turn.
//!
//! Invariant: what all keys hold that wait is reserved in `RequestMemory`.

use std::sync::Arc;

use super::{keys::Keys, refused::partly_raised};
use crate::{
    allocator::{ManyUnserved, Unserved, WAITING_KEY_BYTES},
    node::{
        request_memory::{RequestMemory, Reservation},
        way::attempt::Unanswered,
    },
    proto::Refusal,
};

/// The keys of a request that wait.
pub struct WaitingKeys<'a> {
    memory: &'a Arc<RequestMemory>,
    key_bytes: usize,
    bytes: usize,
    /// The memory that is reserved for those that wait.
    reserved: Option<Reservation>,
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

    /// Notes that `keys` more of them wait.
    ///
    /// # Errors
    /// As [`RequestMemory::reserve`]: they may not.
    pub fn add(&mut self, keys: usize) -> Result<(), Refusal> {
        if keys == 0 {
            return Ok(());
        }
        self.bytes += keys * self.key_bytes;
        // Released first: the new reservation contains the bytes of the old one.
        drop(self.reserved.take());
        self.reserved = Some(self.memory.reserve(self.bytes)?);
        Ok(())
    }
}

/// The outcome of a request for many keys that the term did not serve. The first `may_be_done` of its floors may be raised all
/// the same. `failed` says the outcome, unless keys may not wait.
pub fn no_answer(
    unserved: ManyUnserved<Refusal>, may_be_done: usize,
    failed: impl FnOnce(Unserved) -> Unanswered,
) -> Unanswered {
    match unserved {
        ManyUnserved::MayNotWait(refusal) => partly_raised(refusal, may_be_done).into(),
        ManyUnserved::Why(why) => failed(Unserved { why, may_be_done }),
    }
}

#[cfg(test)]
mod tests;
