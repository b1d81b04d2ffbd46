//! Graceful handover: the successor goes on with the term's memory, or, if it cannot take it, with the numbers that the
//! term returns.
//!
//! `hand_off.rs` hands the memory off to the successor, to which `memory_stream.rs` sends it, and `return_numbers.rs` returns
//! unused numbers. `under_way.rs` remembers the handover that is under way. `slow_disk.rs` and `wrong_clock.rs` hand over by
//! themselves.
//!
//! A handover belongs to the node, not to its caller. There is one for each term. It goes on when its caller
//! hangs up, and further callers wait for the same one.
//!
//! Invariant: a closed term is never opened again. Whatever fails on the way, this node hands out nothing more
//! in that term, and has other voters lead until one does (`Group::end_term`).

mod hand_off;
mod memory_stream;
mod return_numbers;
mod slow_disk;
mod under_way;
mod wrong_clock;

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::time::Instant;

use self::{
    memory_stream::{MemoryFate, Persistence},
    under_way::{CurrentHandover, Handover, HandoverOutcome},
};
use super::{
    Config,
    access::{Asker, Guarded, Subject},
    common::Common,
    members::Members,
    requests::operation::ByLeader,
    terms::LedTerms,
    way::{attempt::Attempt, patience::time_to_tell, search::leader_of},
};
use crate::{
    allocator::{Term, TermStage},
    clock::Clock,
    consensus::{Group, ProposeError},
    metrics::{HandoverEnd, Metrics},
    planted_bugs::{Bug, is_planted},
    proto::{Refusal, refusal, refuse, v1},
    sequence::NodeId,
};

/// How many times at most the memory is sent, if it did not arrive and the term still serves. The second time it goes
/// to another voter, if there is one.
const ATTEMPTS: u32 = 2;

/// How many election timeouts a node that is told to stop waits for its own term to open.
const OPENING_ELECTIONS: u64 = 10;

/// How many election timeouts a successor has to take over.
const TRANSFER_ELECTIONS: u64 = 10;

/// How long a handover takes at most.
pub(super) fn handover_max(config: &Config) -> Duration {
    // Sending, twice; closing the term, and returning; some tens of election timeouts for the steps between.
    let attempts = u64::from(ATTEMPTS) * config.handover_timeout_ms;
    let steps = 5 * TRANSFER_ELECTIONS * config.election_timeout_ms;
    Duration::from_millis(attempts + 2 * config.shutdown_timeout_ms + steps)
}

impl ByLeader for v1::TransferLeadershipRequest {
    type Service = Arc<Handovers>;

    fn subject(&self, answer: Option<&v1::TransferLeadershipResponse>) -> Subject {
        let subject = Subject::of(self.wanted());
        match answer.map(|answer| answer.leader).or(self.to) {
            Some(to) => subject.on(to),
            None => subject,
        }
    }

    async fn carry_out(
        self, handovers: &Arc<Handovers>, _: (&Term, &Asker), deadline: Instant,
    ) -> Attempt<v1::TransferLeadershipResponse> {
        if let Some(to) = self.to {
            handovers.members.known(to)?;
        }
        let now = handovers.hand_over(self.to, deadline).await?;
        let leader = leader_of(&now).unwrap_or_default();
        Ok(v1::TransferLeadershipResponse { leader, term: now.term })
    }
}

/// The handovers of a Raft group's leadership to other nodes.
///
/// No field is replaced after the start. The only state of this service that changes is in `under_way.rs`: the handover that is
/// under way. Each file of the folder has the methods for one part of a handover.
pub struct Handovers {
    config: Arc<Config>,
    group: Arc<Group>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    led: Arc<LedTerms>,
    members: Arc<Members>,
    /// The one that is under way, or was last.
    current: CurrentHandover,
}

impl Handovers {
    /// None yet.
    pub(super) fn new(common: &Common, led: Arc<LedTerms>, members: Arc<Members>) -> Self {
        Handovers {
            config: common.config.clone(),
            group: common.group.clone(),
            clock: common.clock.clone(),
            metrics: common.metrics.clone(),
            led,
            members,
            current: CurrentHandover::default(),
        }
    }

