//! What the keys of a request hold while they wait in a term's memory.
//!
//! A request for many keys reserves this for those of its keys that really wait, as they begin to. Otherwise requests for
//! keys that have numbers would use up the memory that requests may hold: they wait, too, under the `quorum` fence, at a
//! follower, and while others get their turn.
//!
//! Invariant: what all keys hold that wait is reserved in [`RequestMemory`].

use std::sync::Arc;

use super::{
    leader_search::NoAnswer,
    message_parts::Keys,
    request_memory::{RequestMemory, Reservation},
};
use crate::{
    allocator::{NextError, WAITING_KEY_BYTES},
    proto::Refusal,
};

/// The keys of a request that wait.
pub struct WaitingKeys<'a> {
    memory: &'a Arc<RequestMemory>,
    key_bytes: usize,
    bytes: usize,
    reserved: Option<Reservation>,
}

/// Why many keys got nothing.
pub enum NotServed {
    /// The term did not serve them.
    Term(NextError),
    /// They may not wait.
    MayNotWait(Refusal),
}

impl From<NextError> for NotServed {
    fn from(error: NextError) -> Self {
        NotServed::Term(error)
    }
}

impl NotServed {
    /// What it means for the request. `failed` says what an error of the term means.
    pub fn no_answer(self, failed: impl FnOnce(NextError) -> NoAnswer) -> NoAnswer {
        match self {
            NotServed::Term(error) => failed(error),
            NotServed::MayNotWait(refusal) => refusal.into(),
        }
    }
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

    /// So many more of them wait.
    ///
    /// # Errors
    /// [`NotServed::MayNotWait`] as [`RequestMemory::reserve`].
    pub fn add(&mut self, keys: usize) -> Result<(), NotServed> {
        if keys == 0 {
            return Ok(());
        }
        self.bytes += keys * self.key_bytes;
        // Released first: the new reservation contains the bytes of the old one.
        self.reserved = None;
        let reserved = self.memory.reserve(self.bytes);
        self.reserved = Some(reserved.map_err(NotServed::MayNotWait)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        metrics::Metrics,
        node::{Config, REQUEST_KEYS_MAX},
    };

    #[test]
    fn keys_that_wait_are_reserved_until_the_request_ends() {
        let metrics = Metrics::new();
        let memory = RequestMemory::new(&Config::default(), &metrics);
        let mut waiting = WaitingKeys::new(&memory, Keys::Ids(&[1; 10]));
        assert!(waiting.add(0).is_ok());
        assert_eq!(metrics.request_bytes.get(), 0);
        assert!(waiting.add(4).is_ok() && waiting.add(6).is_ok());
        let ten = 10 * WAITING_KEY_BYTES as i64;
        assert_eq!(metrics.request_bytes.get(), ten);
        drop(waiting);
        assert_eq!(metrics.request_bytes.get(), 0);
        let names = vec![vec![b'a'; 100].into(); 10];
        let mut waiting = WaitingKeys::new(&memory, Keys::Names(&names));
        assert!(waiting.add(10).is_ok());
        assert!(metrics.request_bytes.get() >= ten + 2 * 1_000);
    }

    #[test]
    fn a_whole_message_of_new_keys_may_wait_by_default() {
        let memory = RequestMemory::new(&Config::default(), &Metrics::new());
        let messages = (0..8).map(|_| {
            let mut waiting = WaitingKeys::new(&memory, Keys::Ids(&[1]));
            waiting.add(REQUEST_KEYS_MAX).is_ok().then_some(waiting)
        });
        let waiting: Option<Vec<_>> = messages.collect();
        assert!(waiting.is_some(), "eight of them");
    }
}
