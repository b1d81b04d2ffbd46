//! The disks of the peers, as their answers tell: which are low, and how long a write takes.
//!
//! Invariant: the last answer of a peer counts. A low disk counts as low until the peer says otherwise: a peer that says
//! nothing any more may have run into its full disk. The time of a write counts for a while.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;

use crate::{clock::Instant, sequence::NodeId, storage::LowDisk};

/// The time of a write that a peer told longer ago counts no more: its disk may have become slow, or quick, meanwhile.
const FLUSH_OLD: Duration = Duration::from_secs(2);

/// The disks of the peers, as their answers tell.
#[derive(Default)]
pub struct PeerDisks {
    /// The peers whose disks are low.
    low: Mutex<BTreeMap<NodeId, LowDisk>>,
    /// How long a write takes to the disk of each peer, and when it said so.
    flushes: Mutex<BTreeMap<NodeId, (Duration, Instant)>>,
}

impl PeerDisks {
    /// Notes what an answer of `peer` says of the room on its disk: that it is low, if it is.
    pub fn note_room(&self, peer: NodeId, told: Option<LowDisk>) {
        let mut low = self.low.lock();
        match told {
            None => drop(low.remove(&peer)),
            Some(told) => drop(low.insert(peer, told)),
        }
    }

    /// The peers whose disks are low.
    pub fn low(&self) -> BTreeMap<NodeId, LowDisk> {
        self.low.lock().clone()
    }

    /// Notes how long a write takes to the disk of `peer`, as an answer says that came at `at`.
    pub fn note_flush(&self, peer: NodeId, told_ms: Option<u64>, at: Instant) {
        let mut flushes = self.flushes.lock();
        match told_ms {
            None => drop(flushes.remove(&peer)),
            Some(ms) => drop(flushes.insert(peer, (Duration::from_millis(ms), at))),
        }
    }

    /// How long a write takes to the disk of `peer` at `now`. `None` if it has not said so lately.
    pub fn flush_of(&self, peer: NodeId, now: Instant) -> Option<Duration> {
        let flushes = self.flushes.lock();
        let (takes, at) = flushes.get(&peer)?;
        (now.since(*at) < FLUSH_OLD).then_some(*takes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn what_a_peer_says_of_the_speed_of_its_disk_counts_for_a_while_and_until_it_says_otherwise() {
        let disks = PeerDisks::default();
        assert_eq!(disks.flush_of(2, at(0)), None);
        disks.note_flush(2, Some(700), at(1_000));
        assert_eq!(disks.flush_of(2, at(2_999)), Some(Duration::from_millis(700)));
        assert_eq!(disks.flush_of(2, at(3_000)), None);
        assert_eq!(disks.flush_of(3, at(1_000)), None);
        disks.note_flush(2, None, at(1_000));
        assert_eq!(disks.flush_of(2, at(1_000)), None);
    }
}
