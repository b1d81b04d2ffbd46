//! What a majority of the voters says: whether it still follows this leader, and how their disks and clocks are.

use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use openraft::raft::AppendEntriesRequest;

use super::group::{Group, is_higher_vote};
use crate::{
    clock::Instant,
    consensus::{lease::TermLease, this_node::ClockDistance},
    sequence::NodeId,
    storage::{LowDisk, Vote},
};

impl Group {
    /// Asks a majority whether it still follows this node in the lease's term. True if it does.
    ///
    /// Numbers that this node took from its memory before it asked are then in order, and the argument
    /// needs no clock: a successor needs the vote of a node that answered, and can have it only after
    /// that answer.
    pub async fn confirm(&self, lease: &TermLease) -> bool {
        let quorums = self.lease.quorums();
        let question = AppendEntriesRequest {
            vote: Vote::new_committed(lease.term(), self.node()),
            prev_log_id: None,
            entries: Vec::new(),
            leader_commit: None,
        };
        let membership = self.metrics().membership_config;
        let timeout = self.config.follower_lease();
        let mut answers: FuturesUnordered<_> = quorums
            .voters()
            .into_iter()
            .filter(|&voter| voter != self.node())
            .filter_map(|voter| {
                let member = membership.membership().get_node(&voter)?;
                let peer = self.network.peer(voter, member);
                let question = &question;
                Some(async move { (voter, peer.append(question, timeout).await) })
            })
            .collect();
        let mut followers = BTreeSet::from([self.node()]);
        loop {
            if quorums.agree(&followers) {
                return !lease.is_void();
            }
            match answers.next().await {
                Some((voter, Ok(answer))) if !is_higher_vote(&answer) => {
                    followers.insert(voter);
                }
                Some((_, Ok(_) | Err(_))) => {}
                None => return false,
            }
        }
    }
}

// Whether enough voters have room on their disks.
//
// The sections of a table are on the disk of every voter. If those of a majority fill up, all numbers end. So a leader
// makes no new ones while the voters that have room, and answer, are no majority. It knows what they have to say by
// the time that it serves: its lease rests on their answers. One that answers late counts for a while as it spoke
// last: a disk fills up more slowly than that.

/// For how long a voter that says nothing counts as it spoke last; if a follower keeps out of elections for longer, so long.
const SPOKE_LAST: Duration = Duration::from_millis(1_500);

impl Group {
    /// Why this node, as leader, refuses new keys and namespaces; `None` while it takes them.
    pub fn refuses_new_keys(&self) -> Option<LowDisk> {
        self.this_node.store.free_space().refusal()
    }

    /// A voter whose disk is low, if those that have room are no majority without it. `None` if they are one, or if this
    /// node does not lead. Its own disk does not count here.
    pub fn low_voter(&self) -> Option<LowDisk> {
        let low = self.this_node.peer_machines.disks.low();
        if low.is_empty() || self.leadership.borrow().own.is_none() {
            return None;
        }
        let limit = self.config.follower_lease().max(SPOKE_LAST);
        let answers = |voter: NodeId| {
            let silence = self.lease.silence(voter);
            silence.is_some_and(|silence| silence.in_term && silence.lasts < limit)
        };
        let has_room =
            |voter: NodeId| voter == self.node() || (!low.contains_key(&voter) && answers(voter));
        let quorums = self.lease.quorums();
        let voters = quorums.voters();
        let roomy: BTreeSet<NodeId> = voters.iter().copied().filter(|id| has_room(*id)).collect();
        if quorums.agree(&roomy) {
            return None;
        }
        let low = low.into_iter().filter(|(id, _)| voters.contains(id));
        low.map(|(_, low)| low).min_by_key(|low| low.free_mb)
    }
}

// How far a time lies from what the voters' clocks show.

impl Group {
    /// What this node's wall clock shows: milliseconds since 1970.
    pub fn wall_ms(&self) -> u64 {
        self.lease.wall_ms()
    }

    /// The distance from `time_ms`, the time at `now`, within which the clocks of a majority of the voters lie: of each of the
    /// two sets of voters while the membership changes. This node is one of them, and its wall clock shows `own_ms`. `None` if
    /// those of a majority are not known: this node does not lead, or has just begun to.
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
