//! The stream on which a term's memory goes to the successor, and what may become of the memory.
//!
//! Invariant: [`MemoryStream::finish`] succeeds only if the receiver says that it holds all that was sent.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    task::JoinError,
    time::{Instant, timeout, timeout_at},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    allocator::{MemoryReader, NotSent, Term},
    consensus::{Group, send_memory},
    proto::{Code, Refusal, refusal},
    sequence::{MemoryDigest, NodeId},
};

/// How many parts wait to be sent.
const QUEUE: usize = 8;
/// After a delta that brings no more changes than this, the rest can wait until the term is closed.
const CHANGES_FEW: usize = 8_192;
/// The most changes that a delta may bring, in hundredths of those of the one before. With more, there will be no fewer while
/// the term serves.
const SHRINKS_TO_PERCENT: usize = 75;

/// A term's memory on its way to the successor.
pub struct MemoryStream {
    memory: MemoryReader,
    parts: mpsc::Sender<Vec<u8>>,
    /// The task that sends the parts. It returns what the receiver holds.
    sending: AbortOnDropHandle<Result<MemoryDigest, Refusal>>,
    /// If the receiver takes no part for so long, it is given up.
    stall_max: Duration,
}

/// Why a memory was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendFailed {
    /// It cannot be read any more.
    #[error(transparent)]
    Memory(#[from] NotSent),
    /// The receiver refused it or cannot be reached.
    #[error("{}", .0.message())]
    Refused(#[from] Refusal),
    /// The successor is not fit to lead next by now, or its log is behind.
    #[error("{0}")]
    Unfit(String),
    /// The receiver takes no more, or too slowly.
    #[error("it was not sent within {0:?}")]
    TooSlow(Duration),
    /// The sending task panicked.
    #[error("the task that sends it failed: {0}")]
    Task(#[from] JoinError),
    /// Something else has arrived.
    #[error("the receiver holds {0:?}, and {1:?} was sent")]
    Different(MemoryDigest, MemoryDigest),
}

/// The fate of a term's memory, which was to be sent and handed off.
pub enum MemoryFate {
    /// It was handed off to the successor.
    HandedOff,
    /// Nobody knows whether it was handed off to the successor, or the term did not close in time. The term has no further
    /// entry.
    Unknown,
    /// It did not arrive whole. The term serves as before, or is closed, and its memory was not handed off to anybody.
    NotSent(Persistence),
}

/// Whether another attempt to send a memory may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// The successor cannot be reached, lacks a part of the log, stops, or takes another memory in. Try again, rather with
    /// another voter.
    Transient,
    /// The successor has no room, got no part in time, cannot read the memory or holds something else, or this node fails to
    /// send it. The successor can lead all the same.
    Final,
}

impl SendFailed {
    /// Whether another attempt may succeed.
    pub fn persistence(&self) -> Persistence {
        match self {
            SendFailed::Refused(refusal) => match refusal.code() {
                Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Aborted => {
                    Persistence::Transient
                }
                _ => Persistence::Final,
            },
            SendFailed::Unfit(_) | SendFailed::TooSlow(_) => Persistence::Transient,
            SendFailed::Memory(_) | SendFailed::Task(_) | SendFailed::Different(..) => {
                Persistence::Final
            }
        }
    }
}

impl MemoryStream {
    /// Opens a stream for the memory of `term` to `successor`, which is given up if it takes no part for `stall_max`.
    pub fn open(group: &Arc<Group>, term: &Term, successor: NodeId, stall_max: Duration) -> Self {
        let memory = term.read_memory();
        let (parts, queue) = mpsc::channel(QUEUE);
        let (group, header, number) = (group.clone(), memory.header(), term.term());
        let sending = async move {
            let parts = ReceiverStream::new(queue);
            send_memory(&group, number, successor, header, parts).await
        };
        MemoryStream {
            memory,
            parts,
            sending: AbortOnDropHandle::new(tokio::spawn(sending)),
            stall_max,
        }
    }

    /// How many changes were sent, with repetitions.
    pub fn changes(&self) -> usize {
        self.memory.changes()
    }

    /// Sends the memory in deltas while the term serves. Ends after a delta of at most [`CHANGES_FEW`] changes, or of
    /// more than three quarters as many as the delta before.
    ///
    /// # Errors
    /// [`SendFailed`], also if it takes longer than `limit`.
    pub async fn send_while_serving(&mut self, limit: Duration) -> Result<(), SendFailed> {
        let until = Instant::now() + limit;
        let too_slow = |_| SendFailed::TooSlow(limit);
        let mut before = usize::MAX;
        loop {
            let delta = timeout_at(until, self.send_delta()).await;
            let changes = delta.map_err(too_slow)??;
            tracing::debug!(changes, "a delta of the memory was sent");
            if changes <= CHANGES_FEW || changes > before / 100 * SHRINKS_TO_PERCENT {
                return Ok(());
            }
            before = changes;
        }
    }

    /// Sends what is left. Returns what the receiver holds: all of it. Call it once no number can be taken any more.
    ///
    /// # Errors
    /// [`SendFailed`], also if it takes longer than `limit`.
    pub async fn finish(mut self, limit: Duration) -> Result<MemoryDigest, SendFailed> {
        let until = Instant::now() + limit;
        let too_slow = |_| SendFailed::TooSlow(limit);
        let delta = timeout_at(until, self.send_delta()).await;
        delta.map_err(too_slow)??;
        let sent = self.memory.digest();
        drop(self.parts);
        let answer = timeout_at(until, self.sending).await;
        let held = answer.map_err(too_slow)???;
        match held == sent {
            true => Ok(held),
            false => Err(SendFailed::Different(held, sent)),
        }
    }

    /// Sends what has changed. Returns how many changes that were.
    async fn send_delta(&mut self) -> Result<usize, SendFailed> {
        let before = self.memory.changes();
        while let Some(part) = self.memory.next_part().await? {
            let sent = timeout(self.stall_max, self.parts.send(part)).await;
            if sent.is_err() {
                return Err(SendFailed::TooSlow(self.stall_max));
            }
            if self.sending.is_finished() {
                return Err(self.refusal().await);
            }
        }
        Ok(self.memory.changes() - before)
    }

    /// Why the receiver takes no more.
    async fn refusal(&mut self) -> SendFailed {
        match (&mut self.sending).await {
            Ok(Err(refused)) => refused.into(),
            Ok(Ok(_)) => refusal!(Internal, "the receiver answered before the last part").into(),
            Err(failed) => failed.into(),
        }
    }
}
