//! Raft's RPCs to one peer, and what their answers mean for the lease.
//!
//! Invariant: an append is stamped before it is sent, and counts for the lease only when that very
//! message is answered in this leader's favour. Appends go one at a time for each peer: with pipelined
//! appends an answer could count for messages that were not answered.

use std::{sync::Arc, time::Duration};

use openraft::{
    RaftNetworkV2,
    errors::{RPCError, ReplicationClosed, StreamingError, Unreachable},
    network::RPCOption,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
        TransferLeaderResponse, VoteRequest, VoteResponse,
    },
};

use super::{
    peer_state::PeerState, rpc_client::RpcClient, snapshot_sender::SnapshotSender,
    transport::RaftRpc,
};
use crate::{
    consensus::{lease::LeaseClock, this_node::ThisNode},
    planted_bugs::{Bug, is_planted},
    proto::peer::RaftMessage,
    storage::{LowDisk, Snapshot, SnapshotData, Types, Vote, replacing},
};

/// One peer.
pub struct Peer {
    /// The way to the peer.
    client: RpcClient,
    /// Where acknowledgements are recorded.
    lease: Arc<LeaseClock>,
    /// Where it is noted what the answers tell of the peers' machines.
    this_node: Arc<ThisNode>,
    /// The state that the group keeps of all peers.
    peers: Arc<PeerState>,
    /// Sends the peer snapshots.
    snapshots: SnapshotSender,
}

impl Peer {
    /// The peer that `client` reaches.
    pub(super) fn new(
        client: RpcClient, lease: Arc<LeaseClock>, this_node: Arc<ThisNode>, peers: Arc<PeerState>,
        snapshots: SnapshotSender,
    ) -> Self {
        Peer { client, lease, this_node, peers, snapshots }
    }

    /// Sends an append, and reads from the answer whether the peer still follows the leader of the
    /// request's vote. If so, this is recorded as an acknowledgement.
    ///
    /// # Errors
    /// If the term is given up, and another node is to lead next. If no answer comes within `timeout`, if it cannot be
    /// read, or if it must be kept from Raft (an absurd term, or a log that is shorter than what the peer has acknowledged).
    pub async fn append(
        &self, request: &AppendEntriesRequest<Types>, timeout: Duration,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let sent = self.lease.now();
        let term = request.vote.leader_id.term;
        if !self.lease.may_append(term, self.client.target) {
            let text = format!(
                "node {} gets nothing more of term {term}, which is given up: it might keep others from being elected",
                self.client.target
            );
            return Err(RPCError::Unreachable(Unreachable::from_string(text)));
        }
        if is_planted(Bug::LeaseFromPipelinedAcknowledgements) {
            self.record_late_answers(request);
        }
        let members = self.client.addresses.members();
        let machines = &self.this_node.peer_machines;
        let message = RaftMessage {
            unheard: self.lease.unheard(self.client.header.from, members),
            wall_ms: Some(self.lease.wall_ms()),
            principals_version: self.peers.principals_version(),
            open_known: machines.open_known(self.client.target),
            without_majority: self.lease.is_without_majority(),
            ..self.client.message(request)?
        };
        let reply = self.client.send(RaftRpc::Append, message, timeout).await?;
        let low_disk = reply.low_disk.as_ref().map(|low| LowDisk {
            free_mb: low.free_mb,
            reserve_mb: low.reserve_mb,
            follower: Some(self.client.target),
        });
        machines.disks.note_room(self.client.target, low_disk);
        machines.disks.note_flush(self.client.target, reply.flush_ms, self.lease.now());
        if let Some(open) = &reply.open {
            machines.note_open(self.client.target, open);
        }
        let response: AppendEntriesResponse<Types> = self.client.read(RaftRpc::Append, &reply)?;
        machines.clocks.record(self.client.target, (sent, self.lease.now()), reply.wall_ms);
        self.record_acknowledged_index(request, &response)?;
        match &response {
            // The peer accepted this leader's vote, and so keeps out of elections. That holds even if
            // its log does not fit this leader's log yet.
            AppendEntriesResponse::Success
            | AppendEntriesResponse::PartialSuccess(_)
            | AppendEntriesResponse::Conflict => {
                self.lease.record_ack(term, self.client.target, sent);
            }
            AppendEntriesResponse::HigherVote(higher) => {
                self.client.check_term(term, higher.leader_id.term)?;
                self.lease.void_before(higher.leader_id.term);
            }
        }
        Ok(response)
    }

