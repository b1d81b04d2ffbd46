//! When this node stands for election.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use openraft::RaftMetrics;

use super::{
    config::GroupConfig,
    group::{Group, term_led},
};
use crate::{
    clock::Instant,
    planted_bugs::{Bug, is_planted},
    random,
    sequence::NodeId,
    storage::{Types, Vote},
};

// Makes this node stand for election soon after its promise to a silent leader has ended, and again, at random times, until
// somebody leads.
//
// This file only says when. Whether the node may stand, and who is elected, Raft decides: it refuses while this
// node's own promise lasts, it asks a majority first whether they would vote (pre-vote), and it gives up when it hears
// the leader meanwhile. Raft's own timer is off. It would begin another term whenever votes take longer than an
// election timeout to the disks, and each term is two more writes to each.
//
// Invariant: an election is started only as a pre-vote. The other kind ignores this node's promise.

/// Watches until Raft stops.
pub async fn watch(group: Arc<Group>) {
    let turns = ElectionTurns::new(&group.config);
    let mut candidacy = Candidacy::new(&group);
    let mut metrics = group.raft.metrics();
    let mut stopped = group.stopped();
    loop {
        let seen = metrics.borrow_and_update().clone();
        let heard = *group.leader_heard.lock();
        let due = candidacy.due(&group, &turns, &seen, heard);
        // It looks again after one promise: a leader that is heard meanwhile has not been silent for so long then.
        let look = group.config.follower_lease();
        tokio::select! {
            biased;
            _ = stopped.wait_for(Option::is_some) => return,
            // Before this node belongs to a cluster nothing changes for long, and then it is to stand at once.
            changed = metrics.changed(), if !group.is_formed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            () = tokio::time::sleep(due.unwrap_or(look).min(look)) => {}
        }
        if group.is_retiring() {
            return;
        }
        let is_due = due.is_some_and(|due| due <= look);
        let has_changed =
            || *group.leader_heard.lock() != heard || group.metrics().vote != seen.vote;
        if !is_due || has_changed() {
            continue;
        }
        candidacy.begin(group.now());
        tracing::debug!("no leader is heard: standing for election");
        let stands = group.canvass(seen.vote).await;
        if group.is_retiring() {
            return;
        }
        if stands && !has_changed() && group.raft.trigger().elect(true).await.is_err() {
            // Raft has stopped. The watch over it says why.
            return;
        }
    }
}

// When this node stands if turns bring no leader: at a random time, half an election timeout to a whole one after the last
// attempt, vote or message of a leader. Where disks are slow it waits for several writes more, and twice as long for each
// term in which nobody came to lead: an election that is under way takes what the disks take, and another one would
// void its votes.

/// How many times as long as a write to the slowest disk it waits: a candidate's vote, the others', the leader's vote.
const WRITES: u32 = 3;
/// How many lost terms in a row double the wait.
const DOUBLINGS_MAX: u32 = 4;
/// It waits no longer than this for the disks.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// What this node knows of the elections since it heard a leader last.
struct Candidacy {
    /// Its vote, and when it was noticed.
    vote: Vote,
    since: Instant,
    /// When it stood last.
    stood: Option<Instant>,
    /// How many terms in a row had no leader, as far as it knows.
    lost: u32,
    /// Where between the shortest and the longest time the next attempt is.
    share: f64,
}

impl Candidacy {
    fn new(group: &Group) -> Self {
        let (vote, since) = (group.metrics().vote, group.now());
        Candidacy { vote, since, stood: None, lost: 0, share: draw_share() }
    }

    /// It stands at `now`.
    fn begin(&mut self, now: Instant) {
        self.stood = Some(now);
        self.share = draw_share();
    }

