//! How a message reaches a peer: a seam, so that tests and simulations bring their own network.
//!
//! Invariant: a transport delivers to whoever listens at an address; it is the receiver that checks
//! whether it is meant (the header of every message names it).

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use tonic::Status;

use crate::proto::peer::{
    AdministerReply, AdministerRequest, ForwardReplies, ForwardRequests, HelloRequest,
    HelloResponse, RaftMessage, RaftReply, SnapshotPart,
};

/// The largest peer message, in bytes: a full batch of bumps or entries, with room to spare.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Which of Raft's questions a [`RaftMessage`] asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaftRpc {
    /// Append entries, or a heartbeat.
    Append,
    /// Vote for me.
    Vote,
    /// Would you vote for me?
    PreVote,
    /// Take over the leadership.
    TransferLeader,
}

/// Delivers messages to the peer that listens at an address ("host:port").
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Sends one Raft message and waits for the answer, at most `timeout`.
    async fn raft(
        &self,
        address: &str,
        rpc: RaftRpc,
        message: RaftMessage,
        timeout: Duration,
    ) -> Result<RaftReply, Status>;

    /// Sends a snapshot in parts and waits until it is installed.
    async fn install_snapshot(
        &self,
        address: &str,
        parts: BoxStream<'static, SnapshotPart>,
    ) -> Result<RaftReply, Status>;

    /// Asks who listens there, for at most `timeout`.
    async fn hello(
        &self,
        address: &str,
        request: HelloRequest,
        timeout: Duration,
    ) -> Result<HelloResponse, Status>;

    /// Opens a stream of forwarded requests.
    async fn forward(
        &self,
        address: &str,
        requests: BoxStream<'static, ForwardRequests>,
    ) -> Result<BoxStream<'static, Result<ForwardReplies, Status>>, Status>;

    /// Sends an administrative request and waits for the answer, at most `timeout`.
    async fn administer(
        &self,
        address: &str,
        request: AdministerRequest,
        timeout: Duration,
    ) -> Result<AdministerReply, Status>;

    /// The members are at these addresses now: connections to others need not be kept.
    fn keep(&self, addresses: BTreeSet<String>) {
        let _ = addresses;
    }
}
