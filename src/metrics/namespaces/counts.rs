//! The counters of one namespace.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;

use crate::{
    metrics::{
        consumption::Consumption,
        labels::{Counters, Label},
        skip_cause::SkipCause,
    },
    proto::v1::Reason,
};

/// The name of those without a place.
pub const OTHERS: &str = "(other)";
/// Every reason is below this number.
const REASONS: usize = 64;
/// The limits that days are told of, beside the namespace's max: the first numbers that do not fit a JavaScript number and a
/// signed integer of 32 bits.
const LIMITS: [(&str, u64); 2] = [("2^53", 1 << 53), ("2^31", 1 << 31)];

/// The counters of all namespaces together.
#[derive(Debug, Clone)]
pub(super) struct Totals {
    pub numbers: Counter,
    pub answers: Counter,
    pub skipped: Counters<SkipCause>,
}

/// The counts for one namespace, or for all that have no place. Each field that a metric shows has the
/// metric's name: by it `tests/architecture/lists.rs` finds that the metric is counted.
#[derive(Debug)]
pub struct NamespaceCounts {
    pub(super) name: Box<str>,
    metrics: Totals,
    pub(super) namespace_numbers: AtomicU64,
    pub(super) namespace_calls: AtomicU64,
    /// By the number of the reason.
    pub(super) namespace_refusals: [AtomicU64; REASONS],
    /// By the place of the cause.
    pub(super) namespace_skipped_numbers: [AtomicU64; SkipCause::ALL.len()],
    /// The limits that days are known of, as of the last scrape.
    pub(super) namespace_days_left: Mutex<Vec<(&'static str, f64)>>,
    pub(super) consumption: Mutex<Option<Consumption>>,
}

impl NamespaceCounts {
    pub(super) fn new(name: &str, totals: &Totals) -> Self {
        NamespaceCounts {
            name: name.into(),
            metrics: totals.clone(),
            namespace_numbers: AtomicU64::new(0),
            namespace_calls: AtomicU64::new(0),
            namespace_refusals: [const { AtomicU64::new(0) }; REASONS],
            namespace_skipped_numbers: [const { AtomicU64::new(0) }; SkipCause::ALL.len()],
            namespace_days_left: Mutex::default(),
            consumption: Mutex::default(),
        }
    }

    /// Counts `numbers` that are handed out, with the answers of `answers` keys.
    #[inline]
    pub fn hand_out(&self, numbers: u64, answers: u64) {
        self.metrics.numbers.inc_by(numbers);
        self.metrics.answers.inc_by(answers);
        self.namespace_numbers.fetch_add(numbers, Relaxed);
    }

    /// Counts `numbers` skipped numbers.
    pub fn skip(&self, cause: SkipCause, numbers: u64) {
        self.metrics.skipped.add(cause, numbers);
        self.namespace_skipped_numbers[cause.place()].fetch_add(numbers, Relaxed);
    }

    /// Counts a call.
    pub fn call(&self) {
        self.namespace_calls.fetch_add(1, Relaxed);
    }

    /// Counts a call, or keys of one, that were refused.
    pub fn refuse(&self, reason: Reason, times: u64) {
        // One that has no place here has none in the protocol (a test compares).
        if let Some(count) = self.namespace_refusals.get(reason as usize) {
            count.fetch_add(times, Relaxed);
        }
    }

    /// Notes the greatest ceiling of the namespace, after a bump at `now_ms`. `is_floor` if it lies where it does because a
    /// floor was raised.
    pub fn note_ceiling(&self, now_ms: u64, ceiling: u64, is_floor: bool) {
        if &*self.name == OTHERS {
            return;
        }
        match &mut *self.consumption.lock() {
            Some(known) => known.note(now_ms, ceiling, is_floor),
            unknown => *unknown = Some(Consumption::seen(now_ms, ceiling)),
        }
    }

    /// Works out how many days are left of a namespace with this `max`. `None`: it is deleted, and none are told.
    pub(super) fn measure(&self, max: Option<u64>, now_ms: u64) {
        let known = self.consumption.lock();
        let own = max.map(|max| ("max", max));
        let others = LIMITS.into_iter().filter(|(_, limit)| max.is_some_and(|max| *limit <= max));
        let days = own.into_iter().chain(others).filter_map(|(name, limit)| {
            let days = known.as_ref()?.days_until(limit, now_ms)?;
            Some((name, days))
        });
        *self.namespace_days_left.lock() = days.collect();
    }
}
