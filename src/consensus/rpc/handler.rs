//! Answers one Raft RPC of a peer.
//!
//! Invariant: nothing of a later term reaches Raft before this node's own lease of an earlier term is
//! void, because Raft may grant a vote, or obey a successor, as soon as it hears of one. Messages that
//! are not from a member, or cannot be honest, are refused before ([`Group::check_sender`],
//! [`Group::check_vote`]).

use std::sync::Arc;

use bytes::Bytes;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest, VoteResponse};

use super::{
    sender_check::SenderRole,
    wire::{read, stopped, write},
};
use crate::{
    consensus::{
        group::{Group, raft_state::is_higher_vote},
        network::RaftRpc,
    },
    proto::{Refusal, peer::Header, refusal},
    storage::Types,
};

impl Group {
    /// Answers one Raft RPC. As long as this node belongs to no cluster, it does so to the end, even if the caller does not
    /// wait for it. What is `held`, such as memory for the message, is let go then.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it cannot be read, or carries a vote that is not the sender's.
    /// FAILED_PRECONDITION if it is not meant for this node, not from a member, or of an absurd term.
    /// UNAVAILABLE if Raft has stopped.
    pub async fn handle_rpc(
        self: &Arc<Self>, rpc: RaftRpc, header: Option<&Header>, payload: &Bytes,
        held: impl Send + 'static,
    ) -> Result<Vec<u8>, Refusal> {
        let Some(kept) = self.keep_incarnation().await else {
            return self.answer_rpc(rpc, header, payload).await;
        };
        let (group, header, payload) = (self.clone(), header.cloned(), payload.clone());
        let answering = async move {
            let answer = group.answer_rpc(rpc, header.as_ref(), &payload).await;
            drop((kept, held));
            answer
        };
        let answering = tokio::spawn(self.tasks().watched("a first message", answering));
        answering.await.unwrap_or_else(|error| Err(refusal!(Internal, "{error}")))
    }

    async fn answer_rpc(
        &self, rpc: RaftRpc, header: Option<&Header>, payload: &[u8],
    ) -> Result<Vec<u8>, Refusal> {
        let header = self.check_header(header)?;
        let (me, must_be) = (self.node(), sender_role(rpc));
        self.check_sender(header, must_be)?;
        match rpc {
            RaftRpc::Append => self.handle_append(header, read(me, payload)?).await,
            RaftRpc::Vote => self.handle_vote(header, read(me, payload)?).await,
            RaftRpc::PreVote => self.handle_pre_vote(header, read(me, payload)?).await,
            RaftRpc::TransferLeader => self.handle_transfer(header, read(me, payload)?).await,
        }
    }

    async fn handle_append(
        &self, header: &Header, request: AppendEntriesRequest<Types>,
    ) -> Result<Vec<u8>, Refusal> {
        self.check_vote(header, &request.vote, true)?;
        // Raft adopts every later term of a leader, so the lease need not wait for its decision.
        self.lease.void_before(request.vote.leader_id.term);
        let arrived = self.lease.now();
        let answer = self.raft.append_entries(request).await.map_err(stopped)?;
        if !is_higher_vote(&answer) {
            self.heard_leader(header.from, arrived);
        }
        write(&answer)
    }

    async fn handle_pre_vote(
        &self, header: &Header, request: VoteRequest<Types>,
    ) -> Result<Vec<u8>, Refusal> {
        self.check_vote(header, &request.vote, false)?;
        write(&self.raft.pre_vote(request).await.map_err(stopped)?)
    }

    /// A vote request that Raft refuses leaves this node's lease as it is: Raft is asked first what it
    /// would answer by its own rules (a leader is heard, this log is longer, another vote was given).
    async fn handle_vote(
        &self, header: &Header, request: VoteRequest<Types>,
    ) -> Result<Vec<u8>, Refusal> {
        self.check_vote(header, &request.vote, false)?;
        // In a transfer the leader itself lets its followers break their promise.
        if !request.leadership_transfer {
            let would = self.raft.pre_vote(request.clone()).await.map_err(stopped)?;
            if !would.vote_granted {
                return write(&would);
            }
        }
        let term = request.vote.leader_id.term;
        let pending = self.lease.void_while_pending(term);
        let answer: VoteResponse<Types> = self.raft.vote(request).await.map_err(stopped)?;
        if answer.vote.leader_id.term < term {
            pending.rejected();
        }
        write(&answer)
    }

    async fn handle_transfer(
        &self, header: &Header, request: TransferLeaderRequest<Types>,
    ) -> Result<Vec<u8>, Refusal> {
        let from = *request.from_leader();
        self.check_vote(header, &from, true)?;
        if self.is_retiring() {
            return Err(refusal!(NodeStopping, "node {} stops", self.node()));
        }
        let state = self.raft.with_raft_state(|state| *state.vote_ref()).await;
        let known = state.map_err(stopped)?;
        if known != from {
            return Err(refusal!(
                WrongState,
                "node {} does not follow the leader of term {}; it knows the vote {known}",
                self.node(),
                from.leader_id.term
            ));
        }
        self.lease.void_before(from.leader_id.term);
        let answer = self.raft.handle_transfer_leader(request).await;
        write(&answer.map_err(stopped)?)
    }
}

/// Appends may come from any member, all else from voters alone.
fn sender_role(rpc: RaftRpc) -> SenderRole {
    match rpc {
        RaftRpc::Append => SenderRole::Member,
        RaftRpc::Vote | RaftRpc::PreVote | RaftRpc::TransferLeader => SenderRole::Voter,
    }
}
