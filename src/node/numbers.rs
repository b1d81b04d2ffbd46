//! Serving a request: from this node's memory if it leads, from the leader's if it does not.
//!
//! `checked_request.rs` is a request that was checked. `sequence_request.rs` is the trait of all requests, which `next.rs`,
//! `next_many.rs`, `current.rs` and `floors.rs` implement: they say how each kind is checked and answered.
//! `forward_request.rs` makes the message to the leader of a request, and `unheard_answer.rs` counts numbers in replies that
//! nobody hears.
//!
//! A request that this node answers at once costs nothing but its numbers. One that has to wait is counted
//! in [`super::RequestMemory`] from then on.
//!
//! A leader that has another namespace under the name than the follower does nothing, and answers `Mistaken` (`way/search.rs`).
//!
//! Invariant: the term is loaded before the namespaces. So no term that began after a namespace was deleted is asked
//! for its id.

pub(super) mod checked_request;
mod current;
mod floors;
pub(super) mod forward_request;
mod next;
mod next_many;
pub(super) mod sequence_request;
mod unheard_answer;

use std::{pin::pin, sync::Arc, time::Duration};

use prost::Message;
use tokio::time::Instant;

use self::{
    checked_request::CheckedRequest,
    forward_request::forward_request,
    sequence_request::{Limits, SequenceRequest, count_max},
};
use super::{
    Config,
    access::Access,
    admission::Admission,
    callers::Caller,
    common::Common,
    formats::hands_out_ids,
    members::Members,
    request_memory::{RequestMemory, Reservation},
    requests::{
        checks::{check_namespace, no_namespace},
        counted::CallCounts,
        late_keys::replaced,
        refused::may_be_taken,
    },
    slow_calls::SlowCalls,
    terms::LedTerms,
    told_call::CallEnd,
    way::{
        Way,
        attempt::{Attempt, SoFar, Unanswered},
        effect::Effect,
        for_leader::{ForLeader, Waits},
        forward::NoReply,
        origin::Origin,
        patience::within,
    },
};
use crate::{
    allocator::HeldNumbers,
    consensus::Group,
    planted_bugs::{Bug, is_planted},
    proto::{
        Code, Refusal,
        peer::{NotLeader, forward_reply::Reply},
        refusal,
        v1::{Outcome, Reason},
    },
    sequence::{MessageId, Namespace, NamespaceId, NodeId},
    storage::Member,
};

/// Answers requests for numbers, from here or from the leader.
pub struct Numbers {
    config: Arc<Config>,
    group: Arc<Group>,
    request_memory: Arc<RequestMemory>,
    slow_calls: Arc<SlowCalls>,
    admission: Arc<Admission>,
    access: Arc<Access>,
    led: Arc<LedTerms>,
    members: Arc<Members>,
    way: Arc<Way>,
    counts: Arc<CallCounts>,
}

impl Numbers {
    /// Those of the node's group. `members` tell the route to the leader.
    pub(super) fn new(
        common: &Common, admission: Arc<Admission>, led: Arc<LedTerms>, members: Arc<Members>,
        way: Arc<Way>, counts: Arc<CallCounts>,
    ) -> Self {
        Numbers {
            config: common.config.clone(),
            group: common.group.clone(),
            request_memory: common.request_memory.clone(),
            slow_calls: common.slow_calls.clone(),
            access: admission.access().clone(),
            admission,
            led,
            members,
            way,
            counts,
        }
    }