    /// How long it is until this node stands, if it votes then. `None` while it leads.
    fn due(
        &mut self, group: &Group, turns: &ElectionTurns, seen: &RaftMetrics<Types>,
        heard: Option<(NodeId, Instant)>,
    ) -> Option<Duration> {
        let now = group.now();
        self.follow(seen.vote, now);
        let voters: BTreeSet<NodeId> = seen.membership_config.membership().voter_ids().collect();
        let me = group.node();
        if seen.state.is_leader() {
            return None;
        }
        let breaks_promise = is_planted(Bug::NoVoteRefusal) && heard.is_none();
        if self.stood.is_none() && (voters == BTreeSet::from([me]) || breaks_promise) {
            return Some(Duration::ZERO);
        }
        // Its vote is with the leader that it heard. It is not once it has voted for a candidate.
        let heard = heard.filter(|(leader, _)| term_led(&seen.vote, *leader).is_some());
        let turn = heard.and_then(|(leader, at)| {
            turns.until_next(Place::of(me, leader, &voters)?, now.since(at))
        });
        if turn.is_some() {
            return turn;
        }
        let promise = if seen.vote.committed { turns.promise } else { Duration::ZERO };
        let heard = heard.map(|(_, at)| at.after(turns.promise));
        let last = self.since.after(promise).max(heard.unwrap_or_default());
        let last = last.max(self.stood.unwrap_or_default());
        let pause = pause(&group.config, self.share, group.slowest_flush(), self.lost);
        Some(last.after(pause).since(now))
    }

    /// Follows this node's vote, as it is at `now`.
    fn follow(&mut self, vote: Vote, now: Instant) {
        if vote == self.vote {
            return;
        }
        let is_lost = !self.vote.committed && !vote.committed;
        self.lost = if is_lost { self.lost + 1 } else { 0 };
        (self.vote, self.since, self.share) = (vote, now, draw_share());
    }
}

/// A random number from 0 up to 1.
fn draw_share() -> f64 {
    random::u64() as f64 / u64::MAX as f64
}

/// How long this node waits before it stands, or stands again, after `lost` terms without a leader. `slowest` is how long a
/// write takes to the slowest disk that is known; `share` says where between the shortest and the longest time.
fn pause(config: &GroupConfig, share: f64, slowest: Duration, lost: u32) -> Duration {
    let timeout = config.follower_lease();
    let writes = match slowest <= config.quick_flush() {
        true => Duration::ZERO,
        false => (WRITES * slowest * (1 << lost.min(DOUBLINGS_MAX))).min(WAIT_MAX),
    };
    timeout / 2 + (timeout / 2).mul_f64(share) + writes + writes.mul_f64(share)
}

// When a follower that hears nothing of its leader stands for election.
//
// Followers take turns, one heartbeat interval long. Raft alone would let each wait for a random part of its
// election timeout, so that two seldom stand at once. With turns nobody waits for a random time. An election
// usually ends before the next turn begins; where it takes longer, the turn passes (`Candidacy`).
//
// The first turn begins one heartbeat interval after the promise has ended. Followers whose last heartbeat got
// lost are at most that far apart, so by then the other promises have ended as well, and a majority can agree.
// The follower after the leader, in the order of ids, has the first turn. So leaders that die one after the
// other do not all have the same successor.
//
// Invariant: no turn begins before this node's own promise has ended.

/// The lengths of a promise and of a turn.
#[derive(Debug, Clone, Copy)]
pub struct ElectionTurns {
    promise: Duration,
    turn: Duration,
}

/// The place of one follower in the order of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// How many followers have their turn before this one.
    before: u32,
    /// How many followers take turns.
    followers: u32,
}

impl Place {
    /// The place of `me` among the voters that followed `leader`. `None` if it has none: it does not vote, or
    /// it is the leader.
    pub fn of(me: NodeId, leader: NodeId, voters: &BTreeSet<NodeId>) -> Option<Place> {
        let after = voters.range(leader..).filter(|id| **id != leader);
        let order = after.chain(voters.range(..leader));
        let before = order.clone().position(|id| *id == me)?;
        Some(Place {
            before: u32::try_from(before).ok()?,
            followers: u32::try_from(order.count()).ok()?,
        })
    }
}

impl ElectionTurns {
    /// The turns of a group with these timings.
    pub fn new(config: &GroupConfig) -> Self {
        ElectionTurns {
            promise: config.follower_lease(),
            turn: Duration::from_millis(config.heartbeat_ms),
        }
    }

