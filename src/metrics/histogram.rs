//! A histogram of durations that many threads add to at the same time.
//!
//! Invariant: adding costs two atomic additions and takes no lock. (Buckets are read one after the other,
//! so a reading may miss durations that are added meanwhile.)

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, TypedMetric},
};

/// The first bucket ends at 2^13 ns, about 8 us.
const FIRST_POWER: u32 = 13;
/// Two buckets for each doubling up to 2^33 ns, about 8.6 s, and one for longer durations.
const BUCKETS: usize = 42;

#[derive(Debug)]
struct Counts {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

/// A histogram of durations. Clones share their counts.
#[derive(Debug, Clone)]
pub struct Histogram(Arc<Counts>);

impl Default for Histogram {
    fn default() -> Self {
        Histogram(Arc::new(Counts {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            nanos: AtomicU64::new(0),
        }))
    }
}

impl Histogram {
    /// Adds a duration `times` times.
    pub fn observe(&self, span: Duration, times: u64) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.0.buckets[bucket_of(nanos)].fetch_add(times, Relaxed);
        self.0.nanos.fetch_add(nanos.saturating_mul(times), Relaxed);
    }

    /// All durations together.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.0.nanos.load(Relaxed))
    }

    /// How many durations were added.
    pub fn count(&self) -> u64 {
        self.0.buckets.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// The durations that were added so far.
    pub fn read(&self) -> HistogramReading {
        HistogramReading(std::array::from_fn(|bucket| self.0.buckets[bucket].load(Relaxed)))
    }

    /// The upper bounds of the buckets, in seconds, and how many durations are in each.
    fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = (0..BUCKETS).map(bound);
        let counts = self.0.buckets.iter().map(|count| count.load(Relaxed));
        bounds.zip(counts).collect()
    }
}

/// How many durations a histogram had in each bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramReading([u64; BUCKETS]);

impl Default for HistogramReading {
    fn default() -> Self {
        HistogramReading([0; BUCKETS])
    }
}

impl HistogramReading {
    /// Adds the durations of another histogram.
    pub fn add(&mut self, other: &HistogramReading) {
        for (mine, others) in self.0.iter_mut().zip(&other.0) {
            *mine += others;
        }
    }

    /// The durations that were added since an earlier reading.
    pub fn since(&self, earlier: &HistogramReading) -> HistogramReading {
        HistogramReading(std::array::from_fn(|bucket| {
            self.0[bucket].saturating_sub(earlier.0[bucket])
        }))
    }

    /// How many durations there are.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The upper bound of the bucket below which `share` (0 to 1) of the durations lie; `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0);
        let mut seen = 0;
        let reached = self.0.iter().position(|count| {
            seen += count;
            seen as f64 >= wanted
        });
        // The last bucket has no bound; the one before it stands for it.
        reached.map(|bucket| Duration::from_secs_f64(bound(bucket.min(BUCKETS - 2))))
    }
}

/// The first bucket whose upper bound is not below `nanos`. The bounds are 2^13 ns, 1.5 x 2^13 ns, 2^14 ns,
/// 1.5 x 2^14 ns, and so on.
fn bucket_of(nanos: u64) -> usize {
    let below = nanos.saturating_sub(1).max(1 << (FIRST_POWER - 1));
    let power = below.ilog2();
    let upper_half = (below >> (power - 1)) & 1;
    let bucket = u64::from(2 * (power + 1 - FIRST_POWER)) + upper_half;
    (bucket.saturating_sub(1) as usize).min(BUCKETS - 1)
}

/// The upper bound of a bucket, in seconds.
fn bound(bucket: usize) -> f64 {
    if bucket == BUCKETS - 1 {
        return f64::INFINITY;
    }
    let power = 1u64 << (FIRST_POWER as usize + bucket / 2);
    let nanos = if bucket.is_multiple_of(2) { power } else { power / 2 * 3 };
    nanos as f64 / 1e9
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let buckets = self.buckets();
        // The count is the sum of this reading of the buckets, so that they agree.
        let count = buckets.iter().map(|(_, count)| count).sum();
        let seconds = self.0.nanos.load(Relaxed) as f64 / 1e9;
        encoder.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_whose_bound_is_not_below_it() {
        let mut spans = vec![0, 1, u64::MAX];
        for bucket in 0..BUCKETS - 1 {
            let nanos = (bound(bucket) * 1e9).round() as u64;
            spans.extend([nanos - 1, nanos, nanos + 1]);
        }
        for nanos in spans {
            let first = (0..BUCKETS).find(|&bucket| nanos as f64 / 1e9 <= bound(bucket));
            assert_eq!(Some(bucket_of(nanos)), first.or(Some(BUCKETS - 1)), "{nanos} ns");
        }
    }

    #[test]
    fn a_quantile_is_the_bound_of_the_bucket_that_holds_it() {
        let histogram = Histogram::default();
        assert_eq!(histogram.read().quantile(0.5), None);
        histogram.observe(Duration::from_micros(100), 98);
        let before = histogram.read();
        assert_eq!(before.quantile(0.99), before.quantile(0.5));
        histogram.observe(Duration::from_secs(100), 2);
        let now = histogram.read();
        let near = |span: Option<Duration>, seconds: f64| {
            let ratio = span.expect("a duration").as_secs_f64() / seconds;
            (1.0..1.5).contains(&ratio)
        };
        assert!(near(now.quantile(0.5), 100e-6));
        assert!(near(now.quantile(0.99), 8.0));
        assert_eq!(now.since(&before).count(), 2);
    }

    #[test]
    fn bounds_grow_by_about_the_square_root_of_two() {
        for bucket in 1..BUCKETS - 1 {
            let ratio = bound(bucket) / bound(bucket - 1);
            assert!((1.3..=1.5).contains(&ratio), "bucket {bucket}: {ratio}");
        }
    }
}
