//! An operation on its way to a leader elsewhere, and what comes of it.
//!
//! A message keeps its bytes on the way, so that what a newer client sends is not lost.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    attempt::{Attempt, SoFar, Unanswered},
    effect::{Effect, outcome_unknown},
    forward::Forwarder,
    patience::left,
};
use crate::{
    clock::whole_ms,
    node::{access::Asker, told_call::CallEnd, traces::Span},
    proto::{
        Code, Refusal,
        peer::{AdministerReply, AdministerRequest, NotLeader, administer_reply::Reply},
        refusal,
    },
    sequence::NodeId,
    storage::Member,
};

/// The facts about an operation that are known before it is carried out.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// Service and method, as in the path of a gRPC call.
    pub method: &'static str,
    /// Carrying it out again does no harm.
    pub is_idempotent: bool,
    /// It is not asked of a second leader once the answer of the first one is lost.
    pub is_asked_once: bool,
    /// Its effect shows, although nobody got its answer.
    pub shows: bool,
    /// How long to wait for a leader, if not until the deadline.
    pub patience: Duration,
}

impl Facts {
    /// Its effect, if it was carried out and nobody gets the answer.
    pub fn effect(&self) -> Effect {
        match self {
            Facts { shows: false, .. } => Effect::None,
            Facts { is_idempotent: true, .. } => Effect::Harmless,
            Facts { .. } => Effect::Change,
        }
    }

    /// Has the `leader` carry it out for the caller; `span` is that of the call, if it is traced. `so_far` is the outcome of
    /// the attempts before.
    pub async fn send(
        &self, forwarder: &Forwarder, (leader, member): (NodeId, &Member),
        (message, by, span): (&Bytes, &Asker, Option<&Span>), so_far: SoFar, deadline: Instant,
    ) -> Attempt<Bytes> {
        let left = left(deadline, self.patience);
        let span = span.map(Span::asking_leader);
        let message = AdministerRequest {
            trace_parent: span.as_ref().map(Span::to_wire),
            left_ms: whole_ms(left),
            caller: by.told(),
            by: by.to_wire(),
            method: self.method.to_owned(),
            again: so_far == SoFar::MayBeDone,
            message: message.clone(),
            ..AdministerRequest::default()
        };
        let replied = forwarder.administer(leader, member, message, left).await;
        if let Some(span) = span {
            span.tell_end(end_of(&replied));
        }
        match replied {
            Ok(answer) => self.told(answer.reply),
            Err(lost) => Err(self.lost(leader, &lost)),
        }
    }

    /// Its outcome as the leader's reply tells it.
    fn told(&self, reply: Option<Reply>) -> Attempt<Bytes> {
        match reply {
            Some(Reply::Answer(answer)) => Ok(answer),
            Some(Reply::Error(error)) => Err(Unanswered::Refused(error.into())),
            Some(Reply::NotLeader(NotLeader { may_be_done: true, .. })) => {
                match self.is_idempotent && !self.is_asked_once {
                    true => Err(Unanswered::MAY_BE_DONE),
                    // The asker decides whether to ask again: it may be another change by now.
                    false => Err(outcome_unknown().into()),
                }
            }
            Some(Reply::NotLeader(_)) | None => Err(Unanswered::ELSEWHERE),
        }
    }

    /// Its outcome if no answer came back from the `leader`.
    fn lost(&self, leader: NodeId, why: &Refusal) -> Unanswered {
        let Facts { method, is_idempotent, is_asked_once, shows, .. } = self;
        match why.code() {
            // It knows no such operation, or cannot read the message, and would not if it were asked again. The code alone says
            // so: the reply of a release that lacks a message has no field for that.
            Code::InvalidArgument | Code::Unimplemented => refusal!(
                WrongState,
                "node {leader} leads, and its release does not know {method}; upgrade it: {}",
                why.message()
            )
            .into(),
            Code::DeadlineExceeded if !is_idempotent => may_be_done(leader, why).into(),
            _ if *is_asked_once => may_be_done(leader, why).into(),
            _ => {
                tracing::debug!(leader, method, %why, "no answer");
                if *shows { Unanswered::MAY_BE_DONE } else { Unanswered::ELSEWHERE }
            }
        }
    }
}

/// How the leader's part of a call has ended, as its reply says.
fn end_of(replied: &Result<AdministerReply, Refusal>) -> CallEnd {
    match replied.as_ref().map(|replied| &replied.reply) {
        Ok(Some(Reply::Answer(_))) => CallEnd::Answered,
        Ok(Some(Reply::Error(failure))) => {
            CallEnd::Refused(failure.reason(), Code::from_i32(failure.code))
        }
        Ok(Some(Reply::NotLeader(_)) | None) => CallEnd::NotLeader,
        Err(_) => CallEnd::Lost,
    }
}

fn may_be_done(leader: NodeId, why: &Refusal) -> Refusal {
    refusal!(
        OutcomeUnknown,
        "node {leader} leads and did not answer in time; whether the request was carried out is unknown: look before you ask \
         again: {}",
        why.message()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::v1::Outcome;

    #[test]
    fn what_may_be_done_is_asked_of_the_next_leader_only_if_that_does_no_harm() {
        for (is_idempotent, is_asked_once, is_asked_again) in
            [(true, false, true), (false, false, false), (true, true, false)]
        {
            let patience = Duration::MAX;
            let facts =
                Facts { method: "/a/B", is_idempotent, is_asked_once, shows: true, patience };
            let reply = |may_be_done| {
                let not_leader = NotLeader { may_be_done, ..NotLeader::default() };
                facts.told(Some(Reply::NotLeader(not_leader))).expect_err("nothing is answered")
            };
            let told = reply(true);
            let again = matches!(told, Unanswered::Elsewhere(SoFar::MayBeDone));
            assert_eq!(again, is_asked_again, "{facts:?}");
            assert_eq!(Refusal::from(told).outcome(), Outcome::Unknown, "{facts:?}");
            assert!(matches!(reply(false), Unanswered::Elsewhere(SoFar::NotDone)), "{facts:?}");
        }
    }
}
