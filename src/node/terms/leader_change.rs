//! Shows how long each phase took of the last leader change to this node: the timeline of a failover.
//!
//! Invariant: the phases follow one another, so that they add up to the time without numbers.

use std::time::Duration;

use super::LedTerms;
use crate::{
    clock::Instant,
    consensus::{LeaderChange, TermLease},
    metrics::LeaderChangePhase,
};

impl LedTerms {
    /// The allocator of the term of `lease` was opened: shows the phases up to here.
    pub(super) fn show_leader_change(&self, lease: &TermLease) {
        let Some(leader_change) = self.group.leader_change(lease.term()) else {
            return;
        };
        let opened = self.clock.now();
        let promise = Duration::from_millis(self.config.election_timeout_ms);
        let gauges = &self.group.set_metrics.leader_change_seconds;
        for (phase, lasted) in phases(&leader_change, promise, opened) {
            gauges.set(phase, lasted.as_secs_f64());
        }
        gauges.set(LeaderChangePhase::answer, 0.0);
        self.awaited_answer.begin(opened);
    }

    /// A request was answered from the allocator. Shows the last phase if it is the first one.
    pub(in crate::node) fn show_first_answer(&self) {
        if let Some(opened) = self.awaited_answer.end() {
            let lasted = self.clock.now().since(opened);
            let gauges = &self.group.set_metrics.leader_change_seconds;
            gauges.set(LeaderChangePhase::answer, lasted.as_secs_f64());
        }
    }
}

/// How long each phase took, up to the opening of the allocator. `promise` is how long a follower keeps out of
/// elections.
fn phases(
    leader_change: &LeaderChange, promise: Duration, opened: Instant,
) -> [(LeaderChangePhase, Duration); 5] {
    let stood = leader_change.stood.unwrap_or(leader_change.elected);
    let silence = leader_change.heard.map_or(Duration::ZERO, |at| stood.since(at));
    let promised = silence.min(promise);
    [
        (LeaderChangePhase::promise, promised),
        (LeaderChangePhase::turn, silence - promised),
        (LeaderChangePhase::election, leader_change.elected.since(stood)),
        (LeaderChangePhase::entry, leader_change.applied.since(leader_change.elected)),
        (LeaderChangePhase::opening, opened.since(leader_change.applied)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: Duration = Duration::from_millis(300);

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// The phases in milliseconds, of a node that is elected 1 s after its clock's start.
    fn lasted(heard: Option<u64>, stood: Option<u64>) -> [u128; 5] {
        let leader_change = LeaderChange {
            term: 2,
            heard: heard.map(ms),
            stood: stood.map(ms),
            elected: ms(1_000),
            applied: ms(1_007),
        };
        phases(&leader_change, PROMISE, ms(1_008)).map(|(_, lasted)| lasted.as_millis())
    }

    #[test]
    fn after_a_crash_the_promise_and_the_turn_are_waited_for() {
        assert_eq!(lasted(Some(650), Some(995)), [300, 45, 5, 7, 1]);
    }

    #[test]
    fn after_a_transfer_the_promise_is_not_waited_for() {
        assert_eq!(lasted(Some(990), Some(995)), [5, 0, 5, 7, 1]);
    }

    #[test]
    fn a_node_that_heard_no_leader_waited_for_none() {
        assert_eq!(lasted(None, Some(995)), [0, 0, 5, 7, 1]);
    }

    #[test]
    fn a_sole_voter_is_elected_at_once() {
        assert_eq!(lasted(None, None), [0, 0, 0, 7, 1]);
    }
}
