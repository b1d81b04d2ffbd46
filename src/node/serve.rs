//! Serving a request: from this node's memory if it leads, from the leader's if it does not.
//!
//! A request that this node answers at once costs nothing but its numbers. One that has to wait is counted
//! in [`super::RequestMemory`] from then on.

use std::{pin::pin, sync::Arc, task::Poll, time::Duration};

use tokio::time::Instant;

use super::{
    NodeContext,
    callers::Caller,
    formats::hands_out_ids,
    forward::Forwarded,
    late_keys::replaced,
    leader_search::{Assumed, Attempt, Failure, ForLeader, NoAnswer, Origin},
    refusals::{check_namespace, no_namespace},
    request::Answered,
    sequence_request::{SequenceRequest, check_id, outcome_unknown},
};
use crate::{
    allocator::Held,
    planted_bugs::{Bug, is_planted},
    proto::{
        peer::{NotLeader, forward_reply::Reply},
        refusal,
        v1::Reason,
    },
    sequence::{Namespace, NodeId},
    storage::Member,
};

impl NodeContext {
    /// Answers a request before `deadline`, from here or from the leader.
    ///
    /// # Errors
    /// [`Failure`]: a refusal that says what was wrong, or, for a peer's request, who leads instead.
    pub async fn serve<Q: SequenceRequest>(
        self: &Arc<Self>, request: Q, origin: Origin, deadline: Instant,
    ) -> Result<Answered<Q::Answer>, Failure> {
        request.check(&self.config)?;
        // What is taken under an id is not asked for again once the id may be forgotten.
        let deadline = match request.id() {
            None => deadline,
            Some(id) => {
                let remembered_ms = id.lifetime.ms(self.config.request_id_keep_ms);
                deadline.min(Instant::now() + Duration::from_millis(remembered_ms))
            }
        };
        let (attempt, reserved) = {
            let mut here = pin!(request.serve_locally(self, origin, deadline));
            match futures::poll!(&mut here) {
                Poll::Ready(attempt) => (attempt, None),
                // It waits: from here on it counts.
                Poll::Pending => {
                    let reserved = self.request_memory.reserve(request.bytes());
                    // An entry that takes its numbers may be under way.
                    let reserved =
                        reserved.map_err(|refusal| match self.may_be_gapless(&request) {
                            true => outcome_unknown(&refusal.message(), request.namespace()),
                            false => refusal,
                        })?;
                    (here.await, Some(reserved))
                }
            }
        };
        let answered = match attempt {
            Ok(answered) => answered,
            Err(NoAnswer::Refused(refusal)) => return Err(refusal.into()),
            Err(NoAnswer::Mistaken) => return Err(self.mistaken().into()),
            Err(lost @ (NoAnswer::Unanswered | NoAnswer::Unknown)) => {
                let may_be_done = matches!(lost, NoAnswer::Unknown);
                let _reserved = match reserved {
                    Some(reserved) => reserved,
                    None => self.request_memory.reserve(request.bytes())?,
                };
                // Before anything waits. Whether the namespace exists, only the leader knows.
                check_namespace(request.namespace())?;
                // Boxed, as is every way that is seldom gone: the future of the usual way stays small.
                let routing = self.route_to_leader(&request, origin, may_be_done, deadline);
                let routed = Box::pin(routing).await;
                if let Err(Failure::Refused(_)) = &routed
                    && SequenceRequest::has_id(&request)
                    && let Some(known) = self.group.view().namespaces().by_name(request.namespace())
                {
                    // Without a leader the caller learns from here that its id means nothing.
                    check_id(known, true)?;
                }
                routed?
            }
        };
        match rest_of(&request, origin, &answered) {
            None => Ok(answered),
            Some(rest) => Ok(Box::pin(self.complete(&request, (answered, rest), deadline)).await),
        }
    }

    /// Gets what an answer lacks, because a leader handed over, from the next leader. What cannot be got is refused.
    async fn complete<Q: SequenceRequest>(
        self: &Arc<Self>, request: &Q, (mut answered, mut rest): (Answered<Q::Answer>, Q),
        deadline: Instant,
    ) -> Answered<Q::Answer> {
        loop {
            let Ok(_reserved) = self.request_memory.reserve(rest.bytes()) else {
                return answered;
            };
            // If the caller leaves meanwhile, nobody gets what it was given.
            let held = Held::new(&*self.metrics, request.numbers_in(&answered.answer));
            let more = self.route_to_leader(&rest, Origin::Client, false, deadline).await;
            held.release();
            let more = match more {
                Ok(more) => more,
                Err(Failure::Refused(why)) => {
                    request.add_rest(&mut answered.answer, Err(why));
                    return answered;
                }
                // A client's request is never answered so.
                Err(Failure::NotLeader(_)) => return answered,
            };
            answered.route = more.route.or(answered.route);
            request.add_rest(&mut answered.answer, Ok(more.answer));
            rest = match request.rest(&answered.answer) {
                Some(rest) => rest,
                None => return answered,
            };
        }
    }

