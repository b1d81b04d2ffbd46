//! Raft's view of its peers: openraft's network traits on top of [`Transport`].
//!
//! Invariant: an append is stamped before it is sent, and credited to the lease only when that very
//! message is answered in our favour. Appends go one at a time for each peer: a pipelined one would
//! let an answer count for messages that were not answered.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use openraft::{
    RaftNetworkFactory, RaftNetworkV2,
    errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable},
    network::RPCOption,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
        TransferLeaderResponse, VoteRequest, VoteResponse,
    },
};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use tonic::{Code, Status};

use super::{
    lease::LeaseClock,
    terms,
    transport::{RaftRpc, Transport},
};
use crate::{
    metrics::Metrics,
    planted::{Bug, is_planted},
    proto::peer::{Header, RaftMessage},
    sequence::{NodeId, SetId},
    storage::{
        LogId, Member, Snapshot, SnapshotData, StoredMembership, Types, Vote,
        codec::{self, CodecError},
        replacing,
    },
};

mod snapshots;

use snapshots::LogHolds;

/// Who this node is, as every message to a peer says.
#[derive(Debug, Clone)]
pub struct Sender {
    /// The cluster's name.
    pub cluster: String,
    /// The set.
    pub set: SetId,
    /// This node.
    pub node: NodeId,
    /// Which data directory it has.
    pub incarnation: u64,
    /// How long a follower keeps out of elections, in milliseconds.
    pub election_timeout_ms: u64,
}

impl Sender {
    /// The header of a message to `to`.
    pub fn header(&self, to: NodeId, member: &Member) -> Header {
        Header {
            cluster: self.cluster.clone(),
            set: self.set.into(),
            from: self.node,
            to,
            to_incarnation: member.incarnation,
            election_timeout_ms: self.election_timeout_ms,
            from_incarnation: self.incarnation,
        }
    }
}

/// Makes a [`Peer`] for each target that Raft asks for.
#[derive(Clone)]
pub struct Network {
    sender: Arc<Sender>,
    transport: Arc<dyn Transport>,
    lease: Arc<LeaseClock>,
    metrics: Arc<Metrics>,
    acknowledged: Arc<Acknowledged>,
    members: Arc<Mutex<Members>>,
    log_holds: Arc<LogHolds>,
}

/// Where the members are. Raft keeps a [`Peer`] when its node moves.
#[derive(Default)]
struct Members {
    /// Of which membership.
    at: Option<LogId>,
    /// Peer addresses by data directory.
    addresses: BTreeMap<u64, String>,
}

/// Up to where each peer acknowledged the log to this leader, by the peer's data directory.
///
/// A peer's log never gets shorter within a term; where it does, its disk forgot what it had synced.
/// Raft would panic, and take the leader down with it.
#[derive(Default)]
struct Acknowledged(Mutex<BTreeMap<u64, (u64, u64)>>);

impl Acknowledged {
    fn note(&self, incarnation: u64, term: u64, index: u64) {
        let mut known = self.0.lock();
        let known = known.entry(incarnation).or_default();
        *known = (*known).max((term, index));
    }

    /// Up to where, if further than `index`.
    fn beyond(&self, incarnation: u64, term: u64, index: u64) -> Option<u64> {
        let known = self.0.lock().get(&incarnation).copied();
        known
            .filter(|(in_term, up_to)| *in_term == term && *up_to >= index)
            .map(|(_, up_to)| up_to)
    }
}

impl Network {
    /// A network that says who `sender` is, credits acknowledgements to `lease`, and counts what it
    /// sends in `metrics`.
    pub fn new(
        sender: Arc<Sender>,
        transport: Arc<dyn Transport>,
        lease: Arc<LeaseClock>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Network {
            sender,
            transport,
            lease,
            metrics,
            acknowledged: Arc::default(),
            log_holds: Arc::default(),
            members: Arc::default(),
        }
    }