    /// Answers a request before `deadline`, from here or from the leader. The future has two kilobytes: a caller that awaits
    /// it, or one that holds it, pins it first. Awaited by value, it would be moved twice.
    ///
    /// # Errors
    /// [`Unanswered`]: a refusal that says what was wrong, or, for a peer's request, that another node is to be asked.
    pub async fn serve<Q: SequenceRequest>(
        &self, asked: &CheckedRequest<Q>, origin: Origin, deadline: Instant,
    ) -> Attempt<Q::Answer> {
        let is_asked_here = matches!(origin, Origin::Client);
        let about = || asked.about(!is_asked_here);
        let serving = pin!(self.serve_checked(asked, origin, deadline));
        let served = self.slow_calls.watch(about, asked.span.as_deref(), serving).await;
        // Otherwise the node that its caller asked counts it.
        if is_asked_here {
            let (namespace, refused) = match &served {
                Ok((answer, namespace)) => (*namespace, Q::refused_keys(answer)),
                Err(Unanswered::Refused(why)) => (None, vec![(why.reason(), 1)]),
                // A client is never told so.
                Err(Unanswered::Elsewhere(_) | Unanswered::Mistaken) => (None, Vec::new()),
            };
            self.counts.count(asked.namespace(), namespace, refused);
        }
        served.map(|(answer, _)| answer)
    }

    /// As [`Numbers::serve`], and answers which namespace the answer is of. The call is not counted.
    async fn serve_checked<Q: SequenceRequest>(
        &self, asked: &CheckedRequest<Q>, origin: Origin, deadline: Instant,
    ) -> Attempt<OfNamespace<Q::Answer>> {
        let (by, message) = (&asked.by, &asked.message);
        self.admission.admit(by, message.wanted(), deadline).await?;
        match self.access.begin_taking(by, message.wanted())? {
            None => self.serve_admitted(asked, origin, deadline).await,
            Some(burnt) => burnt.counted(self.serve_admitted(asked, origin, deadline)).await,
        }
    }

    /// Answers a request whose caller may have it, and whose call is counted.
    async fn serve_admitted<Q: SequenceRequest>(
        &self, asked: &CheckedRequest<Q>, origin: Origin, deadline: Instant,
    ) -> Attempt<OfNamespace<Q::Answer>> {
        let message = &asked.message;
        message.check_counts(count_max(asked.id.is_some(), &self.config))?;
        // Numbers that are taken under an id are not asked for again once the id may be forgotten.
        let deadline = match &asked.id {
            None => deadline,
            Some(id) => {
                let remembered_ms = id.lifetime.ms(self.config.request_id_keep_ms);
                within(Duration::from_millis(remembered_ms), deadline)
            }
        };
        let (answer, namespace) = self.way.answer(self, asked, origin, deadline).await?;
        let rest = match origin {
            Origin::Client => asked.rest(&answer, namespace),
            // It asks the next leader for that itself.
            Origin::Peer { .. } => None,
        };
        match rest {
            None => Ok((answer, namespace)),
            Some(rest) => {
                let answer = Box::pin(self.complete(message, (answer, rest), deadline)).await;
                Ok((answer, namespace))
            }
        }
    }

    /// Gets what an answer lacks, because a leader handed over, from the next leader. The keys that get nothing there are
    /// refused.
    async fn complete<Q: SequenceRequest>(
        &self, message: &Q, (mut answer, mut rest): (Q::Answer, CheckedRequest<Q>),
        deadline: Instant,
    ) -> Q::Answer {
        loop {
            let Ok(_reserved) = self.request_memory.reserve(rest.message.bytes()) else {
                return answer;
            };
            // If the caller leaves meanwhile, nobody gets what it was given.
            let counts = self.counts.of(message.namespace());
            let held = HeldNumbers::new(&*counts, message.numbers_in(&answer));
            let asking = (Origin::Client, SoFar::NotDone);
            let more = self.way.to_leader(self, &rest, asking, deadline).await;
            held.release();
            let mut more = match more {
                Ok((more, _)) => more,
                Err(why) => {
                    message.add_rest(&mut answer, Err(why.into()));
                    return answer;
                }
            };
            if let Some(newer) = Q::route_in(&mut more).take() {
                *Q::route_in(&mut answer) = Some(newer);
            }
            message.add_rest(&mut answer, Ok(more));
            rest.message = match message.rest(&answer) {
                Some(rest) => rest,
                None => return answer,
            };
        }
    }