    /// True if a request takes numbers, and this node does not know for sure that the namespace has gaps.
    fn may_be_gapless<Q: SequenceRequest>(&self, request: &Q) -> bool {
        let namespaces = self.group.view().namespaces();
        let known = namespaces.by_name(request.namespace());
        request.numbers() > 0 && known.is_none_or(|known| known.config.gapless)
    }
}

/// What of a request is to be asked of the next leader. A peer sees to that itself.
fn rest_of<Q: SequenceRequest>(
    request: &Q, origin: Origin, answered: &Answered<Q::Answer>,
) -> Option<Q> {
    request.rest(&answered.answer).filter(|_| origin == Origin::Client)
}

impl<Q: SequenceRequest> ForLeader for Q {
    type Answer = Answered<Q::Answer>;

    /// What was taken by a node that lost its leadership is discarded: another one may be asked. Numbers of a gapless
    /// key that nobody was given are a gap, so a request for them must have an id. A namespace that this node does not
    /// know yet may be gapless. So may the one that has the name at the leader: that is asked again only if it is the same.
    fn assume(&self, node: &NodeContext, trusts_itself: bool) -> Assumed {
        if SequenceRequest::has_id(self) || self.numbers() == 0 {
            return Assumed { namespace: None, may_be_asked_again: true };
        }
        let namespaces = node.group.view().namespaces();
        let known = namespaces.by_name(self.namespace()).filter(|_| trusts_itself);
        let namespace = self.meant().or(known.map(|known| known.id));
        let is_sure = |known: &Namespace| !known.config.gapless && Some(known.id) == namespace;
        Assumed { namespace, may_be_asked_again: known.is_some_and(is_sure) }
    }

    fn has_id(&self) -> bool {
        SequenceRequest::has_id(self)
    }

    /// The hot path: this node leads and has the numbers.
    async fn serve_locally(
        &self, node: &Arc<NodeContext>, origin: Origin, deadline: Instant,
    ) -> Attempt<Self::Answer> {
        let allocator = node.allocator.load();
        let Some(term) = &*allocator else {
            return Err(NoAnswer::Unanswered);
        };
        let namespaces = node.group.view().namespaces();
        let Some(namespace) = namespaces.by_name(self.namespace()) else {
            // Another leader may know better than a deposed one.
            if !term.still_leads(deadline).await {
                return Err(NoAnswer::Unanswered);
            }
            return Err(no_namespace(self.namespace()).into());
        };
        if origin.mistakes(namespace.id) {
            return Err(NoAnswer::Mistaken);
        }
        if self.meant().is_some_and(|meant| meant != namespace.id) {
            return Err(replaced().into());
        }
        if let Some(format) = &namespace.config.format
            && !self.fits_ids(format)
        {
            return Err(hands_out_ids(namespace, format).into());
        }
        let answer = self.answer(term, namespace, node, deadline).await?;
        node.show_first_answer();
        Ok(Answered { answer, route: node.newer_route(self.known(), term.term()) })
    }

    async fn serve_remotely(
        &self, node: &Arc<NodeContext>, (leader, member): (NodeId, &Member), assumed: Assumed,
        deadline: Instant,
    ) -> Attempt<Self::Answer> {
        let sent = Forwarded {
            request: self.to_forward(),
            namespace: assumed.namespace,
            caller: Caller::current().map(|caller| caller.network()),
        };
        let has_id = SequenceRequest::has_id(self);
        match node.forwarder.forward(leader, member, sent, deadline).await {
            Ok(Reply::Error(failure)) if has_id && failure.reason() == Reason::OutcomeUnknown => {
                Err(NoAnswer::Unknown)
            }
            Ok(Reply::Error(failure)) => Err(NoAnswer::Refused(failure.into())),
            Ok(Reply::NotLeader(NotLeader { other_namespace: true, .. })) => {
                Err(self.meant().map_or(NoAnswer::Mistaken, |_| replaced().into()))
            }
            Ok(Reply::NotLeader(_)) => Err(NoAnswer::Unanswered),
            Ok(reply) => {
                let answered = Q::from_reply(reply).map(|mut answered| {
                    Q::note_namespace(&mut answered.answer, assumed.namespace);
                    answered
                });
                Ok(answered.ok_or_else(|| {
                    refusal!(
                        Internal,
                        "node {leader} answered another kind of request than it was asked"
                    )
                })?)
            }
            Err(lost) => {
                tracing::debug!(leader, %lost, "forwarding");
                Err(match assumed.may_be_asked_again {
                    true if has_id => NoAnswer::Unknown,
                    true => NoAnswer::Unanswered,
                    false if is_planted(Bug::LostCallAskedAgain) => NoAnswer::Unanswered,
                    false => outcome_unknown(&lost, self.namespace()).into(),
                })
            }
        }
    }
}
