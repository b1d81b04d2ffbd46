//! The message by which a request is forwarded to the leader, with the numbers that are burnt if nobody hears the reply.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::{sequence_request::SequenceRequest, unheard_answer::UnheardAnswer};
use crate::{
    metrics::NamespaceCounts,
    node::{access::BurntNumbers, way::forward::BurntWithReply},
    proto::peer::{self, ForwardRequest},
    sequence::NamespaceId,
};

/// The message by which a request is forwarded to the leader, which is to compare the `namespace` with its own; and the numbers
/// that are burnt if nobody hears the reply. `caller` names the address of a client, and `by` says who asks. The burnt numbers
/// are `counted`, and in `counts`.
pub(in crate::node) fn forward_request<Q: SequenceRequest>(
    request: &Q, namespace: Option<NamespaceId>, (caller, by): (Option<u64>, Option<peer::Asker>),
    (counted, counts): (Option<BurntNumbers>, Arc<NamespaceCounts>),
) -> (ForwardRequest, Box<dyn BurntWithReply>) {
    let forwarded = ForwardRequest {
        method: Bytes::from_static(Q::METHOD.as_bytes()),
        message: request.encode_to_vec().into(),
        namespace_id: namespace.map(|id| id.0),
        caller,
        by,
        ..ForwardRequest::default()
    };
    let unheard = UnheardAnswer {
        counts: request.counts_to_burn(),
        numbers_of: numbers_of_answer::<Q>,
        counted,
        namespace: counts,
    };
    (forwarded, Box::new(unheard))
}

fn numbers_of_answer<Q: SequenceRequest>(answer: &Bytes, counts: &[u64]) -> u64 {
    // One that cannot be read says nothing.
    Q::Answer::decode(answer.clone()).map_or(0, |answer| numbers_of(Q::firsts(&answer), counts))
}

/// How many numbers the keys have together whose first numbers are `firsts`, 0 for a key without any. Each has as many as
/// `counts` says at its place, or one if there are no counts.
pub(super) fn numbers_of(firsts: &[u64], counts: &[u64]) -> u64 {
    let given = firsts.iter().enumerate().filter(|(_, first)| **first > 0);
    given.map(|(place, _)| counts.get(place).copied().unwrap_or(1)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        metrics::{Metrics, SkipCause},
        proto::v1::{NextManyRequest, NextManyResponse, NextRequest, NextResponse},
    };

    /// How many numbers are skipped, and counted against a quota, when nobody hears the `answer` to `request`.
    fn skipped<Q: SequenceRequest>(request: &Q, answer: Option<Bytes>) -> u64 {
        let (metrics, counted) = (Metrics::new(), BurntNumbers::of_somebody());
        let counts = (Some(counted.clone()), metrics.namespaces().of(1, "book").shared());
        let (_, burnt) = forward_request(request, None, (None, None), counts);
        burnt.burn(answer.as_ref(), false);
        let once = counted.total();
        // The call that serves the caller counts the numbers that it drops.
        counted.count(|| burnt.burn(answer.as_ref(), true));
        assert_eq!(counted.total(), 2 * once);
        assert_eq!(counted.total(), metrics.skipped(SkipCause::cancelled));
        once
    }

    fn encoded(answer: &impl Message) -> Option<Bytes> {
        Some(answer.encode_to_vec().into())
    }

    #[test]
    fn a_reply_that_nobody_hears_skips_the_numbers_that_it_brings_and_no_others() {
        let many = |counts: Vec<u64>| NextManyRequest {
            ids: vec![1, 2, 3],
            counts,
            ..NextManyRequest::default()
        };
        let firsts = |firsts| encoded(&NextManyResponse { firsts, ..Default::default() });
        assert_eq!(skipped(&many(vec![2, 30, 4]), firsts(vec![7, 0, 9])), 6);
        assert_eq!(skipped(&many(vec![]), firsts(vec![7, 0, 9])), 2);
        assert_eq!(skipped(&many(vec![2, 30, 4]), firsts(vec![])), 0, "all of it failed");
        let next = NextRequest { count: Some(5), ..Default::default() };
        let range = encoded(&NextResponse { first: 1, last: 5, increment: 1, route: None });
        assert_eq!(skipped(&next, range), 5);
        assert_eq!(skipped(&next, None), 0);
    }

    #[test]
    fn a_reply_that_nobody_hears_skips_nothing_that_was_taken_under_a_request_id() {
        let request_id = Some(Bytes::from_static(b"order-7"));
        let next = NextRequest { request_id, ..Default::default() };
        let range = encoded(&NextResponse { first: 1, last: 1, increment: 1, route: None });
        assert_eq!(skipped(&next, range), 0);
    }
}
