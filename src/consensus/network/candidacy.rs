//! Records since when this node asks for votes. For the metrics: nothing is decided by it.

use parking_lot::Mutex;

use crate::clock::Instant;

/// Since when this node asks for votes, if it does.
#[derive(Debug, Default)]
pub struct Candidacy(Mutex<Option<Instant>>);

impl Candidacy {
    /// This node asks for a vote, or whether it would get one, at `now`.
    pub fn ask(&self, now: Instant) {
        self.0.lock().get_or_insert(now);
    }

    /// This node follows a leader, or leads. Returns since when it had asked for votes.
    pub fn end(&self) -> Option<Instant> {
        self.0.lock().take()
    }
}
