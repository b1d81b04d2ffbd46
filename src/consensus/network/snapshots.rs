//! How a snapshot is sent to a peer that lacks what the log no longer holds.
//!
//! Invariant: every attempt sends the table as it is then. What was damaged on the way, or could not
//! be read or written, is never sent again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use openraft::{
    errors::{StreamingError, Unreachable},
    raft::SnapshotResponse,
};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};
use tonic::{Code, Status};

use super::{Network, Peer, terms, unreadable};
use crate::{
    proto::peer::SnapshotPart,
    storage::{OutgoingSnapshot, Snapshot, SnapshotData, SnapshotMeta, Types, Vote, codec},
};

/// A snapshot is sent no faster, in bytes per second: the leader goes on handing out numbers. (Ten million
/// sections take some 45 s; at 32 MiB/s the p99 of calls was twice as high meanwhile, on two cores.)
const BYTES_PER_SECOND: u64 = 8 << 20;
/// A peer that takes nothing of a snapshot for so long, or does not say that it is installed, is given
/// up: the view of the table that it is read from takes room on this node's disk.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// After a snapshot was installed the entries after it are kept for so long, or for as long as it was under
/// way, whichever is longer.
const CATCH_UP: Duration = Duration::from_secs(60);
/// After a failed attempt the peer is left alone for so long, doubled with each further one ...
const RETRY: Duration = Duration::from_secs(1);
/// ... so many times.
const RETRY_DOUBLINGS_MAX: u32 = 6;

impl Peer {
    /// Sends a snapshot and waits until it is installed. After a failure that is not the network's it
    /// returns only when it is time for another attempt.
    pub(super) async fn send_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let started = Instant::now();
        match self.try_to_send(vote, snapshot).await {
            Ok((response, bytes)) => {
                self.snapshots_refused = 0;
                let metrics = &self.network.metrics;
                metrics.snapshot_bytes.set(bytes.cast_signed());
                metrics
                    .snapshot_seconds
                    .set(started.elapsed().as_secs_f64());
                Ok(response)
            }
            // It is not there: Raft asks again soon.
            Err(status) if matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded) => {
                Err(Unreachable::from_string(status.message()).into())
            }
            Err(status) => {
                self.network.metrics.snapshot_failures.inc();
                let doublings = self.snapshots_refused.min(RETRY_DOUBLINGS_MAX);
                let retry = RETRY * 2u32.pow(doublings);
                self.snapshots_refused += 1;
                tracing::warn!(
                    peer = self.target,
                    reason = status.message(),
                    retry_seconds = retry.as_secs(),
                    "a snapshot was not installed; another one is sent later"
                );
                tokio::time::sleep(retry).await;
                Err(Unreachable::from_string(status.message()).into())
            }
        }
    }

    async fn try_to_send(
        &self,
        vote: Vote,
        snapshot: Snapshot,
    ) -> Result<(SnapshotResponse<Types>, u64), Status> {
        let SnapshotData::Outgoing(data) = snapshot.snapshot else {
            return Err(Status::internal("a snapshot that arrived is not sent on"));
        };
        let covered = snapshot.meta.last_log_id.map(|last| last.index);
        let started = Instant::now();
        let hold = LogHold::after(&self.network.log_holds, covered.unwrap_or(0));
        let about: (Vote, SnapshotMeta) = (vote, snapshot.meta);
        let about = codec::encode(&about).map_err(|e| Status::internal(e.to_string()))?;
        let first = SnapshotPart {
            header: Some(self.header.clone()),
            payload: about.into(),
        };
        let (told, mut progress) = mpsc::unbounded_channel();
        let parts = stream::iter([first]).chain(parts_of(data, told));
        let transport = &self.network.transport;
        let address = self.address();
        let mut installing = transport.install_snapshot(&address, parts.boxed());
        let mut bytes = 0;
        let reply = loop {
            tokio::select! {
                biased;
                Some(read) = progress.recv() => bytes += read.map_err(Status::internal)?,
                reply = &mut installing => break reply,
                () = tokio::time::sleep(IDLE_MAX) => return Err(self.is_stuck(bytes)),
            }
        };
        while let Ok(read) = progress.try_recv() {
            // Whatever the peer made of what it got: the reason is here.
            bytes += read.map_err(Status::internal)?;
        }
        let reply = reply.map_err(|status| {
            let target = self.target;
            let text = format!("snapshot to node {target}: {}", status.message());
            Status::new(status.code(), text)
        })?;
        let response: SnapshotResponse<Types> = codec::decode(&reply.payload).map_err(|error| {
            Status::internal(unreadable("the answer to a snapshot", self.target, &error))
        })?;
        terms::check(vote.leader_id.term, response.vote.leader_id.term)
            .map_err(Status::internal)?;
        if let (Some(index), true) = (covered, response.vote == vote) {
            let term = vote.leader_id.term;
            let acknowledged = &self.network.acknowledged;
            acknowledged.note(self.header.to_incarnation, term, index);
        }
        let catching_up = started.elapsed().max(CATCH_UP);
        tokio::spawn(async move {
            tokio::time::sleep(catching_up).await;
            drop(hold);
        });
        Ok((response, bytes))
    }

    fn is_stuck(&self, bytes: u64) -> Status {
        Status::aborted(format!(
            "node {} took {bytes} bytes of a snapshot, and then nothing for {} s; does its disk hang?",
            self.target,
            IDLE_MAX.as_secs()
        ))
    }
}

