//! Metrics with a label: counters and seconds by the values of an enum, and gauges by peer.

use std::{collections::BTreeMap, fmt, marker::PhantomData, sync::Arc};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeGaugeValue, EncodeMetric, MetricEncoder},
    metrics::{MetricType, TypedMetric, counter::Counter},
};

use super::values::Seconds;

/// A label whose values are known at compile time.
pub trait Label: fmt::Debug + Copy + Send + Sync + 'static {
    /// The label's name.
    const NAME: &'static str;
    /// The label's values.
    const VALUES: &'static [&'static str];

    /// The index of this value in [`Label::VALUES`].
    fn place(self) -> usize;
}

/// A counter for each value of a label. All are shown from the start. Clones share their counts.
#[derive(Debug)]
pub struct Counters<L> {
    each: Arc<[Counter]>,
    label: PhantomData<L>,
}

impl<L: Label> Counters<L> {
    /// Adds `n` to the counter of `value`.
    pub fn add(&self, value: L, n: u64) {
        self.each[value.place()].inc_by(n);
    }

    /// The counter of `value`.
    pub fn get(&self, value: L) -> u64 {
        self.each[value.place()].get()
    }
}

impl<L: Label> Default for Counters<L> {
    fn default() -> Self {
        Counters {
            each: L::VALUES.iter().map(|_| Counter::default()).collect(),
            label: PhantomData,
        }
    }
}

impl<L> Clone for Counters<L> {
    fn clone(&self) -> Self {
        Counters {
            each: self.each.clone(),
            label: PhantomData,
        }
    }
}

impl<L: Label> EncodeMetric for Counters<L> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (value, counter) in L::VALUES.iter().zip(self.each.iter()) {
            let labels = [(L::NAME, *value)];
            counter.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        Counter::<u64>::TYPE
    }
}

/// A gauge of seconds for each value of a label. All are shown from the start. Clones share their values.
#[derive(Debug)]
pub struct SecondsBy<L> {
    each: Arc<[Seconds]>,
    label: PhantomData<L>,
}

impl<L: Label> SecondsBy<L> {
    /// Sets the gauge of `value`.
    pub fn set(&self, value: L, seconds: f64) {
        self.each[value.place()].set(seconds);
    }
}

impl<L: Label> Default for SecondsBy<L> {
    fn default() -> Self {
        SecondsBy {
            each: L::VALUES.iter().map(|_| Seconds::default()).collect(),
            label: PhantomData,
        }
    }
}

impl<L> Clone for SecondsBy<L> {
    fn clone(&self) -> Self {
        SecondsBy {
            each: self.each.clone(),
            label: PhantomData,
        }
    }
}

impl<L: Label> EncodeMetric for SecondsBy<L> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (value, gauge) in L::VALUES.iter().zip(self.each.iter()) {
            let labels = [(L::NAME, *value)];
            gauge.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
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
}

impl<N: EncodeGaugeValue + fmt::Debug + Send + Sync + 'static> EncodeMetric for PeerGauges<N> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (peer, value) in self.0.lock().iter() {
            let labels = [("peer", *peer)];
            encoder.encode_family(&labels)?.encode_gauge(value)?;
        }
        Ok(())
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
