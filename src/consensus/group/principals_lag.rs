//! Whether this node lacks changes of the principals that a leader knows.
//!
//! Invariant: a reader that sees how many changes a leader knows sees since when this node lacks them.

use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::Duration,
};

use crate::clock::Instant;

/// How long a change of the principals may take from the leader to this node: it takes milliseconds, unless a disk hangs.
const LATE: Duration = Duration::from_secs(1);

/// How far this node is behind the leaders that it heard, in changes of the principals.
#[derive(Debug, Default)]
pub struct PrincipalsLag {
    /// How many changes a leader was heard to know.
    told: AtomicU64,
    /// Since when this node knows of fewer, in nanoseconds of the clock of leases.
    lacked_since: AtomicU64,
}

impl PrincipalsLag {
    /// A leader knows `version` changes, and this node `own`. `now` reads the clock of leases.
    pub fn hear(&self, version: u64, own: u64, now: impl FnOnce() -> Instant) {
        let told = self.told.load(Relaxed);
        if version > told && told <= own {
            self.lacked_since.store(now().as_nanos(), Relaxed);
        }
        // A reader that sees the version sees since when it is lacked.
        self.told.fetch_max(version, Release);
    }

    /// Whether this node, which knows `own` changes, has lacked others for longer than they take. `now` reads the clock of
    /// leases.
    pub fn is_late(&self, own: u64, now: impl FnOnce() -> Instant) -> bool {
        if self.told.load(Acquire) <= own {
            return false;
        }
        let since = Instant::from_nanos(self.lacked_since.load(Relaxed));
        now().since(since) > LATE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> impl Fn() -> Instant {
        move || Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_node_is_late_a_second_after_it_heard_of_a_change_that_it_lacks() {
        let lag = PrincipalsLag::default();
        assert!(!lag.is_late(0, at(9_000)), "no leader was heard");
        lag.hear(3, 2, at(1_000));
        assert!(!lag.is_late(2, at(2_000)));
        assert!(lag.is_late(2, at(2_001)));
        assert!(!lag.is_late(3, at(2_001)), "it knows the change");
    }

    #[test]
    fn further_changes_do_not_put_off_when_a_node_is_late() {
        let lag = PrincipalsLag::default();
        lag.hear(3, 2, at(1_000));
        lag.hear(4, 2, at(1_900));
        assert!(lag.is_late(2, at(2_001)));
        // It has caught up before the next one.
        lag.hear(5, 4, at(3_000));
        assert!(!lag.is_late(4, at(3_500)));
    }
}