    /// How long it is until the next turn of the follower at `place`, which heard the leader `silence` ago.
    /// `None` if it has no further turn: an election has been due for as long as a promise lasts, and no turn
    /// brought a leader. Then it stands at random times.
    pub fn until_next(&self, place: Place, silence: Duration) -> Option<Duration> {
        let first = self.promise + self.turn * (1 + place.before);
        let all = self.turn * place.followers;
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
        let place = |me| Place::of(me, leader, &set).map(|place| place.before);
        voters.iter().map(|me| (*me, place(*me))).collect()
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
        assert_eq!(Place::of(3, 1, &voters), None);
        assert_eq!(Place::of(1, 1, &BTreeSet::from([1])), None);
    }

    /// When the turns of each follower begin, in milliseconds after the leader was heard.
    fn turns(heartbeat_ms: u64, followers: u32) -> Vec<Vec<u64>> {
        let turns = ElectionTurns {
            promise: Duration::from_millis(300),
            turn: Duration::from_millis(heartbeat_ms),
        };
        let begin = |before| {
            let place = Place { before, followers };
            let mut silence = Duration::ZERO;
            let next = || {
                silence += turns.until_next(place, silence)?;
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

    /// The shortest and the longest pause, in milliseconds, with an election timeout of 300.
    fn pauses(slowest_ms: u64, lost: u32) -> (u128, u128) {
        let config = GroupConfig {
            set: 1,
            heartbeat_ms: 50,
            election_timeout_ms: 300,
            lease_ms: 200,
            log_keep_bytes: 0,
            log_hold_times: 1,
            snapshot_bytes_per_second: 1,
        };
        let slowest = Duration::from_millis(slowest_ms);
        let of = |share| pause(&config, share, slowest, lost).as_millis();
        (of(0.0), of(1.0))
    }

    #[test]
    fn a_node_stands_again_soon_if_disks_are_quick_and_after_several_writes_if_they_are_slow() {
        assert_eq!(pauses(0, 0), (150, 300));
        assert_eq!(pauses(75, 5), (150, 300), "however many terms were lost");
        assert_eq!(pauses(1_000, 0), (3_150, 6_300));
        assert_eq!(pauses(1_000, 1), (6_150, 12_300));
        assert_eq!(pauses(1_000, 3), (24_150, 48_300));
        assert_eq!(pauses(1_000, 90), (30_150, 60_300), "it is bounded");
        assert_eq!(pauses(86_400_000, 4), (30_150, 60_300));
    }

    #[test]
    fn terms_without_a_leader_count_until_there_is_one() {
        let start = Instant::from_nanos(1);
        let mut candidacy = Candidacy {
            vote: Vote::new_committed(3, 1),
            since: start,
            stood: None,
            lost: 0,
            share: 0.0,
        };
        let mut lost_after = |vote, ms| {
            candidacy.follow(vote, start.after(Duration::from_millis(ms)));
            (candidacy.lost, candidacy.since.since(start).as_millis())
        };
        assert_eq!(lost_after(Vote::new_committed(3, 1), 5), (0, 0), "it is the same vote");
        assert_eq!(lost_after(Vote::new(4, 2), 10), (0, 10), "an election begins");
        assert_eq!(lost_after(Vote::new(5, 3), 20), (1, 20));
        assert_eq!(lost_after(Vote::new(6, 2), 30), (2, 30));
        assert_eq!(lost_after(Vote::new_committed(6, 2), 40), (0, 40));
    }

    #[test]
    fn after_the_last_turn_there_is_none_however_long_the_silence_lasts() {
        let turns =
            ElectionTurns { promise: Duration::from_millis(300), turn: Duration::from_millis(50) };
        let place = Place { before: 0, followers: 2 };
        for silence_ms in [550, 600, 86_400_000] {
            let silence = Duration::from_millis(silence_ms);
            assert_eq!(turns.until_next(place, silence), None, "{silence_ms} ms");
        }
    }
}
