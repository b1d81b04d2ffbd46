//! Which requests, and which keys of a request, get no numbers, and what their callers are told.

use crate::{
    allocator::{ManyNumbers, RefusedPlaces, Term, Unserved, UsedId, Why},
    consensus::Group,
    node::{Caller, Config, way::search::Unanswered},
    proto::{
        Refusal, refusal,
        v1::{Exhausted, Failure, NextManyResponse, Reason, RefusedKeys},
    },
    sequence::{
        IdsFull, Key, KeyKind, MessageId, NUMBER_MAX, Namespace, NamespaceConfig, NamespaceRefused,
        check_name,
    },
    storage::LowDisk,
};

/// How soon to ask again while nothing more can be remembered under request ids: ids that are old enough are forgotten all the
/// time.
const IDS_RETRY_AFTER_MS: u64 = 1_000;

/// Refuses a key that is not of the namespace's kind.
///
/// # Errors
/// INVALID_ARGUMENT, with what to give instead.
pub(in crate::node) fn check_kind(namespace: &Namespace, key: Key<'_>) -> Result<(), Refusal> {
    if key.kind() == namespace.config.key_kind {
        return Ok(());
    }
    let give = match namespace.config.key_kind {
        KeyKind::Id => "give an id (key.id)",
        KeyKind::Name => "give a name (key.name, ratchet next --name)",
    };
    Err(refusal!(
        KeyKindMismatch,
        "namespace {:?} takes keys of kind {}; {key} is of kind {}: {give}",
        namespace.config.name,
        namespace.config.key_kind,
        key.kind()
    ))
}

/// What it comes to that a term did not serve a request for `count` numbers, 0 if it asks for none: another node is to be
/// asked, or the request is refused.
pub(in crate::node) fn failed(
    failed: impl Into<Unserved>, namespace: &Namespace, term: &Term, count: u64,
) -> Unanswered {
    let asked = Told { namespace, term: term.term(), count: Some(count) };
    unanswered(failed.into(), asked)
}

fn unanswered(unserved: Unserved, asked: Told<'_>) -> Unanswered {
    let Unserved { why, may_be_done } = unserved;
    // Why keys may not wait, whoever asked the term knows.
    let is_elsewhere = matches!(why, Why::NotLeading | Why::MayNotWait);
    match may_be_done {
        0 if is_elsewhere => Unanswered::ELSEWHERE,
        0 => refusal_of(&why, asked).into(),
        // Gapless numbers: nobody may be asked again.
        _ if asked.count > Some(0) => match is_elsewhere {
            true => unknown_of(&"whether the numbers were taken is not known", asked),
            false => unknown_of(&why, asked),
        },
        _ if is_elsewhere => Unanswered::MAY_BE_DONE,
        _ => partly_raised(refusal_of(&why, asked), may_be_done).into(),
    }
}

/// As [`failed`], of numbers that were asked for under a request `id`, or under none: with one, the next leader knows whether
/// they were taken.
pub(in crate::node) fn failed_under(
    id: Option<&MessageId>, failed: Unserved, namespace: &Namespace, term: &Term, count: u64,
) -> Unanswered {
    match failed {
        Unserved { why: Why::NotLeading, may_be_done: 1.. } if id.is_some() => {
            Unanswered::MAY_BE_DONE
        }
        other => self::failed(other, namespace, term, count),
    }
}

fn unknown_of(why: &impl std::fmt::Display, asked: Told<'_>) -> Unanswered {
    outcome_unknown(why, &asked.namespace.config.name).into()
}

/// What is told of floors that are refused, the first `may_be` of which may be raised all the same.
pub(super) fn partly_raised(why: Refusal, may_be: usize) -> Refusal {
    if may_be == 0 {
        return why;
    }
    let text = format!(
        "{why}; the first {may_be} floors of the request may be raised, and no others: it is safe to ask again"
    );
    why.may_be_done().retold(text)
}

/// Of what callers are told why it got nothing.
#[derive(Clone, Copy)]
struct Told<'a> {
    namespace: &'a Namespace,
    /// The term that was asked.
    term: u64,
    /// How many numbers a whole request asked for. `None`: what is told is told of keys of a message whose other keys may have
    /// numbers.
    count: Option<u64>,
}

