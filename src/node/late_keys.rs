//! Keys of a message that a leader left to the next one, because it handed over before they had their numbers. The node
//! that the caller asked gets them from there, so that what the others were given is not skipped. If another namespace has
//! the name by then, it gets none: their numbers would not fit in with those of the others.
//!
//! Invariant: nothing was taken of a late key, and no key has numbers at a later place of the message. All numbers of a
//! message are of one namespace.

use super::message_parts::Keys;
use crate::proto::{
    Refusal, refusal,
    v1::{Exhausted, NextManyRequest, NextManyResponse, Reason, RefusedKeys},
};

/// True if the leader handed over: nothing else refuses single keys so.
fn are_late(refused: &RefusedKeys) -> bool {
    refused.failure.as_ref().is_some_and(|why| why.reason() == Reason::Busy)
}

/// The places of the late keys.
fn late_places(answer: &NextManyResponse) -> impl Iterator<Item = u32> {
    let late = answer.refused.iter().filter(|refused| are_late(refused));
    late.flat_map(|refused| refused.places.iter().copied())
}

/// The request for the late keys of an answer. `None` if there are none.
pub(super) fn late(
    message: &NextManyRequest, answer: &NextManyResponse,
) -> Option<NextManyRequest> {
    let late: Vec<usize> = late_places(answer).map(|place| place as usize).collect();
    let keys = Keys::of(&message.ids, &message.names).len();
    // The parts of a message with an id are counted from its first key: such a message is asked again as a whole.
    if message.request_id.is_some() || late.is_empty() || late.iter().any(|at| *at >= keys) {
        return None;
    }
    Some(NextManyRequest {
        namespace: message.namespace.clone(),
        ids: at_places(&message.ids, &late),
        names: at_places(&message.names, &late),
        counts: at_places(&message.counts, &late),
        route_version: message.route_version,
        members_version: message.members_version,
        ..NextManyRequest::default()
    })
}

/// What stands at `places` of a column. Nothing if the message does not have the column.
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
pub(super) fn add_late(answer: &mut NextManyResponse, rest: Result<NextManyResponse, Refusal>) {
    let places: Vec<u32> = late_places(answer).collect();
    answer.refused.retain(|refused| !are_late(refused));
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
            let failure = Some(why.into());
            return answer.refused.push(RefusedKeys { places, failure });
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
        answer.exhausted = Some(Exhausted { places, left, failure: more.failure });
    }
}

/// Why late keys get no numbers: another namespace has the name by now.
pub(super) fn replaced() -> Refusal {
    refusal!(
        HandoverLost,
        "the namespace was replaced while the leader handed over: ask again for this key"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::{asked::Asked, refused_keys::refused_at},
        sequence::NamespaceId,
    };

    /// The namespace that has answered.
    const BOOK: Option<NamespaceId> = Some(NamespaceId(7));

    fn refused_keys(places: &[u32], why: Refusal) -> RefusedKeys {
        RefusedKeys { places: places.to_vec(), failure: Some(why.into()) }
    }

    fn used_up(places: &[u32], left: &[u64]) -> Option<Exhausted> {
        let failure = Some(refusal!(NumbersExhausted, "used up").into());
        Some(Exhausted { places: places.to_vec(), left: left.to_vec(), failure })
    }

    /// A request whose keys are ten times their places, and whose third and fifth are late.
    fn request() -> (Asked<NextManyRequest>, NextManyResponse) {
        let message = NextManyRequest {
            namespace: "book".into(),
            ids: (0..6).map(|place| place * 10).collect(),
            counts: (1..=6).collect(),
            route_version: 3,
            members_version: Some(4),
            ..NextManyRequest::default()
        };
        let answer = NextManyResponse {
            firsts: vec![7, 7, 0, 0, 0, 0],
            increment: 1,
            exhausted: used_up(&[5], &[2]),
            refused: vec![
                refused_keys(&[3], refusal!(KeysMaxReached, "too many keys")),
                refused_keys(&[2, 4], refusal!(Busy, "handed over").retry_after(100)),
            ],
            ..NextManyResponse::default()
        };
        (Asked::new(message).unwrap(), answer)
    }

    #[test]
    fn late_keys_are_asked_for_again_and_their_answer_goes_to_their_places() {
        let (request, mut answer) = request();
        let late = request.rest(&answer, BOOK).expect("two are late");
        assert_eq!((&late.message.ids[..], &late.message.counts[..]), (&[20, 40][..], &[3, 5][..]));
        assert_eq!((late.message.route_version, late.message.members_version), (3, Some(4)));
        assert_eq!((late.meant, late.id.is_none()), (BOOK, true));
        add_late(
            &mut answer,
            Ok(NextManyResponse {
                firsts: vec![0, 9],
                increment: 1,
                exhausted: used_up(&[0], &[1]),
                ..NextManyResponse::default()
            }),
        );
        assert_eq!(answer.firsts, [7, 7, 0, 0, 9, 0]);
        let exhausted = answer.exhausted.as_ref().expect("two are used up");
        assert_eq!((&exhausted.places[..], &exhausted.left[..]), (&[2, 5][..], &[1, 2][..]));
        assert!(refused_at(&answer, 3).is_some() && refused_at(&answer, 4).is_none());
        assert!(request.rest(&answer, BOOK).is_none());
    }

    #[test]
    fn late_keys_that_nobody_answers_for_are_refused_and_the_others_keep_their_numbers() {
        let (request, mut answer) = request();
        add_late(&mut answer, Err(refusal!(NoLeader, "nobody leads")));
        assert_eq!(answer.firsts, [7, 7, 0, 0, 0, 0]);
        assert!([2, 4].iter().all(|place| {
            refused_at(&answer, *place).is_some_and(|why| why.message == "nobody leads")
        }));
        assert!(request.rest(&answer, BOOK).is_none());
    }

    #[test]
    fn late_keys_are_not_asked_for_again_if_it_is_not_known_which_namespace_has_answered() {
        let (request, answer) = request();
        assert!(request.rest(&answer, None).is_none());
    }

    #[test]
    fn late_keys_of_a_message_with_an_id_are_not_asked_for_again() {
        let (request, answer) = request();
        let request_id = Some(bytes::Bytes::from_static(b"order-7"));
        let named = Asked::new(NextManyRequest { request_id, ..request.message }).unwrap();
        assert!(named.id.is_some() && named.rest(&answer, BOOK).is_none());
    }
}
