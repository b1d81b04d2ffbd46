//! How this node came to lead, for the metrics.
//!
//! Invariant: nothing is decided by it.

use parking_lot::Mutex;

use crate::{clock::Instant, consensus::lease::TermLease};

/// How this node came to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderChange {
    /// The term that it leads since.
    pub term: u64,
    /// When it last heard another leader. `None` if it heard none since it started, or since it last led.
    pub heard: Option<Instant>,
    /// When it first asked for votes after that. `None` for a sole voter, which asks nobody.
    pub stood: Option<Instant>,
    /// When it noticed that it was elected.
    pub elected: Instant,
    /// When it noticed that Raft's empty entry of its term was applied.
    pub applied: Instant,
}

/// The last leader change to this node.
#[derive(Debug, Default)]
pub struct LastLeaderChange(Mutex<Option<LeaderChange>>);

impl LastLeaderChange {
    /// The leader change that began `term`, if that was the last one.
    pub fn of(&self, term: u64) -> Option<LeaderChange> {
        self.0.lock().filter(|leader_change| leader_change.term == term)
    }

    /// Raft's empty entry of the term of `lease` was applied at `applied`. Another leader was last heard at `heard`,
    /// and the candidacy that ended began at `stood`. Ignored after the first time in a term.
    pub fn record(
        &self, lease: &TermLease, heard: Option<Instant>, stood: Option<Instant>, applied: Instant,
    ) {
        let mut last = self.0.lock();
        let before = *last;
        if before.is_some_and(|before| before.term == lease.term()) {
            return;
        }
        *last = Some(LeaderChange {
            term: lease.term(),
            // If nobody was heard since the leader change before, this node itself was the last leader.
            heard: heard.filter(|at| before.is_none_or(|before| *at > before.elected)),
            stood,
            elected: lease.began(),
            applied,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::consensus::lease::{LeaseClock, Quorums};

    struct Stopped;

    impl crate::clock::Clock for Stopped {
        fn now(&self) -> Instant {
            ms(1_000)
        }

        fn wall_ms(&self) -> u64 {
            0
        }
    }

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn lease(term: u64) -> Arc<TermLease> {
        let clock = LeaseClock::new(Arc::new(Stopped), 1, Duration::from_millis(200));
        clock.begin(term, Quorums::default())
    }

    #[test]
    fn the_first_record_of_a_term_stays_and_that_of_another_term_replaces_it() {
        let last = LastLeaderChange::default();
        last.record(&lease(3), Some(ms(650)), Some(ms(995)), ms(1_007));
        last.record(&lease(3), Some(ms(660)), None, ms(2_000));
        let first = LeaderChange {
            term: 3,
            heard: Some(ms(650)),
            stood: Some(ms(995)),
            elected: ms(1_000),
            applied: ms(1_007),
        };
        assert_eq!(last.of(3), Some(first));
        assert_eq!(last.of(4), None);
        last.record(&lease(4), Some(ms(1_500)), None, ms(2_000));
        assert_eq!(last.of(3), None);
        assert_eq!(last.of(4).and_then(|seen| seen.heard), Some(ms(1_500)));
    }

    #[test]
    fn a_node_that_was_itself_the_last_leader_heard_no_other() {
        let last = LastLeaderChange::default();
        last.record(&lease(3), Some(ms(650)), Some(ms(995)), ms(1_007));
        last.record(&lease(4), Some(ms(650)), Some(ms(999)), ms(1_008));
        assert_eq!(last.of(4).map(|seen| seen.heard), Some(None));
    }
}
