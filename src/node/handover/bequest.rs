//! The warm handover: the successor gets the term's memory, and goes on where the term ends. Keys keep their numbers,
//! so that there is no gap, and no cold start.
//!
//! 1. The memory is sent while the term serves: all of it, then what changed meanwhile, until little is left.
//! 2. The term is closed. Whoever is inside leaves.
//! 3. What changed since is sent. The successor says what it holds.
//! 4. The term's last entry names the successor and what it holds.
//!
//! Invariant: nothing is bequeathed unless the successor has said that it holds the memory's last state.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    task::JoinError,
    time::{Instant, timeout, timeout_at},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;

use super::current::Handovers;
use crate::{
    allocator::{MemoryReader, NotSent, Term},
    consensus::Group,
    metrics::HandoverPhase as Phase,
    planted_bugs::{Bug, is_planted},
    proto::{Code, Refusal, refusal, refuse},
    sequence::{Bequest, MemoryDigest, NodeId},
};

/// If a successor takes no part for so many election timeouts, it is given up.
const STALL_TIMEOUTS: u32 = 10;
/// The last changes and the answer to them take at most so many election timeouts. Meanwhile nobody gets a number.
const LAST_PASS_TIMEOUTS: u32 = 3;
/// The last entry takes at most so many election timeouts. The successor keeps the memory for longer.
const BEQUEST_TIMEOUTS: u32 = 10;

/// What became of a term's memory.
pub(super) enum MemoryFate {
    /// It was left to the successor.
    Left,
    /// It is lost, or nobody knows whether it was left to the successor. The term has no further entry.
    Lost,
    /// It did not arrive whole. The term serves as before, or is closed, and its memory was not left to anybody.
    NotSent(Persistence),
}

impl Handovers {
    /// Sends the memory of `term` to `successor`, closes the term, and bequeaths the memory.
    pub(super) async fn bequeath(&self, term: &Arc<Term>, successor: NodeId) -> MemoryFate {
        let not_sent = |why: &SendFailed| {
            let term = term.term();
            tracing::warn!(term, successor, %why, "the successor does not get this term's memory");
        };
        for phase in [Phase::send, Phase::close, Phase::last_changes, Phase::bequest] {
            self.group.set_metrics.handover_seconds.set(phase, 0.0);
        }
        let began = Instant::now();
        let stream = match self.send_memory(term, successor).await {
            Ok(stream) => stream,
            Err(why) => {
                not_sent(&why);
                return MemoryFate::NotSent(why.persistence());
            }
        };
        self.show_phase(Phase::send, began);
        let (closing, sent) = (Instant::now(), stream.changes());
        if !is_planted(Bug::BequestBeforeEmpty) && !self.close_in_time(term).await {
            return MemoryFate::Lost;
        }
        self.show_phase(Phase::close, closing);
        let closed = Instant::now();
        let digest = match stream.finish(self.election_timeouts(LAST_PASS_TIMEOUTS)).await {
            Ok(digest) => digest,
            Err(why) => {
                not_sent(&why);
                return MemoryFate::NotSent(why.persistence());
            }
        };
        self.show_phase(Phase::last_changes, closed);
        tracing::info!(
            term = term.term(),
            successor,
            changes = sent,
            sending_ms = (closing - began).as_millis(),
            closed_ms = closing.elapsed().as_millis(),
            "the successor has the memory"
        );
        self.log_bequest(term, successor, digest).await
    }

