//! A checked message that asks for something of a sequence, and what only nodes know of it: its parsed request id, and
//! the namespace that is meant. The leader checks a message again that was forwarded.

use std::sync::Arc;

use super::sequence_request::SequenceRequest;
use crate::{
    node::{
        access::Principal,
        told_call::About,
        traces::{Span, TraceContext, Traces},
    },
    proto::{Refusal, peer::TraceParent},
    sequence::{MessageId, NamespaceId, Wanted},
};

/// A message that was checked, but for what depends on this node's settings or on the namespace.
#[derive(Debug, Clone)]
pub struct Asked<Q> {
    pub(in crate::node) message: Q,
    /// Who asks.
    pub(in crate::node) by: Principal,
    /// What its caller calls it: numbers of a gapless key are taken once for it, however often it is carried out.
    pub(in crate::node) id: Option<MessageId>,
    /// Set for the rest of a message: the namespace that answered the first part. It alone may answer the rest.
    pub(in crate::node) meant: Option<NamespaceId>,
    /// The span of the call, if it is traced.
    pub(in crate::node) span: Option<Arc<Span>>,
}

impl<Q: SequenceRequest> Asked<Q> {
    /// Checks a message.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for keys, counts, floors or a request id outside of their limits.
    pub fn new(message: Q, by: Principal) -> Result<Self, Refusal> {
        Asked::in_span(message, by, || None)
    }

    /// As [`Asked::new`], of a call that is traced if its caller says so, or by chance.
    ///
    /// # Errors
    /// As [`Asked::new`].
    #[inline]
    pub fn of_caller(
        message: Q, by: Principal, traces: &Traces, said: Option<TraceContext>,
    ) -> Result<Self, Refusal> {
        Asked::in_span(message, by, || traces.of_caller(Q::METHOD, said))
    }

    /// As [`Asked::new`], of a call that is traced if the peer says so that has forwarded it.
    ///
    /// # Errors
    /// As [`Asked::new`].
    pub fn of_peer(
        message: Q, by: Principal, traces: &Traces, said: Option<Box<TraceParent>>,
    ) -> Result<Self, Refusal> {
        Asked::in_span(message, by, || traces.of_peer(Q::METHOD, said.map(|said| *said)))
    }

    #[inline]
    fn in_span(
        mut message: Q, by: Principal, span: impl FnOnce() -> Option<Arc<Span>>,
    ) -> Result<Self, Refusal> {
        let id = message.check()?;
        if !by.is_told_route() {
            message.leave_route_out();
        }
        // A malformed message has none.
        Ok(Asked { message, by, id, meant: None, span: span() })
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        self.message.namespace()
    }

    /// What must be granted to who asks.
    pub fn wanted(&self) -> Wanted<'_> {
        self.message.wanted()
    }

    /// How many keys it has.
    pub fn keys(&self) -> usize {
        self.message.keys()
    }

    /// Whether it does no harm to carry it out again, whatever its namespace is.
    pub(super) fn is_safe_to_repeat(&self) -> bool {
        self.id.is_some() || self.message.numbers() == 0
    }

    /// It is refused before the node is asked: what traces tell of it.
    pub fn refused(&self, why: &Refusal) {
        if let Some(span) = &self.span {
            span.tell_about(self.about(false));
            span.tell_end(why.into());
        }
    }

    /// What is told of it.
    pub(super) fn about(&self, forwarded_here: bool) -> About<'_> {
        About {
            method: Q::METHOD,
            namespace: Some(self.namespace()),
            keys: self.keys(),
            forwarded_here,
        }
    }

    /// What of it the leader has left to the next one, as `answer` says, which is of the namespace `of`. Nothing was done of
    /// that. `None` also if it is not known which namespace has answered: all numbers of a message are of one.
    #[inline]
    pub(in crate::node) fn rest(
        &self, answer: &Q::Answer, of: Option<NamespaceId>,
    ) -> Option<Self> {
        let message = self.message.rest(answer)?;
        let (by, span) = (self.by.clone(), self.span.clone());
        Some(Asked { message, by, id: None, meant: Some(of?), span })
    }
}
