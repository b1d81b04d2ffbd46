//! What a group remembers of its peers: how far each has the log, and since when this node asks them for votes.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use crate::{clock::Instant, storage::AppliedView};

/// What a group remembers of its peers.
#[derive(Default)]
pub struct PeerState {
    /// Up to where each has acknowledged the log.
    pub acknowledged: AcknowledgedIndexes,
    /// What is kept of the log for those that are sent snapshots.
    pub log_holds: LogHolds,
    /// Since when this node asks them for votes, or whether it would get them. `None` once it follows a leader, or leads. For
    /// the metrics: nothing is decided by it.
    pub candidacy: Mutex<Option<Instant>>,
    /// The table of this node, once it is open: peers are told how many changes of who may do what it knows.
    table: OnceLock<AppliedView>,
}

impl PeerState {
    /// Tells peers from now on how many changes of who may do what this table knows.
    pub fn tell_principals_of(&self, table: AppliedView) {
        // A group opens its table once.
        drop(self.table.set(table));
    }

    /// How many changes of who may do what this node knows.
    pub fn principals_version(&self) -> u64 {
        self.table.get().map_or(0, |table| table.principals().version())
    }
}

// Up to which index each peer has acknowledged the log to this leader.
//
// A peer's log never gets shorter within a term. If it does, the peer's disk forgot what it had
// synced. Raft would panic on that, and take the leader down with it.
//
// Invariant: what is recorded for a peer never moves back.

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

// Keeps the log from being purged where a peer needs it next: a peer that is sent a snapshot goes on
// with the entries after it, and would need another snapshot without them.

/// The log indexes after which the log is held.
#[derive(Default)]
pub struct LogHolds(Mutex<BTreeMap<u64, Held>>);

/// For whom the log is held after an index.
#[derive(Default)]
struct Held {
    /// For how many peers.
    peers: usize,
    /// How many of them are still sent the snapshot.
    sending: usize,
    /// The log was purged further all the same.
    is_broken: bool,
}

impl LogHolds {
    /// Up to where the log may be purged.
    pub fn purgeable_max(&self) -> u64 {
        let holds = self.0.lock();
        holds.keys().next().copied().unwrap_or(u64::MAX)
    }

    /// The log is purged up to `index`. Returns how many peers are sent a snapshot in vain by that, which it does not tell
    /// again: they lack what comes next, and need another one.
    pub fn purged(&self, index: u64) -> usize {
        let mut holds = self.0.lock();
        let broken = holds.range_mut(..index).map(|(_, held)| held);
        let newly = broken.filter(|held| held.sending > 0 && !held.is_broken);
        newly
            .map(|held| {
                held.is_broken = true;
                held.sending
            })
            .sum()
    }
}

/// Holds the log after an index until this is dropped.
pub struct LogHold {
    peers: Arc<PeerState>,
    after: u64,
    is_sending: bool,
}

impl LogHold {
    /// Holds the entries after index `after`.
    pub fn after(peers: &Arc<PeerState>, after: u64) -> Self {
        let mut held = peers.log_holds.0.lock();
        let held = held.entry(after).or_default();
        held.peers += 1;
        held.sending += 1;
        LogHold { peers: peers.clone(), after, is_sending: true }
    }

    /// The snapshot is sent. The peer now gets what is held.
    pub fn sent(&mut self) {
        if std::mem::take(&mut self.is_sending)
            && let Some(held) = self.peers.log_holds.0.lock().get_mut(&self.after)
        {
            held.sending -= 1;
        }
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        self.sent();
        let mut holds = self.peers.log_holds.0.lock();
        if let Some(held) = holds.get_mut(&self.after) {
            held.peers -= 1;
            if held.peers == 0 {
                holds.remove(&self.after);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_held_for_the_peer_that_needs_most_of_it() {
        let peers = Arc::new(PeerState::default());
        let holds = &peers.log_holds;
        let (late, early) = (LogHold::after(&peers, 70), LogHold::after(&peers, 50));
        let again = LogHold::after(&peers, 50);
        drop(early);
        assert_eq!(holds.purgeable_max(), 50, "another peer is sent the same snapshot");
        drop(again);
        assert_eq!(holds.purgeable_max(), 70);
        drop(late);
        assert_eq!(holds.purgeable_max(), u64::MAX);
    }

    #[test]
    fn a_snapshot_that_is_sent_in_vain_is_told_once_and_one_that_was_sent_is_not() {
        let peers = Arc::new(PeerState::default());
        let holds = &peers.log_holds;
        let (_early, mut late) = (LogHold::after(&peers, 50), LogHold::after(&peers, 70));
        assert_eq!(holds.purged(50), 0, "what comes next is there");
        assert_eq!(holds.purged(51), 1);
        assert_eq!(holds.purged(60), 0, "it was told");
        late.sent();
        assert_eq!(holds.purged(80), 0, "the peer has the snapshot, and what followed so far");
        let _again = LogHold::after(&peers, 90);
        assert_eq!(holds.purged(u64::MAX), 1);
    }
}
