//! How a message reaches a peer: the trait that carries it, where it goes, how it is written, and how an
//! answer is waited for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures::stream::BoxStream;
use openraft::errors::{NetworkError, RPCError, Unreachable};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    consensus::terms,
    proto::{
        Code, Refusal,
        peer::{
            AdministerReply, AdministerRequest, ForwardReplies, ForwardRequests, Header,
            HelloRequest, HelloResponse, MemoryPart, MemoryReply, RaftMessage, RaftReply,
            SnapshotPart,
        },
    },
    sequence::{NodeId, SetId},
    storage::{
        LogId, StoredMembership, Types,
        codec::{self, CodecError},
    },
};

// The trait through which a message reaches a peer. Tests and simulations bring a network of their own.
//
// Invariant: a transport delivers to the process that listens at an address. Only with TLS does it know which node that is.
// The receiver checks that the message is meant for it (the header of every message names the receiver).

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
    /// Who is to get it.
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

// Where the members are. Raft keeps its client of a peer when the peer moves, so the client looks the
// address up here for each message.

/// The peer addresses of the members.
#[derive(Default)]
pub struct MemberAddresses(Mutex<Addresses>);

#[derive(Default)]
struct Addresses {
    /// The log entry of the membership that the addresses come from.
    membership: Option<LogId>,
    /// Peer addresses by incarnation: a node with another data directory is another member.
    by_incarnation: BTreeMap<u64, String>,
    /// The members' ids.
    members: Vec<NodeId>,
}

impl MemberAddresses {
    /// Takes the addresses over from `membership`. Returns all of them, each with its node, if it is another membership than
    /// before.
    pub fn follow(&self, membership: &StoredMembership) -> Option<BTreeSet<(NodeId, String)>> {
        let mut addresses = self.0.lock();
        if addresses.membership == *membership.log_id() {
            return None;
        }
        let members = membership.membership();
        *addresses = Addresses {
            membership: *membership.log_id(),
            members: members.nodes().map(|(id, _)| *id).collect(),
            by_incarnation: (members.nodes())
                .map(|(_, member)| (member.incarnation, member.peer_address.clone()))
                .collect(),
        };
        let all = members.nodes().map(|(id, member)| (*id, member.peer_address.clone()));
        Some(all.collect())
    }

    /// The members.
    pub fn members(&self) -> Vec<NodeId> {
        self.0.lock().members.clone()
    }

    /// Where the member with the data directory `incarnation` is.
    pub fn of(&self, incarnation: u64) -> Option<String> {
        self.0.lock().by_incarnation.get(&incarnation).cloned()
    }
}

// Decodes the payload of peer messages. An error names the node at the other end, because the usual cause is that it
// runs another release.

/// The value in `payload`. `what` names it in errors. `other_end` is the node that the reader of the
/// error exchanged it with.
///
/// # Errors
/// If `payload` is of another format version, or damaged: a text that says what to do.
pub fn decode<T: DeserializeOwned>(
    what: &str, other_end: NodeId, payload: &[u8],
) -> Result<T, String> {
    codec::decode(payload).map_err(|error| match error {
        CodecError::Version(_) => format!(
            "node {other_end} runs another release: {what} cannot be read: {error}; install \
             the same release on all nodes"
        ),
        error @ (CodecError::Short(_)
        | CodecError::Checksum { .. }
        | CodecError::Trailing(_)
        | CodecError::Format(_)) => format!(
            "{what} between this node and node {other_end} cannot be read: {error}; install the \
             same release on all nodes"
        ),
    })
}

// Sends one RPC to one peer, and reads the answer. What the answer means is decided by the caller.

/// The way to one peer.
#[derive(Clone)]
pub struct RpcClient {
    /// Delivers the messages.
    pub transport: Arc<dyn Transport>,
    /// Where the members are now.
    pub addresses: Arc<MemberAddresses>,
    /// The peer.
    pub target: NodeId,
    /// Where the peer was when this client was made.
    pub first_address: String,
    /// The header of every message to the peer.
    pub header: Header,
}

impl RpcClient {
    /// Where the peer is now.
    pub fn address(&self) -> String {
        let now = self.addresses.of(self.header.to_incarnation);
        now.unwrap_or_else(|| self.first_address.clone())
    }

    /// The peer at `address`.
    pub fn to<'a>(&self, address: &'a str) -> Destination<'a> {
        Destination { node: self.target, address }
    }

    /// The message that carries `question`.
    pub fn message<Q: Serialize>(&self, question: &Q) -> Result<RaftMessage, RPCError<Types>> {
        let payload = codec::encode(question).map_err(NetworkError::from_string)?;
        Ok(RaftMessage {
            header: Some(self.header.clone()),
            payload: payload.into(),
            ..RaftMessage::default()
        })
    }

    /// Sends `message`, and waits for the answer.
    pub async fn send(
        &self, rpc: RaftRpc, message: RaftMessage, timeout: Duration,
    ) -> Result<RaftReply, RPCError<Types>> {
        let sent = self.transport.raft(self.to(&self.address()), rpc, message, timeout).await;
        sent.map_err(|refusal| self.failed(rpc, &refusal))
    }

    /// Asks `question`, and reads the answer.
    pub async fn call<Q: Serialize, A: DeserializeOwned>(
        &self, rpc: RaftRpc, question: &Q, timeout: Duration,
    ) -> Result<A, RPCError<Types>> {
        let reply = self.send(rpc, self.message(question)?, timeout).await?;
        self.read(rpc, &reply)
    }

    /// The answer in a reply.
    pub fn read<A: DeserializeOwned>(
        &self, rpc: RaftRpc, reply: &RaftReply,
    ) -> Result<A, RPCError<Types>> {
        let what = format!("the answer to {rpc:?}");
        let answer = decode(&what, self.target, &reply.payload);
        answer.map_err(|text| RPCError::Network(NetworkError::from_string(text)))
    }

    /// Refuses a term in an answer that no honest node has come to: Raft would adopt it.
    pub fn check_term(&self, asked: u64, answered: u64) -> Result<(), RPCError<Types>> {
        terms::check(asked, answered).map_err(|why| {
            let text = format!(
                "the answer of node {} at {} is refused: {why}",
                self.target,
                self.address()
            );
            tracing::error!("{text}");
            RPCError::Unreachable(Unreachable::from_string(text))
        })
    }

    fn failed(&self, rpc: RaftRpc, refusal: &Refusal) -> RPCError<Types> {
        let (target, address) = (self.target, self.address());
        let text = format!("{rpc:?} to node {target} at {address}: {}", refusal.message());
        match refusal.code() {
            Code::DeadlineExceeded | Code::Cancelled => {
                RPCError::Network(NetworkError::from_string(text))
            }
            Code::FailedPrecondition => {
                // Either the peer is not the node that this one takes it for, or the other way round.
                tracing::warn!(peer = target, "{text}");
                RPCError::Unreachable(Unreachable::from_string(text))
            }
            // The list of codes is the protocol's, not ours: all others mean the same here.
            _ => RPCError::Unreachable(Unreachable::from_string(text)),
        }
    }
}