    /// A planted bug: an answer counts whenever it comes, from the latest message on.
    fn record_late_answers(&self, request: &AppendEntriesRequest<Types>) {
        let Ok(message) = self.client.message(request) else {
            return;
        };
        let (client, lease) = (self.client.clone(), self.lease.clone());
        let term = request.vote.leader_id.term;
        tokio::spawn(async move {
            let limit = Duration::from_secs(2);
            let answer = client.send(RaftRpc::Append, message, limit).await;
            if answer.is_ok() {
                lease.record_ack(term, client.target, lease.now());
            }
        });
    }

    /// Records the acknowledged index. A shorter log becomes an error here, because openraft would panic
    /// on it.
    fn record_acknowledged_index(
        &self, request: &AppendEntriesRequest<Types>, response: &AppendEntriesResponse<Types>,
    ) -> Result<(), RPCError<Types>> {
        let incarnation = self.client.header.to_incarnation;
        let term = request.vote.leader_id.term;
        let before = request.prev_log_id.map(|id| id.index);
        let matching = match response {
            AppendEntriesResponse::Success => {
                let last = request.entries.last().map(|entry| entry.log_id.index);
                last.or(before)
            }
            AppendEntriesResponse::PartialSuccess(up_to) => up_to.map(|id| id.index),
            AppendEntriesResponse::HigherVote(_) => None,
            AppendEntriesResponse::Conflict => {
                let acknowledged = &self.peers.acknowledged;
                let forgotten =
                    before.and_then(|index| acknowledged.covering(incarnation, term, index));
                return forgotten.map_or(Ok(()), |up_to| Err(self.forgot(up_to)));
            }
        };
        if let Some(index) = matching {
            self.peers.acknowledged.record(incarnation, term, index);
        }
        Ok(())
    }

    fn forgot(&self, up_to: u64) -> RPCError<Types> {
        let target = self.client.target;
        let text = format!(
            "node {target} at {} forgot entries that it had acknowledged (up to {up_to}): its data \
             directory is an older copy, or its disk lost what it had synced. It gets no more \
             entries; {}",
            self.client.address(),
            replacing(target)
        );
        tracing::error!("{text}");
        RPCError::Unreachable(Unreachable::from_string(text))
    }

    /// Asks the peer for its vote, or whether it would give it.
    ///
    /// # Errors
    /// If no answer comes within `timeout`, or if it cannot be read, or tells of an absurd term.
    pub async fn request_vote(
        &self, rpc: RaftRpc, request: &VoteRequest<Types>, timeout: Duration,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.peers.note_candidacy(self.lease.now());
        let reply = self.client.send(rpc, self.client.message(request)?, timeout).await?;
        let disks = &self.this_node.peer_machines.disks;
        disks.note_flush(self.client.target, reply.flush_ms, self.lease.now());
        let response: VoteResponse<Types> = self.client.read(rpc, &reply)?;
        let asked = request.vote.leader_id.term;
        self.client.check_term(asked, response.vote.leader_id.term)?;
        Ok(response)
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self, request: AppendEntriesRequest<Types>, option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        self.append(&request, option.soft_ttl()).await
    }

    async fn vote(
        &mut self, request: VoteRequest<Types>, option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.request_vote(RaftRpc::Vote, &request, option.soft_ttl()).await
    }

    async fn pre_vote(
        &mut self, request: VoteRequest<Types>, option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.request_vote(RaftRpc::PreVote, &request, option.soft_ttl()).await
    }

    async fn transfer_leader(
        &mut self, request: TransferLeaderRequest<Types>, option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        // Followers drop their promise on this message, so the lease must be void before it leaves,
        // whatever made Raft send it.
        let term = request.from_leader().leader_id.term;
        self.lease.void_before(term + 1);
        let timeout = option.soft_ttl();
        self.client.call(RaftRpc::TransferLeader, &request, timeout).await
    }

    async fn full_snapshot(
        &mut self, vote: Vote, snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static, _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        tokio::select! {
            biased;
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = self.snapshots.send(vote, snapshot) => {
                if let Ok(response) = &sent
                    && response.vote.leader_id.term > vote.leader_id.term
                {
                    // As after an append that a higher vote refuses: before Raft acts on it.
                    self.lease.void_before(response.vote.leader_id.term);
                }
                sent
            }
        }
    }
}

#[cfg(test)]
mod tests;