    /// The limits of a request that is answered here.
    fn limits(&self) -> Limits<'_> {
        Limits { config: &self.config, memory: &self.request_memory }
    }

    /// True if a request takes numbers, and this node does not know for sure that the namespace has gaps.
    fn may_be_gapless<Q: SequenceRequest>(&self, message: &Q) -> bool {
        let namespaces = self.group.view.namespaces();
        let known = namespaces.by_name(message.namespace());
        message.numbers() > 0 && known.is_none_or(|known| known.config.gapless)
    }
}

/// An answer, and the namespace that it is of, if this node knows it.
type OfNamespace<A> = (A, Option<NamespaceId>);

impl<Q: SequenceRequest> ForLeader for CheckedRequest<Q> {
    type Here = Numbers;
    type Answer = OfNamespace<Q::Answer>;

    fn taken_for(&self, here: &Numbers, trusts_itself: bool) -> Option<NamespaceId> {
        if self.is_safe_to_repeat() {
            return None;
        }
        let namespaces = here.group.view.namespaces();
        let known = namespaces.by_name(self.message.namespace()).filter(|_| trusts_itself);
        self.meant.or(known.map(|known| known.id))
    }

    /// Numbers that a node took before it lost its leadership are discarded: another one may be asked. Numbers of a gapless
    /// key that nobody was given are a gap, so a request for them must have an id. If this node does not know the namespace,
    /// or the leader has another one under the name, it may be gapless: the request is repeated only if both mean the same
    /// namespace, and that has gaps.
    fn may_be_asked_again(&self, here: &Numbers, taken_for: Option<NamespaceId>) -> bool {
        let namespaces = here.group.view.namespaces();
        let known = namespaces.by_name(self.message.namespace());
        let has_gaps = |known: &Namespace| !known.config.gapless && Some(known.id) == taken_for;
        self.is_safe_to_repeat() || known.is_some_and(has_gaps)
    }

    fn check_asker(&self, here: &Numbers) -> Result<(), Refusal> {
        here.access.check(&self.by, self.message.wanted())
    }

    fn effect(&self) -> Effect {
        match () {
            () if self.id.is_some() => Effect::UnderId,
            () if self.message.raises() => Effect::Harmless,
            // Numbers that nobody got do not show, unless they are gapless: then nobody else is asked.
            () => Effect::None,
        }
    }

    fn begin_to_wait(&self, here: &Numbers, waits: Waits) -> Result<Option<Reservation>, Refusal> {
        let message = &self.message;
        let reserved = here.request_memory.reserve(message.bytes());
        let reserved = reserved.map_err(|refusal| match waits {
            // An entry that takes its numbers may be under way.
            Waits::Here if here.may_be_gapless(message) => {
                may_be_taken(&refusal.message(), message.namespace())
            }
            // Floors may be raised by now.
            Waits::Here if message.raises() => refusal.may_be_done(),
            Waits::Here | Waits::ForLeader => refusal,
        })?;
        // Whether the namespace exists, only the leader knows.
        check_namespace(message.namespace())?;
        Ok(Some(reserved))
    }

