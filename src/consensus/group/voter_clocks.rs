//! How far a time lies from what the voters' clocks show. A majority decides: one wrong clock of three decides nothing.

use std::cmp::Reverse;

use super::group::Group;
use crate::{clock::Instant, consensus::this_node::ClockDistance, sequence::NodeId};

impl Group {
    /// The distance from `time_ms`, the time at `now`, within which the clocks of a majority of the voters lie: of each of the
    /// two sets of voters while the membership changes. This node is one of them, and its wall clock shows `own_ms`.
    ///
    /// `None` if those of a majority are not known: this node does not lead, or has just begun to. The leader that it followed
    /// last counts as long as its last message is not old.
    pub fn clock_distance(&self, time_ms: u64, now: Instant, own_ms: u64) -> Option<ClockDistance> {
        let reached = self.lease.quorums().majority_reached(|voter| {
            let distance = match voter == self.node() {
                true => Some(ClockDistance::of(time_ms, own_ms)),
                false => self.this_node.peer_machines.clocks.distance(voter, now, time_ms),
            };
            distance.map(Reverse)
        });
        reached.map(|Reverse(distance)| distance)
    }

    /// True if the wall clock of `node`, another voter, is known, and those of a majority lie within `apart_max_ms` of what it
    /// shows.
    pub fn is_clock_believed(&self, node: NodeId, apart_max_ms: u64) -> bool {
        let now = self.now();
        let shows = self.this_node.peer_machines.clocks.shows_ms(node, now);
        let distance = shows.and_then(|ms| self.clock_distance(ms, now, self.wall_ms()));
        distance.is_some_and(|distance| distance.ms <= apart_max_ms)
    }

    /// How far the wall clock of `node` is ahead of this leader's, in milliseconds; `None` if that is not known.
    pub fn clock_ahead_ms(&self, node: NodeId) -> Option<i64> {
        let behind = self.this_node.peer_machines.clocks.ahead_ms(node, self.now(), self.wall_ms());
        behind.map(i64::saturating_neg)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::consensus::lease::Quorums;

    /// The distance within which a majority lies, of voters who lie so far away, in each of the sets.
    fn within(sets: &[&[NodeId]], ms: &[Option<u64>]) -> Option<u64> {
        let sets = sets.iter().map(|set| set.iter().copied().collect::<BTreeSet<_>>());
        let distance = |voter: NodeId| {
            let ms = ms[voter as usize]?;
            Some(Reverse(ClockDistance { ms, is_ahead: true }))
        };
        Quorums::new(0, sets).majority_reached(distance).map(|Reverse(distance)| distance.ms)
    }

    #[test]
    fn one_wrong_clock_of_three_decides_nothing_and_two_do() {
        assert_eq!(within(&[&[0, 1, 2]], &[Some(0), Some(3), Some(9_000)]), Some(3));
        assert_eq!(within(&[&[0, 1, 2]], &[Some(0), Some(9_000), Some(9_001)]), Some(9_000));
        assert_eq!(within(&[&[0, 1]], &[Some(0), Some(9_000)]), Some(9_000));
        assert_eq!(within(&[&[0]], &[Some(0)]), Some(0));
    }

    #[test]
    fn nothing_is_known_before_a_majority_has_told_its_time() {
        assert_eq!(within(&[&[0, 1, 2]], &[Some(0), None, None]), None);
        assert_eq!(within(&[&[0, 1, 2]], &[Some(0), None, Some(7)]), Some(7));
        assert_eq!(within(&[], &[]), None);
    }

    #[test]
    fn while_the_membership_changes_a_majority_of_each_set_decides() {
        let clocks = [Some(0), Some(1), Some(2), Some(9_000), Some(9_001)];
        assert_eq!(within(&[&[0, 1, 2], &[0, 3, 4]], &clocks), Some(9_000));
        assert_eq!(within(&[&[0, 1, 2], &[0, 1, 3]], &clocks), Some(1));
    }
}
