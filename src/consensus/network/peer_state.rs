//! The state that a group keeps of its peers: how far each has the log, and since when this node asks them for votes.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::{acknowledged::AcknowledgedIndexes, log_holds::LogHolds};
use crate::{clock::Instant, storage::AppliedView};

/// The state that a group keeps of its peers.
#[derive(Default)]
pub struct PeerState {
    /// Up to where each has acknowledged the log.
    pub acknowledged: AcknowledgedIndexes,
    /// The part of the log that is kept for those that are sent snapshots.
    pub log_holds: Arc<LogHolds>,
    /// Since when this node asks them for votes, or whether it would get them. `None` once it follows a leader, or leads. For
    /// the metrics: nothing is decided by it.
    candidacy: Mutex<Option<Instant>>,
    /// The table of this node, once it is open: peers are told how many changes of the principals it knows.
    table: OnceLock<AppliedView>,
}

impl PeerState {
    /// This node asks for votes at `now`, or whether it would get them.
    pub fn note_candidacy(&self, now: Instant) {
        self.candidacy.lock().get_or_insert(now);
    }

    /// This node follows a leader, or leads. Returns since when it asked for votes, if it did.
    pub fn end_candidacy(&self) -> Option<Instant> {
        self.candidacy.lock().take()
    }

    /// Tells peers from now on how many changes of the principals this table knows.
    pub fn tell_principals_of(&self, table: AppliedView) {
        // A group opens its table once.
        drop(self.table.set(table));
    }

    /// How many changes of the principals this node knows.
    pub fn principals_version(&self) -> u64 {
        self.table.get().map_or(0, |table| table.principals().version())
    }
}
