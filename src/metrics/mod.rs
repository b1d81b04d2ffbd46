//! The node's metrics for Prometheus. docs/metrics.md lists them for operators.
//!
//! `declare.rs` has the macros that declare metrics. Their types are in `gauge.rs`, `histogram.rs` and, those with a label, in
//! `labels.rs`. `set.rs` has the metrics of a Raft group, and `by_set.rs` shows them. `namespaces.rs` bounds what is counted by
//! namespace, `skip_cause.rs` says why numbers are skipped, `consumption.rs` how fast they are used up, and `process.rs` what
//! the process uses.
//!
//! Invariant: counting never blocks and never fails; a counter costs one atomic add, and one more where a namespace has it
//! to itself. (Only the first count of a namespace waits for those of others.) Gauges that must be read (disk, process) are
//! read for a scrape, on threads for blocking work.

#[macro_use]
mod declare;
#[macro_use]
mod by_set;
mod consumption;
mod gauge;
mod histogram;
mod labels;
mod namespaces;
mod process;
mod set;
mod skip_cause;

use std::sync::Arc;

use prometheus_client::{
    encoding::{
        EncodeMetric, MetricEncoder,
        text::{encode_eof, encode_registry},
    },
    metrics::{MetricType, counter::Counter},
};
use tonic::Code;

use crate::version;
use by_set::BySet;
use gauge::Gauge;
use namespaces::{Figure, OfNamespaces};

pub use gauge::whole;
pub use histogram::{Histogram, HistogramReading};
pub use labels::{By, Counters, Label, PairCounters, PeerGauges, SecondsBy};
pub use namespaces::{CountsGuard, NamespaceCounts, NamespaceMetrics};
pub use process::PROCESS;
pub use set::{
    EvictionCause, FirstTouch, HandoverEnd, HandoverPhase, LeaderChangePhase, SetMetrics, TermStart,
};
pub use skip_cause::SkipCause;

label! {
    /// The interface through which a client came.
    Interface as "interface" {
        /// The public API: gRPC.
        grpc,
        /// JSON over HTTP.
        http,
        /// The protocol of Redis.
        redis,
    }
}

label! {
    /// The interface at which somebody is refused, by what it shows.
    RefusedAt as "interface" {
        /// The public API: gRPC.
        grpc,
        /// JSON over HTTP.
        http,
        /// The protocol of Redis.
        redis,
        /// The protocol of the nodes.
        peer,
    }
}

impl From<Interface> for RefusedAt {
    fn from(interface: Interface) -> RefusedAt {
        match interface {
            Interface::grpc => RefusedAt::grpc,
            Interface::http => RefusedAt::http,
            Interface::redis => RefusedAt::redis,
        }
    }
}

label! {
    /// The kind of a credential.
    Shown as "kind" {
        /// A token.
        token,
        /// A certificate.
        certificate,
    }
}

label! {
    /// The side that a certificate is shown to.
    CertificateOf as "side" {
        /// The ports for clients.
        clients,
        /// The other nodes.
        peers,
    }
}

