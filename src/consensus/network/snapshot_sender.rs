//! Sends a snapshot to a peer that lacks entries which the log no longer holds.
//!
//! Invariant: every attempt sends the table as it is at that time. A part that was damaged on the way, or could not be read or
//! written, is never sent again.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};
use openraft::{
    errors::{StreamingError, Unreachable},
    raft::SnapshotResponse,
};
use tokio::{sync::mpsc, time::Instant};

use super::{log_holds::LogHold, payload, peer_state::PeerState, rpc_client::RpcClient};
use crate::{
    consensus::{lease::LeaseClock, terms},
    metrics::SetMetrics,
    proto::{
        Code, Refusal,
        peer::{RaftReply, SnapshotPart},
        refusal, refuse,
    },
    sequence::NodeId,
    storage::{OutgoingSnapshot, Snapshot, SnapshotData, SnapshotMeta, Types, Vote, codec},
};

/// A peer is given up if for so long it takes nothing of a snapshot, or does not say that it is
/// installed: the view of the table that the snapshot is read from takes room on this node's disk.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// After a snapshot was installed, the entries after it are kept for so long, or for as long as the
/// sending took, whichever is longer.
const CATCH_UP: Duration = Duration::from_secs(60);
/// After a failed attempt the peer is left alone for so long, doubled with each further failure ...
const RETRY: Duration = Duration::from_secs(1);
/// ... at most this many times. Where there is haste, it is not doubled; the wait ends when haste begins.
const RETRY_DOUBLINGS_MAX: u32 = 6;
/// How often a sender that waits looks whether there is haste.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whether a snapshot must arrive as soon as it can. A snapshot is sent slowly because the leader goes on handing out numbers.
/// It hands out none, or soon none, while it cannot log without the receiver.
#[derive(Clone)]
pub struct Haste {
    /// Knows which voters were heard.
    pub lease: Arc<LeaseClock>,
    /// The receiver.
    pub target: NodeId,
    /// A voter that was not heard for so long may be gone.
    pub heard: Duration,
}

impl Haste {
    fn is_needed(&self) -> bool {
        !self.lease.can_do_without(self.target, self.heard)
    }

    /// Waits until `due`, or until there is haste.
    async fn wait_until(&self, due: Instant) {
        while Instant::now() < due && !self.is_needed() {
            tokio::time::sleep_until(due.min(Instant::now() + LOOK_EVERY)).await;
        }
    }
}

/// Sends snapshots to one peer.
pub struct SnapshotSender {
    client: RpcClient,
    metrics: Arc<SetMetrics>,
    peers: Arc<PeerState>,
    haste: Haste,
    /// A snapshot is sent no faster, unless there is haste.
    bytes_per_second: u64,
    /// How many attempts in a row have failed although the peer could be reached.
    failures_in_a_row: u32,
}

impl SnapshotSender {
    /// A sender to the peer behind `client`, of `bytes_per_second` (at least 1) unless there is `haste`.
    pub fn new(
        client: RpcClient, metrics: Arc<SetMetrics>, peers: Arc<PeerState>, haste: Haste,
        bytes_per_second: u64,
    ) -> Self {
        SnapshotSender { client, metrics, peers, haste, bytes_per_second, failures_in_a_row: 0 }
    }

    /// Sends a snapshot, and waits until it is installed. After a failure that is not the network's, it
    /// returns only when it is time for another attempt.
    ///
    /// # Errors
    /// If the peer cannot be reached, refuses the snapshot, or takes nothing of it for [`IDLE_MAX`]; if
    /// the table cannot be read.
    pub async fn send(
        &mut self, vote: Vote, snapshot: Snapshot,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let started = Instant::now();
        match self.try_to_send(vote, snapshot).await {
            Ok((response, bytes)) => {
                self.failures_in_a_row = 0;
                self.metrics.snapshot_bytes.set(bytes.cast_signed());
                let seconds = started.elapsed().as_secs_f64();
                self.metrics.snapshot_seconds.set(seconds);
                Ok(response)
            }
            // The peer cannot be reached: Raft asks again soon.
            Err(refusal)
                if matches!(refusal.code(), Code::Unavailable | Code::DeadlineExceeded) =>
            {
                Err(Unreachable::from_string(refusal.message()).into())
            }
            Err(refusal) => {
                self.metrics.snapshot_failures.inc();
                let doublings = self.failures_in_a_row.min(RETRY_DOUBLINGS_MAX);
                let retry = RETRY * 2u32.pow(doublings);
                self.failures_in_a_row += 1;
                tracing::warn!(
                    peer = self.client.target,
                    reason = refusal.message(),
                    retry_seconds_max = retry.as_secs(),
                    "a snapshot was not installed; another one is sent later"
                );
                let failed = Instant::now();
                match self.haste.is_needed() {
                    true => tokio::time::sleep_until(failed + RETRY).await,
                    false => self.haste.wait_until(failed + retry).await,
                }
                Err(Unreachable::from_string(refusal.message()).into())
            }
        }
    }

