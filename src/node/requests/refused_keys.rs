//! Which keys of a request get no numbers while the others do, and what their callers are told.

use super::{
    checks::check_count_of,
    refused::{Told, refusal_of},
};
use crate::{
    allocator::{ManyNumbers, RefusedPlaces, Why},
    node::Config,
    proto::{
        Refusal,
        v1::{Exhausted, Failure, NextManyResponse, RefusedKeys},
    },
    sequence::{Namespace, NamespaceConfig},
};

/// The places whose counts are within the namespace's `count_max`, `None` if all are; and the others, refused. The leader
/// alone knows `count_max`. A client may have made one message of what several callers asked for, so a count that is too
/// large does not refuse the others.
pub fn within_count_max(
    counts: &[u64], namespace: &Namespace, config: &Config,
) -> (Option<Vec<usize>>, Vec<RefusedKeys>) {
    let too_large = |count: u64| check_count_of(namespace, config, count).err();
    let Some(why) = counts.iter().find_map(|&count| too_large(count)) else {
        return (None, Vec::new());
    };
    let (places, given): (Vec<usize>, Vec<usize>) =
        (0..counts.len()).partition(|&place| too_large(counts[place]).is_some());
    (Some(given), vec![refused(places, why)])
}

/// The message about the keys at `places`, which get no numbers for one reason.
pub fn refused(places: impl IntoIterator<Item = usize>, why: Refusal) -> RefusedKeys {
    let places = places.into_iter().map(|place| place as u32).collect();
    RefusedKeys { places, failure: Some(why.into()), left_to_next_leader: false }
}

/// Why the key at `place` got no numbers, if the answer says that.
pub fn refused_at(answer: &NextManyResponse, place: usize) -> Option<&Failure> {
    let place = u32::try_from(place).ok()?;
    // Places grow.
    let refused = |places: &[u32]| places.binary_search(&place).is_ok();
    let exhausted = answer.exhausted.iter().find(|one| refused(&one.places));
    let why = exhausted.map(|exhausted| &exhausted.failure);
    why.or_else(|| Some(&answer.refused.iter().find(|one| refused(&one.places))?.failure))?
        .as_deref()
}

/// The answer to a message of `keys` keys, from a term. `at` is the place in it of each key that numbers were taken of.
pub fn many_ranges(
    namespace: &Namespace, term: u64, taken: ManyNumbers, keys: usize, at: impl Fn(usize) -> usize,
    mut others: Vec<RefusedKeys>,
) -> NextManyResponse {
    let mut exhausted = None;
    for RefusedPlaces { why, places } in taken.refused {
        let refusal = refusal_of(&why, Told { namespace, term, count: None });
        let at_places = places.iter().map(|(place, _)| at(*place));
        match why {
            Why::Exhausted { .. } => {
                exhausted = Some(Box::new(Exhausted {
                    places: at_places.map(|place| place as u32).collect(),
                    left: places.iter().map(|(_, left)| *left).collect(),
                    failure: Some(refusal.into()),
                }));
            }
            _ => others.push(RefusedKeys {
                left_to_next_leader: why == Why::LeftToNextLeader,
                ..refused(at_places, refusal)
            }),
        }
    }
    let mut firsts = taken.firsts;
    if firsts.len() < keys {
        let mut all = vec![0; keys];
        for (place, first) in firsts.into_iter().enumerate() {
            all[at(place)] = first;
        }
        firsts = all;
    }
    let NamespaceConfig { increment, gapless, .. } = namespace.config;
    NextManyResponse {
        firsts,
        increment,
        exhausted,
        refused: others,
        gapless,
        ..NextManyResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{node::requests::checks::too_large, sequence::NamespaceId};

    #[test]
    fn keys_that_were_left_to_the_next_leader_say_so_and_each_has_its_place_in_the_message() {
        let namespace = Namespace::new(NamespaceId(1), NamespaceConfig::new("book"));
        let of = |why, places: &[(usize, u64)]| RefusedPlaces { why, places: places.to_vec() };
        let taken = ManyNumbers {
            firsts: vec![0, 5, 0, 0],
            refused: vec![
                of(Why::LeftToNextLeader, &[(0, 0)]),
                of(Why::Exhausted { left: 3 }, &[(2, 3), (3, 1)]),
            ],
        };
        // Place 1 of the message was refused before.
        let at = |place: usize| if place == 0 { 0 } else { place + 1 };
        let before = refused([1], too_large(&namespace, 9, 8));
        let answer = many_ranges(&namespace, 1, taken, 5, at, vec![before]);
        assert_eq!(answer.firsts, [0, 0, 5, 0, 0]);
        let told = answer.refused.iter().map(|one| (&one.places[..], one.left_to_next_leader));
        assert_eq!(told.collect::<Vec<_>>(), [(&[1][..], false), (&[0][..], true)]);
        let exhausted = answer.exhausted.expect("two are used up");
        assert_eq!((&exhausted.places[..], &exhausted.left[..]), (&[3, 4][..], &[3, 1][..]));
    }
}
