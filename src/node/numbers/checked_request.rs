//! A checked message that asks for something of a sequence, and what only nodes know of it: its parsed request id, and
//! the namespace that is meant. The leader checks a message again that was forwarded.

use std::sync::Arc;

use super::sequence_request::SequenceRequest;
use crate::{
    node::{
        access::Asker,
        told_call::About,
        traces::{Span, TraceContext, Traces},
    },
    proto::{Refusal, peer::TraceParent},
    sequence::{MessageId, NamespaceId, Wanted},
};

/// A message that was checked, but for what depends on this node's settings or on the namespace.
#[derive(Debug, Clone)]
pub struct CheckedRequest<Q> {
    pub(in crate::node) message: Q,
    /// The caller.
    pub(in crate::node) by: Asker,
    /// Its request id: numbers of a gapless key are taken once for it, however often it is carried out.
    pub(in crate::node) id: Option<MessageId>,
    /// Set for the rest of a message: the namespace that answered the first part. It alone may answer the rest.
    pub(in crate::node) meant: Option<NamespaceId>,
    /// The span of the call, if it is traced.
    pub(in crate::node) span: Option<Arc<Span>>,
}

impl<Q: SequenceRequest> CheckedRequest<Q> {
    /// Checks a message.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for keys, counts, floors or a request id outside of their limits.
    pub fn new(message: Q, by: Asker) -> Result<Self, Refusal> {
        CheckedRequest::in_span(message, by, || None)
    }

    /// As [`CheckedRequest::new`], of a call that is traced if its caller says so, or by chance.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for keys, counts, floors or a request id outside of their limits.
    #[inline]
    pub fn of_caller(
        message: Q, by: Asker, traces: &Traces, said: Option<TraceContext>,
    ) -> Result<Self, Refusal> {
        CheckedRequest::in_span(message, by, || traces.of_caller(Q::METHOD, said))
    }

    /// As [`CheckedRequest::new`], of a call that is traced if the peer says so that has forwarded it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for keys, counts, floors or a request id outside of their limits.
    pub fn of_peer(
        message: Q, by: Asker, traces: &Traces, said: Option<Box<TraceParent>>,
    ) -> Result<Self, Refusal> {
        CheckedRequest::in_span(message, by, || traces.of_peer(Q::METHOD, said.map(|said| *said)))
    }

    #[inline]
    fn in_span(
        mut message: Q, by: Asker, span: impl FnOnce() -> Option<Arc<Span>>,
    ) -> Result<Self, Refusal> {
        let id = message.check()?;
        if !by.is_told_route() {
            message.leave_route_out();
        }
        // A malformed message has none.
        Ok(CheckedRequest { message, by, id, meant: None, span: span() })
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        self.message.namespace()
    }

    /// The grant that the caller needs.
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

