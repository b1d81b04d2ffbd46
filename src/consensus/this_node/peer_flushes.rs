//! How long a write takes to the disk of each peer, as its last answer said.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;

use crate::{clock::Instant, sequence::NodeId};

/// After this an answer of a peer says nothing: its disk may have become slow, or quick, meanwhile.
const FLUSH_OLD: Duration = Duration::from_secs(2);

/// How long a write takes to the disk of each peer, and when it said so.
#[derive(Default)]
pub struct PeerFlushes(Mutex<BTreeMap<NodeId, (Duration, Instant)>>);

impl PeerFlushes {
    /// Notes what an answer of `peer` that came at `at` says of its disk.
    pub fn note(&self, peer: NodeId, told_ms: Option<u64>, at: Instant) {
        let mut all = self.0.lock();
        match told_ms {
            None => drop(all.remove(&peer)),
            Some(ms) => drop(all.insert(peer, (Duration::from_millis(ms), at))),
        }
    }

    /// How long a write takes to the disk of `peer` at `now`. `None` if it has not said so lately.
    pub fn of(&self, peer: NodeId, now: Instant) -> Option<Duration> {
        let all = self.0.lock();
        let (takes, at) = all.get(&peer)?;
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
        let flushes = PeerFlushes::default();
        assert_eq!(flushes.of(2, at(0)), None);
        flushes.note(2, Some(700), at(1_000));
        assert_eq!(flushes.of(2, at(2_999)), Some(Duration::from_millis(700)));
        assert_eq!(flushes.of(2, at(3_000)), None);
        assert_eq!(flushes.of(3, at(1_000)), None);
        flushes.note(2, None, at(1_000));
        assert_eq!(flushes.of(2, at(1_000)), None);
    }
}
