//! The result of one event.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::{analysis::Around, skips::Skips, timeline::Timeline};
use crate::{
    recorder::{Records, histogram},
    workers::Failures,
};

/// How many milliseconds a slice of the plotted and reported throughput has.
pub const SLICE_MS: u64 = 20;

/// The answers that callers saw while the load ran.
pub struct Seen {
    pub timeline: Timeline,
    /// The latencies of the answers before the event.
    before: Histogram<u64>,
    /// The latencies of the answers since the event began.
    after: Histogram<u64>,
}

impl Seen {
    /// A record without answers.
    pub fn new() -> Seen {
        Seen { timeline: Timeline::default(), before: histogram(), after: histogram() }
    }

    /// Adds records. `is_before`: all of them were made before the event.
    pub fn add(&mut self, records: &Records, is_before: bool) {
        self.timeline.add(&records.receipts);
        let latencies = if is_before { &mut self.before } else { &mut self.after };
        // It cannot fail: all histograms have the same bounds.
        let _ = latencies.add(&records.latencies);
    }

    /// The time that the longest call took.
    pub fn longest_call(&self) -> Duration {
        Duration::from_nanos(self.before.max().max(self.after.max()))
    }

    /// The 99th percentile of the latencies before the event, and since it began.
    pub fn p99(&self) -> [Duration; 2] {
        [&self.before, &self.after]
            .map(|latencies| Duration::from_nanos(latencies.value_at_quantile(0.99)))
    }
}

/// A leader, and when the first node reported it, in milliseconds after the event began.
pub struct Leader {
    pub term: u64,
    pub node: u64,
    pub ms: i64,
}

/// The result of one event.
pub struct EventResult {
    /// The milliseconds of the load that the event took.
    pub event: Range<u64>,
    pub around: Around,
    pub seen: Seen,
    pub failures: Failures,
    pub skips: Skips,
    /// The leaders, from the start of the load until the skipped numbers were counted.
    pub leaders: Vec<Leader>,
    /// Whether the follower that callers asked leads at the end of the load; `None` if they asked the leader. Its
    /// answers are then no longer forwarded.
    pub asked_follower_leads: Option<bool>,
    /// Why the leader did not hand over, if the cluster said so.
    pub refused: Option<String>,
}

impl EventResult {
    /// How many numbers were skipped.
    pub fn skipped(&self) -> u64 {
        self.skips.values().sum()
    }

    /// How many times another leader took over.
    pub fn leader_changes(&self) -> usize {
        self.leaders.len().saturating_sub(1)
    }

    /// The numbers of each slice of the load. The first slice begins at the returned millisecond, counted from the
    /// event.
    pub fn slices(&self) -> (i64, Vec<u64>) {
        let first = self.event.start % SLICE_MS;
        let starts = (first..self.seen.timeline.end()).step_by(SLICE_MS as usize);
        let slices = starts.map(|at| self.seen.timeline.numbers(at..at + SLICE_MS));
        (first as i64 - self.event.start as i64, slices.collect())
    }

    /// The result as JSON.
    pub fn to_json(&self) -> Value {
        let (slices_from_ms, slices) = self.slices();
        let leaders = self
            .leaders
            .iter()
            .map(|led| json!({"term": led.term, "leader": led.node, "ms": led.ms}));
        let [p99_before, p99_after] = self.seen.p99();
        json!({
            "event_ms": self.event.end - self.event.start,
            "refused": self.refused,
            "before_numbers_per_second": self.around.before,
            "silence_ms": self.around.silence.ms(),
            "silence_from_ms": self.around.silence.from as i64 - self.event.start as i64,
            "first_second_numbers_per_second": self.around.first_second(),
            "first_second_ratio": self.around.first_second_ratio(),
            "seconds_after_numbers_per_second": self.around.seconds_after,
            "recovered_ms": self.around.recovered_ms,
            "errors": self.failures.count,
            "first_error": self.failures.first,
            "longest_call_ms": millis(self.seen.longest_call()),
            "p99_before_ms": millis(p99_before),
            "p99_after_ms": millis(p99_after),
            "skipped": self.skipped(),
            "skipped_by_cause": self.skips,
            "leader_changes": self.leader_changes(),
            "leaders": leaders.collect::<Vec<Value>>(),
            "asked_follower_leads": self.asked_follower_leads,
            "slice_ms": SLICE_MS,
            "slices_from_ms": slices_from_ms,
            "slices_numbers": slices,
        })
    }
}

/// A duration in milliseconds.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The milliseconds from `from` to `to`, which may be earlier.
pub fn millis_between(from: Instant, to: Instant) -> i64 {
    match to.checked_duration_since(from) {
        Some(after) => after.as_millis() as i64,
        None => -((from - to).as_millis() as i64),
    }
}