    /// Its subject for the log and traces.
    pub(super) fn about(&self, forwarded_here: bool) -> About<'_> {
        About {
            method: Q::METHOD,
            namespace: Some(self.namespace()),
            keys: self.keys(),
            forwarded_here,
        }
    }

    /// The rest of it that the leader has left to the next one, as `answer` says, which is of the namespace `of`. Nothing was
    /// done of that. `None` also if it is not known which namespace has answered: all numbers of a message are of one.
    #[inline]
    pub(in crate::node) fn rest(
        &self, answer: &Q::Answer, of: Option<NamespaceId>,
    ) -> Option<Self> {
        let message = self.message.rest(answer)?;
        let (by, span) = (self.by.clone(), self.span.clone());
        Some(CheckedRequest { message, by, id: None, meant: Some(of?), span })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        node::to_key,
        proto::v1::{
            CurrentManyRequest, CurrentRequest, NextManyRequest, NextRequest, RaiseManyRequest,
            RaiseRequest, RaiseSectionsRequest,
        },
        sequence::{Lifetime, OwnedKey},
    };

    fn refused<Q: SequenceRequest>(message: Q) -> String {
        let refused = CheckedRequest::new(message, Asker::node(1)).err().expect("a refusal");
        assert_eq!(refused.code(), crate::proto::Code::InvalidArgument);
        refused.message().to_owned()
    }

    fn many(ids: Vec<u64>, names: Vec<Bytes>, counts: Vec<u64>) -> NextManyRequest {
        NextManyRequest { ids, names, counts, ..NextManyRequest::default() }
    }

    #[test]
    fn a_message_whose_keys_are_none_is_refused_with_what_is_wrong() {
        let name = || vec![Bytes::from_static(b"k")];
        assert!(refused(many(vec![1], name(), vec![])).contains("1 ids and 1 names"));
        assert!(refused(many(vec![], vec![], vec![])).contains("has 0 keys"));
        assert!(refused(many(vec![0; 65_537], vec![], vec![])).contains("has 65537 keys"));
        assert!(refused(many(vec![1, 2], vec![], vec![1])).contains("2 keys and 1 counts"));
        let second_is_empty = vec![name().remove(0), Bytes::new()];
        let why = refused(many(vec![], second_is_empty, vec![]));
        assert!(why.contains("place 1: the key is empty"), "{why}");
        assert!(refused(CurrentManyRequest::default()).contains("has 0 keys"));
        assert!(refused(RaiseManyRequest::default()).contains("has 0 keys"));
        assert!(refused(RaiseSectionsRequest::default()).contains("has 0 keys"));
        assert!(refused(NextRequest::default()).contains("the key is missing"));
        assert!(refused(CurrentRequest::default()).contains("the key is missing"));
        let key = to_key(&OwnedKey::Name(vec![7; 257].into()));
        assert!(refused(RaiseRequest { key, ..Default::default() }).contains("has 257 bytes"));
        for good in [many(vec![0; 65_536], vec![], vec![]), many(vec![], name(), vec![3])] {
            let asked = CheckedRequest::new(good, Asker::node(1)).expect("a request");
            assert!(asked.id.is_none() && asked.meant.is_none());
        }
    }

    #[test]
    fn a_message_that_raises_many_needs_a_floor_for_each_key() {
        let (ids, at_least) = (vec![1, 2], vec![5]);
        let keys = RaiseManyRequest {
            ids: ids.clone(),
            at_least: at_least.clone(),
            ..RaiseManyRequest::default()
        };
        assert!(refused(keys).contains("2 keys and 1 floors"));
        let sections = RaiseSectionsRequest { ids, at_least, ..RaiseSectionsRequest::default() };
        assert!(refused(sections).contains("2 keys and 1 floors"));
    }

    #[test]
    fn a_message_has_the_id_that_its_caller_gives_for_as_long_as_it_says() {
        let named = |id: &[u8], retry_window_ms, made_ms| NextRequest {
            key: to_key(&OwnedKey::Id(1)),
            request_id: Some(id.to_vec().into()),
            retry_window_ms,
            made_ms,
            ..NextRequest::default()
        };
        let asked = CheckedRequest::new(named(b"order-7", Some(9_000), Some(7)), Asker::node(1))
            .expect("a request");
        let id = asked.id.expect("an id");
        assert_eq!((id.id.as_bytes(), id.made_ms), (&b"order-7"[..], Some(7)));
        assert_eq!(id.lifetime, Lifetime::of_window_ms(16_000));
        let configured =
            CheckedRequest::new(named(b"order-7", None, None), Asker::node(1)).expect("a request");
        assert_eq!(configured.id.expect("an id").lifetime, Lifetime::CONFIGURED);
        for (message, why) in [
            (named(b"", None, None), "the request id is empty"),
            (named(&[7; 65], None, None), "has 65 bytes"),
            (named(b"a", Some(1), None), "made_ms is missing"),
            (named(b"a", Some(60_001), Some(1)), "at most 60000"),
            (NextRequest { request_id: None, ..named(b"", Some(1), None) }, "goes with"),
            (NextRequest { request_id: None, ..named(b"", None, Some(1)) }, "goes with"),
        ] {
            let told = refused(message);
            assert!(told.contains(why), "{told}");
        }
        let many = many(vec![1], vec![], vec![]);
        assert!(refused(NextManyRequest { made_ms: Some(1), ..many }).contains("goes with"));
    }
}