    async fn try_to_send(
        &self, vote: Vote, snapshot: Snapshot,
    ) -> Result<(SnapshotResponse<Types>, u64), Refusal> {
        let SnapshotData::Outgoing(data) = snapshot.snapshot else {
            refuse!(Internal, "a snapshot that arrived is not sent on");
        };
        let last = snapshot.meta.last_log_id.map(|last| last.index);
        let started = Instant::now();
        let mut hold = LogHold::after(&self.peers.log_holds, last.unwrap_or(0));
        let announcement: (Vote, SnapshotMeta) = (vote, snapshot.meta);
        let announcement = codec::encode(&announcement).map_err(|e| refusal!(Internal, "{e}"))?;
        let first =
            SnapshotPart { header: Some(self.client.header.clone()), payload: announcement.into() };
        let (reply, bytes) = self.stream_parts(first, data).await?;
        hold.sent();
        let what = "the answer to a snapshot";
        let response: SnapshotResponse<Types> =
            payload::decode(what, self.client.target, &reply.payload)
                .map_err(|why| refusal!(Internal, "{why}"))?;
        let term = vote.leader_id.term;
        terms::check(term, response.vote.leader_id.term)
            .map_err(|why| refusal!(Internal, "{why}"))?;
        if let (Some(index), true) = (last, response.vote == vote) {
            let incarnation = self.client.header.to_incarnation;
            self.peers.acknowledged.record(incarnation, term, index);
        }
        let catching_up = started.elapsed().max(CATCH_UP);
        tokio::spawn(async move {
            tokio::time::sleep(catching_up).await;
            drop(hold);
        });
        Ok((response, bytes))
    }

    /// Sends `first` and the parts of `data`; the peer's answer, and how many bytes were read.
    async fn stream_parts(
        &self, first: SnapshotPart, data: OutgoingSnapshot,
    ) -> Result<(RaftReply, u64), Refusal> {
        let (report, mut progress) = mpsc::unbounded_channel();
        let parts = stream::iter([first]).chain(paced_parts(
            data,
            self.haste.clone(),
            self.bytes_per_second,
            report,
        ));
        let address = self.client.address();
        let mut installing =
            self.client.transport.install_snapshot(self.client.to(&address), parts.boxed());
        let mut bytes = 0;
        let reply = loop {
            tokio::select! {
                biased;
                Some(read) = progress.recv() => bytes += read.map_err(|why| refusal!(
                    Internal,
                    "{why}"
                ))?,
                reply = &mut installing => break reply,
                () = tokio::time::sleep(IDLE_MAX) => return Err(self.is_stuck(bytes)),
            }
        };
        while let Ok(read) = progress.try_recv() {
            // If reading failed, that is the reason for whatever the peer answered.
            bytes += read.map_err(|why| refusal!(Internal, "{why}"))?;
        }
        let reply = reply.map_err(|refusal| {
            let target = self.client.target;
            let text = format!("snapshot to node {target}: {}", refusal.message());
            refusal.retold(text)
        })?;
        Ok((reply, bytes))
    }

    fn is_stuck(&self, bytes: u64) -> Refusal {
        refusal!(
            WrongState,
            "node {} took {bytes} bytes of a snapshot, and then nothing for {} s; does its disk hang?",
            self.client.target,
            IDLE_MAX.as_secs()
        )
    }
}

/// The parts of a snapshot. The stream reads the table as fast as the peer takes it, but no faster than
/// `bytes_per_second` unless there is `haste`. To `report` it sends the bytes of each part, or why there are no more parts.
fn paced_parts(
    snapshot: OutgoingSnapshot, haste: Haste, bytes_per_second: u64,
    report: mpsc::UnboundedSender<Result<u64, String>>,
) -> impl Stream<Item = SnapshotPart> + Send + 'static {
    let start = (snapshot, Instant::now());
    stream::unfold(start, move |(mut snapshot, due)| {
        let (report, haste) = (report.clone(), haste.clone());
        async move {
            haste.wait_until(due).await;
            let part = snapshot.next_part().await?;
            let bytes = part.as_ref().map_or(0, |part| part.len() as u64);
            // The report is not delivered if the sending was given up. After an error the stream ends
            // early, and the peer refuses what arrived.
            let reported = report.send(part.as_ref().map(|_| bytes).map_err(ToString::to_string));
            let payload = part.ok()?.into();
            reported.ok()?;
            let next = Instant::now() + Duration::from_micros(bytes * 1_000_000 / bytes_per_second);
            let header = None;
            Some((SnapshotPart { header, payload }, (snapshot, next)))
        }
    })
}
