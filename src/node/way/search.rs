//! The loop that has a request answered: here if this node leads, and otherwise by the leader, as often as need be, until its
//! deadline.
//!
//! A follower tells the leader which namespace it takes the request's name for: by that one it judges whether the request may
//! be repeated. If the leader has another one under the name, it does nothing and answers [`Unanswered::Mistaken`]. Then it is
//! asked again, and need not compare.
//!
//! Invariant: a request that came from a peer is never forwarded again.

use std::{pin::pin, task::Poll};

use tokio::time::Instant;

use super::{
    Way,
    attempt::{Attempt, SoFar, Unanswered},
    effect::Effect,
    for_leader::{ForLeader, Waits},
    origin::Origin,
    patience::{FENCE_RETRY, LAST_WORDS, RETRY, within},
};
use crate::{
    consensus::Leadership,
    laps::{self, Phase},
    ordered_watch,
    proto::{Refusal, refusal, v1::Reason},
    sequence::NodeId,
    storage::Member,
};

impl Way {
    /// Has the leader answer a request, here or there, before `deadline`. A request that this node answers at once costs
    /// nothing but its answer. For one that has to wait, memory is reserved from then on.
    ///
    /// # Errors
    /// As [`Way::to_leader`], and those of [`ForLeader::begin_to_wait`].
    pub(in crate::node) async fn answer<R: ForLeader>(
        &self, here: &R::Here, request: &R, origin: Origin, deadline: Instant,
    ) -> Attempt<R::Answer> {
        let (attempt, reserved) = {
            let mut answering =
                pin!(request.serve_locally(here, (origin, SoFar::NotDone), deadline));
            match futures::poll!(&mut answering) {
                Poll::Ready(attempt) => (attempt, None),
                Poll::Pending => {
                    let reserved = request.begin_to_wait(here, Waits::Here)?;
                    (answering.await, reserved)
                }
            }
        };
        let so_far = match attempt {
            Err(Unanswered::Elsewhere(so_far)) => so_far,
            ended => return ended,
        };
        let _reserved = match reserved {
            Some(reserved) => Some(reserved),
            None => {
                let reserved = request.begin_to_wait(here, Waits::ForLeader);
                reserved.map_err(|refusal| so_far.refuse(request.effect(), refusal))?
            }
        };
        // Boxed, like every rare path: the future of the common path stays small.
        Box::pin(self.to_leader(here, request, (origin, so_far), deadline)).await
    }

    /// As [`Way::answer`], of a request for which all is reserved. `so_far` is the outcome of the attempts before.
    ///
    /// # Errors
    /// [`Unanswered::Elsewhere`] for a peer's request if another node leads, and [`Unanswered::Mistaken`] if the peer takes the
    /// namespace for another one. [`Unanswered::Refused`] with the leader's refusal, if it refuses the request; UNAVAILABLE if
    /// no leader answers in time, or this node stops and knows of none; UNKNOWN if one that was asked may have carried the
    /// request out.
    #[tracing::instrument(level = "debug", skip_all, fields(node = self.config.node_id))]
    pub(in crate::node) async fn to_leader<R: ForLeader>(
        &self, here: &R::Here, request: &R, (origin, so_far): (Origin, SoFar), deadline: Instant,
    ) -> Attempt<R::Answer> {
        let mut search = Search {
            way: self,
            here,
            request,
            origin,
            so_far,
            deadline,
            changes: self.led.changes(),
            trusts_itself: true,
        };
        loop {
            // Marked as seen before anything is read: what changes from here on wakes us below.
            search.changes.borrow_and_update();
            let mut attempt = search.try_here().await;
            let elsewhere = self.leader_elsewhere();
            let is_alone = elsewhere.is_none();
            let mut rest_until = deadline;
            if matches!(attempt, Err(Unanswered::Elsewhere(_)))
                && let Some((leader, member)) = elsewhere
            {
                if origin != Origin::Client {
                    return Err(search.not_led());
                }
                attempt = match search.ask((leader, &member)).await {
                    Asked::Tried(attempt) => attempt,
                    Asked::StartOver => continue,
                };
                // This leader did not answer, or leads no more, and no other is known: try again soon.
                rest_until = within(RETRY, deadline);
            }
            if let Some(ended) = search.end_with(attempt) {
                return ended;
            }
            if let Some(answer) = request.serve_without_leader(here) {
                return Ok(answer);
            }
            let rest = [rest_until, deadline];
            let rested = self.next_attempt(&mut search.changes, rest, is_alone).await;
            laps::lap(Phase::Leader);
            if let Err(why) = rested {
                return Err(search.give_up(why));
            }
        }
    }

