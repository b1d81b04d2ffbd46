//! Simulated time, and the clocks of nodes, which run faster or slower than it.
//!
//! The product's timers are tokio's, which turmoil advances: they keep the true time. Leases are counted
//! on a node's own [`Clock`], which drifts.

use std::{sync::Mutex, time::Duration};

use ratchet::clock::{Clock, Instant};

/// The true time since the start of the run.
pub fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

/// Sleeps until the true time `at`.
pub async fn sleep_until(at: Duration) {
    tokio::time::sleep(at.saturating_sub(now())).await;
}

/// The clock of one node. It goes on while its node is down.
#[derive(Debug)]
pub struct NodeClock(Mutex<Drift>);

#[derive(Debug)]
struct Drift {
    /// When the rate was last changed, in true time.
    since: Duration,
    showed: Duration,
    rate: f64,
}

/// What clocks of day show that began at 0, in milliseconds since 1970: 5 000 s before midnight. Machines' clocks begin up
/// to 10 000 s later, so that some show another date than others.
const WALL_MS: u64 = 20_000 * 86_400_000 - 5_000_000;

impl NodeClock {
    /// A clock that shows `offset` at the start of the run.
    pub fn new(offset: Duration, rate: f64) -> Self {
        NodeClock(Mutex::new(Drift { since: Duration::ZERO, showed: offset, rate }))
    }

    /// From the true time `at` on, it runs at `rate`.
    pub fn set_rate(&self, at: Duration, rate: f64) {
        let mut drift = self.0.lock().expect("a clock");
        drift.showed = drift.at(at);
        drift.since = at;
        drift.rate = rate;
    }
}

impl Drift {
    fn at(&self, now: Duration) -> Duration {
        self.showed + now.saturating_sub(self.since).mul_f64(self.rate)
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Instant {
        let shows = self.0.lock().expect("a clock").at(now());
        Instant::from_nanos(u64::try_from(shows.as_nanos()).expect("a short run"))
    }

    fn wall_ms(&self) -> u64 {
        WALL_MS + self.now().as_nanos() / 1_000_000
    }
}
