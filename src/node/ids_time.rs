//! The time by which this node leases worker ids when it leads, and which it tells to makers of ids: the wall clock's,
//! without its jumps.
//!
//! No promise rests on it: it decides when a worker id is free again, and how far a lease reaches.

use std::sync::Arc;

use parking_lot::Mutex;
use ratchet_ids::{Observed, SteadyTime};

use crate::{clock::Clock, metrics::Metrics};

/// The time by which worker ids are leased. Clones show the same.
#[derive(Clone)]
pub struct IdsTime {
    clock: Arc<dyn Clock>,
    time: Arc<Mutex<SteadyTime>>,
    metrics: Arc<Metrics>,
}

impl IdsTime {
    /// The time that `clock` shows.
    pub fn new(clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        let time = SteadyTime::new(clock.now().as_nanos(), clock.wall_ms());
        IdsTime { clock, time: Arc::new(Mutex::new(time)), metrics }
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        let (now, wall_ms) = (self.clock.now().as_nanos(), self.clock.wall_ms());
        let mut time = self.time.lock();
        self.note(time.observe(now, wall_ms), "the wall clock");
        time.now_ms(now)
    }

    /// Another node, which leads, has told its time. This node goes on from there if it leads later.
    pub fn told(&self, leader_ms: u64) {
        let now = self.clock.now().as_nanos();
        self.note(self.time.lock().told(now, leader_ms), "the leader's clock");
    }

    fn note(&self, observed: Observed, after: &'static str) {
        if let Observed::Followed { step_ms } = observed {
            self.metrics.clock_steps.inc();
            tracing::warn!(
                step_ms,
                after,
                "the time of ids follows a clock that differs; check the machines' clocks"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::clock::Instant;

    const HOUR_MS: u64 = 3_600_000;

    /// A clock that shows what a test sets, both in milliseconds.
    #[derive(Default)]
    struct SetClock {
        elapsed: AtomicU64,
        wall: AtomicU64,
    }

    impl Clock for SetClock {
        fn now(&self) -> Instant {
            Instant::from_nanos(self.elapsed.load(Ordering::SeqCst) * 1_000_000)
        }

        fn wall_ms(&self) -> u64 {
            self.wall.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn a_jump_of_the_wall_clock_is_not_followed_at_once_and_the_leaders_time_is() {
        let clock = Arc::new(SetClock::default());
        let set = |elapsed_ms, wall_ms| {
            clock.elapsed.store(elapsed_ms, Ordering::SeqCst);
            clock.wall.store(wall_ms, Ordering::SeqCst);
        };
        set(0, 10 * HOUR_MS);
        let time = IdsTime::new(clock.clone(), Metrics::new());
        set(1_000, 11 * HOUR_MS);
        assert_eq!(time.now_ms(), 10 * HOUR_MS + 1_000);
        set(2_000, 2 * HOUR_MS);
        assert_eq!(time.now_ms(), 10 * HOUR_MS + 2_000);
        assert_eq!(time.metrics.clock_steps.get(), 0);
        time.told(12 * HOUR_MS);
        assert_eq!(time.now_ms(), 12 * HOUR_MS);
        assert_eq!(time.metrics.clock_steps.get(), 1);
    }
}
