//! Up to which index each peer has acknowledged the log to this leader.
//!
//! A peer's log never gets shorter within a term. If it does, the peer's disk forgot what it had
//! synced. Raft would panic on that, and take the leader down with it.
//!
//! Invariant: what is recorded for a peer never moves back.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// For each peer, by its incarnation: the latest term it acknowledged anything in, and up to where.
#[derive(Default)]
pub struct AcknowledgedIndexes(Mutex<BTreeMap<u64, (u64, u64)>>);

impl AcknowledgedIndexes {
    /// The peer acknowledged the log up to `index` in `term`.
    pub fn record(&self, incarnation: u64, term: u64, index: u64) {
        let mut all = self.0.lock();
        let latest = all.entry(incarnation).or_default();
        *latest = (*latest).max((term, index));
    }

    /// Up to where the peer acknowledged the log in `term`, if `index` is covered by that.
    pub fn covering(&self, incarnation: u64, term: u64, index: u64) -> Option<u64> {
        let latest = self.0.lock().get(&incarnation).copied();
        latest
            .filter(|(in_term, up_to)| *in_term == term && *up_to >= index)
            .map(|(_, up_to)| up_to)
    }
}
