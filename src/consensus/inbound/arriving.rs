//! A snapshot on its way in.
//!
//! Invariant: nothing of it reaches the disk before its sender's vote is known to be acceptable;
//! nothing of it reaches Raft before it proved to be whole, and what was announced.

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use openraft::{
    Snapshot,
    async_runtime::watch::WatchReceiver,
    raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse},
};
use tonic::Status;

use super::{Group, stopped, write};
use crate::{
    proto::peer::SnapshotPart,
    sequence::NodeId,
    storage::{
        IncomingSnapshot, LogId, SNAPSHOT_PART_BYTES_MAX, SnapshotData, SnapshotMeta, StoreError,
        Types, Vote,
    },
};

/// For how many election timeouts the next part of a snapshot is waited for.
const PART_PATIENCE: u32 = 30;

/// A snapshot of which some parts have arrived. Dropped, it leaves nothing behind.
pub struct ArrivingSnapshot {
    from: NodeId,
    vote: Vote,
    meta: SnapshotMeta,
    incoming: IncomingSnapshot,
    /// It is the so manieth one that began to arrive.
    number: u64,
}

impl Group {
    /// How long the next part of a snapshot is waited for. Whoever stops sending must not hold its
    /// room for ever.
    pub fn part_patience(&self) -> Duration {
        self.follower_lease() * PART_PATIENCE
    }

    /// Reads what the first part of a snapshot says of the rest, and makes room for it; or has the
    /// answer ready, where the sender leads no longer.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for what cannot be read, FAILED_PRECONDITION for what is not meant for this
    /// node or not from a member, INTERNAL where the disk fails or is nearly full.
    pub fn snapshot_begins(
        &self,
        first: &SnapshotPart,
    ) -> Result<Result<ArrivingSnapshot, Vec<u8>>, Status> {
        let header = self.check_header(first.header.as_ref())?;
        self.check_sender(header, false)?;
        let (vote, meta): (Vote, SnapshotMeta) = self.read(&first.payload)?;
        self.check_vote(header, &vote, true)?;
        // Raft judges again once the snapshot is whole; until then its sender need not bother.
        let mine = self.raft.metrics().borrow_watched().vote;
        if vote.leader_id.term < mine.leader_id.term {
            return write(&SnapshotResponse::<Types>::new(mine)).map(Err);
        }
        let incoming = IncomingSnapshot::create(self.view()).map_err(|e| self.not_taken(e))?;
        Ok(Ok(ArrivingSnapshot {
            from: header.from,
            vote,
            meta,
            incoming,
            number: self.heard.snapshots.fetch_add(1, Ordering::Relaxed) + 1,
        }))
    }

    /// Writes the next part of a snapshot, as long as the disk keeps a reserve. One that began later
    /// takes its place.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a part that is too large, ABORTED where another one began, INTERNAL when
    /// it is damaged or cannot be written.
    pub async fn snapshot_goes_on(
        &self,
        mut arriving: ArrivingSnapshot,
        part: Bytes,
    ) -> Result<ArrivingSnapshot, Status> {
        let latest = self.heard.snapshots.load(Ordering::Relaxed);
        if arriving.number != latest {
            return Err(Status::aborted(format!(
                "the snapshot from node {} is given up: another one began to arrive",
                arriving.from
            )));
        }
        if part.len() > SNAPSHOT_PART_BYTES_MAX {
            return Err(Status::invalid_argument(format!(
                "a part of a snapshot has {} bytes; it may have at most {SNAPSHOT_PART_BYTES_MAX}",
                part.len()
            )));
        }
        let written = self.store().blocking().run(move || {
            arriving.incoming.write(&part)?;
            Ok(arriving)
        });
        written
            .await
            .map_err(|e| Status::internal(format!("writing a snapshot failed: {e}")))?
            .map_err(|e| self.not_taken(e))
    }

    /// Checks and installs a snapshot that has arrived whole.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is not what was announced, INTERNAL if it is damaged or cannot be
    /// written, UNAVAILABLE when Raft has stopped.
    pub async fn snapshot_arrived(&self, arrived: ArrivingSnapshot) -> Result<Vec<u8>, Status> {
        let ArrivingSnapshot {
            from,
            vote,
            meta,
            incoming,
            ..
        } = arrived;
        let finished = self.store().blocking().run(move || incoming.finish()).await;
        let snapshot = finished
            .map_err(|e| Status::internal(format!("checking a snapshot failed: {e}")))?
            .map_err(|e| self.not_taken(e))?;
        if *snapshot.meta() != meta {
            return Err(Status::invalid_argument(format!(
                "node {from} announced a snapshot up to {:?} and sent one up to {:?}",
                meta.last_log_id,
                snapshot.meta().last_log_id
            )));
        }
        self.lease.void_before(vote.leader_id.term);
        if let Some(vote) = self.has_in_its_log(vote, meta.last_log_id).await? {
            return write(&SnapshotResponse::<Types>::new(vote));
        }
        let snapshot = SnapshotData::Arrived(snapshot);
        let arrived = self.lease.now();
        let answer = self
            .raft
            .install_full_snapshot(vote, Snapshot { meta, snapshot })
            .await
            .map_err(stopped)?;
        if answer.vote == vote {
            self.follows(from, arrived);
        }
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
