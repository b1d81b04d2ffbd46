//! Simulated time, and the clocks of nodes, which run faster or slower than it.
//!
//! The product's timers are tokio's, which turmoil advances: they keep the true time. Leases are counted
//! on a node's own [`Clock`], which drifts.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use ratchet::clock::{Clock, Instant};

/// The true time since the start of the run.
pub fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

/// Sleeps until the true time `at`.
pub async fn sleep_until(at: Duration) {
    tokio::time::sleep(at.saturating_sub(now())).await;
}

/// The true time, in milliseconds since 1970.
pub fn true_wall_ms() -> u64 {
    WALL_MS + millis(now())
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).expect("a short run")
}

/// The clock of one node. It goes on while its node is down.
#[derive(Debug)]
pub struct NodeClock {
    drift: Mutex<Drift>,
    /// How far its wall clock is ahead of the time that it would show, in milliseconds.
    wall_off_ms: AtomicI64,
}

#[derive(Debug)]
struct Drift {
    /// When the rate was last changed, in true time.
    since: Duration,
    showed: Duration,
    rate: f64,
}

/// The time of wall clocks that began at 0, in milliseconds since 1970: 5 000 s before midnight. Machines' clocks begin up
/// to 10 000 s later, so that some show another date than others.
const WALL_MS: u64 = 20_000 * 86_400_000 - 5_000_000;

impl NodeClock {
    /// A clock that shows `offset` at the start of the run.
    pub fn new(offset: Duration, rate: f64) -> Self {
        let drift = Mutex::new(Drift { since: Duration::ZERO, showed: offset, rate });
        NodeClock { drift, wall_off_ms: AtomicI64::new(0) }
    }

    /// From the true time `at` on, it runs at `rate`.
    pub fn set_rate(&self, at: Duration, rate: f64) {
        let mut drift = self.drift.lock().expect("a clock");
        drift.showed = drift.at(at);
        drift.since = at;
        drift.rate = rate;
    }

    /// Its wall clock shows the true time now, and drifts from there.
    pub fn tell_the_truth(&self) {
        self.set_wrong(0);
    }

    /// Its wall clock is ahead of the true time by so many milliseconds now, and drifts from there.
    pub fn set_wrong(&self, ahead_ms: i64) {
        let shows_ms = self.now().as_nanos() / 1_000_000;
        let off_ms = millis(now()).cast_signed() - shows_ms.cast_signed() + ahead_ms;
        self.wall_off_ms.store(off_ms, Relaxed);
    }
}

impl Drift {
    fn at(&self, now: Duration) -> Duration {
        self.showed + now.saturating_sub(self.since).mul_f64(self.rate)
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Instant {
        let shows = self.drift.lock().expect("a clock").at(now());
        Instant::from_nanos(u64::try_from(shows.as_nanos()).expect("a short run"))
    }

    fn wall_ms(&self) -> u64 {
        let shows_ms = WALL_MS + self.now().as_nanos() / 1_000_000;
        shows_ms.saturating_add_signed(self.wall_off_ms.load(Relaxed))
    }
}