    /// Opens the stream, and sends the memory while the term serves. Then checks that the successor can still take over, and
    /// has the log.
    async fn send_memory(
        &self, term: &Term, successor: NodeId,
    ) -> Result<MemoryStream, SendFailed> {
        let stall_max = self.election_timeouts(STALL_TIMEOUTS);
        let mut stream = MemoryStream::open(&self.group, term, successor, stall_max);
        let limit = Duration::from_millis(self.config.handover_timeout_ms);
        stream.send_while_serving(limit).await?;
        let unfit = self.group.successor(term.term(), Some(successor)).err();
        if let Some(unfit) = unfit {
            refuse!(NotHeardYet, "{unfit}");
        }
        // Raft transfers to a node that has the whole log, or to none. The election that follows may be another's, who
        // did not get the memory.
        if !self.group.has_whole_log(successor, self.election_timeouts(1)).await {
            refuse!(NotHeardYet, "the log of node {successor} is behind");
        }
        // The closed term waits for what it has logged. What can be waited for while it serves keeps nobody waiting. Too late is
        // no failure here: to close the term takes longer then.
        let limit = Duration::from_millis(self.config.shutdown_timeout_ms);
        let _ = timeout(limit, self.group.table_catches_up()).await;
        Ok(stream)
    }

    /// Logs the term's last entry, which leaves the memory to `successor`.
    async fn log_bequest(
        &self, term: &Term, successor: NodeId, digest: MemoryDigest,
    ) -> MemoryFate {
        let began = Instant::now();
        let logging = term.log_last_entry(Bequest::Memory { successor, digest });
        let limit = self.election_timeouts(BEQUEST_TIMEOUTS);
        let logged = timeout(limit, logging).await;
        if let Err(why) = logged.unwrap_or_else(|_| Err(format!("it takes longer than {limit:?}")))
        {
            // Whether it was logged is not known, so nothing else may be. Numbers are skipped, as after a crash; none
            // is repeated.
            tracing::warn!(why, "the memory may not have been left to the successor");
            return MemoryFate::Lost;
        }
        self.show_phase(Phase::bequest, began);
        MemoryFate::Left
    }

    fn election_timeouts(&self, times: u32) -> Duration {
        Duration::from_millis(self.config.election_timeout_ms) * times
    }

    /// A phase of a handover that began at `began` is over.
    fn show_phase(&self, phase: Phase, began: Instant) {
        let seconds = began.elapsed().as_secs_f64();
        self.group.set_metrics.handover_seconds.set(phase, seconds);
    }
}

// The stream on which a term's memory goes to the successor.
//
// Invariant: `MemoryStream::finish` succeeds only if the receiver says that it holds all that was sent.

/// How many parts wait to be sent.
const QUEUE: usize = 8;
/// After a pass that brings no more changes than this, the rest can wait until the term is closed.
const CHANGES_FEW: usize = 8_192;
/// A pass must bring at most so many hundredths of the changes of the one before, or there will be no fewer while the
/// term serves.
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
    /// The receiver refused it, or cannot be reached.
    #[error("{}", .0.message())]
    Receiver(#[from] Refusal),
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

/// What a successor that did not take a memory is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// It cannot be reached, is too slow, or stops. Another attempt may succeed, and another voter is better.
    Transient,
    /// It has no room, or cannot read the memory. It can lead all the same.
    Final,
}

impl SendFailed {
    /// What the successor is good for.
    pub fn persistence(&self) -> Persistence {
        match self {
            SendFailed::Receiver(refusal) => match refusal.code() {
                Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Aborted => {
                    Persistence::Transient
                }
                _ => Persistence::Final,
            },
            SendFailed::TooSlow(_) => Persistence::Transient,
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
            group.send_memory(number, successor, header, parts).await
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

    /// Sends the memory in passes while the term serves. Ends after a pass of at most [`CHANGES_FEW`] changes, or of
    /// more than three quarters as many as the pass before.
    ///
    /// # Errors
    /// [`SendFailed`], also if it takes longer than `limit`.
    pub async fn send_while_serving(&mut self, limit: Duration) -> Result<(), SendFailed> {
        let until = Instant::now() + limit;
        let too_slow = |_| SendFailed::TooSlow(limit);
        let mut before = usize::MAX;
        loop {
            let pass = timeout_at(until, self.send_pass()).await;
            let changes = pass.map_err(too_slow)??;
            tracing::debug!(changes, "a pass over the memory was sent");
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
        let pass = timeout_at(until, self.send_pass()).await;
        pass.map_err(too_slow)??;
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
    async fn send_pass(&mut self) -> Result<usize, SendFailed> {
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
