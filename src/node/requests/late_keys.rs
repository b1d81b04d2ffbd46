//! Keys of a message that a leader left to the next one, because it handed over before they had their numbers. The node
//! that the caller asked gets them from there, so that what the others were given is not skipped. If another namespace
//! has the name by then, it gets none: their numbers would not fit in with those of the others.
//!
//! Invariant: nothing was taken of a late key, and no key has numbers at a later place of the message. All numbers of a
//! message are of one namespace.

use super::keys::Keys;
use crate::proto::{
    Refusal, refusal,
    v1::{Exhausted, NextManyRequest, NextManyResponse, RefusedKeys},
};

/// The places of the late keys.
fn late_places(answer: &NextManyResponse) -> impl Iterator<Item = u32> {
    let late = answer.refused.iter().filter(|refused| refused.left_to_next_leader);
    late.flat_map(|refused| refused.places.iter().copied())
}

/// The request for the late keys of an answer. `None` if there are none.
pub(in crate::node) fn late(
    message: &NextManyRequest, answer: &NextManyResponse,
) -> Option<NextManyRequest> {
    let late: Vec<usize> = late_places(answer).map(|place| place as usize).collect();
    let keys = Keys::of(&message.ids, &message.names).len();
    // The parts of a message with an id are counted from its first key: such a message is asked again as a whole.
    if message.request_id.is_some() || late.is_empty() || late.iter().any(|at| *at >= keys) {
        return None;
    }
    // All fields are named: a new one may have to go along.
    Some(NextManyRequest {
        id: 0,
        namespace: message.namespace.clone(),
        ids: at_places(&message.ids, &late),
        names: at_places(&message.names, &late),
        counts: at_places(&message.counts, &late),
        timeout_ms: 0,
        route_version: message.route_version,
        members_version: message.members_version,
        request_id: None,
        retry_window_ms: None,
        made_ms: None,
        traceparent: None,
    })
}

/// The values at `places` of a column. None if the message does not have the column.
fn at_places<T: Clone>(column: &[T], places: &[usize]) -> Vec<T> {
    places.iter().filter_map(|place| column.get(*place).cloned()).collect()
}

/// True if it is the answer to a message of `keys` keys.
fn is_of(answer: &NextManyResponse, keys: usize) -> bool {
    let refused = answer.refused.iter().flat_map(|refused| &refused.places);
    let exhausted = answer.exhausted.iter().flat_map(|exhausted| &exhausted.places);
    answer.firsts.len() == keys && refused.chain(exhausted).all(|place| (*place as usize) < keys)
}

/// Gives the late keys of an answer what the next leader answered, or why it did not.
pub(in crate::node) fn add_late(
    answer: &mut NextManyResponse, rest: Result<NextManyResponse, Refusal>,
) {
    let places: Vec<u32> = late_places(answer).collect();
    answer.refused.retain(|refused| !refused.left_to_next_leader);
    let rest = match rest {
        Ok(rest) if !is_of(&rest, places.len()) => Err(refusal!(
            Internal,
            "the next leader's answer has other keys than it was asked for: ask again for this key"
        )),
        rest => rest,
    };
    let rest = match rest {
        Ok(rest) => rest,
        Err(why) => {
            return answer.refused.push(RefusedKeys {
                places,
                failure: Some(why.into()),
                left_to_next_leader: false,
            });
        }
    };
    for (place, first) in places.iter().zip(rest.firsts) {
        answer.firsts[*place as usize] = first;
    }
    let at = |place: u32| places[place as usize];
    answer.refused.extend(rest.refused.into_iter().map(|refused| RefusedKeys {
        places: refused.places.into_iter().map(at).collect(),
        ..refused
    }));
    if let Some(more) = rest.exhausted {
        let (mut places, mut left) = (Vec::new(), Vec::new());
        let before = answer.exhausted.take();
        let before = before.into_iter().flat_map(|one| one.places.into_iter().zip(one.left));
        let more_places = more.places.into_iter().map(at).zip(more.left);
        let mut all: Vec<(u32, u64)> = before.chain(more_places).collect();
        all.sort_unstable();
        for (place, numbers) in all {
            places.push(place);
            left.push(numbers);
        }
        let failure = more.failure;
        answer.exhausted = Some(Box::new(Exhausted { places, left, failure }));
    }
}

/// Why late keys get no numbers: another namespace has the name by now.
pub(in crate::node) fn replaced() -> Refusal {
    refusal!(
        HandoverLost,
        "the namespace was replaced while the leader handed over: ask again for this key"
    )
}

#[cfg(test)]
mod tests;
