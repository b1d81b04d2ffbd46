//! Remembers which leader this node followed last, and when.

use parking_lot::Mutex;

use crate::{clock::Instant, sequence::NodeId};

/// The leader that this node followed last, and when it heard from that leader.
#[derive(Debug, Default)]
pub struct LeaderHeard(Mutex<Option<(NodeId, Instant)>>);

impl LeaderHeard {
    /// This node follows a message of `leader` that arrived at `at`.
    pub fn record(&self, leader: NodeId, at: Instant) {
        *self.0.lock() = Some((leader, at));
    }

    /// The last leader, and when it was heard.
    pub fn last(&self) -> Option<(NodeId, Instant)> {
        *self.0.lock()
    }
}
