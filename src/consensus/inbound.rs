//! What peers say to this group.
//!
//! Invariant: nothing of a later term reaches Raft before this node's own lease of an earlier term
//! is void: Raft may grant a vote, or obey a successor, the moment that it hears of one.

use bytes::Bytes;
use openraft::{
    Snapshot,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
        VoteRequest,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use tonic::Status;

use super::{
    group::{Group, is_higher},
    network::unreadable,
    transport::RaftRpc,
};
use crate::{
    proto::peer::Header,
    storage::{
        IncomingSnapshot, LogId, SnapshotData, SnapshotMeta, StoreError, Types, Vote, codec,
    },
};

impl Group {
    /// Refuses what is not meant for this node.
    ///
    /// # Errors
    /// FAILED_PRECONDITION with both sides' names.
    pub fn check_header(&self, header: Option<&Header>) -> Result<(), Status> {
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
                     here is new. Restore the lost directory, or remove the node from the cluster \
                     (ratchet node remove {}), then start it with --join and add it again",
                    config.cluster,
                    config.node,
                    self.store().dir().display(),
                    config.node
                ));
            }
            return refuse(format!(
                "it is for another data directory of node {} (incarnation {:x}, here {:x}); a node \
                 whose directory was lost must be removed from the cluster and added again",
                config.node, header.to_incarnation, mine.incarnation
            ));
        }
        if header.set != u64::from(config.set) {
            return refuse(format!("it is for set {}", header.set));
        }
        if header.follower_lease_ms != config.election_timeout_ms {
            return refuse(format!(
                "its election_timeout_ms is {}, here it is {}; all nodes must agree",
                header.follower_lease_ms, config.election_timeout_ms
            ));
        }
        Ok(())
    }

    /// Answers one Raft message.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for what cannot be read, UNAVAILABLE when Raft has stopped.
    pub async fn answer(&self, rpc: RaftRpc, payload: &[u8]) -> Result<Vec<u8>, Status> {
        match rpc {
            RaftRpc::Append => {
                let request: AppendEntriesRequest<Types> = self.read(payload)?;
                self.lease.void_before(request.vote.leader_id.term);
                let arrived = self.lease.now();
                let answer = self.raft.append_entries(request).await.map_err(stopped)?;
                if !is_higher(&answer) {
                    self.hear_leader(arrived);
                }
                write(&answer)
            }
            RaftRpc::Vote => {
                let request: VoteRequest<Types> = self.read(payload)?;
                self.lease.void_before(request.vote.leader_id.term);
                write(&self.raft.vote(request).await.map_err(stopped)?)
            }
            RaftRpc::PreVote => {
                let request: VoteRequest<Types> = self.read(payload)?;
                write(&self.raft.pre_vote(request).await.map_err(stopped)?)
            }
            RaftRpc::TransferLeader => {
                let request: TransferLeaderRequest<Types> = self.read(payload)?;
                self.lease.void_before(request.from_leader().leader_id.term);
                write(
                    &self
                        .raft
                        .handle_transfer_leader(request)
                        .await
                        .map_err(stopped)?,
                )
            }
        }
    }

    fn read<T: DeserializeOwned>(&self, payload: &[u8]) -> Result<T, Status> {
        codec::decode(payload).map_err(|error| {
            Status::invalid_argument(unreadable("a peer message", self.node(), &error))
        })
    }

    /// Reads what the first part of a snapshot says of the rest, and makes room for it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for what cannot be read, INTERNAL when the disk is nearly full.
    pub fn snapshot_begins(
        &self,
        payload: &[u8],
    ) -> Result<((Vote, SnapshotMeta), IncomingSnapshot), Status> {
        let about: (Vote, SnapshotMeta) = self.read(payload)?;
        self.lease.void_before(about.0.leader_id.term);
        let incoming = IncomingSnapshot::create(self.view()).map_err(|e| self.not_taken(e))?;
        Ok((about, incoming))
    }

    /// Writes the next part of a snapshot.
    ///
    /// # Errors
    /// INTERNAL when it is damaged or cannot be written.
    pub async fn snapshot_goes_on(
        &self,
        mut incoming: IncomingSnapshot,
        part: Bytes,
    ) -> Result<IncomingSnapshot, Status> {
        let written = self.store().work().run(move || {
            incoming.write(&part)?;
            Ok(incoming)
        });
        written
            .await
            .map_err(|e| Status::internal(format!("writing a snapshot failed: {e}")))?
            .map_err(|e| self.not_taken(e))
    }

    /// Checks and installs a snapshot that has arrived whole.
    ///
    /// # Errors
    /// INTERNAL if it is damaged or cannot be written, UNAVAILABLE when Raft has stopped.
    pub async fn snapshot_arrived(
        &self,
        (vote, meta): (Vote, SnapshotMeta),
        incoming: IncomingSnapshot,
    ) -> Result<Vec<u8>, Status> {
        let finished = self.store().work().run(move || incoming.finish()).await;
        let snapshot = finished
            .map_err(|e| Status::internal(format!("checking a snapshot failed: {e}")))?
            .map_err(|e| self.not_taken(e))?;
        if let Some(vote) = self.has_in_its_log(vote, meta.last_log_id).await? {
            return write(&SnapshotResponse::<Types>::new(vote));
        }
        let snapshot = SnapshotData::Arrived(snapshot);
        let answer = self
            .raft
            .install_full_snapshot(vote, Snapshot { meta, snapshot })
            .await
            .map_err(stopped)?;
        write(&answer)
    }

    /// Whether Raft's log reaches as far as a snapshot does already, or whoever sent it is not the
    /// leader any more; this node's vote, if so. Given a snapshot that ends before its log does, Raft's
    /// library would count back what it has written, and panic where it looks.
    async fn has_in_its_log(
        &self,
        vote: Vote,
        last: Option<LogId>,
    ) -> Result<Option<Vote>, Status> {
        let question = AppendEntriesRequest {
            vote,
            prev_log_id: last,
            entries: Vec::new(),
            // What is in a snapshot is committed.
            leader_commit: last,
        };
        let answer = self.raft.append_entries(question).await.map_err(stopped)?;
        Ok(match answer {
            AppendEntriesResponse::Success | AppendEntriesResponse::PartialSuccess(_) => Some(vote),
            AppendEntriesResponse::HigherVote(higher) => Some(higher),
            AppendEntriesResponse::Conflict => None,
        })
    }

    /// A snapshot that could not be taken in does this node no harm: the leader sends another one.
    fn not_taken(&self, error: StoreError) -> Status {
        self.network.metrics().snapshot_failures.inc();
        tracing::warn!(%error, "a snapshot was not taken in");
        Status::internal(error.to_string())
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
