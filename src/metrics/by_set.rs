//! Metrics that each set has: how they are declared, and how those of all sets are shown as one, with the label `set`.
//!
//! Invariant: a metric is described once, however many sets there are.

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeGaugeValue, EncodeMetric, MetricEncoder},
    metrics::{MetricType, TypedMetric},
};

use super::labels::{By, Label, PeerGauges};

/// The label's name.
const SET: &str = "set";

/// Declares a struct of metrics that each set has. Names and help are as for `metrics!`.
macro_rules! metrics_of_set {
    (
        $(#[doc = $about:literal])+
        $metrics:ident {
            $($(#[doc = $help:literal])+ $name:ident: $kind:ty,)*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Default)]
        pub struct $metrics {
            $($(#[doc = $help])+ pub $name: $kind,)*
        }

        impl $metrics {
            /// Those of each set, which `registry` shows. There is no set yet.
            pub(super) fn register(
                registry: &mut prometheus_client::registry::Registry,
            ) -> BySet<$metrics> {
                let sets = BySet::<$metrics>::default();
                $(
                    $crate::metrics::declare::register(
                        registry,
                        stringify!($name),
                        concat!($($help),+),
                        sets.show(|of_set| &of_set.$name),
                    );
                )*
                sets
            }
        }
    };
}

/// The metrics of each set, by its number. Clones share them.
#[derive(Debug)]
pub struct BySet<S>(Arc<Mutex<BTreeMap<u32, Arc<S>>>>);

impl<S> Default for BySet<S> {
    fn default() -> Self {
        BySet(Arc::default())
    }
}

impl<S: Default> BySet<S> {
    /// Those of `set`, which are there from now on.
    pub fn of(&self, set: u32) -> Arc<S> {
        self.0.lock().entry(set).or_default().clone()
    }
}

impl<S> BySet<S> {
    /// The metric that `which` finds in those of a set, of all sets.
    pub fn show<M>(&self, which: fn(&S) -> &M) -> OfSets<S, M> {
        OfSets { sets: BySet(self.0.clone()), which }
    }
}

/// One metric, of all sets.
pub struct OfSets<S, M> {
    sets: BySet<S>,
    which: fn(&S) -> &M,
}

impl<S, M> fmt::Debug for OfSets<S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfSets").finish_non_exhaustive()
    }
}

impl<S, M: OfSet> EncodeMetric for OfSets<S, M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (set, metrics) in self.sets.0.lock().iter() {
            (self.which)(metrics).encode_of(&set.to_string(), &mut encoder)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::KIND
    }
}

/// A metric that each set has.
pub trait OfSet {
    /// The metric's type.
    const KIND: MetricType;

    /// Writes that of `set`.
    fn encode_of(&self, set: &str, encoder: &mut MetricEncoder<'_>) -> fmt::Result;
}

impl<M: EncodeMetric + TypedMetric> OfSet for M {
    const KIND: MetricType = M::TYPE;

    fn encode_of(&self, set: &str, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        self.encode(encoder.encode_family(&[(SET, set)])?)
    }
}

impl<L: Label, M: EncodeMetric + TypedMetric> OfSet for By<L, M> {
    const KIND: MetricType = M::TYPE;

    fn encode_of(&self, set: &str, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        for (value, metric) in self.each() {
            metric.encode(encoder.encode_family(&[(L::NAME, value), (SET, set)])?)?;
        }
        Ok(())
    }
}

impl<N: EncodeGaugeValue> OfSet for PeerGauges<N> {
    const KIND: MetricType = MetricType::Gauge;

    fn encode_of(&self, set: &str, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        self.try_each(|peer, value| {
            encoder.encode_family(&[("peer", peer), (SET, set)])?.encode_gauge(value)
        })
    }
}
