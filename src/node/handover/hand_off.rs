//! The warm handover: the successor gets the term's memory, and goes on where the term ends. Keys keep their numbers,
//! so that there is no gap, and no cold start.
//!
//! 1. The memory is sent while the term serves: all of it, then what changed meanwhile, until little is left.
//! 2. The term is closed. The calls inside leave.
//! 3. The last changes are sent. The successor answers with the digest of the memory that it holds.
//! 4. The term's last entry, the hand-off, names the successor and that digest.
//!
//! Invariant: nothing is handed off unless the successor has said that it holds the memory's last state.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};

use super::{
    Handovers,
    memory_stream::{MemoryFate, MemoryStream, SendFailed},
};
use crate::{
    allocator::Term,
    metrics::HandoverPhase as Phase,
    planted_bugs::{Bug, is_planted},
    sequence::{MemoryDigest, NodeId, TermEnd},
};

/// A successor that takes no part for this many election timeouts is given up.
const STALL_TIMEOUTS: u32 = 10;
/// How many election timeouts the last changes and the answer to them take at most. Meanwhile nobody gets a number.
const LAST_DELTA_TIMEOUTS: u32 = 3;
/// How many election timeouts the last entry takes at most. The successor keeps the memory for longer.
const HAND_OFF_TIMEOUTS: u32 = 10;

impl Handovers {
    /// Sends the memory of `term` to `successor`, closes the term, and hands the memory off.
    pub(super) async fn hand_off(&self, term: &Arc<Term>, successor: NodeId) -> MemoryFate {
        let not_sent = |why: &SendFailed| {
            let term = term.term();
            tracing::warn!(term, successor, %why, "the successor does not get this term's memory");
        };
        for phase in [Phase::send, Phase::close, Phase::last_changes, Phase::hand_off] {
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
        if !is_planted(Bug::HandOffBeforeEmpty) && !self.close_in_time(term).await {
            return MemoryFate::Unknown;
        }
        self.show_phase(Phase::close, closing);
        let closed = Instant::now();
        let digest = match stream.finish(self.election_timeouts(LAST_DELTA_TIMEOUTS)).await {
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
        self.log_hand_off(term, successor, digest).await
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
            return Err(SendFailed::Unfit(unfit.to_string()));
        }
        // Raft transfers to a node that has the whole log, or to none. Another node, without the memory, may win the election
        // that follows.
        if !self.group.has_whole_log(successor, self.election_timeouts(1)).await {
            return Err(SendFailed::Unfit(format!("the log of node {successor} is behind")));
        }
        // The closed term waits for what it has logged. While it serves, that wait keeps no caller waiting. A wait that takes
        // too long is no failure here: to close the term takes longer then.
        let limit = Duration::from_millis(self.config.shutdown_timeout_ms);
        let _ = timeout(limit, self.group.table_catches_up()).await;
        Ok(stream)
    }

    /// Logs the hand-off, the term's last entry, to `successor`.
    async fn log_hand_off(
        &self, term: &Term, successor: NodeId, digest: MemoryDigest,
    ) -> MemoryFate {
        let began = Instant::now();
        let logging = term.log_last_entry(TermEnd::HandOff { successor, digest });
        let limit = self.election_timeouts(HAND_OFF_TIMEOUTS);
        let logged = timeout(limit, logging).await;
        if let Err(why) = logged.unwrap_or_else(|_| Err(format!("it takes longer than {limit:?}")))
        {
            // Whether it was logged is not known, so nothing else may be. Numbers are skipped, as after a crash; none
            // is repeated.
            tracing::warn!(why, "the memory may not have been handed off to the successor");
            return MemoryFate::Unknown;
        }
        self.show_phase(Phase::hand_off, began);
        MemoryFate::HandedOff
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
