//! Keys of a message that a leader left to the next one, because it handed over before they had their numbers. The node
//! that the caller asked gets them from there, so that what the others were given is not skipped. If another namespace has
//! the name by then, it gets none: their numbers would not fit in with those of the others.
//!
//! Invariant: nothing was taken of a late key, and no key has numbers at a later place of the message. All numbers of a
//! message are of one namespace.

use super::request::{Exhausted, Keys, ManyRanges, NextMany, RefusedKeys};
use crate::proto::{Refusal, refusal, v1::Reason};

impl RefusedKeys {
    /// True if the leader handed over: nothing else refuses single keys so.
    fn are_late(&self) -> bool {
        self.why.reason() == Reason::Busy
    }
}

impl NextMany {
    /// The request for the late keys of an answer. `None` if there are none, or it is not known which namespace has answered
    /// for the others.
    pub(super) fn late(&self, answer: &ManyRanges) -> Option<NextMany> {
        let late: Vec<usize> = answer.late_places().map(|place| place as usize).collect();
        // The parts of a message with an id are counted from its first key: such a message is asked again as a whole.
        if self.id.is_some() || late.is_empty() || late.iter().any(|at| *at >= self.keys.len()) {
            return None;
        }
        let meant = Some(answer.namespace?);
        let counts = match self.counts.is_empty() {
            true => Vec::new(),
            false => late.iter().map(|place| self.counts[*place]).collect(),
        };
        Some(NextMany {
            namespace: self.namespace.clone(),
            keys: match &self.keys {
                Keys::Ids(ids) => Keys::Ids(late.iter().map(|place| ids[*place]).collect()),
                Keys::Names(names) => {
                    Keys::Names(late.iter().map(|place| names[*place].clone()).collect())
                }
            },
            counts,
            id: None,
            known: self.known,
            meant,
        })
    }
}

impl ManyRanges {
    /// The places of the late keys.
    fn late_places(&self) -> impl Iterator<Item = u32> {
        let late = self.refused.iter().filter(|refused| refused.are_late());
        late.flat_map(|refused| refused.places.iter().copied())
    }

    /// True if it is the answer to a message of `keys` keys.
    fn is_of(&self, keys: usize) -> bool {
        let refused = self.refused.iter().flat_map(|refused| &refused.places);
        let exhausted = self.exhausted.iter().flat_map(|exhausted| &exhausted.places);
        self.firsts.len() == keys && refused.chain(exhausted).all(|place| (*place as usize) < keys)
    }

    /// Gives the late keys what the next leader answered, or why it did not.
    pub(super) fn add_late(&mut self, rest: Result<ManyRanges, Refusal>) {
        let places: Vec<u32> = self.late_places().collect();
        self.refused.retain(|refused| !refused.are_late());
        let rest = match rest {
            Ok(rest) if !rest.is_of(places.len()) => Err(refusal!(
                Internal,
                "the next leader's answer has other keys than it was asked for: ask again for this key"
            )),
            rest => rest,
        };
        let rest = match rest {
            Ok(rest) => rest,
            Err(why) => return self.refused.push(RefusedKeys { places, why }),
        };
        for (place, first) in places.iter().zip(rest.firsts) {
            self.firsts[*place as usize] = first;
        }
        let at = |place: u32| places[place as usize];
        self.refused.extend(rest.refused.into_iter().map(|refused| RefusedKeys {
            places: refused.places.into_iter().map(at).collect(),
            ..refused
        }));
        if let Some(more) = rest.exhausted {
            let (mut places, mut left) = (Vec::new(), Vec::new());
            let before = self.exhausted.take();
            let before = before.into_iter().flat_map(|one| one.places.into_iter().zip(one.left));
            let more_places = more.places.into_iter().map(at).zip(more.left);
            let mut all: Vec<(u32, u64)> = before.chain(more_places).collect();
            all.sort_unstable();
            for (place, numbers) in all {
                places.push(place);
                left.push(numbers);
            }
            self.exhausted = Some(Exhausted { places, left, why: more.why });
        }
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
        node::route::KnownRoute,
        sequence::{Key, NamespaceId},
    };

    fn refused_at(places: &[u32], why: Refusal) -> RefusedKeys {
        RefusedKeys { places: places.to_vec(), why }
    }

    fn used_up(places: &[u32], left: &[u64]) -> Option<Exhausted> {
        let why = refusal!(NumbersExhausted, "used up");
        Some(Exhausted { places: places.to_vec(), left: left.to_vec(), why })
    }

    /// A request whose keys are ten times their places, and whose third and fifth are late.
    fn request() -> (NextMany, ManyRanges) {
        let ids = Keys::Ids((0..6).map(|place| place * 10).collect());
        let counts = (1..=6).collect();
        let request = NextMany::new("book".into(), ids, counts, None, KnownRoute::default());
        let answer = ManyRanges {
            firsts: vec![7, 7, 0, 0, 0, 0],
            increment: 1,
            exhausted: used_up(&[5], &[2]),
            refused: vec![
                refused_at(&[3], refusal!(KeysMaxReached, "too many keys")),
                refused_at(&[2, 4], refusal!(Busy, "handed over").retry_after(100)),
            ],
            namespace: Some(NamespaceId(7)),
            ..ManyRanges::default()
        };
        (request.unwrap(), answer)
    }

    #[test]
    fn late_keys_are_asked_for_again_and_their_answer_goes_to_their_places() {
        let (request, mut answer) = request();
        let late = request.late(&answer).expect("two are late");
        assert_eq!((late.keys.at(0), late.keys.at(1)), (Key::Id(20), Key::Id(40)));
        assert_eq!((&late.counts[..], late.meant), (&[3, 5][..], Some(NamespaceId(7))));
        answer.add_late(Ok(ManyRanges {
            firsts: vec![0, 9],
            increment: 1,
            exhausted: used_up(&[0], &[1]),
            ..ManyRanges::default()
        }));
        assert_eq!(answer.firsts, [7, 7, 0, 0, 9, 0]);
        let exhausted = answer.exhausted.as_ref().expect("two are used up");
        assert_eq!((&exhausted.places[..], &exhausted.left[..]), (&[2, 5][..], &[1, 2][..]));
        assert!(answer.refused_at(3).is_some() && answer.refused_at(4).is_none());
        assert!(request.late(&answer).is_none());
    }

    #[test]
    fn late_keys_that_nobody_answers_for_are_refused_and_the_others_keep_their_numbers() {
        let (request, mut answer) = request();
        answer.add_late(Err(refusal!(NoLeader, "nobody leads")));
        assert_eq!(answer.firsts, [7, 7, 0, 0, 0, 0]);
        assert!([2, 4].iter().all(|place| {
            answer.refused_at(*place).is_some_and(|why| why.message() == "nobody leads")
        }));
        assert!(request.late(&answer).is_none());
    }

    #[test]
    fn late_keys_are_not_asked_for_again_if_it_is_not_known_which_namespace_has_answered() {
        let (request, mut answer) = request();
        answer.namespace = None;
        assert!(request.late(&answer).is_none());
    }
}
