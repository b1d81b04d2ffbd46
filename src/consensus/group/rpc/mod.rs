//! [`RpcHandler`]: answers the RPCs of a group's peers.
//!
//! From the bottom up:
//!
//! * `snapshot_arrivals`: which of the snapshots that arrive goes on.
//! * `sender_check`: refuses messages that are not for this node, not from a member, or that no honest node sends.
//! * `handler`: answers one Raft RPC.
//! * `memory`: sends a leader's memory, and says from whom one is taken.
//! * `snapshot_receiver`: takes in a snapshot, part by part.

mod handler;
mod memory;
mod sender_check;
mod snapshot_arrivals;
mod snapshot_receiver;

use std::{sync::Arc, time::Duration};

use self::snapshot_arrivals::SnapshotArrivals;
pub use self::{
    memory::{MemoryOrigin, send_memory},
    snapshot_receiver::ArrivingSnapshot,
};
use crate::consensus::group::Group;

/// For how many election timeouts this node waits for the next part of a snapshot or of a memory.
const PART_TIMEOUTS: u32 = 30;

/// Answers what peers ask of a group.
pub struct RpcHandler {
    group: Arc<Group>,
    snapshot_arrivals: SnapshotArrivals,
}

impl RpcHandler {
    /// The one handler of `group`: a snapshot that begins to arrive replaces those that the same handler takes in.
    pub fn new(group: Arc<Group>) -> Self {
        RpcHandler { group, snapshot_arrivals: SnapshotArrivals::default() }
    }

    /// How long to wait for the next part of a snapshot or of a memory. A sender that stops sending must not hold its room for
    /// ever.
    pub fn part_timeout(&self) -> Duration {
        self.group.config.promise_time() * PART_TIMEOUTS
    }
}
