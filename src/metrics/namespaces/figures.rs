//! The metrics with a label for the namespace: one shows one figure of each place.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};

use super::NamespaceMetrics;
use crate::{
    metrics::{labels::Label, skip_cause::SkipCause},
    proto::{name_of_reason, v1::Reason},
};

/// The figure that a metric shows of each place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Numbers that were handed out.
    Numbers,
    /// Calls.
    Calls,
    /// Refused calls, by reason.
    Refusals,
    /// Skipped numbers, by cause.
    SkippedNumbers,
    /// Days until limits are reached.
    DaysLeft,
}

/// A metric with a label for the namespace.
#[derive(Debug, Clone)]
pub struct OfNamespaces {
    places: NamespaceMetrics,
    figure: Figure,
}

impl NamespaceMetrics {
    /// A metric that shows one figure of each place.
    pub fn show(&self, figure: Figure) -> OfNamespaces {
        OfNamespaces { places: self.clone(), figure }
    }
}

impl OfNamespaces {
    /// The places that it shows.
    pub fn places(&self) -> &NamespaceMetrics {
        &self.places
    }
}

impl EncodeMetric for OfNamespaces {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for place in &self.places.0.table.load().places {
            let namespace = ("namespace", &*place.name);
            match self.figure {
                Figure::Numbers => {
                    encode_count(encoder.encode_family(&[namespace])?, &place.namespace_numbers)?;
                }
                Figure::Calls => {
                    encode_count(encoder.encode_family(&[namespace])?, &place.namespace_calls)?;
                }
                Figure::Refusals => {
                    for (reason, count) in (0..).zip(&place.namespace_refusals) {
                        if count.load(Relaxed) > 0
                            && let Ok(reason) = Reason::try_from(reason)
                        {
                            let labels = [namespace, ("reason", name_of_reason(reason))];
                            encode_count(encoder.encode_family(&labels)?, count)?;
                        }
                    }
                }
                Figure::SkippedNumbers => {
                    let counts = SkipCause::VALUES.iter().zip(&place.namespace_skipped_numbers);
                    for (cause, count) in counts {
                        let labels = [namespace, (SkipCause::NAME, *cause)];
                        encode_count(encoder.encode_family(&labels)?, count)?;
                    }
                }
                Figure::DaysLeft => {
                    for (limit, days) in &*place.namespace_days_left.lock() {
                        let labels = [namespace, ("limit", *limit)];
                        encoder.encode_family(&labels)?.encode_gauge(days)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        match self.figure {
            Figure::DaysLeft => MetricType::Gauge,
            Figure::Numbers | Figure::Calls | Figure::Refusals | Figure::SkippedNumbers => {
                MetricType::Counter
            }
        }
    }
}

fn encode_count(mut encoder: MetricEncoder<'_>, count: &AtomicU64) -> fmt::Result {
    encoder.encode_counter::<NoLabelSet, u64, f64>(&count.load(Relaxed), None)
}
