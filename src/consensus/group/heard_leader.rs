//! The leader that this node followed last: when it was heard, and what it told of the others and of its wall clock.
//!
//! Invariant: each part is what the message said that told of it and arrived last. A reader may see parts of two messages.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::{clock::Instant, sequence::NodeId};

/// The leader that this node followed last, and what it told.
#[derive(Debug, Default)]
pub struct HeardLeader {
    /// The leader, and when this node heard it.
    last: Mutex<Option<(NodeId, Instant)>>,
    /// When this node last heard a leader that a majority followed.
    majority_at: Mutex<Option<Instant>>,
    /// The members that it did not hear any more, as it told last.
    unheard: Mutex<Vec<NodeId>>,
    /// How far its wall clock was ahead of this node's when it was heard last, in milliseconds.
    ahead_ms: AtomicI64,
}

impl HeardLeader {
    /// The leader that this node followed last, and when it heard that leader. `None` if it never followed one.
    pub fn last(&self) -> Option<(NodeId, Instant)> {
        *self.last.lock()
    }

    /// This node follows a message of `leader` that arrived at `at`. False if one that arrived later was noted before: a
    /// message that waits for the disk is noted late.
    pub fn note(&self, leader: NodeId, at: Instant) -> bool {
        let mut last = self.last.lock();
        let is_last = last.is_none_or(|(_, known)| known <= at);
        if is_last {
            *last = Some((leader, at));
        }
        is_last
    }

    /// When this node last heard a leader that a majority followed. `None` if it never did.
    pub fn majority_at(&self) -> Option<Instant> {
        *self.majority_at.lock()
    }

    /// The leader whose message arrived at `at` is followed by a majority.
    pub fn note_majority(&self, at: Instant) {
        let mut majority_at = self.majority_at.lock();
        *majority_at = (*majority_at).max(Some(at));
    }

    /// The members that the leader did not hear any more, as it told last.
    pub fn unheard_members(&self) -> Vec<NodeId> {
        self.unheard.lock().clone()
    }

    /// The leader does not hear these members any more.
    pub fn note_unheard(&self, members: &[NodeId]) {
        members.clone_into(&mut self.unheard.lock());
    }

    /// How far the wall clock of the leader was ahead of this node's when it was heard last, in milliseconds. 0 if it told no
    /// time yet.
    pub fn ahead_ms(&self) -> i64 {
        self.ahead_ms.load(Relaxed)
    }

    /// The wall clock of the leader showed `leader_ms` in a message, and this node's showed `own_ms` when that arrived.
    pub fn note_wall_clock(&self, leader_ms: u64, own_ms: u64) {
        self.ahead_ms.store(leader_ms.wrapping_sub(own_ms).cast_signed(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_noted_late_hides_no_later_one() {
        let heard = HeardLeader::default();
        let at = Instant::from_nanos;
        assert!(heard.note(1, at(5)));
        assert!(!heard.note(2, at(4)));
        assert_eq!(heard.last(), Some((1, at(5))));
        assert!(heard.note(2, at(5)));
        assert_eq!(heard.last(), Some((2, at(5))));
    }

    #[test]
    fn a_leader_is_known_to_have_a_majority_only_if_it_says_so() {
        let heard = HeardLeader::default();
        let at = Instant::from_nanos;
        assert!(heard.note(1, at(5)));
        assert_eq!(heard.majority_at(), None);
        heard.note_majority(at(5));
        heard.note_majority(at(4));
        assert_eq!(heard.majority_at(), Some(at(5)));
    }

    #[test]
    fn a_leaders_clock_may_be_ahead_or_behind() {
        let heard = HeardLeader::default();
        assert_eq!(heard.ahead_ms(), 0);
        heard.note_wall_clock(1_500, 1_000);
        assert_eq!(heard.ahead_ms(), 500);
        heard.note_wall_clock(1_000, 1_500);
        assert_eq!(heard.ahead_ms(), -500);
    }
}