/// What a caller is told whose request, or keys of it, got nothing.
fn refusal_of(why: &Why, Told { namespace, term, count }: Told<'_>) -> Refusal {
    let name = &namespace.config.name;
    match why {
        Why::NotLeading | Why::MayNotWait => too_late(),
        Why::DeadlineExceeded => refusal!(
            DeadlineExceeded,
            "namespace {name:?}: the deadline passed while the ceiling was being raised, or read, in term {term}"
        ),
        Why::Exhausted { left } => match count {
            Some(count) => refusal!(
                NumbersExhausted,
                "count is {count}: only {left} numbers are left below {}",
                end_of(namespace)
            ),
            None => refusal!(
                NumbersExhausted,
                "fewer numbers than were asked for are left below {}",
                end_of(namespace)
            ),
        },
        Why::OverQuota { keys_max } => refusal!(
            KeysMaxReached,
            "namespace {name:?} has as many keys as it may have, keys_max {keys_max}: keys that have numbers go on, a new \
             one gets none; raise it with: ratchet namespace update {name} --keys-max N"
        ),
        Why::MemoryFull { max_mb } => refusal!(
            MemoryFull,
            "the leader's memory is full (memory_max_mb is {max_mb}), and as many new keys wait for room as may: keys that \
             are in use go on; try again in {MEMORY_RETRY_AFTER_MS} ms, and if this lasts, raise memory_max_mb on all nodes"
        )
        .retry_after(MEMORY_RETRY_AFTER_MS),
        Why::LowDisk(low) => low_disk(*low),
        // It was checked before, so `max` was lowered meanwhile.
        Why::AboveMax { max } => refusal!(
            NumbersExhausted,
            "a floor is above max {max} of namespace {name:?}, which was lowered meanwhile; raise it with: ratchet \
             namespace update {name} --max N"
        ),
        Why::TooLarge { count_max } => match count {
            Some(count) => too_large(namespace, count, *count_max),
            // By now it is allowed.
            None => refusal!(
                CountTooLarge,
                "the try that took the numbers left the key out, because its count was above count_max then; ask for this \
                 key with another request id"
            ),
        },
        Why::LeftOut => refusal!(
            WrongState,
            "an earlier try of the message gave no numbers to this key, nor to others of its part; ask for this key with \
             another request id"
        ),
        Why::Reused(None) => refusal!(
            RequestIdReused,
            "the request id was used for another message of namespace {name:?}, whose first keys got no numbers; give \
             another request another id"
        ),
        Why::Reused(Some(used)) => {
            let UsedId { keys, key, count: used } = &**used;
            let others = match keys.saturating_sub(1) {
                0 => String::new(),
                others => format!(", and for {others} other keys"),
            };
            refusal!(
                RequestIdReused,
                "the request id was used for {used} numbers of key {} of namespace {name:?}{others}; give another request \
                 another id",
                key.as_key()
            )
        }
        Why::IdsFull(full) => ids_full(full, namespace),
        Why::IdExpired { made_ms, clock_ms } => refusal!(
            RequestIdExpired,
            "made_ms is {made_ms}, and the clock of request ids shows {clock_ms}: the message was made later than now, or so \
             long ago that its request id may be forgotten. It took nothing. If it was not sent before, send it with made_ms \
             {clock_ms}; otherwise an earlier copy may have taken its numbers: look before you ask again"
        )
        .at_request_clock(*clock_ms),
        Why::Unreadable(text) => refusal!(Internal, "{text}"),
    }
}

/// Why a message takes nothing whose request id could not be remembered.
fn ids_full(full: &IdsFull, namespace: &Namespace) -> Refusal {
    let whose = match (full.of_caller, Caller::current()) {
        (true, Some(caller)) if caller.is_principal() => "your principal".to_owned(),
        (true, _) => "callers of your address".to_owned(),
        (false, _) => format!("namespace {:?}", namespace.config.name),
    };
    refusal!(
        RequestIdsFull,
        "{} kB of request ids are remembered for {whose}, as much as may be while others need room: {} MB are for all \
         (request_ids_max_mb); ask again later",
        full.held >> 10,
        full.bytes_max >> 20
    )
    .retry_after(IDS_RETRY_AFTER_MS)
}

/// What a caller is told that may have taken numbers of a gapless key, as far as this node knows.
pub fn outcome_unknown(why: &impl std::fmt::Display, namespace: &str) -> Refusal {
    refusal!(
        OutcomeUnknown,
        "{why}: namespace {namespace:?} is gapless, or not known here: numbers may be taken; if it is gapless, it is safe \
             to ask again with a request id"
    )
}