    /// Follows the members to where they are, and lets go of connections to others.
    pub fn follow(&self, membership: &StoredMembership) {
        let mut members = self.members.lock();
        if members.at == *membership.log_id() {
            return;
        }
        let nodes = membership.membership().nodes();
        *members = Members {
            at: *membership.log_id(),
            addresses: nodes
                .map(|(_, member)| (member.incarnation, member.peer_address.clone()))
                .collect(),
        };
        self.transport
            .keep(members.addresses.values().cloned().collect());
    }

    /// Who this node is.
    pub fn sender(&self) -> &Arc<Sender> {
        &self.sender
    }

    /// What it counts.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The peer `target`.
    pub fn peer(&self, target: NodeId, member: &Member) -> Peer {
        Peer {
            network: self.clone(),
            target,
            address: member.peer_address.clone(),
            header: self.sender.header(target, member),
            snapshots_refused: 0,
        }
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: NodeId, node: &Member) -> Peer {
        self.peer(target, node)
    }
}

/// One peer.
pub struct Peer {
    network: Network,
    target: NodeId,
    /// Where it was.
    address: String,
    header: Header,
    /// How many snapshots in a row it could not be given, though it was there.
    snapshots_refused: u32,
}

impl Peer {
    /// Where it is.
    fn address(&self) -> String {
        let members = self.network.members.lock();
        let now = members.addresses.get(&self.header.to_incarnation);
        now.unwrap_or(&self.address).clone()
    }

    /// Keeps the vote of a confused peer from Raft, which would obey it.
    fn check_term(&self, asked: u64, answered: u64) -> Result<(), RPCError<Types>> {
        terms::check(asked, answered).map_err(|why| {
            let text = format!(
                "the answer of node {} at {} is not taken: {why}",
                self.target,
                self.address()
            );
            tracing::error!("{text}");
            RPCError::Unreachable(Unreachable::from_string(text))
        })
    }

    async fn ask_for_vote(
        &self,
        rpc: RaftRpc,
        request: &VoteRequest<Types>,
        timeout: Duration,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let response: VoteResponse<Types> = self.ask(rpc, request, timeout).await?;
        let asked = request.vote.leader_id.term;
        self.check_term(asked, response.vote.leader_id.term)?;
        Ok(response)
    }

    async fn ask<Q: Serialize, A: DeserializeOwned>(
        &self,
        rpc: RaftRpc,
        question: &Q,
        timeout: Duration,
    ) -> Result<A, RPCError<Types>> {
        let payload = codec::encode(question).map_err(NetworkError::from_string)?;
        let message = RaftMessage {
            header: Some(self.header.clone()),
            payload: payload.into(),
        };
        let transport = &self.network.transport;
        let reply = transport
            .raft(&self.address(), rpc, message, timeout)
            .await
            .map_err(|status| self.failed(rpc, &status))?;
        codec::decode(&reply.payload).map_err(|error| {
            let what = format!("the answer to {rpc:?}");
            RPCError::Network(NetworkError::from_string(unreadable(
                &what,
                self.target,
                &error,
            )))
        })
    }

    /// Asks whether `target` still follows the leader of `vote`; credits the lease if so.
    pub async fn append(
        &self,
        request: &AppendEntriesRequest<Types>,
        timeout: Duration,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let sent = self.network.lease.now();
        if is_planted(Bug::LeaseFromPipelinedAcknowledgements) {
            self.credit_late_answers(request);
        }
        let response: AppendEntriesResponse<Types> =
            self.ask(RaftRpc::Append, request, timeout).await?;
        self.remember(request, &response)?;
        match &response {
            // The target accepted our vote, and with it keeps out of elections, also where its log
            // does not fit ours yet.
            AppendEntriesResponse::Success
            | AppendEntriesResponse::PartialSuccess(_)
            | AppendEntriesResponse::Conflict => {
                let term = request.vote.leader_id.term;
                self.network.lease.credit(term, self.target, sent);
            }
            AppendEntriesResponse::HigherVote(higher) => {
                self.check_term(request.vote.leader_id.term, higher.leader_id.term)?;
                self.network.lease.void_before(higher.leader_id.term);
            }
        }
        Ok(response)
    }

