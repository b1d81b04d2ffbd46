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
    time::{Instant, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use super::NodeContext;
use crate::{
    allocator::{MemorySender, NotSent, Term},
    metrics::HandoverPhase as Phase,
    planted_bugs::{Bug, is_planted},
    sequence::{Bequest, Command, MemoryDigest, NodeId, Outcome},
};

/// How many parts wait to be sent.
const QUEUE: usize = 8;
/// A pass that brings no more changes than this one is followed by the last one.
const CHANGES_FEW: usize = 8_192;
/// A pass must bring at most so many hundredths of the changes of the one before, or the last one follows: there are
/// no fewer while the term serves.
const SHRINKS_TO_PERCENT: usize = 75;
/// How long the last changes may take, and the answer to them. Meanwhile nobody gets a number.
const LAST_PASS_MAX: Duration = Duration::from_secs(2);

/// What became of a term's memory.
pub(super) enum MemoryFate {
    /// It was left to the successor, or may have been, or is lost. The term has no further entry.
    Ended,
    /// It was not sent. The term may still trim.
    NotSent {
        /// True if the term is closed.
        closed: bool,
    },
}

/// Where a part goes to its receiver.
type Parts = mpsc::Sender<Vec<u8>>;

/// The task that sends the parts. It returns what the receiver holds.
type Sending = AbortOnDropHandle<Result<MemoryDigest, Status>>;

/// Why a memory was not sent.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    NotSent(#[from] NotSent),
    #[error("{}", .0.message())]
    Receiver(#[from] Status),
    #[error("it was not done within {0:?}")]
    TooSlow(Duration),
    #[error("the task that sends it failed: {0}")]
    Task(#[from] JoinError),
    #[error("the receiver holds {0:?}, and {1:?} was sent")]
    Different(MemoryDigest, MemoryDigest),
}

impl NodeContext {
    /// Sends the memory of `term` to `heir`, closes the term, and bequeaths the memory.
    pub(super) async fn bequeath(&self, term: &Arc<Term>, heir: NodeId) -> MemoryFate {
        let not_sent = |closed: bool, why: Failed| {
            tracing::warn!(
                term = term.term(),
                heir,
                %why,
                "the successor does not get this term's memory; the ceilings are given back instead"
            );
            MemoryFate::NotSent { closed }
        };
        let mut memory = term.send_memory();
        let (parts, queue) = mpsc::channel(QUEUE);
        let (group, header, number) = (self.group.clone(), memory.header(), term.term());
        let sending = async move {
            let parts = ReceiverStream::new(queue);
            group.send_memory(number, heir, header, parts).await
        };
        let mut sending = AbortOnDropHandle::new(tokio::spawn(sending));
        let began = Instant::now();
        let limit = Duration::from_millis(self.config.handover_timeout_ms);
        let sent = send_while_serving(&mut memory, &parts);
        if let Err(why) = until_refused(limit, sent, &mut sending).await {
            return not_sent(false, why);
        }
        let closing = Instant::now();
        let sent = memory.changes();
        self.show_phase(Phase::send, began);
        if !is_planted(Bug::BequestBeforeEmpty) && !self.close_in_time(term).await {
            return MemoryFate::Ended;
        }
        let closed = Instant::now();
        self.show_phase(Phase::close, closing);
        let last = async {
            send_pass(&mut memory, &parts).await?;
            drop(parts);
            Ok(())
        };
        if let Err(why) = until_refused(LAST_PASS_MAX, last, &mut sending).await {
            return not_sent(true, why);
        }
        let digest = memory.digest();
        if let Err(why) = arrived(sending, digest).await {
            return not_sent(true, why);
        }
        self.show_phase(Phase::last_changes, closed);
        let bequeathing = Instant::now();
        let bequest = Bequest::Memory { heir, digest };
        if let Err(why) = self
            .log_last(term, Command::Bequeath(bequest), &Outcome::Bequeathed)
            .await
        {
            // Numbers are skipped, as after a crash; none is repeated.
            tracing::warn!(why, "the memory may not have been left to the successor");
            return MemoryFate::Ended;
        }
        self.show_phase(Phase::bequest, bequeathing);
        tracing::info!(
            term = term.term(),
            heir,
            sent,
            sending_ms = (closing - began).as_millis(),
            closing_ms = (closed - closing).as_millis(),
            last_changes = memory.changes() - sent,
            last_changes_ms = (bequeathing - closed).as_millis(),
            bequest_ms = bequeathing.elapsed().as_millis(),
            "the memory was left to the successor"
        );
        MemoryFate::Ended
    }

    /// A phase of a handover that began at `began` is over.
    pub(super) fn show_phase(&self, phase: Phase, began: Instant) {
        let seconds = began.elapsed().as_secs_f64();
        self.metrics.handover_seconds.set(phase, seconds);
    }
}

/// Sends the memory in passes, until little of it has changed since the last one, or no less than before.
async fn send_while_serving(memory: &mut MemorySender, parts: &Parts) -> Result<(), Failed> {
    let mut before = usize::MAX;
    loop {
        let changes = send_pass(memory, parts).await?;
        tracing::debug!(changes, "a pass over the memory was sent");
        if changes <= CHANGES_FEW || changes > before / 100 * SHRINKS_TO_PERCENT {
            return Ok(());
        }
        before = changes;
    }
}

/// Sends what has changed. Returns how many changes that were.
async fn send_pass(memory: &mut MemorySender, parts: &Parts) -> Result<usize, Failed> {
    let before = memory.changes();
    while let Some(part) = memory.next_part().await? {
        let sent = parts.send(part).await;
        // The sending has ended; its own error tells why.
        sent.map_err(|_| Status::unavailable("the receiver takes no more of it"))?;
    }
    Ok(memory.changes() - before)
}

/// Waits for `work`, at most `limit`, and as long as the receiver takes what is sent.
async fn until_refused(
    limit: Duration,
    work: impl Future<Output = Result<(), Failed>>,
    sending: &mut Sending,
) -> Result<(), Failed> {
    tokio::select! {
        biased;
        answer = sending => match answer? {
            Err(refused) => Err(refused.into()),
            Ok(_) => Err(Status::internal("the receiver answered before the last part").into()),
        },
        worked = timeout(limit, work) => worked.unwrap_or(Err(Failed::TooSlow(limit))),
    }
}

/// Waits until the receiver says that it holds all that was `sent`.
async fn arrived(sending: Sending, sent: MemoryDigest) -> Result<(), Failed> {
    let answer = timeout(LAST_PASS_MAX, sending).await;
    let held = answer.map_err(|_| Failed::TooSlow(LAST_PASS_MAX))???;
    match held == sent {
        true => Ok(()),
        false => Err(Failed::Different(held, sent)),
    }
}
