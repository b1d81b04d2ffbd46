//! What the node counts, in Prometheus' terms.
//!
//! Invariant: counting never blocks and never fails; a counter costs one atomic add.

mod histogram;

use std::sync::Arc;

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

pub use histogram::Histogram;

/// Why numbers were skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types)]
pub enum SkipCause {
    /// The last leader went without giving its chunks back: at most one step per section and what the
    /// calls that waited had asked for beyond it, counted when the section is first touched again.
    leader_change,
    /// The fence failed after the numbers were taken.
    fence,
    /// The caller's deadline passed while some of the keys that it asked for at once still waited.
    deadline,
    /// The caller was gone when its numbers were there.
    cancelled,
    /// A graceful handover raised a key to the ceiling of the section that it shares.
    shared_section,
}

/// What a skip is counted under.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SkipLabels {
    cause: SkipCause,
}

/// The node's counters, gauges and histograms.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Numbers handed out by this node as leader.
    pub numbers: Counter,
    /// Requests answered with numbers.
    pub answers: Counter,
    /// Ceilings raised.
    pub bumps: Counter,
    /// Log entries that carried bumps.
    pub bump_entries: Counter,
    /// Answers discarded because the fence failed.
    pub fence_failures: Counter,
    /// Requests forwarded to the leader.
    pub forwards: Counter,
    /// Messages that carried forwarded requests.
    pub forward_batches: Counter,
    /// Numbers skipped.
    skipped: Family<SkipLabels, Counter>,
    /// Until when the lease runs, counted from now, in seconds; negative once it has run out.
    pub lease_remaining: Gauge<f64, std::sync::atomic::AtomicU64>,
    /// Seconds since the sending of what a majority last acknowledged.
    pub lease_age: Gauge<f64, std::sync::atomic::AtomicU64>,
    /// 1 while this node leads.
    pub leads: Gauge,
    /// The Raft term.
    pub term: Gauge,
    /// Connections that clients have.
    pub client_connections: Gauge,
    /// Connections of clients that were refused since there were too many.
    pub client_connections_refused: Counter,
    /// `NextStream` calls under way.
    pub streams: Gauge,
    /// Bytes held by requests that wait, and by answers that are not sent yet.
    pub request_bytes: Gauge,
    /// Requests refused since too many bytes were held already.
    pub requests_refused: Counter,
    /// From a request's arrival to its answer, in seconds.
    pub request_seconds: Histogram,
    /// From a bump's proposal to its chunk, in seconds.
    pub bump_seconds: Histogram,
    /// From a request's forwarding to its answer, in seconds.
    pub forward_seconds: Histogram,
    /// Snapshots that could not be sent, or not be taken in.
    pub snapshot_failures: Counter,
    /// From the beginning of the last snapshot that this node sent to its installation.
    pub snapshot_seconds: Gauge<f64, std::sync::atomic::AtomicU64>,
    /// How large that snapshot was.
    pub snapshot_bytes: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("ratchet");
        let metrics = Metrics {
            numbers: Counter::default(),
            answers: Counter::default(),
            bumps: Counter::default(),
            bump_entries: Counter::default(),
            fence_failures: Counter::default(),
            forwards: Counter::default(),
            forward_batches: Counter::default(),
            skipped: Family::default(),
            lease_remaining: Gauge::default(),
            lease_age: Gauge::default(),
            leads: Gauge::default(),
            term: Gauge::default(),
            client_connections: Gauge::default(),
            client_connections_refused: Counter::default(),
            streams: Gauge::default(),
            request_bytes: Gauge::default(),
            requests_refused: Counter::default(),
            request_seconds: Histogram::default(),
            bump_seconds: Histogram::default(),
            forward_seconds: Histogram::default(),
            snapshot_failures: Counter::default(),
            snapshot_seconds: Gauge::default(),
            snapshot_bytes: Gauge::default(),
            registry: Registry::default(),
        };
        let r = &mut registry;
        r.register(
            "numbers",
            "Numbers handed out by this node as leader",
            metrics.numbers.clone(),
        );
        r.register(
            "answers",
            "Requests answered with numbers",
            metrics.answers.clone(),
        );
        r.register(
            "bumps",
            "Ceilings raised by this node as leader",
            metrics.bumps.clone(),
        );
        r.register(
            "bump_entries",
            "Log entries that carried bumps",
            metrics.bump_entries.clone(),
        );
        r.register(
            "fence_failures",
            "Answers discarded because the fence failed",
            metrics.fence_failures.clone(),
        );
        r.register(
            "forwards",
            "Requests forwarded to the leader",
            metrics.forwards.clone(),
        );
        r.register(
            "forward_batches",
            "Messages that carried forwarded requests",
            metrics.forward_batches.clone(),
        );
        r.register(
            "numbers_skipped",
            "Numbers skipped, by cause (leader_change: at most this many)",
            metrics.skipped.clone(),
        );
        r.register("leads", "1 while this node leads", metrics.leads.clone());
        r.register("term", "The Raft term", metrics.term.clone());
        r.register(
            "client_connections",
            "Connections that clients have",
            metrics.client_connections.clone(),
        );
        r.register(
            "client_connections_refused",
            "Connections of clients that were refused since there were too many",
            metrics.client_connections_refused.clone(),
        );
        r.register(
            "streams",
            "NextStream calls under way",
            metrics.streams.clone(),
        );
        r.register(
            "request_bytes",
            "Bytes held by requests that wait, and by answers that are not sent yet",
            metrics.request_bytes.clone(),
        );
        r.register(
            "requests_refused",
            "Requests refused since too many bytes were held already",
            metrics.requests_refused.clone(),
        );
        for (name, help, gauge) in [
            (
                "lease_remaining",
                "How long the lease still runs; negative once it has run out",
                &metrics.lease_remaining,
            ),
            (
                "lease_age",
                "Since when a majority last acknowledged this leader",
                &metrics.lease_age,
            ),
        ] {
            r.register_with_unit(name, help, Unit::Seconds, gauge.clone());
        }
        for (name, help, histogram) in [
            (
                "request",
                "From a request's arrival to its answer",
                &metrics.request_seconds,
            ),
            (
                "bump",
                "From a bump's proposal to its chunk",
                &metrics.bump_seconds,
            ),
            (
                "forward",
                "From a request's forwarding to its answer",
                &metrics.forward_seconds,
            ),
        ] {
            r.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        }
        r.register(
            "snapshot_failures",
            "Snapshots that could not be sent to a peer that was there, or not be taken in",
            metrics.snapshot_failures.clone(),
        );
        r.register_with_unit(
            "snapshot",
            "How long the last snapshot that this node sent took, until it was installed",
            Unit::Seconds,
            metrics.snapshot_seconds.clone(),
        );
        r.register_with_unit(
            "snapshot",
            "How large the last snapshot that this node sent was",
            Unit::Bytes,
            metrics.snapshot_bytes.clone(),
        );
        for cause in [
            SkipCause::leader_change,
            SkipCause::fence,
            SkipCause::deadline,
            SkipCause::cancelled,
            SkipCause::shared_section,
        ] {
            // Shown from the start, as 0.
            drop(metrics.skipped.get_or_create(&SkipLabels { cause }));
        }
        Metrics {
            registry,
            ..metrics
        }
    }
}

impl Metrics {
    /// A fresh set.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Counts skipped numbers.
    pub fn skip(&self, cause: SkipCause, numbers: u64) {
        if numbers > 0 {
            self.skipped
                .get_or_create(&SkipLabels { cause })
                .inc_by(numbers);
        }
    }

    /// How many numbers were skipped for `cause`.
    pub fn skipped(&self, cause: SkipCause) -> u64 {
        self.skipped.get_or_create(&SkipLabels { cause }).get()
    }

    /// All of it in Prometheus' text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_numbers_are_shown_by_cause() {
        let metrics = Metrics::new();
        metrics.skip(SkipCause::fence, 3);
        metrics.numbers.inc_by(7);
        let text = metrics.text();
        assert!(
            text.contains("ratchet_numbers_skipped_total{cause=\"fence\"} 3"),
            "{text}"
        );
        assert!(text.contains("ratchet_numbers_total 7"), "{text}");
        assert_eq!(metrics.skipped(SkipCause::fence), 3);
    }
}