    /// A planted bug: an answer counts whenever it comes, from the latest message on.
    fn credit_late_answers(&self, request: &AppendEntriesRequest<Types>) {
        let (network, address) = (self.network.clone(), self.address());
        let (target, term) = (self.target, request.vote.leader_id.term);
        let message = RaftMessage {
            header: Some(self.header.clone()),
            payload: codec::encode(request).unwrap_or_default().into(),
        };
        tokio::spawn(async move {
            let limit = Duration::from_secs(2);
            let asked = network
                .transport
                .raft(&address, RaftRpc::Append, message, limit);
            if asked.await.is_ok() {
                let lease = &network.lease;
                lease.credit(term, target, lease.now());
            }
        });
    }

    /// Keeps in mind what was acknowledged, and from Raft what contradicts it.
    fn remember(
        &self,
        request: &AppendEntriesRequest<Types>,
        response: &AppendEntriesResponse<Types>,
    ) -> Result<(), RPCError<Types>> {
        let (directory, term) = (self.header.to_incarnation, request.vote.leader_id.term);
        let acknowledged = &self.network.acknowledged;
        let before = request.prev_log_id.map(|id| id.index);
        let matching = match response {
            AppendEntriesResponse::Success => {
                let last = request.entries.last().map(|entry| entry.log_id.index);
                last.or(before)
            }
            AppendEntriesResponse::PartialSuccess(up_to) => up_to.map(|id| id.index),
            AppendEntriesResponse::HigherVote(_) => None,
            AppendEntriesResponse::Conflict => {
                let forgot = before.and_then(|index| acknowledged.beyond(directory, term, index));
                return match forgot {
                    Some(up_to) => Err(self.forgot(up_to)),
                    None => Ok(()),
                };
            }
        };
        if let Some(index) = matching {
            acknowledged.note(directory, term, index);
        }
        Ok(())
    }

    fn forgot(&self, up_to: u64) -> RPCError<Types> {
        let target = self.target;
        let text = format!(
            "node {target} at {} forgot entries that it had acknowledged (up to {up_to}): its data \
             directory is an older copy, or its disk lost what it had synced. It gets no more \
             entries; {}",
            self.address(),
            replacing(target)
        );
        tracing::error!("{text}");
        RPCError::Unreachable(Unreachable::from_string(text))
    }

    fn failed(&self, rpc: RaftRpc, status: &Status) -> RPCError<Types> {
        let (target, address) = (self.target, self.address());
        let text = format!(
            "{rpc:?} to node {target} at {address}: {}",
            status.message()
        );
        match status.code() {
            Code::DeadlineExceeded | Code::Cancelled => {
                RPCError::Network(NetworkError::from_string(text))
            }
            Code::FailedPrecondition => {
                // It is not who we think it is, or we are not who it thinks.
                tracing::warn!(peer = target, "{text}");
                RPCError::Unreachable(Unreachable::from_string(text))
            }
            _ => RPCError::Unreachable(Unreachable::from_string(text)),
        }
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        self.append(&request, option.soft_ttl()).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_for_vote(RaftRpc::Vote, &request, option.soft_ttl())
            .await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_for_vote(RaftRpc::PreVote, &request, option.soft_ttl())
            .await
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        // Followers drop their promise on this message, whoever made Raft send it.
        let term = request.from_leader().leader_id.term;
        self.network.lease.void_before(term + 1);
        self.ask(RaftRpc::TransferLeader, &request, option.soft_ttl())
            .await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        tokio::select! {
            biased;
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = self.send_snapshot(vote, snapshot) => sent,
        }
    }
}

/// Why what the two ends said to each other is not understood; `node` is the end that is not the
/// reader of this.
pub(super) fn unreadable(what: &str, node: NodeId, error: &CodecError) -> String {
    match error {
        CodecError::Version(_) => format!(
            "node {node} runs another release: {what} cannot be read: it has {error}; install the same \
             release on all nodes"
        ),
        error => format!(
            "{what} between this node and node {node} cannot be read: {error}; install the same \
             release on all nodes"
        ),
    }
}

#[cfg(test)]
mod tests;
