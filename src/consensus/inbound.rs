//! What peers say to this group.
//!
//! Invariant: nothing of a later term reaches Raft before this node's own lease of an earlier term
//! is void: Raft may grant a vote, or obey a successor, the moment that it hears of one. And Raft
//! obeys whoever speaks of a later term; so what is not from a member, or cannot be honest, is
//! refused before.

use std::sync::atomic::AtomicU64;

use openraft::{
    async_runtime::watch::WatchReceiver,
    raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest, VoteResponse},
};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use tonic::Status;

use super::{
    group::{Group, is_higher},
    network::unreadable,
    terms,
    transport::RaftRpc,
};
use crate::{
    clock::Instant,
    proto::peer::Header,
    sequence::NodeId,
    storage::{Types, Vote, codec, replacing},
};

mod arriving;

pub use arriving::ArrivingSnapshot;

/// What this node heard from its peers of late.
#[derive(Debug, Default)]
pub struct Heard {
    /// The leader that it followed last, and when it heard of it.
    leader: Mutex<Option<(NodeId, Instant)>>,
    /// How many snapshots began to arrive.
    snapshots: AtomicU64,
}

impl Group {
    /// Refuses what is not meant for this node.
    ///
    /// # Errors
    /// FAILED_PRECONDITION with both sides' names.
    pub fn check_header<'a>(&self, header: Option<&'a Header>) -> Result<&'a Header, Status> {
        let Some(header) = header else {
            return Err(Status::invalid_argument("a peer message without a header"));
        };
        let config = self.config();
        let mine = self.store().identity();
        let refuse = |what: String| {
            Err(Status::failed_precondition(format!(
                "node {} of cluster {:?} refuses a message from node {}: {what}",
                config.node, config.cluster, header.from
            )))
        };
        if header.cluster != config.cluster {
            return refuse(format!("it is for cluster {:?}", header.cluster));
        }
        if header.to != config.node {
            return refuse(format!("it is for node {}", header.to));
        }
        if header.to_incarnation != mine.incarnation {
            if !self.is_formed() {
                // Our peers know this node with another directory: this one lost its files.
                self.stop_because(format!(
                    "the cluster {:?} knows node {} with another data directory than {}: the one \
                     here is new. Put back the lost directory itself, not a backup; or {}",
                    config.cluster,
                    config.node,
                    self.store().dir().display(),
                    replacing(config.node)
                ));
            }
            // Which one it is here is for members alone to know.
            return refuse(format!(
                "it is for another data directory of node {0} (incarnation {1:x}); if the one that \
                 the cluster knows was lost, {2}",
                config.node,
                header.to_incarnation,
                replacing(config.node)
            ));
        }
        if header.set != u64::from(config.set) {
            return refuse(format!("it is for set {}", header.set));
        }
        if header.election_timeout_ms != config.election_timeout_ms {
            return refuse(format!(
                "its election_timeout_ms is {}, here it is {}; all nodes must agree",
                header.election_timeout_ms, config.election_timeout_ms
            ));
        }
        Ok(header)
    }

    /// Refuses a sender that is no member.
    ///
    /// Of whom this node does not know yet it may have to hear: it was away while its peers changed,
    /// and the leader, or the only candidate with a chance, is somebody new. So a stranger is let in
    /// where this node hears of no leader, or follows this very one; its messages carry this node's
    /// incarnation, which members alone know. (A leader that lost its majority is heard in intervals
    /// that are longer than this memory: it cannot keep a stranger out for ever.)
    ///
    /// # Errors
    /// FAILED_PRECONDITION, with who is a member.
    fn check_sender(&self, header: &Header, must_vote: bool) -> Result<(), Status> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let known = membership.get_node(&header.from);
        let is_member = known.is_some_and(|node| node.incarnation == header.from_incarnation)
            && (!must_vote || membership.voter_ids().any(|voter| voter == header.from));
        let is_fresh = membership.nodes().next().is_none();
        if is_member || is_fresh {
            return Ok(());
        }
        match self.leader_heard_of_late() {
            Some(leader) if leader != header.from => {}
            _ => return Ok(()),
        }
        let ids: Vec<String> = membership.nodes().map(|(id, _)| id.to_string()).collect();
        let what = match known {
            Some(_) if must_vote => "that node does not vote with this data directory",
            _ => "that node is not a member with this data directory",
        };
        Err(Status::failed_precondition(format!(
            "node {} of cluster {:?} refuses a message from node {}: {what} (members: {}). If it was \
             removed, stop it; if it shall belong to the cluster, {}",
            self.node(),
            self.config().cluster,
            header.from,
            ids.join(", "),
            replacing(header.from)
        )))
    }

    /// Whom this node hears lead: itself, while it holds a lease, or whom it followed less than an
    /// election timeout ago.
    fn leader_heard_of_late(&self) -> Option<NodeId> {
        if self.lease.is_held() {
            return Some(self.node());
        }
        let (leader, at) = (*self.heard.leader.lock())?;
        (self.lease.now().since(at) < self.follower_lease()).then_some(leader)
    }

    /// When this node last followed a leader's message, if ever.
    pub fn leader_heard(&self) -> Option<Instant> {
        let heard = *self.heard.leader.lock();
        heard.map(|(_, at)| at)
    }

    /// This node follows a message of `leader`'s that arrived at `at`.
    fn follows(&self, leader: NodeId, at: Instant) {
        *self.heard.leader.lock() = Some((leader, at));
    }

    /// Refuses a vote that is not the sender's own, or of a term that no cluster comes to.
    fn check_vote(&self, header: &Header, vote: &Vote, of_leader: bool) -> Result<(), Status> {
        if vote.leader_id.voted_for != header.from || vote.committed != of_leader {
            return Err(Status::invalid_argument(format!(
                "a message from node {} carries the vote {vote}, which is not its own",
                header.from
            )));
        }
        let known = self.raft.metrics().borrow_watched().vote.leader_id.term;
        terms::check(known, vote.leader_id.term).map_err(|why| {
            let text = format!("a message from node {} is refused: {why}", header.from);
            tracing::error!("{text}");
            Status::failed_precondition(text)
        })
    }

    /// Answers one Raft message.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for what cannot be read, FAILED_PRECONDITION for what is not meant for this
    /// node, or not from a member, UNAVAILABLE when Raft has stopped.
    pub async fn answer(
        &self,
        rpc: RaftRpc,
        header: Option<&Header>,
        payload: &[u8],
    ) -> Result<Vec<u8>, Status> {
        let header = self.check_header(header)?;
        self.check_sender(header, rpc != RaftRpc::Append)?;
        match rpc {
            RaftRpc::Append => self.answer_append(header, self.read(payload)?).await,
            RaftRpc::Vote => self.answer_vote(header, self.read(payload)?).await,
            RaftRpc::PreVote => {
                let request: VoteRequest<Types> = self.read(payload)?;
                self.check_vote(header, &request.vote, false)?;
                write(&self.raft.pre_vote(request).await.map_err(stopped)?)
            }
            RaftRpc::TransferLeader => self.answer_transfer(header, self.read(payload)?).await,
        }
    }

    async fn answer_append(
        &self,
        header: &Header,
        request: AppendEntriesRequest<Types>,
    ) -> Result<Vec<u8>, Status> {
        self.check_vote(header, &request.vote, true)?;
        // Raft adopts every later term of a leader: it never refuses what makes a lease void here.
        self.lease.void_before(request.vote.leader_id.term);
        let arrived = self.lease.now();
        let answer = self.raft.append_entries(request).await.map_err(stopped)?;
        if !is_higher(&answer) {
            self.follows(header.from, arrived);
        }
        write(&answer)
    }

    /// A vote that Raft refuses leaves this node's lease as it is: Raft is asked first what it would
    /// answer, by its own rules (a leader is heard, the log is longer, another vote was given).
    async fn answer_vote(
        &self,
        header: &Header,
        request: VoteRequest<Types>,
    ) -> Result<Vec<u8>, Status> {
        self.check_vote(header, &request.vote, false)?;
        // In a transfer the leader itself lets its followers break their promise.
        if !request.leadership_transfer {
            let would = self.raft.pre_vote(request.clone()).await.map_err(stopped)?;
            if !would.vote_granted {
                return write(&would);
            }
        }
        let term = request.vote.leader_id.term;
        let shown = self.lease.show(term);
        let answer: VoteResponse<Types> = self.raft.vote(request).await.map_err(stopped)?;
        if answer.vote.leader_id.term < term {
            shown.refused();
        }
        write(&answer)
    }

    async fn answer_transfer(
        &self,
        header: &Header,
        request: TransferLeaderRequest<Types>,
    ) -> Result<Vec<u8>, Status> {
        let from = *request.from_leader();
        self.check_vote(header, &from, true)?;
        let state = self.raft.with_raft_state(|state| *state.vote_ref()).await;
        let follows = state.map_err(stopped)?;
        if follows != from {
            return Err(Status::failed_precondition(format!(
                "node {} does not follow the leader of term {}; it knows the vote {follows}",
                self.node(),
                from.leader_id.term
            )));
        }
        self.lease.void_before(from.leader_id.term);
        let answer = self.raft.handle_transfer_leader(request).await;
        write(&answer.map_err(stopped)?)
    }

    fn read<T: DeserializeOwned>(&self, payload: &[u8]) -> Result<T, Status> {
        codec::decode(payload).map_err(|error| {
            Status::invalid_argument(unreadable("a peer message", self.node(), &error))
        })
    }
}

fn write<T: Serialize>(answer: &T) -> Result<Vec<u8>, Status> {
    codec::encode(answer)
        .map_err(|e| Status::internal(format!("an answer to a peer cannot be written: {e}")))
}

fn stopped(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("Raft has stopped on this node: {error}"))
}

#[cfg(test)]
mod tests;
