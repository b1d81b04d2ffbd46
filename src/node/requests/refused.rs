//! Refusals of a request, or of keys of it: each is made of the reason that a term gives, or of the error of a proposal. A
//! refusal says with which value the request failed, what to do, and how soon to ask again.

use super::checks::too_large;
use crate::{
    allocator::{Term, Unserved, UsedId, Why},
    consensus::ProposeError,
    node::{Caller, way::attempt::Unanswered},
    proto::{Refusal, refusal},
    sequence::{IdsFull, MessageId, NUMBER_MAX, Namespace},
    storage::LowDisk,
};

/// How soon to ask again while nothing more can be remembered under request ids: ids that are old enough are forgotten all the
/// time.
const IDS_RETRY_AFTER_MS: u64 = 1_000;

/// The outcome of a request for `count` numbers, 0 if it asks for none, that a term did not serve: another node is to be
/// asked, or the request is refused.
pub(in crate::node) fn failed(
    unserved: impl Into<Unserved>, namespace: &Namespace, term: &Term, count: u64,
) -> Unanswered {
    let asked = Told { namespace, term: term.term(), count: Some(count) };
    unanswered(unserved.into(), asked)
}

fn unanswered(unserved: Unserved, asked: Told<'_>) -> Unanswered {
    let Unserved { why, may_be_done } = unserved;
    let is_elsewhere = matches!(why, Why::AskLeader | Why::LeftToNextLeader);
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
    id: Option<&MessageId>, unserved: Unserved, namespace: &Namespace, term: &Term, count: u64,
) -> Unanswered {
    match unserved {
        Unserved { why: Why::AskLeader, may_be_done: 1.. } if id.is_some() => {
            Unanswered::MAY_BE_DONE
        }
        other => failed(other, namespace, term, count),
    }
}

fn unknown_of(why: &impl std::fmt::Display, asked: Told<'_>) -> Unanswered {
    may_be_taken(why, &asked.namespace.config.name).into()
}

/// The outcome of a proposal that failed: the next leader is to be asked if nothing was proposed, or the request is refused.
pub(in crate::node) fn proposal_failed(error: ProposeError) -> Unanswered {
    match error {
        ProposeError::Refused(why) => refusal!(WrongState, "{why}").into(),
        ProposeError::NotLeader(_) => Unanswered::ELSEWHERE,
        other => refusal!(
            OutcomeUnknown,
            "{other}; whether it takes effect is unknown: look before you ask again"
        )
        .into(),
    }
}

/// The refusal of floors, the first `may_be` of which may be raised all the same.
pub(super) fn partly_raised(why: Refusal, may_be: usize) -> Refusal {
    if may_be == 0 {
        return why;
    }
    let text = format!(
        "{why}; the first {may_be} floors of the request may be raised, and no others: it is safe to ask again"
    );
    why.may_be_done().retold(text)
}

/// The request, or the keys of one, that a refusal is about.
#[derive(Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) namespace: &'a Namespace,
    /// The term that was asked.
    pub(super) term: u64,
    /// How many numbers a whole request asked for. `None`: what is told is told of keys of a message whose other keys may have
    /// numbers.
    pub(super) count: Option<u64>,
}