    /// Hands the leadership to `to`, or to the voter with the longest log, and waits for it until `deadline`. Waits a
    /// moment for a voter that was not heard lately. If the successor cannot take over, another voter may.
    ///
    /// # Errors
    /// - FAILED_PRECONDITION if `to` is no voter, or if it, or any voter, is not heard. Nothing has changed then.
    /// - ABORTED if another node than `to` leads now: `to` could not take over, or a handover to another node was under
    ///   way.
    /// - UNAVAILABLE if this node does not lead, or does not any more. UNKNOWN if no node took over in time.
    /// - DEADLINE_EXCEEDED if the handover goes on after `deadline`.
    pub async fn hand_over(
        self: &Arc<Self>, to: Option<NodeId>, deadline: Instant,
    ) -> HandoverOutcome {
        let Some(term) = self.led.current() else {
            let (node, term) = (self.config.node_id, self.group.leadership().borrow().term);
            refuse!(
                NoLeader,
                "node {node} does not lead, or not yet, in term {term}; see ratchet status, then ask again"
            );
        };
        if to == Some(self.config.node_id) {
            return Ok(self.group.leadership().borrow().clone());
        }
        self.wait_for_successor(&term, to, deadline).await;
        let handover = self.begin_handover(&term, || self.choose_successor(&term, to).map(Some))?;
        let now = handover.clone().outcome(deadline).await?;
        let leader = leader_of(&now);
        let Some(to) = to.filter(|to| leader != Some(*to)) else {
            return Ok(now);
        };
        let why = match handover.successor == Some(to) {
            true => format!("node {to} could not take over"),
            false => "a handover to another node was under way".to_owned(),
        };
        let leads = leader.map_or("nobody leads".to_owned(), |id| format!("node {id} leads"));
        let term = now.term;
        Err(refusal!(
            HandoverLost,
            "{why}; {leads} now, in term {term}: see ratchet status, then ask again for node {to}"
        )
        .may_be_done())
    }

    /// Hands `term` over to a voter for which `fits` is true: of those that were heard within the time of a promise, the one
    /// with the longest log. Waits for it until `deadline`. If a handover of the term is under way, waits for that one.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if no voter fits. Nothing has changed then, and the term serves on. Otherwise as
    /// [`Handovers::hand_over`].
    pub async fn hand_over_to_one_that(
        self: &Arc<Self>, term: u64, fits: impl Fn(NodeId) -> bool, deadline: Instant,
    ) -> HandoverOutcome {
        let Some(led) = self.led.serving().filter(|led| led.term() == term) else {
            let node = self.config.node_id;
            refuse!(NoLeader, "node {node} does not lead term {term} any more; see ratchet status");
        };
        let choose = || match self.group.successor_that(term, fits) {
            Some(successor) => Ok(Some(successor)),
            None => {
                refuse!(WrongState, "no other voter that answers is fit to lead term {term} on")
            }
        };
        self.begin_handover(&led, choose)?.outcome(deadline).await
    }

    /// Hands over to any fit voter if this node leads. For a node that stops. A sole voter only returns its
    /// unused numbers.
    ///
    /// # Errors
    /// UNAVAILABLE if this node does not lead any more, UNKNOWN if no node took over in time, DEADLINE_EXCEEDED if the handover
    /// goes on after `deadline`; the others are at [`Handovers::hand_over`].
    pub async fn hand_over_to_anyone(self: &Arc<Self>, deadline: Instant) -> Result<(), Refusal> {
        let Some(term) = self.opened_term().await else {
            return Ok(());
        };
        self.wait_for_successor(&term, None, deadline).await;
        let handover = self.begin_handover(&term, || match self.group.is_sole_voter() {
            true => Ok(None),
            false => self.choose_successor(&term, None).map(Some),
        })?;
        handover.outcome(deadline).await.map(drop)
    }

