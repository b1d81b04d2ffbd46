//! The metrics that each Raft group of a node has. They are shown with the label `set`.

use prometheus_client::metrics::counter::Counter;

use super::{
    by_set::BySet,
    gauge::{Gauge, Seconds},
    histogram::Histogram,
    labels::{Counters, PeerGauges, SecondsBy},
};

label! {
    /// The ways in which a term gets its first chunks.
    TermStart as "from" {
        /// The memory of the term before, which its leader had sent.
        hand_off,
        /// The term began an epoch, with an empty memory.
        epoch,
    }
}

label! {
    /// How a section got its first chunk in a term.
    FirstTouch as "from" {
        /// From the term's epoch; the section's record was in memory.
        memory,
        /// From the term's epoch; the section's record was read from the disk.
        disk,
        /// From a bump: the section is new, or was not used for some terms.
        bump,
    }
}

label! {
    /// Why keys were evicted from the leader's memory.
    EvictionCause as "cause" {
        /// Nobody had asked for them for long.
        idle,
        /// The memory was nearly full.
        room,
    }
}

label! {
    /// The phases of a leader change, one after the other. Together they last from the last message of the leader
    /// before to the first answer of this one.
    LeaderChangePhase as "phase" {
        /// Until the promise to the leader before had ended. Shorter if that leader handed over.
        promise,
        /// Until this node asked for votes: the wait for its turn, and elections without a winner.
        turn,
        /// Until a majority had elected it.
        election,
        /// Until Raft's own empty entry of its term was applied here.
        entry,
        /// Until the entry that gives it its chunks was applied, and its allocator open.
        opening,
        /// Until a request was answered from the allocator. 0 before that.
        answer,
    }
}

label! {
    /// The results of a handover for the next leader.
    HandoverEnd as "outcome" {
        /// The memory: each key goes on with its next number.
        memory,
        /// The numbers that were not used: no gap where a key has a section of its own, and a cold start.
        returned,
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
        /// Until the hand-off, the term's last entry, was applied.
        hand_off,
    }
}

metrics_of_set! {
    /// The counters, gauges and histograms of a set on this node.
    SetMetrics {
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
        /// Sections whose ceilings this node as leader wrote down after its term's epoch.
        checkpointed_sections: Counter,
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

        /// 1 while this node leads.
        leads: Gauge,
        /// 1 while this node knows a leader.
        has_leader: Gauge,
        /// How many times this node heard of a new leader.
        leader_changes: Counter,
        /// Time that each phase took of the last leader change to this node; 0 before it ever led.
        leader_change_seconds: SecondsBy<LeaderChangePhase>,
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

        /// Keys in the memory of this node as leader: those requested in its term, and in the terms whose memory it
        /// took over, but for those that were evicted.
        memory_keys: Gauge,
        /// Sections in the memory of this node as leader.
        memory_sections: Gauge,
        /// Memory that keys and sections take on this node as leader.
        memory_bytes: Gauge,
        /// Keys that this node as leader evicted from its memory, by the reason.
        evicted_keys: Counters<EvictionCause>,
        /// Sections that keys share and that this node as leader evicted from its memory.
        evicted_shared_sections: Counter,

        /// Records of sections in memory, for the state machine and for the moment in which this node becomes leader.
        recent_records: Gauge,
    }
}
