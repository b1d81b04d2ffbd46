//! Answers one Raft RPC of a peer.
//!
//! Invariant: nothing of a later term reaches Raft before this node's own lease of an earlier term is
//! void, because Raft may grant a vote, or obey a successor, as soon as it hears of one. Messages that
//! are not from a member, or cannot be honest, are refused before (`RpcHandler::check_sender`,
//! `RpcHandler::check_vote`, `check_entries`).

use std::{pin::pin, sync::Arc};

use openraft::{
    RaftState,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, FlushPoint, TransferLeaderRequest,
        VoteRequest, VoteResponse,
    },
    type_config::TypeConfigExt,
};

use super::{RpcHandler, sender_check::check_entries};
use crate::{
    consensus::network::{
        RaftRpc,
        payload::{read, stopped, write},
    },
    planted_bugs::{Bug, is_planted},
    proto::{
        Refusal,
        peer::{Header, RaftMessage},
        refusal, refuse,
    },
    storage::{Types, Vote, is_higher_vote},
};

impl RpcHandler {
    /// Answers one Raft RPC. As long as this node belongs to no cluster, and if it is to lead, it does so to the end, even if
    /// the caller does not wait for it. Whatever is `held`, such as memory for the message, is let go then.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it cannot be read, or carries a vote that is not the sender's, or entries that no leader sends.
    /// FAILED_PRECONDITION if it is not meant for this node, not from a member, or of an absurd term.
    /// UNAVAILABLE if Raft has stopped. INTERNAL if this node does not know its incarnation.
    pub async fn handle(
        self: &Arc<Self>, rpc: RaftRpc, message: RaftMessage, held: impl Send + 'static,
    ) -> Result<Vec<u8>, Refusal> {
        let kept = self.group.keep_incarnation().await;
        let kept = kept.map_err(|error| refusal!(Internal, "{error}"))?;
        // The leader waits for the answer to a transfer no longer than Raft lets it. With slow disks it takes longer.
        if kept.is_none() && rpc != RaftRpc::TransferLeader {
            // Boxed: it has eight kilobytes, and those who wait for it would be moved with them.
            return Box::pin(self.answer(rpc, &message)).await;
        }
        let handler = self.clone();
        let answering = async move {
            let answer = handler.answer(rpc, &message).await;
            drop((kept, held));
            answer
        };
        let tasks = &self.group.this_node.tasks;
        let answering = tokio::spawn(tasks.watched("a first message, or a transfer", answering));
        answering.await.unwrap_or_else(|error| Err(refusal!(Internal, "{error}")))
    }

    async fn answer(&self, rpc: RaftRpc, message: &RaftMessage) -> Result<Vec<u8>, Refusal> {
        let RaftMessage { header, payload, .. } = message;
        let header = self.check_header(header.as_ref())?;
        // Appends may come from any member, all else from voters alone.
        self.check_sender(header, rpc != RaftRpc::Append)?;
        let me = self.group.node();
        match rpc {
            RaftRpc::Append => self.handle_append(header, read(me, payload)?, message).await,
            RaftRpc::Vote => self.handle_vote(header, read(me, payload)?).await,
            RaftRpc::PreVote => self.handle_pre_vote(header, read(me, payload)?).await,
            RaftRpc::TransferLeader => self.handle_transfer(header, read(me, payload)?).await,
        }
    }

    async fn handle_append(
        &self, header: &Header, request: AppendEntriesRequest<Types>, message: &RaftMessage,
    ) -> Result<Vec<u8>, Refusal> {
        let group = &self.group;
        self.check_vote(header, &request.vote, true)?;
        check_entries(&request)?;
        // Raft adopts every later term of a leader, so the lease need not wait for its decision.
        let term = request.vote.leader_id.term;
        group.lease.void_before(term);
        group.hear_of_leader(term, header.from);
        let (arrived, arrived_ms) = (group.lease.now(), group.wall_ms());
        let followed = self.followed_before_the_disk(&request);
        let mut answering = pin!(group.raft.append_entries(request));
        let answer = tokio::select! {
            biased;
            answer = &mut answering => answer.map_err(stopped)?,
            () = followed => AppendEntriesResponse::Success,
        };
        if !is_higher_vote(&answer) {
            let is_last = group.heard_leader(header.from, arrived);
            group.hear_of_principals(message.principals_version);
            if is_last {
                group.heard_leader.note_unheard(&message.unheard);
                if !message.without_majority {
                    group.heard_leader.note_majority(arrived);
                }
            }
            if let Some(wall_ms) = message.wall_ms.filter(|_| is_last) {
                group.heard_leader.note_wall_clock(wall_ms, arrived_ms);
                let clocks = &group.this_node.peer_machines.clocks;
                clocks.record_message(header.from, arrived, wall_ms);
            }
        }
        write(&answer)
    }