metrics! {
    /// The node's counters, gauges and histograms, but for those that each of its Raft groups has.
    Metrics in "ratchet", with BySet of SetMetrics {
        /// Numbers handed out by this node as leader.
        numbers: Counter,
        /// Keys that were answered with numbers by this node as leader.
        answers: Counter,
        /// Numbers skipped, by cause; for leader_change an upper bound.
        numbers_skipped: Counters<SkipCause>,
        /// Requests of clients that ended in an error, by interface and gRPC code. In a NextMany call, each message
        /// that failed as a whole and each key that got no numbers count as one.
        errors: PairCounters<Interface, Code>,
        /// Time from a client's request's arrival to its answer, by interface.
        request_seconds: By<Interface, Histogram>,
        /// Calls of clients, and of peers that forwarded them, that took slow_call_ms or longer at this node.
        slow_calls: Counter,
        /// Spans of traced calls that the collector took (otlp_endpoint).
        trace_spans: Counter,
        /// Spans of traced calls that were dropped: the collector is away, slow, or refused them.
        trace_spans_dropped: Counter,

        /// Numbers of a namespace handed out by this node as leader.
        namespace_numbers: OfNamespaces = NamespaceMetrics::new(&numbers, &answers, &numbers_skipped).show(Figure::Numbers),
        /// Calls of clients for a namespace's numbers, ids, last numbers and floors that were answered or refused, at the node
        /// that they asked. Each message of a stream counts as one.
        namespace_calls: OfNamespaces = namespace_numbers.places().show(Figure::Calls),
        /// Such calls that were refused, by the reason that their callers were told; and each key of a call for many that got
        /// nothing, while the others did. A reason is shown once there was one.
        namespace_refusals: OfNamespaces = namespace_numbers.places().show(Figure::Refusals),
        /// Numbers of a namespace skipped, by cause, as ratchet_numbers_skipped counts them.
        namespace_skipped_numbers: OfNamespaces = namespace_numbers.places().show(Figure::SkippedNumbers),
        /// Days until the key of a namespace with the greatest ceiling comes to a limit, if it goes on as in the last day: the
        /// namespace's max, 2^53 and 2^31. Absent while no rate is known, and for limits above max.
        namespace_days_left: OfNamespaces = namespace_numbers.places().show(Figure::DaysLeft),

        /// Ids that this node made.
        ids: Counter,
        /// Waits for a later time or a lease while this node made ids.
        id_waits: Counter,
        /// Further worker ids that this node leased, because callers had to wait for a later time again and again.
        worker_ids_added: Counter,
        /// Corrections of the time of ids by more than a second: one for the node's own view, and one for each namespace whose
        /// ids it makes.
        clock_steps: Counter,

        /// Requests forwarded to the leader.
        forwards: Counter,
        /// Messages that carried forwarded requests.
        forward_batches: Counter,
        /// Time from a request's forwarding to its answer.
        forward_seconds: Histogram,
        /// Time that requests which followers had forwarded to this node took here.
        forwarded_request_seconds: Histogram,

        /// How far a peer's wall clock is ahead of this leader's, negative if it is behind; only a leader shows it.
        peer_clock_ahead_seconds: PeerGauges<f64>,

        /// Time that an fsync of the log took.
        fsync_seconds: Histogram,
        /// Size of the Raft log in the store, in files and in memory.
        log_bytes: Gauge,
        /// Size of the applied table in the store, in files and in memory.
        table_bytes: Gauge,
        /// Free space on the disk of the data directory.
        disk_free_bytes: Gauge,
        /// Size of the disk of the data directory.
        disk_size_bytes: Gauge,
        /// How much of that disk should stay free (disk_reserve_mb).
        disk_reserve_bytes: Gauge,
        /// 1 while less is free: as leader this node refuses new keys and namespaces.
        disk_low: Gauge,

        /// Open connections of clients, by interface.
        client_connections: By<Interface, Gauge>,
        /// Connections of clients that were refused because there were too many, by interface.
        client_connections_refused: Counters<Interface>,
        /// Calls that were refused because the token that their caller shows is worth nothing, and connections that were
        /// refused because of their certificate, or the lack of one; by interface and kind.
        logins_refused: PairCounters<RefusedAt, Shown>,
        /// For how long the certificate in use is valid, by the side it is shown to; infinite where there is none.
        certificate_left_seconds: SecondsBy<CertificateOf>,
        /// NextMany calls in progress.
        streams: Gauge,
        /// Memory held by waiting requests and by answers that are not sent yet.
        request_bytes: Gauge,
        /// Requests refused because waiting requests and answers held too much memory.
        requests_refused: Counter,

        /// How much memory keys and sections may take (memory_max_mb).
        memory_max_bytes: Gauge,

        /// The release that this node runs.
        build: Build,
    }
}

impl Metrics {
    /// Metrics that start at 0.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The counts for each namespace. Numbers that are handed out or skipped are counted through it alone, so that the
    /// namespaces together have all of them.
    pub fn namespaces(&self) -> &NamespaceMetrics {
        self.namespace_numbers.places()
    }

    /// The metrics of `set`. They are shown from now on.
    pub fn of_set(&self, set: u32) -> Arc<SetMetrics> {
        self.sets.of(set)
    }

    /// How many numbers were skipped for `cause`.
    pub fn skipped(&self, cause: SkipCause) -> u64 {
        self.numbers_skipped.get(cause)
    }

    /// All metrics, and those of the process, in the OpenMetrics text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode_registry(&mut text, &self.registry);
        let _ = PROCESS.write(&mut text);
        let _ = encode_eof(&mut text);
        text
    }
}

/// A metric that is always 1, with release and commit as its labels.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_shows_help_unit_every_cause_of_skipped_numbers_and_each_set() {
        let metrics = Metrics::new();
        let counts = metrics.namespaces().of(1, "book");
        counts.skip(SkipCause::fence, 3);
        counts.hand_out(7, 1);
        let (first, second) = (metrics.of_set(1), metrics.of_set(2));
        first.bumps.inc_by(3);
        second.evicted_keys.add(EvictionCause::idle, 5);
        second.peer_lag_entries.set([(3, 17)]);
        let text = metrics.text();
        for line in [
            "# HELP ratchet_numbers Numbers handed out by this node as leader.",
            "ratchet_numbers_total 7",
            "ratchet_numbers_skipped_total{cause=\"fence\"} 3",
            "ratchet_numbers_skipped_total{cause=\"deadline\"} 0",
            "# UNIT ratchet_bump_seconds seconds",
            "ratchet_bumps_total{set=\"1\"} 3",
            "ratchet_bumps_total{set=\"2\"} 0",
            "ratchet_bump_seconds_count{set=\"2\"} 0",
            "ratchet_evicted_keys_total{cause=\"idle\",set=\"1\"} 0",
            "ratchet_evicted_keys_total{cause=\"idle\",set=\"2\"} 5",
            "ratchet_peer_lag_entries{peer=\"3\",set=\"2\"} 17",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} is not in:\n{text}");
        }
        assert_eq!(metrics.skipped(SkipCause::fence), 3);
        let described = text.lines().filter(|line| line.starts_with("# TYPE ratchet_bumps "));
        assert_eq!(described.count(), 1, "the sets share what describes a metric");
        assert_eq!(metrics.of_set(1).bumps.get(), 3, "a set keeps its metrics");
    }
}
