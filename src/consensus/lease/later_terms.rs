//! Which later terms Raft may know of: a lease of an earlier term must not be valid. Pure.
//!
//! Invariant: the highest term that Raft has adopted never goes down.

/// The later terms that Raft was told of.
#[derive(Debug, Default)]
pub struct LaterTerms {
    /// Raft may follow this term. No lease of an earlier one is valid, not even a lease that begins
    /// later because a watcher lags.
    adopted: u64,
    /// The terms that Raft has been told of and has not decided on. They count like `adopted`.
    pending: Vec<u64>,
}

impl LaterTerms {
    /// Raft is about to be told of `term`.
    pub fn add_pending(&mut self, term: u64) {
        self.pending.push(term);
    }

    /// Raft has decided on `term`, which was pending: it may have adopted it, or has kept to an earlier
    /// term.
    pub fn decide(&mut self, term: u64, adopted: bool) {
        if let Some(at) = self.pending.iter().position(|pending| *pending == term) {
            self.pending.swap_remove(at);
        }
        if adopted {
            self.adopted = term.max(self.adopted);
        }
    }

    /// True if no lease of `term` may be valid.
    pub fn forbid(&self, term: u64) -> bool {
        let pending = self.pending.iter().copied().max();
        term < self.adopted.max(pending.unwrap_or(0))
    }
}