    /// Ends once Raft has followed the leader of `heartbeat`, and renewed this node's promise, if its answer then waits only
    /// for writes that are none of its business. Never ends if the append is no heartbeat.
    ///
    /// Raft answers an append once all that it has written, and not only what the answer tells of, is on the disk. With a
    /// slow disk a heartbeat behind an entry would be answered so late that the leader's lease runs out, although the
    /// promise that the lease rests on needs no disk: it binds this process, and after a restart the silence of `rejoin`
    /// does. The log and the vote of which the answer tells are on the disk: Raft's own measure of that is asked.
    fn followed_before_the_disk(
        &self, heartbeat: &AppendEntriesRequest<Types>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let is_heartbeat = heartbeat.entries.is_empty()
            && self.group.this_node.store.health().oldest_pending().is_some()
            && !is_planted(Bug::HeartbeatsWaitForDisk);
        let raft = self.group.raft.clone();
        let (vote, log_id) = (heartbeat.vote, heartbeat.prev_log_id);
        // Before Raft is given the append.
        let arrived = <Types as TypeConfigExt>::now();
        async move {
            let follows = move |state: &RaftState<Types>| {
                let renewed = state.vote_last_modified().is_some_and(|at| at >= arrived);
                renewed && *state.vote_ref() == vote
            };
            // The append is on its way to Raft's core already. If the core looks at its state before it takes the append all
            // the same, the promise is not renewed yet, and this never ends.
            if is_heartbeat && matches!(raft.with_raft_state(follows).await, Ok(true)) {
                let flushed = raft.watch_log_progress().get();
                let holds = |flushed: FlushPoint<Types>| {
                    flushed.vote == vote && flushed.last_log_id >= log_id
                };
                if flushed.is_some_and(holds) {
                    return;
                }
            }
            std::future::pending().await
        }
    }

    async fn handle_pre_vote(
        &self, header: &Header, request: VoteRequest<Types>,
    ) -> Result<Vec<u8>, Refusal> {
        self.check_vote(header, &request.vote, false)?;
        write(&self.group.raft.pre_vote(request).await.map_err(stopped)?)
    }

    /// A vote request that Raft refuses leaves this node's lease as it is: Raft is asked first what it
    /// would answer by its own rules (a leader is heard, this log is longer, another vote was given).
    async fn handle_vote(
        &self, header: &Header, request: VoteRequest<Types>,
    ) -> Result<Vec<u8>, Refusal> {
        let group = &self.group;
        self.check_vote(header, &request.vote, false)?;
        // In a transfer the leader itself lets its followers break their promise.
        if !request.leadership_transfer {
            let mut would = group.raft.pre_vote(request.clone()).await.map_err(stopped)?;
            would.vote_granted &= !group.stands_in(request.vote.leader_id.term);
            if !would.vote_granted {
                return write(&would);
            }
        }
        let term = request.vote.leader_id.term;
        let pending = group.lease.void_while_pending(term);
        let answer: VoteResponse<Types> = group.raft.vote(request).await.map_err(stopped)?;
        if answer.vote.leader_id.term < term {
            pending.rejected();
        }
        write(&answer)
    }

    async fn handle_transfer(
        &self, header: &Header, request: TransferLeaderRequest<Types>,
    ) -> Result<Vec<u8>, Refusal> {
        let group = &self.group;
        let from = *request.from_leader();
        self.check_vote(header, &from, true)?;
        if group.is_retiring() {
            refuse!(NodeStopping, "node {} stops", group.node());
        }
        self.check_follows(&from).await?;
        group.lease.void_before(from.leader_id.term);
        if *request.to_node_id() == group.node() {
            group.canvass_for_transfer(from).await;
            if group.is_retiring() {
                refuse!(NodeStopping, "node {} stops", group.node());
            }
        }
        let answer = group.raft.handle_transfer_leader(request).await;
        write(&answer.map_err(stopped)?)
    }

    /// Checks that this node follows the leader whose vote `leader` is.
    pub(super) async fn check_follows(&self, leader: &Vote) -> Result<(), Refusal> {
        let known = self.group.raft.with_raft_state(|state| *state.vote_ref()).await;
        let known = known.map_err(stopped)?;
        match known == *leader {
            true => Ok(()),
            false => Err(refusal!(
                WrongState,
                "node {} does not follow the leader of term {}; it knows the vote {known}",
                self.group.node(),
                leader.leader_id.term
            )),
        }
    }
}
