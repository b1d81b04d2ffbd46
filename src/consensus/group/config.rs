//! The settings of a group, and what follows from them for openraft.

use std::time::Duration;

use openraft::{SnapshotPolicy, StepDownPolicy};

use crate::{sequence::SetId, storage::StoreError};

/// The settings of a group. Times are in milliseconds. How much it may use is its share of the node's budget.
#[derive(Debug, Clone)]
pub struct GroupConfig {
    /// The set that the group serves.
    pub set: SetId,
    /// How often a leader sends heartbeats.
    pub heartbeat_ms: u64,
    /// How long a follower keeps out of elections after it heard of a leader. An election follows soon after
    /// (`ElectionTurns`).
    pub election_timeout_ms: u64,
    /// How long a leader's answers are in order after the sending of what a majority acknowledged.
    pub lease_ms: u64,
    /// How many times the group's `log_keep_bytes` are kept, at most, for a peer that is sent a snapshot: one that takes it
    /// slowly must not fill this node's disk.
    pub log_hold_times: u64,
}

impl GroupConfig {
    /// How long a follower keeps out of elections after it heard of a leader.
    pub(in crate::consensus) fn promise_time(&self) -> Duration {
        Duration::from_millis(self.election_timeout_ms)
    }

    /// A write to the disk that takes longer is slow: in that time another node would have been elected if this one had died.
    pub(super) fn slow_flush(&self) -> Duration {
        2 * self.promise_time()
    }

    /// A write to the disk that takes no longer is quick: an election that waits for it is as good as any.
    pub(super) fn quick_flush(&self) -> Duration {
        self.promise_time() / 4
    }

    /// The configuration of openraft in `cluster`.
    ///
    /// # Errors
    /// If openraft refuses the timing.
    pub(super) fn to_raft(&self, cluster: &str) -> Result<openraft::Config, StoreError> {
        let config = openraft::Config {
            cluster_name: cluster.to_owned(),
            heartbeat_interval: self.heartbeat_ms,
            // `election` says when this node stands, and `start` when it sends heartbeats. Raft's own timer knows nothing of
            // slow disks, and wakes a node that has nothing to do a hundred times a second.
            enable_tick: false,
            enable_elect: false,
            // This is how long Raft waits for a vote.
            election_timeout_min: self.election_timeout_ms / 2,
            // Openraft's follower lease is the greatest election timeout.
            election_timeout_max: self.election_timeout_ms,
            install_snapshot_timeout: 600_000,
            // `log_limit` decides by bytes when a snapshot is taken, and how much of the log is purged.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            // This node refuses to remove a leader. A leader that steps down by itself would transfer the
            // leadership without the allocator's knowledge.
            removed_leader_step_down: StepDownPolicy::Never,
            // A half-isolated leader must not block the election of a better one for ever.
            quorum_loss_probe_interval: Some(2 * self.election_timeout_ms),
            enable_pre_vote: Some(true),
            // A restored leader would go on in its old term, without an election.
            enable_leader_restore: Some(false),
            backoff: "50ms 100ms ..200ms".to_owned(),
            ..Default::default()
        };
        config.validate().map_err(|e| StoreError::invalid(format!("Raft refuses the timing: {e}")))
    }
}
