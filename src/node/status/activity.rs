//! Notes second by second what this node does, for its status page.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Status, recent_activity::Second};
use crate::{
    allocator::HotKey,
    metrics::{HistogramReading, Interface},
};

impl Status {
    /// The activity of this node in the last seconds, the latest one last.
    pub fn activity(&self) -> Vec<Second> {
        self.recent.seconds()
    }

    /// The keys that get the most numbers; none if this node does not lead.
    pub fn hottest_keys(&self, limit: usize) -> Vec<HotKey> {
        let term = self.led.current();
        term.map_or_else(Vec::new, |term| term.hot_keys().hottest(limit))
    }

    /// Notes each second what this node did.
    pub async fn observe_activity(self: Arc<Self>) {
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let (mut numbers, mut requests) = self.totals();
        let mut before = Instant::now();
        loop {
            ticks.tick().await;
            let (numbers_now, requests_now) = self.totals();
            let answered = requests_now.since(&requests);
            // A tick may come late.
            let seconds = before.elapsed().as_secs_f64().max(1.0);
            before = Instant::now();
            let in_a_second = |count: u64| (count as f64 / seconds) as u64;
            let second = Second {
                numbers: in_a_second(numbers_now.wrapping_sub(numbers)),
                requests: in_a_second(answered.count()),
                p50: answered.quantile(0.5),
                p99: answered.quantile(0.99),
            };
            (numbers, requests) = (numbers_now, requests_now);
            self.recent.add(second);
            if let Some(term) = self.led.current() {
                term.hot_keys().age();
            }
        }
    }

    /// How many numbers this node handed out, and the durations of its clients' requests.
    fn totals(&self) -> (u64, HistogramReading) {
        let metrics = &self.metrics;
        let mut requests = HistogramReading::default();
        for interface in Interface::ALL {
            requests.add(&metrics.request_seconds.of(*interface).read());
        }
        (metrics.numbers.get(), requests)
    }
}
