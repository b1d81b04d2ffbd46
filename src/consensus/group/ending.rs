//! How a group ends on this node: the node is about to stop, and at last Raft has stopped.
//!
//! Invariant: both are for good, and the first reason why Raft has stopped stays.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use crate::{ordered_watch, tasks::Fault};

/// How a group ends on this node.
#[derive(Default)]
pub struct Ending {
    /// The node is about to stop: a term that was given up is not followed by another one.
    is_near: AtomicBool,
    /// Why Raft has stopped on this node for good.
    stopped: ordered_watch::Sender<Option<Fault>>,
}

impl Ending {
    /// The node is about to stop.
    pub fn note_near(&self) {
        self.is_near.store(true, Release);
    }

    /// True once the node is about to stop.
    pub fn is_near(&self) -> bool {
        self.is_near.load(Acquire)
    }

    /// Raft has stopped for good, or is to stop, because of `reason`. Ignored after the first time.
    pub fn note_stopped(&self, reason: Fault) {
        self.stopped.send_if_modified(|stopped| {
            let first = stopped.is_none();
            stopped.get_or_insert(reason);
            first
        });
    }

    /// Becomes the reason once Raft has stopped for good.
    pub fn subscribe(&self) -> ordered_watch::Receiver<Option<Fault>> {
        self.stopped.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays() {
        let ending = Ending::default();
        let stopped = ending.subscribe();
        assert!(stopped.borrow().is_none());
        for why in ["its disk failed", "its core is gone"] {
            ending.note_stopped(Fault::CannotGoOn(why.to_owned()));
        }
        let first = stopped.borrow();
        assert!(matches!(&*first, Some(Fault::CannotGoOn(why)) if why == "its disk failed"));
    }
}
