//! The search for the leader: a request that this node cannot answer goes to the leader, as often as need
//! be, until its deadline.
//!
//! Invariant: a request that came from a peer is never forwarded again.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    consensus::Leadership,
    node::services::Leader,
    ordered_watch,
    proto::{Code, Refusal, refusal, v1::Reason},
    sequence::{NamespaceId, NodeId},
    storage::Member,
};

/// How soon numbers are taken again after the fence failed under a valid lease.
const FENCE_RETRY: Duration = Duration::from_millis(50);
/// How soon a leader that did not answer, or says that it does not lead, is asked again.
const RETRY: Duration = Duration::from_millis(20);

/// How long the answer of a deposed leader is still waited for: its numbers passed the fence before.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A client: it may be forwarded.
    Client,
    /// A peer that took this node for the leader: it may not.
    Peer {
        /// The namespace that it takes the name for, if the leader is to compare.
        namespace: Option<NamespaceId>,
        /// It has asked before, and whoever was asked may have carried the request out.
        again: bool,
    },
}

impl Origin {
    /// True if a peer takes the `namespace` that this node has for another one.
    pub fn mistakes(self, namespace: NamespaceId) -> bool {
        match self {
            Origin::Client => false,
            Origin::Peer { namespace: taken_for, .. } => {
                taken_for.is_some_and(|id| id != namespace)
            }
        }
    }
}

/// What is left of a request that was carried out, if nobody gets the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// Nothing that shows.
    None,
    /// What it was to do. It does no harm to do it again.
    Harmless,
    /// What is found under the id that the caller gave it, however often it is asked for.
    UnderId,
    /// What it was to do. To do it again is another change.
    Change,
}

impl Trace {
    /// What a caller is told that is refused after an attempt which may have carried the request out.
    pub fn told_after(self, refusal: Refusal) -> Refusal {
        // Libraries repeat some calls by themselves.
        let is_repeated = matches!(refusal.code(), Code::Unavailable | Code::ResourceExhausted);
        match self {
            Trace::None => refusal,
            Trace::Change if is_repeated => outcome_unknown(),
            Trace::UnderId => outcome_unknown(),
            Trace::Harmless | Trace::Change => refusal.may_be_done(),
        }
    }
}

/// What an attempt to have a request answered came to, here or at another node.
pub type Attempt<A> = Result<A, Unanswered>;

/// Why a request has no answer. `refused.rs` makes it of what a term says; the interfaces make statuses, problems, Redis errors
/// and replies to peers of it.
#[derive(Debug)]
pub enum Unanswered {
    /// It is refused. The refusal says why, and whether it may be done all the same.
    Refused(Refusal),
    /// The node does not lead, or its answer is lost: the node that leads is to be asked, whichever that is by now. Asking it
    /// does no harm.
    Elsewhere {
        /// The request may have been carried out: from here on, no refusal that libraries repeat is passed on.
        may_be_done: bool,
    },
    /// Who passed the request on took its namespace for another one. Nothing was done.
    Mistaken,
}

impl Unanswered {
    /// Nothing was done, and the node that leads is to be asked.
    pub const ELSEWHERE: Unanswered = Unanswered::Elsewhere { may_be_done: false };
    /// As [`Unanswered::ELSEWHERE`], and the request may have been carried out.
    pub const MAY_BE_DONE: Unanswered = Unanswered::Elsewhere { may_be_done: true };
}

impl From<Refusal> for Unanswered {
    fn from(refusal: Refusal) -> Self {
        Unanswered::Refused(refusal)
    }
}

impl From<Unanswered> for Refusal {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Refused(refusal) => refusal,
            // Only a peer's request ends so. Others are forwarded.
            Unanswered::Elsewhere { .. } | Unanswered::Mistaken => {
                refusal!(NoLeader, "no leader is known")
            }
        }
    }
}

/// A request that the leader answers, whichever node it was sent to.
pub trait ForLeader: Sync {
    /// What it is answered with.
    type Answer: Send;

    /// The namespace that this node (`here`), which may know an old configuration, takes the request's name for. If the leader's
    /// namespace of that name is another one, the leader does nothing. `None`: the leader is not to compare. `trusts_itself` is
    /// false once the leader has said that the namespace was another one.
    fn taken_for(&self, _here: &Leader, _trusts_itself: bool) -> Option<NamespaceId> {
        None
    }

    /// Whether another leader may be asked while one that is deposed still owes the answer, to the request for the namespace
    /// `taken_for`. A request for numbers may then also be repeated after its answer was lost; what a lost answer of another
    /// request means is up to that.
    fn may_be_asked_again(&self, here: &Leader, taken_for: Option<NamespaceId>) -> bool;

    /// Sees that its caller may still have it: that may have changed while the leader was looked for.
    ///
    /// # Errors
    /// Those of `Access::check`.
    fn check_asker(&self, here: &Leader) -> Result<(), Refusal>;

    /// Answers it if this node leads. It came from an origin, and an attempt before may have carried it out, if so.
    fn serve_locally(
        &self, here: &Leader, from: (Origin, bool), deadline: Instant,
    ) -> impl Future<Output = Attempt<Self::Answer>> + Send;

