//! Takes in a snapshot, part by part.
//!
//! Invariant: nothing of a snapshot reaches the disk before its sender's vote is known to be acceptable.
//! Nothing of it reaches Raft before it has proved to be whole, and to be what was announced.

use std::sync::Arc;

use bytes::Bytes;
use openraft::{
    Snapshot,
    async_runtime::watch::WatchReceiver,
    raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse},
};

use super::RpcHandler;
use crate::{
    consensus::network::payload::{read, stopped, write},
    proto::{Refusal, peer::SnapshotPart, refusal, refuse},
    sequence::NodeId,
    storage::{
        IncomingSnapshot, LogId, SNAPSHOT_PART_BYTES_MAX, SnapshotData, SnapshotMeta, StoreError,
        Types, Vote,
    },
};

/// A snapshot of which some parts have arrived. Dropped, it leaves nothing behind.
pub struct ArrivingSnapshot {
    from: NodeId,
    /// For which directory of this node it is.
    to_incarnation: u64,
    vote: Vote,
    meta: SnapshotMeta,
    incoming: IncomingSnapshot,
    /// Its number among the snapshots that have begun to arrive.
    number: u64,
}

impl RpcHandler {
    /// Reads the announcement in the first part of a snapshot, and makes room for the rest. The inner
    /// error is the answer to send instead if the sender no longer leads.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the part cannot be read. FAILED_PRECONDITION if it is not meant for this node,
    /// or not from a member. INTERNAL if the disk fails or is nearly full.
    pub async fn begin_snapshot(
        &self, first: &SnapshotPart,
    ) -> Result<Result<ArrivingSnapshot, Vec<u8>>, Refusal> {
        let header = self.check_header(first.header.as_ref())?;
        self.check_sender(header, false)?;
        let (vote, meta): (Vote, SnapshotMeta) = read(self.group.node(), &first.payload)?;
        self.check_vote(header, &vote, true)?;
        let (view, work) = (self.group.view.clone(), self.group.this_node.store.blocking());
        let begun = work.run(move || IncomingSnapshot::create(&view)).await;
        let incoming = begun
            .map_err(|e| refusal!(Internal, "beginning a snapshot failed: {e}"))?
            .map_err(|e| self.not_taken(e))?;
        // Raft decides when the snapshot is whole. This only spares an old leader the sending, and a new one that it is
        // replaced.
        let mine = self.group.raft.metrics().borrow_watched().vote;
        if vote.leader_id.term < mine.leader_id.term {
            return write(&SnapshotResponse::<Types>::new(mine)).map(Err);
        }
        Ok(Ok(ArrivingSnapshot {
            from: header.from,
            to_incarnation: header.to_incarnation,
            vote,
            meta,
            incoming,
            number: self.snapshot_arrivals.begin(),
        }))
    }

    /// Writes the next part of a snapshot, as long as the disk keeps a reserve. A snapshot that begins
    /// later replaces this one.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the part is too large. FAILED_PRECONDITION if another snapshot has begun. INTERNAL if the
    /// part is damaged or cannot be written.
    pub async fn write_snapshot_part(
        &self, mut arriving: ArrivingSnapshot, part: Bytes,
    ) -> Result<ArrivingSnapshot, Refusal> {
        if !self.snapshot_arrivals.is_latest(arriving.number) {
            refuse!(
                WrongState,
                "the snapshot from node {} is given up: another one began to arrive",
                arriving.from
            );
        }
        if part.len() > SNAPSHOT_PART_BYTES_MAX {
            refuse!(
                InvalidRequest,
                "a part of a snapshot has {} bytes; it may have at most {SNAPSHOT_PART_BYTES_MAX}",
                part.len()
            );
        }
        let written = self.group.this_node.store.blocking().run(move || {
            arriving.incoming.write(&part)?;
            Ok(arriving)
        });
        written
            .await
            .map_err(|e| refusal!(Internal, "writing a snapshot failed: {e}"))?
            .map_err(|e| self.not_taken(e))
    }