    /// The term that this node leads, once it is open. A term that does not open in time ends: others are to lead then.
    /// `None` if this node leads none.
    async fn opened_term(&self) -> Option<Arc<Term>> {
        let mut changes = self.led.changes();
        let own = self.group.leadership().borrow().own.clone()?;
        let opened = async {
            loop {
                changes.borrow_and_update();
                let term = self.led.current();
                let term = term.filter(|term| term.term() == own.term());
                if term.is_some() || changes.changed().await.is_err() {
                    return term;
                }
            }
        };
        let limit = Duration::from_millis(OPENING_ELECTIONS * self.config.election_timeout_ms);
        let opened = tokio::select! {
            biased;
            term = tokio::time::timeout(limit, opened) => term.ok().flatten(),
            () = own.until_void() => None,
        };
        if opened.is_none() {
            own.void();
        }
        opened
    }

    /// Waits a moment for `wanted`, or any other voter, if it was not heard lately: a leader that has just begun, or was
    /// held up, has not heard the others yet.
    async fn wait_for_successor(&self, term: &Term, wanted: Option<NodeId>, deadline: Instant) {
        let decided = term.lease().wait_until(|lease| {
            let successor = self.group.successor(term.term(), wanted);
            let only_silent = successor.is_err_and(|none| none.silent);
            lease.is_void() || !only_silent
        });
        let in_time = time_to_tell(deadline);
        let limit = in_time.min(Instant::now() + self.config.silence_patience());
        // Too late is no failure here: `choose_successor` says why there is none.
        let _ = tokio::time::timeout_at(limit, decided).await;
    }

    /// The node that is to take `term` over: `wanted`, or any other voter.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if none is fit, UNAVAILABLE if the term is lost.
    fn choose_successor(&self, term: &Term, wanted: Option<NodeId>) -> Result<NodeId, Refusal> {
        if term.lease().is_void() {
            let term = term.term();
            refuse!(NoLeader, "this node has lost term {term}; see ratchet status, then ask again");
        }
        let successor = self.group.successor(term.term(), wanted);
        successor.map_err(|none| refusal!(WrongState, "{none}"))
    }

    /// The handover of `term`: the one under way, or a new one to the node that `choose` names.
    fn begin_handover(
        self: &Arc<Self>, term: &Arc<Term>,
        choose: impl FnOnce() -> Result<Option<NodeId>, Refusal>,
    ) -> Result<Handover, Refusal> {
        self.current.join_or_begin(term.term(), choose, |successor| {
            tracing::info!(term = term.term(), successor, "handing the leadership over");
            let carrying = self.clone().complete_handover(term.clone(), successor);
            let going = tokio::spawn(self.group.this_node.tasks.watched("handover", carrying));
            going.map(|done| done.unwrap_or_else(|e| Err(refusal!(Internal, "{e}"))))
        })
    }

    /// Carries a handover out. It goes on when nobody waits for it any more.
    async fn complete_handover(
        self: Arc<Self>, term: Arc<Term>, successor: Option<NodeId>,
    ) -> HandoverOutcome {
        // At the end the term is closed and its lease void, whatever happens.
        let _void = VoidOnDrop(term.clone());
        let left = match successor {
            Some(wanted) => Some(self.end_term_unless_disk_hangs(&term, wanted).await),
            None => self.hand_off_or_return(&term, None).await,
        };
        let Some(successor) = left else {
            return Ok(self.group.leadership().borrow().clone());
        };
        let stays_open = is_planted(Bug::OpenDuringTransfer) || is_planted(Bug::HandOffBeforeEmpty);
        assert!(
            term.stage() != TermStage::Serving || stays_open,
            "term {} is handed over while it serves",
            term.term()
        );
        let patience = Duration::from_millis(TRANSFER_ELECTIONS * self.config.election_timeout_ms);
        let transferred = self.group.transfer(term.lease(), successor, patience).await;
        let now = self.group.leadership().borrow().clone();
        let is_led_elsewhere = leader_of(&now).is_some_and(|leader| leader != self.config.node_id);
        match transferred {
            Ok(leadership) => Ok(leadership),
            Err(ProposeError::Stopped(why)) => Err(refusal!(
                OutcomeUnknown,
                "{why}; node {successor} may take over from term {}, which this node has given up; see ratchet status",
                term.term()
            )),
            // The term was lost before: the successor may lead all the same, or another node.
            Err(_) if now.term > term.term() && is_led_elsewhere => Ok(now),
            Err(_) => Err(refusal!(
                OutcomeUnknown,
                "node {successor} has not taken over from term {}, which this node has lost or given up; whoever is \
                     elected goes on; see ratchet status",
                term.term()
            )),
        }
    }

