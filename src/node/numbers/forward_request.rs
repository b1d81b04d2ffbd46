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
