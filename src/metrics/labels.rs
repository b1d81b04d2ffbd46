//! Metrics with a label: counters and seconds by the values of an enum, and gauges by peer. The values of an enum are known at
//! compile time, so those metrics are all shown from the start.

use std::{collections::BTreeMap, fmt, marker::PhantomData, sync::Arc};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeGaugeValue, EncodeMetric, MetricEncoder},
    metrics::{MetricType, TypedMetric, counter::Counter},
};

use super::gauge::Seconds;

/// A label whose values are known at compile time.
pub trait Label: fmt::Debug + Copy + Send + Sync + 'static {
    /// The label's name.
    const NAME: &'static str;
    /// The label's values.
    const VALUES: &'static [&'static str];

    /// The index of this value in [`Label::VALUES`].
    fn place(self) -> usize;
}

/// A metric for each value of a label. All are shown from the start. Clones share their values.
#[derive(Debug)]
pub struct By<L, M> {
    each: Arc<[M]>,
    label: PhantomData<L>,
}

/// A counter for each value of a label.
pub type Counters<L> = By<L, Counter>;
/// A gauge of seconds for each value of a label.
pub type SecondsBy<L> = By<L, Seconds>;

impl<L: Label, M> By<L, M> {
    /// The metric of `value`.
    pub fn of(&self, value: L) -> &M {
        &self.each[value.place()]
    }

    /// Each value, with its metric.
    pub(super) fn each(&self) -> impl Iterator<Item = (&'static str, &M)> {
        L::VALUES.iter().copied().zip(self.each.iter())
    }
}

impl<L: Label> Counters<L> {
    /// Adds `n` to the counter of `value`.
    pub fn add(&self, value: L, n: u64) {
        self.of(value).inc_by(n);
    }

    /// The counter of `value`.
    pub fn get(&self, value: L) -> u64 {
        self.of(value).get()
    }
}

impl<L: Label> SecondsBy<L> {
    /// Sets the gauge of `value`.
    pub fn set(&self, value: L, seconds: f64) {
        self.of(value).set(seconds);
    }
}

impl<L: Label, M: Default> Default for By<L, M> {
    fn default() -> Self {
        By { each: L::VALUES.iter().map(|_| M::default()).collect(), label: PhantomData }
    }
}

impl<L, M> Clone for By<L, M> {
    fn clone(&self) -> Self {
        By { each: self.each.clone(), label: PhantomData }
    }
}

impl<L, M> EncodeMetric for By<L, M>
where
    L: Label,
    M: EncodeMetric + TypedMetric + fmt::Debug + 'static,
{
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (value, metric) in self.each() {
            let labels = [(L::NAME, value)];
            metric.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }
}

/// A counter for each pair of values of two labels. All are shown from the start. Clones share their counts.
#[derive(Debug)]
pub struct PairCounters<A, B>(By<A, Counters<B>>);

impl<A: Label, B: Label> PairCounters<A, B> {
    /// The counters of `first`.
    pub fn of(&self, first: A) -> &Counters<B> {
        self.0.of(first)
    }
}

impl<A: Label, B: Label> Default for PairCounters<A, B> {
    fn default() -> Self {
        PairCounters(By::default())
    }
}

impl<A, B> Clone for PairCounters<A, B> {
    fn clone(&self) -> Self {
        PairCounters(self.0.clone())
    }
}

impl<A: Label, B: Label> EncodeMetric for PairCounters<A, B> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (first, counters) in A::VALUES.iter().zip(self.0.each.iter()) {
            for (second, counter) in B::VALUES.iter().zip(counters.each.iter()) {
                let labels = [(A::NAME, *first), (B::NAME, *second)];
                counter.encode(encoder.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        Counter::<u64>::TYPE
    }
}

/// A gauge for each other member. All are set anew for each scrape, so that removed members disappear.
#[derive(Debug, Clone)]
pub struct PeerGauges<N>(Arc<Mutex<BTreeMap<u64, N>>>);

impl<N> Default for PeerGauges<N> {
    fn default() -> Self {
        PeerGauges(Arc::default())
    }
}

impl<N> PeerGauges<N> {
    /// Replaces all gauges.
    pub fn set(&self, values: impl IntoIterator<Item = (u64, N)>) {
        *self.0.lock() = values.into_iter().collect();
    }

    /// Tells of each peer, by its number as text.
    pub(super) fn try_each(&self, mut tell: impl FnMut(&str, &N) -> fmt::Result) -> fmt::Result {
        self.0.lock().iter().try_for_each(|(peer, value)| tell(&peer.to_string(), value))
    }
}

impl<N: EncodeGaugeValue + fmt::Debug + Send + Sync + 'static> EncodeMetric for PeerGauges<N> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        self.try_each(|peer, value| encoder.encode_family(&[("peer", peer)])?.encode_gauge(value))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

impl Label for tonic::Code {
    const NAME: &'static str = "code";
    /// In the order of gRPC's numbers.
    const VALUES: &'static [&'static str] = &[
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];

    fn place(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn every_code_is_labelled_with_grpcs_name() {
        let name = |code: Code| Code::VALUES[code.place()];
        for code in (0..Code::VALUES.len()).map(|n| Code::from_i32(n as i32)) {
            // InvalidArgument is INVALID_ARGUMENT; "Ok" alone is one word.
            let squeezed = name(code).replace('_', "").to_lowercase();
            assert_eq!(squeezed, format!("{code:?}").to_lowercase());
        }
        assert_eq!(name(Code::Unauthenticated), "UNAUTHENTICATED");
        assert_eq!(Code::from_i32(Code::VALUES.len() as i32), Code::Unknown);
    }
}
