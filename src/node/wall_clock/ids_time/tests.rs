//! The time of ids, and the report of a clock that is not believed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::proto::{Code, v1::Reason};

const HOUR_MS: u64 = 3_600_000;

/// A clock that shows what a test sets, both in milliseconds.
#[derive(Default)]
struct SetClock {
    elapsed: AtomicU64,
    wall: AtomicU64,
}

impl SetClock {
    fn set(&self, elapsed_ms: u64, wall_ms: u64) {
        self.elapsed.store(elapsed_ms, Ordering::SeqCst);
        self.wall.store(wall_ms, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.elapsed.load(Ordering::SeqCst) * 1_000_000)
    }

    fn wall_ms(&self) -> u64 {
        self.wall.load(Ordering::SeqCst)
    }
}

/// Voters whose clocks show the own time, or none that is near it.
#[derive(Default)]
struct Others {
    differ: AtomicBool,
}

impl Witnesses for Others {
    fn distance(&self, time_ms: u64, _: Instant, own_ms: u64) -> Option<ClockDistance> {
        Some(match self.differ.load(Ordering::SeqCst) {
            true => ClockDistance { ms: 2 * HOUR_MS, is_ahead: true },
            false => ClockDistance::of(time_ms, own_ms),
        })
    }

    fn are_none(&self) -> bool {
        false
    }
}

fn ids_time(clock: &Arc<SetClock>) -> (IdsTime, Arc<Others>) {
    let others = Arc::new(Others::default());
    let (metrics, clock) = (Metrics::new(), clock.clone());
    let of_set = metrics.of_set(1);
    let time = IdsTime::new(1, clock, others.clone(), 60_000, metrics, of_set);
    (time, others)
}

#[test]
fn a_jump_of_the_wall_clock_is_not_followed_at_once_and_the_leaders_time_is() {
    let clock = Arc::new(SetClock::default());
    clock.set(0, 10 * HOUR_MS);
    let (time, _) = ids_time(&clock);
    assert_eq!(time.now_ms(1).unwrap(), 10 * HOUR_MS);
    clock.set(1_000, 11 * HOUR_MS);
    assert_eq!(time.now_ms(1).unwrap(), 10 * HOUR_MS + 1_000);
    clock.set(2_000, 2 * HOUR_MS);
    assert_eq!(time.now_ms(1).unwrap(), 10 * HOUR_MS + 2_000);
    assert_eq!(time.metrics.clock_steps.get(), 0);
    time.told(12 * HOUR_MS);
    assert_eq!(time.shown_ms(), 12 * HOUR_MS);
    assert_eq!(time.metrics.clock_steps.get(), 1);
}

#[test]
fn a_clock_that_is_not_believed_is_refused_with_what_to_do_and_shown_until_another_node_leads() {
    let clock = Arc::new(SetClock::default());
    clock.set(0, 10 * HOUR_MS);
    let (time, others) = ids_time(&clock);
    others.differ.store(true, Ordering::SeqCst);
    let refused = time.now_ms(1).unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(refused.reason(), Reason::ClockDoubted);
    for part in ["node 1 leads", "1970-01-01T10:00:00.000Z", "7200.000 s ahead", "transfer"] {
        assert!(refused.message().contains(part), "{refused}");
    }
    assert_eq!(
        (time.set_metrics.clock_doubted.get(), time.set_metrics.clock_refusals.get()),
        (1, 1)
    );
    time.follow();
    assert_eq!(time.set_metrics.clock_doubted.get(), 0);
}
