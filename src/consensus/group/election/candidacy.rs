//! When this node stands for election: in its turn, and, if turns bring no leader, at a random time.
//!
//! The random time is half an election timeout to a whole one after the last attempt, vote or message of a leader. Where disks
//! are slow it waits for several writes more, and twice as long for each term in which nobody came to lead: an election that is
//! under way takes what the disks take, and another one would void its votes.

use std::{collections::BTreeSet, time::Duration};

use openraft::RaftMetrics;

use super::turns::{ElectionTurns, Rank};
use crate::{
    clock::Instant,
    consensus::group::{Group, config::GroupConfig},
    planted_bugs::{Bug, is_planted},
    random,
    sequence::NodeId,
    storage::{Types, Vote, term_led},
};

/// How many times as long as a write to the slowest disk it waits: a candidate's vote, the others', the leader's vote.
const WRITES: u32 = 3;
/// How many lost terms in a row double the wait.
const DOUBLINGS_MAX: u32 = 4;
/// It waits no longer than this for the disks.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The elections since this node heard a leader last, as far as it knows them.
pub(super) struct Candidacy {
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
    pub(super) fn new(group: &Group) -> Self {
        let (vote, since) = (group.metrics().vote, group.now());
        Candidacy { vote, since, stood: None, lost: 0, share: draw_share() }
    }

    /// It stands at `now`.
    pub(super) fn begin(&mut self, now: Instant) {
        self.stood = Some(now);
        self.share = draw_share();
    }

    /// How long it is until this node stands, if it votes then. `None` while it leads.
    pub(super) fn due(
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
            turns.until_next(Rank::of(me, leader, &voters)?, now.since(at))
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
    let timeout = config.promise_time();
    let writes = match slowest <= config.quick_flush() {
        true => Duration::ZERO,
        false => (WRITES * slowest * (1 << lost.min(DOUBLINGS_MAX))).min(WAIT_MAX),
    };
    timeout / 2 + (timeout / 2).mul_f64(share) + writes + writes.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shortest and the longest pause, in milliseconds, with an election timeout of 300.
    fn pauses(slowest_ms: u64, lost: u32) -> (u128, u128) {
        let config = GroupConfig {
            set: 1,
            heartbeat_ms: 50,
            election_timeout_ms: 300,
            lease_ms: 200,
            log_hold_times: 1,
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
}