    /// Checks and installs a snapshot that has arrived whole, to the end even if the caller does not wait for it. Returns the
    /// answer to its sender.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is not what was announced, or is of another cluster. FAILED_PRECONDITION if somebody else has
    /// claimed this node meanwhile. INTERNAL if it is damaged or cannot be written. UNAVAILABLE if Raft has stopped.
    pub async fn install_snapshot(
        self: &Arc<Self>, arrived: ArrivingSnapshot,
    ) -> Result<Vec<u8>, Refusal> {
        let handler = self.clone();
        let installing = async move { handler.install(arrived).await };
        let tasks = &self.group.this_node.tasks;
        let installing = tokio::spawn(tasks.watched("installing a snapshot", installing));
        installing.await.unwrap_or_else(|error| Err(refusal!(Internal, "{error}")))
    }

    async fn install(&self, arrived: ArrivingSnapshot) -> Result<Vec<u8>, Refusal> {
        let ArrivingSnapshot { from, to_incarnation, vote, meta, incoming, number: _ } = arrived;
        let group = &self.group;
        let finished = group.this_node.store.blocking().run(move || {
            let snapshot = incoming.finish()?;
            let cluster = snapshot.cluster_id()?;
            Ok((snapshot, cluster))
        });
        let (snapshot, cluster) = finished
            .await
            .map_err(|e| refusal!(Internal, "checking a snapshot failed: {e}"))?
            .map_err(|e| self.not_taken(e))?;
        if *snapshot.meta() != meta {
            refuse!(
                InvalidRequest,
                "node {from} announced a snapshot up to {:?} and sent one up to {:?}",
                meta.last_log_id,
                snapshot.meta().last_log_id
            );
        }
        // Installed, it would end this node: the id of a cluster never changes.
        if let (Some(named), Some(known)) = (cluster, group.view.cluster_id())
            && named != known
        {
            refuse!(
                InvalidRequest,
                "node {from} sent a snapshot of cluster {named}; this node is of cluster {known}"
            );
        }
        let _kept =
            group.keep_incarnation().await.map_err(|error| refusal!(Internal, "{error}"))?;
        if to_incarnation != group.this_node.store.incarnation() {
            refuse!(
                WrongState,
                "the snapshot from node {from} is for an incarnation that this node has no more: another cluster has claimed it"
            );
        }
        group.lease.void_before(vote.leader_id.term);
        if let Some(vote) = self.vote_if_not_needed(vote, meta.last_log_id).await? {
            return write(&SnapshotResponse::<Types>::new(vote));
        }
        let snapshot = SnapshotData::Arrived(snapshot);
        let arrived = group.lease.now();
        let answer = group
            .raft
            .install_full_snapshot(vote, Snapshot { meta, snapshot })
            .await
            .map_err(stopped)?;
        if answer.vote == vote {
            group.heard_leader(from, arrived);
        }
        write(&answer)
    }

    /// This node's vote, if a snapshot up to `last` must not be installed: Raft's log reaches as far
    /// already, or the sender no longer leads. Given a snapshot that ends before the log does, openraft
    /// would count back what it has written, and panic on that.
    async fn vote_if_not_needed(
        &self, vote: Vote, last: Option<LogId>,
    ) -> Result<Option<Vote>, Refusal> {
        let question = AppendEntriesRequest {
            vote,
            prev_log_id: last,
            entries: Vec::new(),
            // The entries in a snapshot are committed.
            leader_commit: last,
        };
        let answer = self.group.raft.append_entries(question).await.map_err(stopped)?;
        Ok(match answer {
            AppendEntriesResponse::Success | AppendEntriesResponse::PartialSuccess(_) => Some(vote),
            AppendEntriesResponse::HigherVote(higher) => Some(higher),
            AppendEntriesResponse::Conflict => None,
        })
    }

    /// A snapshot could not be taken in. That does this node no harm: the leader sends another one.
    fn not_taken(&self, error: StoreError) -> Refusal {
        self.group.set_metrics.snapshot_failures.inc();
        tracing::warn!(%error, "a snapshot was not taken in");
        refusal!(Internal, "{error}")
    }
}

#[cfg(test)]
mod tests;