    /// Has the `leader` answer it. An attempt before may have carried it out if `may_be_done`.
    fn serve_remotely(
        &self, here: &Leader, leader: (NodeId, &Member), taken_for: Option<NamespaceId>,
        may_be_done: bool, deadline: Instant,
    ) -> impl Future<Output = Attempt<Self::Answer>> + Send;

    /// What is left of it if it was carried out.
    fn trace(&self) -> Trace;

    /// The answer while no leader answers; `None` if only a leader has one.
    fn serve_without_leader(&self, _here: &Leader) -> Option<Self::Answer> {
        None
    }
}

impl Leader {
    /// Has the leader answer a request, and looks for it until `deadline`. `may_be_done` says that an attempt before may
    /// have carried it out.
    ///
    /// # Errors
    /// [`Unanswered::Elsewhere`] for a peer's request if another node leads, and [`Unanswered::Mistaken`] if the peer takes the
    /// namespace for another one. [`Unanswered::Refused`] with the leader's refusal, if it refuses the request; UNAVAILABLE if no
    /// leader answers in time, or this node stops and knows of none; UNKNOWN if one that was asked may have carried the request
    /// out.
    #[tracing::instrument(level = "debug", skip_all, fields(node = self.config.node_id))]
    pub(in crate::node) async fn route_to_leader<R: ForLeader>(
        &self, request: &R, origin: Origin, mut may_be_done: bool, deadline: Instant,
    ) -> Attempt<R::Answer> {
        let mut changes = self.led.changes.subscribe();
        let mut trusts_itself = true;
        loop {
            // Marked as seen before anything is read: what changes from here on wakes us below.
            changes.borrow_and_update();
            let mut attempt = match request.check_asker(self) {
                Ok(()) => request.serve_locally(self, (origin, may_be_done), deadline).await,
                Err(refusal) => Err(refusal.into()),
            };
            may_be_done |= matches!(attempt, Err(Unanswered::Elsewhere { may_be_done: true }));
            let leader = self.group.leadership().borrow().leader.clone();
            let elsewhere = leader.filter(|(id, _)| *id != self.config.node_id);
            let is_alone = elsewhere.is_none();
            let mut rest_until = deadline;
            if matches!(attempt, Err(Unanswered::Elsewhere { .. }))
                && let Some((leader, member)) = elsewhere
            {
                if origin != Origin::Client {
                    return Err(not_led(may_be_done, request.trace()));
                }
                // Once for each attempt: the leader compares what decides here whether there may be another one.
                let taken_for = request.taken_for(self, trusts_itself);
                let may_be_asked_again = request.may_be_asked_again(self, taken_for);
                tokio::select! {
                    biased;
                    remote = request.serve_remotely(
                        self, (leader, &member), taken_for, may_be_done, deadline
                    ) => {
                        attempt = remote;
                    }
                    () = deposed(&mut changes), if may_be_asked_again => {
                        may_be_done |= request.trace() != Trace::None;
                        continue;
                    }
                }
                if matches!(attempt, Err(Unanswered::Mistaken)) && trusts_itself {
                    trusts_itself = false;
                    continue;
                }
                may_be_done |= matches!(attempt, Err(Unanswered::Elsewhere { may_be_done: true }));
                // This leader did not answer, or leads no more, and no other is known: try again soon.
                rest_until = deadline.min(Instant::now() + RETRY);
            }
            match attempt {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::Refused(refusal)) if may_be_done => {
                    return Err(request.trace().told_after(refusal).into());
                }
                Err(refused @ Unanswered::Refused(_)) => return Err(refused),
                Err(Unanswered::Mistaken) if origin != Origin::Client => {
                    return Err(Unanswered::Mistaken);
                }
                // A client's request is not taken for another namespace's any more, so `Mistaken` is no answer.
                Err(Unanswered::Elsewhere { .. } | Unanswered::Mistaken) => {}
            }
            if let Some(answer) = request.serve_without_leader(self) {
                return Ok(answer);
            }
            let resting = self.next_attempt(&mut changes, [rest_until, deadline], is_alone);
            let refusal = match resting.await {
                Ok(()) => continue,
                Err(NoAttempt::Stopped) if origin != Origin::Client => {
                    return Err(not_led(may_be_done, request.trace()));
                }
                Err(NoAttempt::Stopped) => {
                    refusal!(NodeStopping, "node {} stops; ask another one", self.config.node_id)
                }
                Err(NoAttempt::DeadlinePassed) => self.no_leader_answered(),
            };
            return Err(match may_be_done {
                true => request.trace().told_after(refusal).into(),
                false => refusal.into(),
            });
        }
    }

    /// Waits for the next attempt: until the leadership changes, or `rest_until`.
    ///
    /// # Errors
    /// [`NoAttempt`] once it is `deadline`, or once the node stops, if it `is_alone`: it knows of no other leader.
    async fn next_attempt(
        &self, changes: &mut ordered_watch::Receiver<u64>, [rest_until, deadline]: [Instant; 2],
        is_alone: bool,
    ) -> Result<(), NoAttempt> {
        tokio::select! {
            biased;
            _ = changes.changed() => Ok(()),
            () = self.led.stopped.cancelled(), if is_alone => {
                // It may have heard of one just before. It hears of no other.
                let leader = leader_of(&self.group.leadership().borrow());
                match leader.is_some_and(|leader| leader != self.config.node_id) {
                    true => Ok(()),
                    false => Err(NoAttempt::Stopped),
                }
            }
            () = self.rest(rest_until) => match Instant::now() >= deadline {
                true => Err(NoAttempt::DeadlinePassed),
                false => Ok(()),
            },
        }
    }

    /// Waits before the next attempt, until `latest` at most.
    async fn rest(&self, latest: Instant) {
        let Some(term) = self.led.serving() else {
            return tokio::time::sleep_until(latest).await;
        };
        if term.lease().is_valid(self.led.clock.now()) {
            // The lease is valid, but the confirmation round failed. Each attempt burns its numbers, so pause.
            return tokio::time::sleep_until(latest.min(Instant::now() + FENCE_RETRY)).await;
        }
        // We lead, and have not heard of a majority for a lease.
        let valid_or_void = (term.lease())
            .wait_until(|lease| lease.is_void() || lease.is_valid(self.led.clock.now()));
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(latest) => {}
            () = valid_or_void => {}
        }
    }

    fn no_leader_answered(&self) -> Refusal {
        let now = self.group.leadership().borrow().clone();
        let known = match &now.leader {
            Some((leader, _)) if *leader == self.config.node_id => {
                format!("this node leads term {} and hears from no majority", now.term)
            }
            Some((leader, member)) => format!(
                "node {leader} at {} leads term {} and does not answer",
                member.client_address, now.term
            ),
            None if !self.group.is_formed() => {
                "the cluster is not founded yet, or this node not added to it".to_owned()
            }
            None => format!("no leader is known in term {}", now.term),
        };
        let reason = match self.group.is_formed() {
            true => Reason::NoLeader,
            false => Reason::NotFounded,
        };
        let why = format!(
            "node {}: no leader answered before the deadline: {known}; see ratchet status",
            self.config.node_id
        );
        Refusal::new(reason, why)
    }
}

