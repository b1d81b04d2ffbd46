//! Keeps the log from being purged where a peer needs it next: a peer that is sent a snapshot goes on
//! with the entries after it, and would need another snapshot without them.
//!
//! Invariant: an index is held for as long as a [`LogHold`] of it lives.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

/// The log indexes after which the log is held.
#[derive(Default)]
pub struct LogHolds(Mutex<BTreeMap<u64, HoldingPeers>>);

/// For whom the log is held after an index.
#[derive(Default)]
struct HoldingPeers {
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
    holds: Arc<LogHolds>,
    after: u64,
    is_sending: bool,
}

impl LogHold {
    /// Holds the entries after index `after`.
    pub fn after(holds: &Arc<LogHolds>, after: u64) -> Self {
        let mut held = holds.0.lock();
        let held = held.entry(after).or_default();
        held.peers += 1;
        held.sending += 1;
        LogHold { holds: holds.clone(), after, is_sending: true }
    }

    /// The snapshot is sent. The peer now gets what is held.
    pub fn sent(&mut self) {
        if std::mem::take(&mut self.is_sending)
            && let Some(held) = self.holds.0.lock().get_mut(&self.after)
        {
            held.sending -= 1;
        }
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        self.sent();
        let mut holds = self.holds.0.lock();
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
        let holds = Arc::new(LogHolds::default());
        let (late, early) = (LogHold::after(&holds, 70), LogHold::after(&holds, 50));
        let again = LogHold::after(&holds, 50);
        drop(early);
        assert_eq!(holds.purgeable_max(), 50, "another peer is sent the same snapshot");
        drop(again);
        assert_eq!(holds.purgeable_max(), 70);
        drop(late);
        assert_eq!(holds.purgeable_max(), u64::MAX);
    }

    #[test]
    fn a_snapshot_that_is_sent_in_vain_is_told_once_and_one_that_was_sent_is_not() {
        let holds = Arc::new(LogHolds::default());
        let (_early, mut late) = (LogHold::after(&holds, 50), LogHold::after(&holds, 70));
        assert_eq!(holds.purged(50), 0, "what comes next is there");
        assert_eq!(holds.purged(51), 1);
        assert_eq!(holds.purged(60), 0, "it was told");
        late.sent();
        assert_eq!(holds.purged(80), 0, "the peer has the snapshot, and what followed so far");
        let _again = LogHold::after(&holds, 90);
        assert_eq!(holds.purged(u64::MAX), 1);
    }
}
