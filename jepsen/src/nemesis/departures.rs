//! The leaders that left because their disks were slow, and for how long each of them stays after that.
//!
//! A disk that is slow now and then must not send the leadership round. So a leader that left for its disk leaves no more for
//! a while, and for twice as long each time. All moments are in nanoseconds since the start of the run.

use std::{collections::BTreeMap, time::Duration};

/// For how long a node does not leave again: the node's own pauses, after the first time and after many.
const PAUSE: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(3_600);

/// The leaders that left because their disks were slow.
#[derive(Debug, Default)]
pub struct Departures(BTreeMap<u64, Pause>);

/// A node's pause after it left.
#[derive(Debug, Clone, Copy)]
struct Pause {
    lasts: Duration,
    /// It did not end earlier.
    until_ns: u64,
}

impl Departures {
    /// Whether `node` may leave at `at_ns` because its disk is slow.
    pub(super) fn may_leave(&self, node: u64, at_ns: u64) -> bool {
        self.0.get(&node).is_none_or(|pause| pause.until_ns <= at_ns)
    }

    /// Notes that `node` left, not before its disk was slow at `slow_from_ns`, and not after `left_ns`.
    pub(super) fn note(&mut self, node: u64, slow_from_ns: u64, left_ns: u64) {
        // A long time without a pause ends the doubling.
        let peace_ns = nanos(PAUSE_MAX);
        let last = self.0.get(&node);
        let last = last.filter(|pause| left_ns < pause.until_ns.saturating_add(peace_ns));
        let lasts = last.map_or(PAUSE, |pause| (2 * pause.lasts).min(PAUSE_MAX));
        let until_ns = slow_from_ns.saturating_add(nanos(lasts));
        self.0.insert(node, Pause { lasts, until_ns });
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_leader_that_left_stays_for_twice_as_long_each_time_and_a_long_peace_ends_that() {
        let mut departures = Departures::default();
        // Its disk was slow for two seconds before it left.
        let mut leaves = |second: u64| {
            let (slow_from_ns, left_ns) = ((second - 2) * SECOND_NS, second * SECOND_NS);
            let may_leave = departures.may_leave(1, left_ns);
            if may_leave {
                departures.note(1, slow_from_ns, left_ns);
            }
            may_leave
        };
        assert!(leaves(2));
        assert!(!leaves(59));
        assert!(leaves(60), "a minute after its disk became slow");
        assert!(!leaves(177), "two minutes after the second time");
        assert!(leaves(178));
        assert!(!leaves(415), "four minutes after the third time");
        assert!(leaves(416));
        let peace_ends = 414 + 480 + 3_600;
        assert!(leaves(peace_ends), "it stayed for an hour without a pause");
        assert!(leaves(peace_ends - 2 + 60), "the pauses begin anew");
    }

    #[test]
    fn the_pause_of_one_leader_is_not_that_of_another_and_no_pause_is_longer_than_an_hour() {
        let mut departures = Departures::default();
        let mut at_ns = 0;
        for _ in 0..20 {
            assert!(departures.may_leave(1, at_ns));
            departures.note(1, at_ns, at_ns);
            assert!(!departures.may_leave(1, at_ns));
            assert!(departures.may_leave(2, at_ns));
            at_ns += nanos(departures.0[&1].lasts);
        }
        assert_eq!(departures.0[&1].lasts, PAUSE_MAX);
    }
}