/// The refusal for the caller of a request that got nothing, or keys of which did.
pub(super) fn refusal_of(why: &Why, Told { namespace, term, count }: Told<'_>) -> Refusal {
    let name = &namespace.config.name;
    match why {
        // No refusal: another node is asked (`unanswered`).
        Why::AskLeader => refusal!(NoLeader, "{why}"),
        Why::LeftToNextLeader => too_late(),
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
        Why::OverKeysMax { keys_max } => refusal!(
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

/// The refusal for a caller that may have taken numbers of a gapless key, as far as this node knows.
pub fn may_be_taken(why: &impl std::fmt::Display, namespace: &str) -> Refusal {
    refusal!(
        OutcomeUnknown,
        "{why}: namespace {namespace:?} is gapless, or not known here: numbers may be taken; if it is gapless, it is safe \
             to ask again with a request id"
    )
}

/// How soon to ask again for a key that the leader's memory has no room for.
const MEMORY_RETRY_AFTER_MS: u64 = 100;

/// How soon to ask again for keys whose turn would have come after the leader had begun to hand over.
const NEXT_LEADER_RETRY_AFTER_MS: u64 = 100;

/// Why keys of a message get no numbers from a leader that hands over, while the others do. The node that the caller asked
/// gets them from the next leader (`late_keys.rs`).
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
            Some(_) => low.why_refused(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::way::attempt::SoFar,
        proto::v1::{Outcome, Reason},
        sequence::{NamespaceConfig, NamespaceId, OwnedKey},
    };

    #[test]
    fn the_next_leader_is_asked_for_a_change_that_was_not_proposed_and_for_no_other() {
        let not_proposed = proposal_failed(ProposeError::NotLeader(3));
        assert!(matches!(not_proposed, Unanswered::Elsewhere(SoFar::NotDone)));
        let refused = Refusal::from(proposal_failed(ProposeError::Refused("no".to_owned())));
        assert_eq!((refused.reason(), refused.outcome()), (Reason::WrongState, Outcome::NotDone));
        for lost in [ProposeError::Unknown(3), ProposeError::Stopped("it stops".to_owned())] {
            assert_eq!(Refusal::from(proposal_failed(lost)).outcome(), Outcome::Unknown);
        }
    }

    /// One of each reason. The compiler refuses a reason that is missing here.
    fn whys() -> Vec<Why> {
        macro_rules! one_of_each {
            ($($pattern:pat => $why:expr,)*) => {{
                let _ = |why: &Why| match why {
                    $($pattern => {})*
                };
                vec![$($why),*]
            }};
        }
        let low = LowDisk { free_mb: 1, reserve_mb: 2, follower: None };
        let full = IdsFull { of_caller: false, held: 1, bytes_max: 1 };
        let used = UsedId { keys: 1, key: OwnedKey::Id(7), count: 1 };
        one_of_each! {
            Why::AskLeader => Why::AskLeader,
            Why::LeftToNextLeader => Why::LeftToNextLeader,
            Why::DeadlineExceeded => Why::DeadlineExceeded,
            Why::Exhausted { .. } => Why::Exhausted { left: 1 },
            Why::OverKeysMax { .. } => Why::OverKeysMax { keys_max: 1 },
            Why::MemoryFull { .. } => Why::MemoryFull { max_mb: 1 },
            Why::LowDisk(_) => Why::LowDisk(low),
            Why::AboveMax { .. } => Why::AboveMax { max: 1 },
            Why::TooLarge { .. } => Why::TooLarge { count_max: 1 },
            Why::LeftOut => Why::LeftOut,
            Why::Reused(None) => Why::Reused(None),
            Why::Reused(Some(_)) => Why::Reused(Some(Box::new(used))),
            Why::IdsFull(_) => Why::IdsFull(Box::new(full)),
            Why::IdExpired { .. } => Why::IdExpired { made_ms: 1, clock_ms: 2 },
            Why::Unreadable(_) => Why::Unreadable("the disk fails".into()),
        }
    }

    #[test]
    fn what_may_be_done_in_part_is_never_told_as_if_nothing_was_done() {
        let namespace = Namespace::new(NamespaceId(1), NamespaceConfig::new("book"));
        // Floors, and gapless numbers.
        for (count, may_be_done) in [(0, 1), (0, 7), (1, 1), (5, 3)] {
            for why in whys() {
                let asked = Told { namespace: &namespace, term: 1, count: Some(count) };
                let text = format!("{why:?}, {count} numbers, {may_be_done} may be done");
                let is_fault = matches!(why, Why::Unreadable(_));
                match unanswered(Unserved { why, may_be_done }, asked) {
                    Unanswered::Refused(refusal) => {
                        let outcome = refusal.outcome();
                        let is_told = outcome == Outcome::Unknown
                            || is_fault && outcome == Outcome::Unspecified;
                        assert!(is_told, "{text}: {outcome:?}");
                    }
                    Unanswered::Elsewhere(so_far) => {
                        assert_eq!(so_far, SoFar::MayBeDone, "{text}");
                    }
                    Unanswered::Mistaken => panic!("{text}"),
                }
            }
        }
        for why in whys() {
            let asked = Told { namespace: &namespace, term: 1, count: Some(1) };
            // The outcome that these two tell holds for calls of all kinds.
            let outcome = match why {
                Why::DeadlineExceeded => Outcome::Unknown,
                Why::Unreadable(_) => Outcome::Unspecified,
                _ => Outcome::NotDone,
            };
            match unanswered(why.into(), asked) {
                Unanswered::Refused(refusal) => assert_eq!(refusal.outcome(), outcome),
                Unanswered::Elsewhere(so_far) => assert_eq!(so_far, SoFar::NotDone),
                Unanswered::Mistaken => panic!("no peer asked"),
            }
        }
    }
}
