//! Late keys are asked for again, and get their answers at their places.

use super::*;
use crate::{
    node::{Asker, numbers::checked_request::CheckedRequest, requests::refused_keys::refused_at},
    sequence::NamespaceId,
};

/// The namespace that has answered.
const BOOK: Option<NamespaceId> = Some(NamespaceId(7));

fn refused_keys(places: &[u32], why: Refusal) -> RefusedKeys {
    RefusedKeys { places: places.to_vec(), failure: Some(why.into()), ..RefusedKeys::default() }
}

fn used_up(places: &[u32], left: &[u64]) -> Option<Box<Exhausted>> {
    let failure = Some(refusal!(NumbersExhausted, "used up").into());
    Some(Box::new(Exhausted { places: places.to_vec(), left: left.to_vec(), failure }))
}

/// A request whose keys are ten times their places, and whose third and fifth are late.
fn request() -> (CheckedRequest<NextManyRequest>, NextManyResponse) {
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
            // The reason does not tell late keys from others.
            refused_keys(&[3], refusal!(Busy, "no room")),
            RefusedKeys {
                left_to_next_leader: true,
                ..refused_keys(&[2, 4], refusal!(Busy, "handed over").retry_after(100))
            },
        ],
        ..NextManyResponse::default()
    };
    (CheckedRequest::new(message, Asker::node(1)).unwrap(), answer)
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
    let named =
        CheckedRequest::new(NextManyRequest { request_id, ..request.message }, Asker::node(1))
            .unwrap();
    assert!(named.id.is_some() && named.rest(&answer, BOOK).is_none());
}
