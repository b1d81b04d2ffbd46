//! The node's metrics for Prometheus. docs/metrics.md lists them for operators.
//!
//! `declare.rs` has the macros that declare metrics, and their types; `histogram.rs` is one of them. `namespaces.rs` bounds what is
//! counted by namespace, `skip_cause.rs` says why numbers are skipped, `consumption.rs` how fast they are used up, and `process.rs`
//! what the process uses.
//!
//! Invariant: counting never blocks and never fails; a counter costs one atomic add, and one more where a namespace has it
//! to itself. (Only the first count of a namespace waits for those of others.) Gauges that must be read (disk, process) are
//! read for a scrape, on threads for blocking work.

#[macro_use]
mod declare;
mod consumption;
mod histogram;
mod namespaces;
mod process;
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
use declare::{Gauge, Seconds};
use namespaces::{Figure, OfNamespaces};

pub use declare::{By, Counters, Label, PairCounters, PeerGauges, SecondsBy, whole};
pub use histogram::{Histogram, Reading};
pub use namespaces::{CountsGuard, NamespaceCounts, NamespaceMetrics};
pub use process::PROCESS;
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
    /// The side that a certificate is shown to.
    CertificateOf as "side" {
        /// The ports for clients.
        clients,
        /// The other nodes.
        peers,
    }
}

label! {
    /// What gave a term its chunks.
    TermStart as "from" {
        /// The memory of the term before, which its leader had sent.
        inheritance,
        /// A lift: the term began with an empty memory.
        lift,
    }
}

label! {
    /// How a section got its first chunk in a term.
    FirstTouch as "from" {
        /// From the term's lift; the section's record was in memory.
        memory,
        /// From the term's lift; the section's record was read from the disk.
        disk,
        /// From a bump: the section is new, or was not used for some terms.
        bump,
    }
}

label! {
    /// Why keys were evicted from the leader's memory.
    ReleaseCause as "cause" {
        /// Nobody had asked for them for long.
        idle,
        /// The memory was nearly full.
        room,
    }
}

label! {
    /// The phases of a takeover, one after the other. Together they last from the last message of the leader
    /// before to the first answer of this one.
    TakeoverPhase as "phase" {
        /// Until the promise to the leader before had ended. Shorter if that leader handed over.
        promise,
        /// Until this node asked for votes: the wait for its turn, and elections without a winner.
        turn,
        /// Until a majority had elected it.
        election,
        /// Until the first entry of its term was applied here.
        entry,
        /// Until its lift, or its inheritance, was applied and its allocator open.
        opening,
        /// Until a request was answered from the allocator. 0 before that.
        answer,
    }
}

label! {
    /// What a handover left to the next leader.
    HandoverEnd as "outcome" {
        /// The memory: each key goes on with its next number.
        memory,
        /// The numbers that were not used: no gap where a key has a section of its own, and a cold start.
        given_back,
        /// Less: what was not used is skipped, as after a crash.
        skipped,
    }
}

label! {
    /// The phases of a handover to a successor that gets the memory, one after the other.
    HandoverPhase as "phase" {
        /// While the term serves, its memory is sent.
        send,
        /// Until the term was closed, and nobody was inside.
        close,
        /// Until what had changed meanwhile was sent, and the successor held all of it.
        last_changes,
        /// Until the term's last entry, which leaves the memory to the successor, was applied.
        bequest,
    }
}

