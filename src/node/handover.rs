//! Graceful handover: it leaves no gap in a key that has a section of its own.
//!
//! A handover belongs to the node, not to its caller. There is one for each term. It goes on when its caller
//! hangs up, and further callers wait for the same one.
//!
//! Invariant: a closed term is never opened again. Whatever fails on the way, this node hands out nothing more
//! in that term, and sends no heartbeats until a later term has a leader.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::time::Instant;
use tonic::Status;

use super::{
    NodeContext,
    current_handover::{Handover, HandoverOutcome},
    leader_search::leader_of,
};
use crate::{
    allocator::Term,
    consensus::ProposeError,
    planted_bugs::{Bug, is_planted},
    sequence::{Bequest, Command, NodeId, Outcome},
};

/// How many sections one log entry trims at most.
const ENTRY_SECTIONS_MAX: usize = 8_192;

/// After so many entries it is known how long they take.
const PACE_KNOWN_AFTER: u32 = 8;

/// How many election timeouts a successor has to take over.
const TRANSFER_ELECTIONS: u64 = 10;

impl NodeContext {
    /// Hands the leadership to `to`, or to the voter with the longest log, and waits for it until `deadline`. The
    /// handover takes at most `shutdown_timeout_ms` and ten election timeouts.
    ///
    /// # Errors
    /// - FAILED_PRECONDITION if no voter is fit to take over. Nothing has changed then.
    /// - ABORTED if a handover to another node was under way, and is over.
    /// - UNAVAILABLE if this node does not lead, or no node took over in time.
    /// - DEADLINE_EXCEEDED if the handover goes on after `deadline`.
    pub async fn hand_over(
        self: &Arc<Self>,
        to: Option<NodeId>,
        deadline: Instant,
    ) -> HandoverOutcome {
        let Some(term) = self.allocator.load_full() else {
            return Err(Status::unavailable("this node does not lead"));
        };
        if to == Some(self.config.node_id) {
            return Ok(self.group.leadership().borrow().clone());
        }
        let handover = self.begin_handover(&term, || {
            let successor = self.group.successor(term.term(), to);
            let successor = successor.map_err(|e| Status::failed_precondition(e.to_string()))?;
            Ok(Some(successor))
        })?;
        let now = handover.clone().outcome(deadline).await?;
        match (to, leader_of(&now)) {
            (Some(to), leader) if leader != Some(to) && handover.successor != Some(to) => {
                Err(Status::aborted(format!(
                    "a handover to another node was under way; {} now, in term {}: ask again for node \
                     {to}",
                    leader.map_or("nobody leads".to_owned(), |id| format!("node {id} leads")),
                    now.term
                )))
            }
            _ => Ok(now),
        }
    }

    /// Hands over to any fit voter if this node leads. For a node that stops. A sole voter only gives its ceilings
    /// back.
    ///
    /// # Errors
    /// As [`NodeContext::hand_over`].
    pub async fn hand_over_to_anyone(self: &Arc<Self>, deadline: Instant) -> Result<(), Status> {
        let Some(term) = self.allocator.load_full() else {
            return Ok(());
        };
        let handover = self.begin_handover(&term, || {
            if self.group.is_sole_voter() {
                return Ok(None);
            }
            let successor = self.group.successor(term.term(), None);
            let successor = successor.map_err(|e| Status::failed_precondition(e.to_string()))?;
            Ok(Some(successor))
        })?;
        handover.outcome(deadline).await.map(drop)
    }

    /// The handover of `term`: the one under way, or a new one to the node that `choose` names.
    fn begin_handover(
        self: &Arc<Self>,
        term: &Arc<Term>,
        choose: impl FnOnce() -> Result<Option<NodeId>, Status>,
    ) -> Result<Handover, Status> {
        self.current_handover
            .join_or_begin(term.term(), choose, |successor| {
                tracing::info!(term = term.term(), successor, "handing the leadership over");
                let carrying = self.clone().carry_over(term.clone(), successor);
                let going = tokio::spawn(self.group.tasks().watched("handover", carrying));
                going.map(|done| done.unwrap_or_else(|e| Err(Status::internal(e.to_string()))))
            })
    }