impl Network {
    /// Up to where the log may be purged: whoever is sent a snapshot goes on with the entries after
    /// it, and would need another snapshot without them.
    pub(in crate::consensus) fn purgeable_max(&self) -> u64 {
        let holds = self.log_holds.0.lock();
        holds.keys().next().copied().unwrap_or(u64::MAX)
    }
}

/// After which entries the log is held for peers, and for how many of them.
#[derive(Default)]
pub(super) struct LogHolds(Mutex<BTreeMap<u64, usize>>);

/// Holds the log after an entry until it is dropped.
struct LogHold {
    holds: Arc<LogHolds>,
    after: u64,
}

impl LogHold {
    fn after(holds: &Arc<LogHolds>, after: u64) -> Self {
        *holds.0.lock().entry(after).or_default() += 1;
        LogHold {
            holds: holds.clone(),
            after,
        }
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        let mut holds = self.holds.0.lock();
        if let Some(peers) = holds.get_mut(&self.after) {
            *peers -= 1;
            if *peers == 0 {
                holds.remove(&self.after);
            }
        }
    }
}

/// The parts of a snapshot as a stream that reads the table as fast as the peer takes it, but no
/// faster than [`BYTES_PER_SECOND`]; `told` hears of the bytes of each part, or why there are no
/// more.
fn parts_of(
    snapshot: OutgoingSnapshot,
    told: mpsc::UnboundedSender<Result<u64, String>>,
) -> impl futures::Stream<Item = SnapshotPart> + Send + 'static {
    let start = (snapshot, Instant::now());
    stream::unfold(start, move |(mut snapshot, due)| {
        let told = told.clone();
        async move {
            tokio::time::sleep_until(due).await;
            let part = snapshot.next_part().await?;
            let bytes = part.as_ref().map_or(0, |part| part.len() as u64);
            // Nobody listens any more where the sending was given up. After an error the stream ends
            // short, and the peer refuses what arrived.
            let told = told.send(part.as_ref().map(|_| bytes).map_err(ToString::to_string));
            let payload = part.ok()?.into();
            told.ok()?;
            let next = due.max(Instant::now())
                + Duration::from_micros(bytes * 1_000_000 / BYTES_PER_SECOND);
            let header = None;
            Some((SnapshotPart { header, payload }, (snapshot, next)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_held_for_the_peer_that_needs_most_of_it() {
        let holds = Arc::new(LogHolds::default());
        let first = |holds: &LogHolds| holds.0.lock().keys().next().copied();
        let (late, early) = (LogHold::after(&holds, 70), LogHold::after(&holds, 50));
        let again = LogHold::after(&holds, 50);
        drop(early);
        assert_eq!(first(&holds), Some(50), "another peer is sent the same");
        drop(again);
        assert_eq!(first(&holds), Some(70));
        drop(late);
        assert_eq!(first(&holds), None);
    }
}