/// Refuses a request id where none is known, and a request without one where it could leave a gap.
///
/// # Errors
/// FAILED_PRECONDITION, with what to do.
pub(in crate::node) fn check_id(namespace: &Namespace, has_id: bool) -> Result<(), Refusal> {
    let config = &namespace.config;
    let name = &config.name;
    match (config.gapless, has_id) {
        (false, true) => Err(refusal!(
            RequestIdUnsupported,
            "namespace {name:?} is not gapless, and knows no request ids: ask without one; a retry takes new numbers, \
                 which costs nothing there"
        )),
        (true, false) if !config.request_id_optional => Err(refusal!(
            RequestIdRequired,
            "namespace {name:?} is gapless: give a request id (request_id, Idempotency-Key, --request-id), so that \
                 asking again after a lost answer leaves no gap; or allow such requests with: ratchet namespace update \
                 {name} --request-id-optional true"
        )),
        (false, false) | (true, _) => Ok(()),
    }
}

// Which keys of a request get no numbers while the others do, and what their callers are told.

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

/// What is told of the keys at `places`, which get no numbers for one reason.
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
    why.or_else(|| Some(&answer.refused.iter().find(|one| refused(&one.places))?.failure))?.as_ref()
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
                exhausted = Some(Exhausted {
                    places: at_places.map(|place| place as u32).collect(),
                    left: places.iter().map(|(_, left)| *left).collect(),
                    failure: Some(refusal.into()),
                });
            }
            _ => others.push(RefusedKeys {
                left_to_next_leader: why == Why::NotLeading,
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

/// Refuses a count of 0, or above the namespace's `count_max` or the node's.
///
/// # Errors
/// INVALID_ARGUMENT.
pub fn check_count_of(namespace: &Namespace, config: &Config, count: u64) -> Result<(), Refusal> {
    let most = namespace.config.count_max.unwrap_or(u64::MAX).min(config.count_max);
    match (1..=most).contains(&count) {
        true => Ok(()),
        false => Err(too_large(namespace, count, most)),
    }
}

/// Why a count is refused of which the namespace's `count_max` and the node's allow `most`.
pub fn too_large(namespace: &Namespace, count: u64, most: u64) -> Refusal {
    match namespace.config.count_max {
        Some(own) if own <= most && count > 0 => refusal!(
            CountTooLarge,
            "count is {count}; namespace {:?} gives between 1 and {most} numbers of a key in one request (its \
             count_max)",
            namespace.config.name
        ),
        _ => not_within(count, most),
    }
}

/// Refuses a count of 0, and one above `most`.
///
/// # Errors
/// INVALID_ARGUMENT.
pub fn check_count(count: u64, most: u64) -> Result<(), Refusal> {
    match (1..=most).contains(&count) {
        true => Ok(()),
        false => Err(not_within(count, most)),
    }
}

fn not_within(count: u64, most: u64) -> Refusal {
    let reason = if count == 0 { Reason::InvalidRequest } else { Reason::CountTooLarge };
    Refusal::new(reason, format!("count is {count}; it must lie between 1 and {most}"))
}

/// How soon to ask again for a key that the leader's memory has no room for.
const MEMORY_RETRY_AFTER_MS: u64 = 100;

/// How soon to ask again for keys whose turn would have come after the leader had begun to hand over.
const NEXT_LEADER_RETRY_AFTER_MS: u64 = 100;

/// Why keys of a message get no numbers from a leader that hands over, while the others do. The node that the caller asked
/// gets them from the next leader (`keys.rs`).
fn too_late() -> Refusal {
    refusal!(
        Busy,
        "the leader handed over before it was this key's turn, and took nothing of it; ask again in \
         {NEXT_LEADER_RETRY_AFTER_MS} ms"
    )
    .retry_after(NEXT_LEADER_RETRY_AFTER_MS)
}

/// How soon to ask again for what the disks have no room for: somebody has to make room.
const DISK_RETRY_AFTER_MS: u64 = 5_000;

/// Why a key that never got a number gets none now, and no namespace is created.
pub fn low_disk(low: LowDisk) -> Refusal {
    refusal!(
        DiskReserve,
        "{}: {low}. Keys that have numbers go on; new keys and namespaces are refused until a quarter more than the \
         reserve is free: make room on the disks of all nodes",
        match low.follower {
            None => "the disk of the leader is nearly full",
            Some(_) =>
                "disks are nearly full, and the voters whose disks have room are no majority",
        }
    )
    .retry_after(DISK_RETRY_AFTER_MS)
}

/// Where a namespace's numbers end, and what to do.
pub fn end_of(namespace: &Namespace) -> String {
    let config = &namespace.config;
    let advice = match config.max {
        NUMBER_MAX => "go on with another key: there are no greater numbers".to_owned(),
        _ => format!("raise it with: ratchet namespace update {} --max N", config.name),
    };
    format!("max {} of namespace {:?}; ask for fewer, or {advice}", config.max, config.name)
}

// What callers are told of requests that several files refuse: one text each.

/// Checks a namespace's name.
///
/// # Errors
/// INVALID_ARGUMENT if no namespace can have it.
pub(in crate::node) fn check_namespace(name: &str) -> Result<(), Refusal> {
    check_name(name).map_err(|invalid| refusal!(InvalidRequest, "{invalid}"))
}

/// NOT_FOUND for a namespace's name; INVALID_ARGUMENT if no namespace can have it. So a text never holds a long one.
pub(in crate::node) fn no_namespace(name: &str) -> Refusal {
    let not_found = || NamespaceRefused::NotFound(name.to_owned()).to_string();
    check_namespace(name)
        .map_or_else(|refused| refused, |()| refusal!(NamespaceNotFound, "{}", not_found()))
}

/// A namespace, for a request that only reads.
///
/// # Errors
/// NOT_FOUND if there is none of that name.
pub(in crate::node) fn namespace_named(group: &Group, name: &str) -> Result<Namespace, Refusal> {
    let namespaces = group.view.namespaces();
    (namespaces.by_name(name).cloned()).ok_or_else(|| no_namespace(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        proto::{Code, v1::Outcome},
        sequence::NamespaceId,
    };

    #[test]
    fn what_may_be_done_in_part_is_never_told_as_if_nothing_was_done() {
        let namespace = Namespace::new(NamespaceId(1), NamespaceConfig::new("book"));
        let whys = || {
            let full = IdsFull { of_caller: false, held: 1, bytes_max: 1 };
            [
                Why::NotLeading,
                Why::DeadlineExceeded,
                Why::MayNotWait,
                Why::Exhausted { left: 1 },
                Why::OverQuota { keys_max: 1 },
                Why::MemoryFull { max_mb: 1 },
                Why::AboveMax { max: 1 },
                Why::TooLarge { count_max: 1 },
                Why::LeftOut,
                Why::Reused(None),
                Why::IdsFull(Box::new(full)),
                Why::IdExpired { made_ms: 1, clock_ms: 2 },
            ]
        };
        // Floors, and gapless numbers.
        for (count, may_be_done) in [(0, 1), (0, 7), (1, 1), (5, 3)] {
            for why in whys() {
                let asked = Told { namespace: &namespace, term: 1, count: Some(count) };
                let text = format!("{why:?}, {count} numbers, {may_be_done} may be done");
                match unanswered(Unserved { why, may_be_done }, asked) {
                    Unanswered::Refused(refusal) => {
                        assert_eq!(refusal.outcome(), Outcome::Unknown, "{text}");
                    }
                    Unanswered::Elsewhere { may_be_done } => assert!(may_be_done, "{text}"),
                    Unanswered::Mistaken => panic!("{text}"),
                }
            }
        }
        for why in whys().into_iter().filter(|why| *why != Why::DeadlineExceeded) {
            let asked = Told { namespace: &namespace, term: 1, count: Some(1) };
            match unanswered(why.into(), asked) {
                Unanswered::Refused(refusal) => assert_eq!(refusal.outcome(), Outcome::NotDone),
                Unanswered::Elsewhere { may_be_done } => assert!(!may_be_done),
                Unanswered::Mistaken => panic!("no peer asked"),
            }
        }
    }

    #[test]
    fn keys_that_were_left_to_the_next_leader_say_so_and_each_has_its_place_in_the_message() {
        let namespace = Namespace::new(NamespaceId(1), NamespaceConfig::new("book"));
        let of = |why, places: &[(usize, u64)]| RefusedPlaces { why, places: places.to_vec() };
        let taken = ManyNumbers {
            firsts: vec![0, 5, 0, 0],
            refused: vec![
                of(Why::NotLeading, &[(0, 0)]),
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

    #[test]
    fn a_name_that_no_namespace_can_have_is_malformed_and_not_repeated_if_it_is_long() {
        assert_eq!(no_namespace("film").code(), Code::NotFound);
        for name in ["", "a b", "film/1", &"x".repeat(1 << 20)] {
            let refused = no_namespace(name);
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
            assert!(refused.message().len() < 300);
        }
    }
}
