//! When a follower that hears nothing of its leader stands for election.
//!
//! Followers take turns, one heartbeat interval long. Raft alone would let each wait for a random part of its
//! election timeout, so that two seldom stand at once. With turns nobody waits for a random time. An election
//! usually ends before the next turn begins; where it takes longer, the turn passes (`Candidacy`).
//!
//! The first turn begins one heartbeat interval after the promise has ended. Followers whose last heartbeat got
//! lost are at most that far apart, so by then the other promises have ended as well, and a majority can agree.
//! The follower after the leader, in the order of ids, has the first turn. So leaders that die one after the
//! other do not all have the same successor.
//!
//! Invariant: no turn begins before this node's own promise has ended.

use std::{collections::BTreeSet, time::Duration};

use crate::{consensus::group::config::GroupConfig, sequence::NodeId};

/// The lengths of a promise and of a turn.
#[derive(Debug, Clone, Copy)]
pub struct ElectionTurns {
    /// How long a follower keeps out of elections after it heard its leader.
    pub(super) promise: Duration,
    turn: Duration,
}

/// The rank of one follower in the order of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    /// How many followers have their turn before this one.
    before: u32,
    /// How many followers take turns.
    followers: u32,
}

impl Rank {
    /// The rank of `me` among the voters that followed `leader`. `None` if it has none: it does not vote, or
    /// it is the leader.
    pub fn of(me: NodeId, leader: NodeId, voters: &BTreeSet<NodeId>) -> Option<Rank> {
        let after = voters.range(leader..).filter(|id| **id != leader);
        let order = after.chain(voters.range(..leader));
        let before = order.clone().position(|id| *id == me)?;
        Some(Rank {
            before: u32::try_from(before).ok()?,
            followers: u32::try_from(order.count()).ok()?,
        })
    }
}

impl ElectionTurns {
    /// The turns of a group with these timings.
    pub fn new(config: &GroupConfig) -> Self {
        ElectionTurns {
            promise: config.promise_time(),
            turn: Duration::from_millis(config.heartbeat_ms),
        }
    }

    /// How long it is until the next turn of the follower at `rank`, which heard the leader `silence` ago.
    /// `None` if it has no further turn: an election has been due for as long as a promise lasts, and no turn
    /// brought a leader. Then it stands at random times.
    pub fn until_next(&self, rank: Rank, silence: Duration) -> Option<Duration> {
        let first = self.promise + self.turn * (1 + rank.before);
        let all = self.turn * rank.followers;
        let begins = (0..).map(|round| first + all * round);
        let mut turns = begins.take_while(|begins| *begins < 2 * self.promise);
        let next = turns.find(|begins| *begins > silence)?;
        assert!(next > self.promise, "a turn within the promise: {next:?}");
        Some(next - silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of the voters after `leader` is gone, by id.
    fn places(leader: NodeId, voters: &[NodeId]) -> Vec<(NodeId, Option<u32>)> {
        let set: BTreeSet<NodeId> = voters.iter().copied().collect();
        let rank = |me| Rank::of(me, leader, &set).map(|rank| rank.before);
        voters.iter().map(|me| (*me, rank(*me))).collect()
    }

    #[test]
    fn the_follower_after_the_leader_has_the_first_turn() {
        let first = [(1, None), (2, Some(0)), (3, Some(1))];
        assert_eq!(places(1, &[1, 2, 3]), first);
        let second = [(1, Some(1)), (2, None), (3, Some(0))];
        assert_eq!(places(2, &[1, 2, 3]), second);
        let last = [(1, Some(0)), (2, Some(1)), (3, None)];
        assert_eq!(places(3, &[1, 2, 3]), last);
        // The leader was removed meanwhile.
        let removed = [(1, Some(1)), (3, Some(0))];
        assert_eq!(places(2, &[1, 3]), removed);
    }

    #[test]
    fn a_node_that_does_not_vote_has_no_turn() {
        let voters = BTreeSet::from([1, 2]);
        assert_eq!(Rank::of(3, 1, &voters), None);
        assert_eq!(Rank::of(1, 1, &BTreeSet::from([1])), None);
    }

    /// When the turns of each follower begin, in milliseconds after the leader was heard.
    fn turns(heartbeat_ms: u64, followers: u32) -> Vec<Vec<u64>> {
        let turns = ElectionTurns {
            promise: Duration::from_millis(300),
            turn: Duration::from_millis(heartbeat_ms),
        };
        let begin = |before| {
            let rank = Rank { before, followers };
            let mut silence = Duration::ZERO;
            let next = || {
                silence += turns.until_next(rank, silence)?;
                Some(silence.as_millis() as u64)
            };
            std::iter::from_fn(next).collect()
        };
        (0..followers).map(begin).collect()
    }

    #[test]
    fn followers_take_turns_from_one_heartbeat_after_the_promise_until_it_could_have_passed_again()
    {
        let two = [vec![350, 450, 550], vec![400, 500]];
        assert_eq!(turns(50, 2), two);
        let four = [vec![350, 550], vec![400], vec![450], vec![500]];
        assert_eq!(turns(50, 4), four);
        // With few heartbeats in a promise some followers have no turn: they stand at random times.
        let slow = [vec![449], vec![598], vec![], vec![]];
        assert_eq!(turns(149, 4), slow);
    }

    #[test]
    fn after_the_last_turn_there_is_none_however_long_the_silence_lasts() {
        let turns =
            ElectionTurns { promise: Duration::from_millis(300), turn: Duration::from_millis(50) };
        let rank = Rank { before: 0, followers: 2 };
        for silence_ms in [550, 600, 86_400_000] {
            let silence = Duration::from_millis(silence_ms);
            assert_eq!(turns.until_next(rank, silence), None, "{silence_ms} ms");
        }
    }
}