    async fn serve_locally(
        &self, here: &Numbers, (origin, _): (Origin, SoFar), deadline: Instant,
    ) -> Attempt<Self::Answer> {
        let allocator = here.led.look();
        let Some(term) = &*allocator else {
            return Err(Unanswered::ELSEWHERE);
        };
        // The hot path: this node leads and has the numbers.
        let attempt = 'attempt: {
            let message = &self.message;
            let namespaces = here.group.view.namespaces();
            let Some(namespace) = namespaces.by_name(message.namespace()) else {
                break 'attempt Err(no_namespace(message.namespace()).into());
            };
            if origin.mistakes(namespace.id) {
                break 'attempt Err(Unanswered::Mistaken);
            }
            if self.meant.is_some_and(|meant| meant != namespace.id) {
                break 'attempt Err(replaced().into());
            }
            if let Some(format) = &namespace.config.format
                && !message.fits_ids(format)
            {
                break 'attempt Err(hands_out_ids(namespace, format).into());
            }
            // The next leader counts them, too: numbers that this one surely does not give are not counted here.
            if term.is_over() {
                break 'attempt Err(Unanswered::ELSEWHERE);
            }
            if let Err(refusal) =
                here.access.take_numbers(&self.by, message.namespace(), message.numbers())
            {
                break 'attempt Err(refusal.into());
            }
            // The memory of the id counts for the caller, also if a follower passes the message on.
            let id = self.id.as_ref().map(|id| MessageId {
                caller: Caller::current().map(|caller| caller.id()),
                ..id.clone()
            });
            let answered =
                message.answer(id.as_ref(), term, namespace, here.limits(), deadline).await;
            answered.map(|mut answer| {
                here.led.show_first_answer();
                *Q::route_in(&mut answer) = here.members.newer_route(message.known(), term.term());
                (answer, Some(namespace.id))
            })
        };
        match attempt {
            // Another leader may know a newer configuration than a deposed one.
            Err(Unanswered::Refused(refusal))
                if refusal.outcome() == Outcome::NotDone && !term.still_leads(deadline).await =>
            {
                Err(Unanswered::ELSEWHERE)
            }
            // The same, if some of its floors may be raised.
            Err(Unanswered::Refused(refusal))
                if self.message.raises()
                    && refusal.reason() != Reason::DeadlineExceeded
                    && !term.still_leads(deadline).await =>
            {
                Err(Unanswered::MAY_BE_DONE)
            }
            attempt => attempt,
        }
    }

    async fn serve_remotely(
        &self, here: &Numbers, (leader, member): (NodeId, &Member), taken_for: Option<NamespaceId>,
        _: SoFar, deadline: Instant,
    ) -> Attempt<Self::Answer> {
        let counted = here.access.burnt_numbers(&self.by, self.message.namespace());
        let counts = (counted, here.counts.of(self.message.namespace()).shared());
        let by = (self.by.told(), self.by.to_wire());
        let (mut request, burnt) = forward_request(&self.message, taken_for, by, counts);
        let span = self.span.as_ref().map(|span| span.asking_leader());
        request.trace_parent = span.as_ref().map(|span| Box::new(span.to_wire()));
        // Whether somebody may see that the leader has done it, also if its answer is lost.
        let shows = self.effect() != Effect::None;
        let sent = (request, burnt);
        let replied = here.way.forwarder().forward(leader, member, sent, deadline).await;
        if let Some(span) = span {
            span.tell_end(end_of(&replied));
        }
        match replied {
            // A refusal is final, also one that says that the outcome is unknown. A node that leads no more does not refuse.
            Ok(Reply::Error(failure)) => Err(Unanswered::Refused(failure.into())),
            Ok(Reply::NotLeader(NotLeader { other_namespace: true, .. })) => {
                Err(self.meant.map_or(Unanswered::Mistaken, |_| replaced().into()))
            }
            Ok(Reply::NotLeader(NotLeader { may_be_done, .. })) => {
                Err(Unanswered::Elsewhere(SoFar::told(may_be_done)))
            }
            Ok(Reply::Answer(answer)) => {
                let unreadable = |error| refusal!(Internal, "the answer of node {leader}: {error}");
                let answer = Q::Answer::decode(answer).map_err(unreadable)?;
                Ok((answer, taken_for))
            }
            Err(lost) => {
                tracing::debug!(leader, %lost, "forwarding");
                Err(match self.may_be_asked_again(here, taken_for) {
                    true if shows => Unanswered::MAY_BE_DONE,
                    true => Unanswered::ELSEWHERE,
                    false if is_planted(Bug::LostCallAskedAgain) => Unanswered::ELSEWHERE,
                    false => may_be_taken(&lost, self.message.namespace()).into(),
                })
            }
        }
    }
}

/// How the leader's part of a call has ended, as its reply says.
fn end_of(replied: &Result<Reply, NoReply>) -> CallEnd {
    match replied {
        Ok(Reply::Answer(_)) => CallEnd::Answered,
        Ok(Reply::Error(failure)) => {
            CallEnd::Refused(failure.reason(), Code::from_i32(failure.code))
        }
        Ok(Reply::NotLeader(_)) => CallEnd::NotLeader,
        Err(_) => CallEnd::Lost,
    }
}