metrics! {
    /// The node's counters, gauges and histograms.
    Metrics in "ratchet" {
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

        /// Ceilings raised by this node as leader.
        bumps: Counter,
        /// Log entries that carried bumps.
        bump_entries: Counter,
        /// Time from a bump's proposal to its chunk.
        bump_seconds: Histogram,
        /// Terms in which this node as leader began to hand out numbers, by what gave them their chunks.
        terms_begun: Counters<TermStart>,
        /// Sections used for the first time in a term of this node, by where their first chunk came from.
        first_touches: Counters<FirstTouch>,
        /// Sections whose ceilings this node as leader wrote down after its term's lift.
        settled_sections: Counter,
        /// Takes of gapless keys by this node as leader: one for each key of each request.
        takes: Counter,
        /// Log entries that carried takes.
        take_entries: Counter,
        /// Time from a take's proposal until its entry was applied.
        take_seconds: Histogram,
        /// Requests that were answered with the numbers that an earlier request with their id got.
        requests_repeated: Counter,
        /// Worker ids leased by this node as leader.
        worker_leases: Counter,
        /// Leases of worker ids renewed by this node as leader.
        worker_renewals: Counter,
        /// Leases and renewals that this node as leader refused: no worker id was free, none was to spare for a holder that has
        /// one, or the lease was lost.
        worker_leases_refused: Counter,
        /// Log entries that leased, renewed or released worker ids.
        worker_entries: Counter,
        /// Ids that this node made.
        ids: Counter,
        /// Waits for a later time or a lease while this node made ids.
        id_waits: Counter,
        /// Further worker ids that this node leased, because callers had to wait for a later time again and again.
        worker_ids_added: Counter,
        /// Corrections of the time of ids by more than a second: one for the node's own view, and one for each namespace whose
        /// ids it makes.
        clock_steps: Counter,
        /// 1 while this node leads and its wall clock is further from those of a majority than clock_apart_max_ms, or
        /// theirs are not known.
        clock_doubted: Gauge,
        /// Calls for ids of a time, and for worker ids, that this node as leader refused because its wall clock is not
        /// believed.
        clock_refusals: Counter,
        /// How often the ids of a namespace's keys went on ahead of the leader's time.
        id_times_ahead: Counter,
        /// Answers discarded because the fence failed.
        fence_failures: Counter,

        /// Requests forwarded to the leader.
        forwards: Counter,
        /// Messages that carried forwarded requests.
        forward_batches: Counter,
        /// Time from a request's forwarding to its answer.
        forward_seconds: Histogram,
        /// Time that requests which followers had forwarded to this node took here.
        forwarded_request_seconds: Histogram,

        /// 1 while this node leads.
        leads: Gauge,
        /// 1 while this node knows a leader.
        has_leader: Gauge,
        /// How many times this node heard of a new leader.
        leader_changes: Counter,
        /// Time that each phase of this node's last takeover of the leadership took; 0 before it ever led.
        takeover_seconds: SecondsBy<TakeoverPhase>,
        /// Handovers of this node, by what they left to the next leader.
        handovers: Counters<HandoverEnd>,
        /// Time that each phase of this node's last handover took; 0 for a phase that it did not come to.
        handover_seconds: SecondsBy<HandoverPhase>,
        /// The Raft term.
        term: Gauge,
        /// Time until the lease ends; negative once it has ended.
        lease_remaining_seconds: Seconds,
        /// Time since the leader sent the message that a majority last acknowledged.
        lease_age_seconds: Seconds,

        /// Proposals of this node as leader that failed or whose outcome it did not learn.
        proposals_failed: Counter,
        /// Index of the last entry in this node's log.
        log_index: Gauge,
        /// Index of the last entry that this node knows to be committed.
        committed_index: Gauge,
        /// Index of the last entry that this node applied.
        applied_index: Gauge,
        /// How many entries a peer's log is behind this leader's; only a leader shows it.
        peer_lag_entries: PeerGauges<u64>,
        /// Time since this leader last heard a peer, or since the term began if it never did; only a
        /// leader shows it.
        peer_silent_seconds: PeerGauges<f64>,
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
        /// 1 on a leader that refuses new keys and namespaces: its disk is low, or the voters whose disks have room are no
        /// majority.
        new_keys_refused: Gauge,

        /// Snapshots that could not be sent to a reachable peer, or could not be taken in.
        snapshot_failures: Counter,
        /// Snapshots that were sent in vain: more was logged meanwhile than is kept for their receivers (log_hold_times), which
        /// need another one.
        snapshots_in_vain: Counter,
        /// Time from the start of the last snapshot that this node sent until the peer had installed
        /// it.
        snapshot_seconds: Seconds,
        /// Size of the last snapshot that this node sent.
        snapshot_bytes: Gauge,

        /// Open connections of clients, by interface.
        client_connections: By<Interface, Gauge>,
        /// Connections of clients that were refused because there were too many, by interface.
        client_connections_refused: Counters<Interface>,
        /// Calls that were refused because the token that their caller shows is worth nothing, by interface.
        logins_refused: Counters<Interface>,
        /// For how long the certificate in use is valid, by the side it is shown to; infinite where there is none.
        certificate_left_seconds: SecondsBy<CertificateOf>,
        /// NextMany calls in progress.
        streams: Gauge,
        /// Memory held by waiting requests and by answers that are not sent yet.
        request_bytes: Gauge,
        /// Requests refused because waiting requests and answers held too much memory.
        requests_refused: Counter,

        /// Keys in the memory of this node as leader: those requested in its term, and in the terms whose memory it
        /// inherited, but for those that were evicted.
        memory_keys: Gauge,
        /// Sections in the memory of this node as leader.
        memory_sections: Gauge,
        /// Memory that keys and sections take on this node as leader.
        memory_bytes: Gauge,
        /// How much memory keys and sections may take (memory_max_mb).
        memory_max_bytes: Gauge,
        /// Keys that this node as leader evicted from its memory, by the reason.
        released_keys: Counters<ReleaseCause>,
        /// Sections that keys share and that this node as leader evicted from its memory.
        released_shared_sections: Counter,

        /// Records of sections in memory, for the state machine and for the moment in which this node becomes leader.
        recent_records: Gauge,

        /// The release that this node runs.
        build: Build,
    }
}

impl Metrics {
    /// Metrics that start at 0.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What is counted for each namespace. Numbers that are handed out or skipped are counted through it alone, so that
    /// the namespaces together have all of them.
    pub fn namespaces(&self) -> &NamespaceMetrics {
        self.namespace_numbers.places()
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
    fn the_text_shows_help_unit_and_every_cause_of_skipped_numbers() {
        let metrics = Metrics::new();
        let counts = metrics.namespaces().of(1, "book");
        counts.skip(SkipCause::fence, 3);
        counts.hand_out(7, 1);
        let text = metrics.text();
        for line in [
            "# HELP ratchet_numbers Numbers handed out by this node as leader.",
            "ratchet_numbers_total 7",
            "ratchet_numbers_skipped_total{cause=\"fence\"} 3",
            "ratchet_numbers_skipped_total{cause=\"deadline\"} 0",
            "# UNIT ratchet_bump_seconds seconds",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} is not in:\n{text}");
        }
        assert_eq!(metrics.skipped(SkipCause::fence), 3);
    }
}
