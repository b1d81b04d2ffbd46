//! What the node counts, in Prometheus' terms. docs/metrics.md lists it for operators.
//!
//! Invariant: counting never blocks and never fails; a counter costs one atomic add. What must be
//! read (the disk, the process) is read for a scrape, off the runtime's workers.

#[macro_use]
mod declare;
mod histogram;
mod labelled;
mod process;

use std::sync::{Arc, atomic::AtomicU64};

use prometheus_client::{
    encoding::{
        EncodeMetric, MetricEncoder,
        text::{encode_eof, encode_registry},
    },
    metrics::{MetricType, counter::Counter, gauge},
};
use tonic::Code;

use crate::version;

pub use histogram::Histogram;
pub use labelled::{Counters, Label, PeerGauges};
pub use process::PROCESS;

/// A gauge of seconds.
type Seconds = gauge::Gauge<f64, AtomicU64>;
type Gauge = gauge::Gauge;

label! {
    /// Why numbers were skipped.
    SkipCause as "cause" {
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
}

metrics! {
    /// The node's counters, gauges and histograms.
    Metrics in "ratchet" {
        /// Numbers handed out by this node as leader.
        numbers: Counter,
        /// Keys that were answered with numbers by this node as leader.
        answers: Counter,
        /// Numbers skipped, by cause (leader_change: at most this many).
        numbers_skipped: Counters<SkipCause>,
        /// Callers' requests that ended in an error, by gRPC code. Of a NextStream, each message that
        /// failed as a whole, and each key whose numbers are used up.
        errors: Counters<Code>,
        /// From a request's arrival to its answer.
        request_seconds: Histogram,

        /// Ceilings raised by this node as leader.
        bumps: Counter,
        /// Log entries that carried bumps.
        bump_entries: Counter,
        /// From a bump's proposal to its chunk.
        bump_seconds: Histogram,
        /// Answers discarded because the fence failed.
        fence_failures: Counter,

        /// Requests forwarded to the leader.
        forwards: Counter,
        /// Messages that carried forwarded requests.
        forward_batches: Counter,
        /// From a request's forwarding to its answer.
        forward_seconds: Histogram,

        /// 1 while this node leads.
        leads: Gauge,
        /// 1 while this node knows a leader.
        has_leader: Gauge,
        /// How often this node heard of a new leader.
        leader_changes: Counter,
        /// The Raft term.
        term: Gauge,
        /// How long the lease still runs; negative once it has run out.
        lease_remaining_seconds: Seconds,
        /// How long ago that was sent which a majority last acknowledged.
        lease_age_seconds: Seconds,

        /// Proposals of this node as leader that failed, or whose outcome it did not learn.
        proposals_failed: Counter,
        /// The last entry of this node's log.
        log_index: Gauge,
        /// The last entry that this node knows to be committed.
        committed_index: Gauge,
        /// The last entry that this node applied.
        applied_index: Gauge,
        /// By how many entries a peer's log is behind this leader's; of a leader alone.
        peer_lag_entries: PeerGauges<u64>,
        /// For how long a peer has not been heard by this leader (or since the term began).
        peer_silent_seconds: PeerGauges<f64>,

        /// How long an fsync of the log took.
        fsync_seconds: Histogram,
        /// What the Raft log takes in the store, in files and in memory.
        log_bytes: Gauge,
        /// What the applied table takes in the store, in files and in memory.
        table_bytes: Gauge,
        /// What is left on the disk of the data directory.
        disk_free_bytes: Gauge,
        /// The size of the disk of the data directory.
        disk_size_bytes: Gauge,

        /// Snapshots that could not be sent to a peer that was there, or not be taken in.
        snapshot_failures: Counter,
        /// How long the last snapshot that this node sent took, until it was installed.
        snapshot_seconds: Seconds,
        /// How large the last snapshot that this node sent was.
        snapshot_bytes: Gauge,

        /// Connections that clients have.
        client_connections: Gauge,
        /// Connections of clients that were refused since there were too many.
        client_connections_refused: Counter,
        /// NextStream calls under way.
        streams: Gauge,
        /// Held by requests that wait, and by answers that are not sent yet.
        request_bytes: Gauge,
        /// Requests refused since too many bytes were held already.
        requests_refused: Counter,

        /// Keys in the memory of this node as leader: all that were asked for in its term.
        memory_keys: Gauge,
        /// Sections in the memory of this node as leader.
        memory_sections: Gauge,
        /// What keys and sections take in the memory of this node as leader.
        memory_bytes: Gauge,

        /// Which release this node runs.
        build: Build,
    }
}

impl Metrics {
    /// A fresh set.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Counts skipped numbers.
    pub fn skip(&self, cause: SkipCause, numbers: u64) {
        self.numbers_skipped.add(cause, numbers);
    }

    /// How many numbers were skipped for `cause`.
    pub fn skipped(&self, cause: SkipCause) -> u64 {
        self.numbers_skipped.get(cause)
    }

    /// All of it in the OpenMetrics text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode_registry(&mut text, &self.registry);
        let _ = PROCESS.write(&mut text);
        let _ = encode_eof(&mut text);
        text
    }
}

/// The release, as labels of a metric that is always 1.
#[derive(Debug, Clone, Default)]
pub struct Build;

impl EncodeMetric for Build {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let labels = [("version", version::VERSION), ("commit", version::COMMIT)];
        encoder.encode_info(&labels)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Info
    }
}

/// A figure for a gauge, which takes no more than 2^63 - 1.
pub fn whole(figure: impl TryInto<i64>) -> i64 {
    figure.try_into().unwrap_or(i64::MAX)
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
        for line in [
            "# HELP ratchet_numbers Numbers handed out by this node as leader.",
            "ratchet_numbers_total 7",
            "ratchet_numbers_skipped_total{cause=\"fence\"} 3",
            "ratchet_numbers_skipped_total{cause=\"deadline\"} 0",
            "# UNIT ratchet_bump_seconds seconds",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "{line:?} is not in:\n{text}"
            );
        }
        assert_eq!(metrics.skipped(SkipCause::fence), 3);
    }
}