/// Why the leader is not asked again.
enum NoAttempt {
    /// The deadline has passed.
    DeadlinePassed,
    /// The node stops, and knows no other leader.
    Stopped,
}

/// What a peer's request comes to while this node does not lead, unless it may be done and can show.
fn not_led(may_be_done: bool, trace: Trace) -> Unanswered {
    match may_be_done && trace != Trace::None {
        true => outcome_unknown().into(),
        false => Unanswered::ELSEWHERE,
    }
}

/// UNKNOWN for a request that may have been carried out.
fn outcome_unknown() -> Refusal {
    let why = "a leader that was asked may have carried the request out, and none says so: ask again with the same request \
               id, or look before you ask again";
    refusal!(OutcomeUnknown, "{why}")
}

/// Ends when the leadership has changed, and the deposed leader has had time to send what it had taken until
/// then. A leader that hands over answers in that time, and no number is lost. One that is paused does not,
/// and a newer one is asked.
async fn deposed(changes: &mut ordered_watch::Receiver<u64>) {
    if changes.changed().await.is_ok() {
        tokio::time::sleep(LAST_WORDS).await;
    }
}

/// The leader's id, if a leader is known.
pub fn leader_of(leadership: &Leadership) -> Option<NodeId> {
    leadership.leader.as_ref().map(|(leader, _)| *leader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::v1::Outcome;

    #[test]
    fn a_refusal_after_a_lost_answer_says_that_nothing_was_done_only_if_nothing_would_show() {
        let refusals = || {
            [refusal!(NamespaceExists, "there"), refusal!(NoLeader, "no"), refusal!(Busy, "full")]
        };
        let told = |trace: Trace| {
            refusals()
                .map(|refusal| trace.told_after(refusal))
                .map(|told| (told.code(), told.outcome()))
        };
        use {Code::*, Outcome::NotDone};
        let unknown = |code: Code| (code, Outcome::Unknown);
        let nothing =
            [(AlreadyExists, NotDone), (Unavailable, NotDone), (ResourceExhausted, NotDone)];
        assert_eq!(told(Trace::None), nothing);
        let harmless = [AlreadyExists, Unavailable, ResourceExhausted].map(unknown);
        assert_eq!(told(Trace::Harmless), harmless);
        // No code that libraries repeat by themselves.
        let change = [AlreadyExists, Unknown, Unknown].map(unknown);
        assert_eq!(told(Trace::Change), change);
        assert_eq!(told(Trace::UnderId), [Unknown; 3].map(unknown));
        let ongoing = refusal!(DeadlineExceeded, "it goes on").ongoing();
        assert_eq!(Trace::Change.told_after(ongoing).outcome(), Outcome::Ongoing);
    }
}
