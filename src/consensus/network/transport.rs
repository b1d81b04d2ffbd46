//! The trait through which a message reaches a peer. Tests and simulations bring a network of their own.
//!
//! Invariant: a transport delivers to the process that listens at an address. Only with TLS does it know which node that is.
//! The receiver checks that the message is meant for it (the header of every message names the receiver).

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::{
    proto::{
        Refusal,
        peer::{
            AdministerReply, AdministerRequest, ForwardReplies, ForwardRequests, HelloRequest,
            HelloResponse, MemoryPart, MemoryReply, RaftMessage, RaftReply, SnapshotPart,
        },
    },
    sequence::{NodeId, SetId},
};

/// The largest peer message, in bytes: a full batch of bumps or entries, with room to spare.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The RPC that a [`RaftMessage`] belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaftRpc {
    /// Appends entries, or is a heartbeat.
    Append,
    /// Asks for a vote.
    Vote,
    /// Asks whether a vote would be granted.
    PreVote,
    /// Asks a follower to take the leadership over.
    TransferLeader,
}

/// Where a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination<'a> {
    /// The node that is to get it.
    pub node: NodeId,
    /// Where that node is reached, "host:port".
    pub address: &'a str,
}

/// Delivers messages to the peer that listens at an address.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Sends one Raft message, and waits for the answer for at most `timeout`.
    async fn raft(
        &self, to: Destination<'_>, rpc: RaftRpc, message: RaftMessage, timeout: Duration,
    ) -> Result<RaftReply, Refusal>;

    /// Sends a snapshot in parts, and waits until it is installed.
    async fn install_snapshot(
        &self, to: Destination<'_>, parts: BoxStream<'static, SnapshotPart>,
    ) -> Result<RaftReply, Refusal>;

    /// Sends a leader's memory in parts, and waits until all of it has arrived.
    async fn send_memory(
        &self, to: Destination<'_>, parts: BoxStream<'static, MemoryPart>,
    ) -> Result<MemoryReply, Refusal>;

    /// Asks whether the node listens at the address, and waits for at most `timeout`.
    async fn hello(
        &self, to: Destination<'_>, request: HelloRequest, timeout: Duration,
    ) -> Result<HelloResponse, Refusal>;

    /// Opens a stream of forwarded requests.
    async fn forward(
        &self, to: Destination<'_>, requests: BoxStream<'static, ForwardRequests>,
    ) -> Result<BoxStream<'static, Result<ForwardReplies, Refusal>>, Refusal>;

    /// Sends an administrative request, and waits for the answer for at most `timeout`.
    async fn administer(
        &self, to: Destination<'_>, request: AdministerRequest, timeout: Duration,
    ) -> Result<AdministerReply, Refusal>;

    /// Tells who the members of `set` are now, and where. Connections to nodes that no set names need not be kept.
    fn keep(&self, set: SetId, members: BTreeSet<(NodeId, String)>) {
        let _ = (set, members);
    }
}