    /// The leader that Raft last named, if it is another node.
    fn leader_elsewhere(&self) -> Option<(NodeId, Member)> {
        let leader = self.group.leadership().borrow().leader.clone();
        leader.filter(|(id, _)| *id != self.config.node_id)
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
            () = self.stopping.stopped().cancelled(), if is_alone => {
                // It may have heard of one just before. It hears of no other.
                match self.leader_elsewhere() {
                    Some(_) => Ok(()),
                    None => Err(NoAttempt::Stopped),
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
        let Some(lease) = self.led.serving_lease() else {
            return tokio::time::sleep_until(latest).await;
        };
        if lease.is_valid(self.clock.now()) {
            // The lease is valid, but the confirmation round failed. Each attempt burns its numbers, so pause.
            return tokio::time::sleep_until(within(FENCE_RETRY, latest)).await;
        }
        // We lead, and have not heard of a majority for a lease.
        let valid_or_void =
            lease.wait_until(|lease| lease.is_void() || lease.is_valid(self.clock.now()));
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

/// A request on its way to the leader, and what the attempts so far have shown.
struct Search<'a, R: ForLeader> {
    way: &'a Way,
    here: &'a R::Here,
    request: &'a R,
    origin: Origin,
    /// The outcome of the attempts so far.
    so_far: SoFar,
    deadline: Instant,
    /// The changes of the leadership.
    changes: ordered_watch::Receiver<u64>,
    /// False once a leader has said that the namespace was another one.
    trusts_itself: bool,
}

/// The outcome of asking the leader, which is another node.
enum Asked<A> {
    /// The outcome of the attempt.
    Tried(Attempt<A>),
    /// It was deposed meanwhile, or has another namespace under the name than this node: all starts over at once.
    StartOver,
}

impl<R: ForLeader> Search<'_, R> {
    /// Has this node answer, if it leads.
    ///
    /// # Errors
    /// [`Unanswered`], also if the caller may not have it any more.
    async fn try_here(&mut self) -> Attempt<R::Answer> {
        let (here, request) = (self.here, self.request);
        let attempt = match request.check_asker(here) {
            Ok(()) => request.serve_locally(here, (self.origin, self.so_far), self.deadline).await,
            Err(refusal) => Err(refusal.into()),
        };
        self.so_far = self.so_far.after(&attempt);
        attempt
    }

    /// Has the `leader` answer, which is another node.
    async fn ask(&mut self, (leader, member): (NodeId, &Member)) -> Asked<R::Answer> {
        let (here, request) = (self.here, self.request);
        // Once for each attempt: the leader compares what decides here whether there may be another one.
        let taken_for = request.taken_for(here, self.trusts_itself);
        let may_be_asked_again = request.may_be_asked_again(here, taken_for);
        let replied = tokio::select! {
            biased;
            replied = request.serve_remotely(
                here, (leader, member), taken_for, self.so_far, self.deadline
            ) => Some(replied),
            () = deposed(&mut self.changes), if may_be_asked_again => None,
        };
        laps::lap(Phase::Forward);
        match replied {
            None => {
                if request.effect() != Effect::None {
                    self.so_far = SoFar::MayBeDone;
                }
                Asked::StartOver
            }
            Some(Err(Unanswered::Mistaken)) if self.trusts_itself => {
                self.trusts_itself = false;
                Asked::StartOver
            }
            Some(attempt) => {
                self.so_far = self.so_far.after(&attempt);
                Asked::Tried(attempt)
            }
        }
    }

    /// The end of the search, if this attempt is the last one: the answer, or why there is none.
    fn end_with(&self, attempt: Attempt<R::Answer>) -> Option<Attempt<R::Answer>> {
        match attempt {
            Ok(answer) => Some(Ok(answer)),
            Err(Unanswered::Refused(refusal)) => Some(Err(self.refuse(refusal))),
            Err(Unanswered::Mistaken) if self.origin != Origin::Client => {
                Some(Err(Unanswered::Mistaken))
            }
            // A client's request is not taken for another namespace's any more, so `Mistaken` is no answer.
            Err(Unanswered::Elsewhere(_) | Unanswered::Mistaken) => None,
        }
    }

    /// The outcome if the leader is not asked again.
    fn give_up(&self, why: NoAttempt) -> Unanswered {
        // The follower has its own deadline, and may ask the next leader.
        if self.origin != Origin::Client {
            return self.not_led();
        }
        let me = self.way.config.node_id;
        let refusal = match why {
            NoAttempt::Stopped => refusal!(NodeStopping, "node {me} stops; ask another one"),
            NoAttempt::DeadlinePassed => self.way.no_leader_answered(),
        };
        self.refuse(refusal)
    }

    /// The outcome of a peer's request while this node does not lead: another node leads. It says whether an earlier attempt
    /// may have carried the request out, if that shows.
    fn not_led(&self) -> Unanswered {
        match self.request.effect() {
            Effect::None => Unanswered::ELSEWHERE,
            Effect::Harmless | Effect::UnderId | Effect::Change => {
                Unanswered::Elsewhere(self.so_far)
            }
        }
    }

    /// The outcome of a request that is refused, after the attempts so far.
    fn refuse(&self, refusal: Refusal) -> Unanswered {
        self.so_far.refuse(self.request.effect(), refusal).into()
    }
}

/// Ends when the leadership has changed, and the deposed leader has had time to send what it had taken until
/// then. A leader that hands over answers in that time, and no number is burnt. One that is paused does not,
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