    /// Hands off or returns what the term is entitled to, unless the disk here hangs: then the next leader need not wait.
    /// Returns who is to lead next, if possible the node that is `wanted`.
    async fn end_term_unless_disk_hangs(&self, term: &Arc<Term>, wanted: NodeId) -> NodeId {
        tokio::select! {
            biased;
            successor = self.hand_off_or_return(term, Some(wanted)) => successor.unwrap_or(wanted),
            () = self.group.table_hangs() => {
                // The outcomes of entries under way are not known here, and so neither is what the memory has to be. Numbers
                // are skipped, as after a crash; none is repeated.
                term.stop_serving();
                tracing::warn!(
                    term = term.term(),
                    "the disk of this node hangs: the leadership is given up without what the term has left"
                );
                self.group.set_metrics.handovers.add(HandoverEnd::skipped, 1);
                self.fit_successor(term, wanted)
            }
        }
    }

    /// Hands the term's memory off to the successor, or, if there is none that takes it, returns the unused numbers to
    /// the next term. Returns the node that is to lead next.
    async fn hand_off_or_return(
        &self, term: &Arc<Term>, mut successor: Option<NodeId>,
    ) -> Option<NodeId> {
        if is_planted(Bug::OpenDuringTransfer) {
            return successor;
        }
        let attempts = match self.config.handover_timeout_ms {
            0 => 0,
            _ => ATTEMPTS,
        };
        for _ in 0..attempts {
            let Some(next) = successor else {
                break;
            };
            let persistence = match self.hand_off(term, next).await {
                MemoryFate::HandedOff => {
                    self.group.set_metrics.handovers.add(HandoverEnd::memory, 1);
                    return successor;
                }
                MemoryFate::Unknown => {
                    self.group.set_metrics.handovers.add(HandoverEnd::skipped, 1);
                    return successor;
                }
                MemoryFate::NotSent(persistence) => persistence,
            };
            // It may have gone meanwhile, or be about to stop.
            successor = Some(match persistence {
                Persistence::Transient => self.group.another_successor(term.term(), next),
                Persistence::Final => self.fit_successor(term, next),
            });
            if persistence == Persistence::Final || term.stage().is_past_closing() {
                break;
            }
        }
        let is_closed = term.stage().is_past_closing() || self.close_in_time(term).await;
        let end = match is_closed && self.return_numbers(term).await {
            true => HandoverEnd::returned,
            false => HandoverEnd::skipped,
        };
        self.group.set_metrics.handovers.add(end, 1);
        successor
    }

    /// The `wanted` node if it is fit to take over, or else another one that is, if there is one.
    fn fit_successor(&self, term: &Term, wanted: NodeId) -> NodeId {
        let fit = self.group.successor(term.term(), Some(wanted));
        let fit = fit.or_else(|_| self.group.successor(term.term(), None));
        fit.unwrap_or(wanted)
    }

    /// Closes the term. False if it is lost, or calls stay inside for longer than `shutdown_timeout_ms`.
    async fn close_in_time(&self, term: &Term) -> bool {
        let limit = Duration::from_millis(self.config.shutdown_timeout_ms);
        match tokio::time::timeout(limit, term.close()).await {
            Ok(closed) => closed.is_some(),
            Err(_) => {
                // Numbers are skipped, as after a crash; none is repeated.
                tracing::warn!(
                    term = term.term(),
                    limit_ms = limit.as_millis(),
                    "calls are still inside the term; handing over without what it has left"
                );
                false
            }
        }
    }
}

struct VoidOnDrop(Arc<Term>);

impl Drop for VoidOnDrop {
    fn drop(&mut self) {
        self.0.lease().void();
    }
}