    /// Carries a handover out. It goes on when nobody waits for it any more.
    async fn carry_over(
        self: Arc<Self>,
        term: Arc<Term>,
        successor: Option<NodeId>,
    ) -> HandoverOutcome {
        let limit = Duration::from_millis(self.config.shutdown_timeout_ms);
        let until = Instant::now() + limit;
        // From here on the term stays closed and its lease void, whatever happens.
        let _void = VoidOnDrop(term.clone());
        if tokio::time::timeout_at(until, self.give_back(&term, until))
            .await
            .is_err()
        {
            // Numbers are skipped, as after a crash; none is repeated.
            tracing::warn!(
                term = term.term(),
                limit_ms = limit.as_millis(),
                "not all ceilings could be given back in time; handing over without the rest"
            );
        }
        let Some(successor) = successor else {
            return Ok(self.group.leadership().borrow().clone());
        };
        let patience = Duration::from_millis(TRANSFER_ELECTIONS * self.config.election_timeout_ms);
        match self.group.transfer(term.lease(), successor, patience).await {
            Ok(leadership) => Ok(leadership),
            Err(ProposeError::Stopped(why)) => Err(Status::unavailable(why)),
            Err(_) => Err(Status::unavailable(format!(
                "node {successor} did not take over from term {} within {} ms; this node has given \
                 the term up, and whoever is elected goes on; see ratchet status",
                term.term(),
                patience.as_millis()
            ))),
        }
    }

    /// Closes the term, lowers each ceiling to the highest number used, and gives the term's lift back. Breaks off if
    /// that would not be done by `until`: half of it saves no number.
    async fn give_back(&self, term: &Arc<Term>, until: Instant) {
        if is_planted(Bug::OpenDuringTransfer) {
            return;
        }
        let Some(trims) = term.close_and_list_trims().await else {
            return;
        };
        let (began, entries) = (Instant::now(), trims.chunks(ENTRY_SECTIONS_MAX));
        let all_entries = entries.len() as u32;
        for (done, entry) in (0..).zip(entries) {
            let needed = began.elapsed() * all_entries / done.max(1);
            if done >= PACE_KNOWN_AFTER && began + needed > until {
                // Numbers are skipped, as after a crash; none is repeated.
                tracing::warn!(
                    sections = trims.len(),
                    needed_ms = needed.as_millis(),
                    "giving the ceilings back would take longer than shutdown_timeout_ms; each of \
                     these sections may skip a step"
                );
                return;
            }
            let trim = Command::Trim(entry.to_vec());
            let all = Outcome::Trimmed(entry.len() as u64);
            if let Err(why) = self.log_last(term, trim, &all).await {
                // Numbers are skipped, as after a crash; none is repeated.
                tracing::warn!(why, "some ceilings could not be given back");
                return;
            }
        }
        // Every section that this term touched is trimmed. Its lift's chunks of the others were not touched. If one
        // were not trimmed, the next lift would give its chunk a second time.
        if term.lease().is_void() {
            return;
        }
        let give_back = Command::Bequeath(Bequest::Lift);
        if let Err(why) = self.log_last(term, give_back, &Outcome::Bequeathed).await {
            // As above.
            tracing::warn!(
                why,
                "the lift could not be given back; sections may skip a step"
            );
        }
    }

    /// Logs one of the last entries of a closed term. Tells why, if it did not come to `expected`.
    async fn log_last(
        &self,
        term: &Term,
        command: Command,
        expected: &Outcome,
    ) -> Result<(), String> {
        match self.group.propose(term.term(), command).await {
            Ok(outcome) if outcome == *expected => Ok(()),
            Ok(outcome) => Err(format!("the answer was {outcome:?}, not {expected:?}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

struct VoidOnDrop(Arc<Term>);

impl Drop for VoidOnDrop {
    fn drop(&mut self) {
        self.0.lease().void();
    }
}
