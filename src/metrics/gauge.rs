//! The types of gauges, and what they hold.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::gauge;

/// A gauge of whole numbers.
pub type Gauge = gauge::Gauge;

/// A gauge of seconds.
pub type Seconds = gauge::Gauge<f64, AtomicU64>;

/// Converts a value for a gauge, which holds at most 2^63 - 1: a larger value becomes that.
pub fn whole(figure: impl TryInto<i64>) -> i64 {
    figure.try_into().unwrap_or(i64::MAX)
}
