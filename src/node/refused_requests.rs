//! Which requests for numbers get none, and what their callers are told.

use super::{
    leader_search::NoAnswer,
    refused_keys::{end_of, low_disk, memory_full, over_quota, too_large},
};
use crate::{
    allocator::{NextError, Term},
    proto::{Refusal, refusal},
    sequence::{Key, KeyKind, Namespace},
};

/// How soon to ask again while nothing more can be remembered under request ids: ids that are old enough are forgotten all the
/// time.
const IDS_RETRY_AFTER_MS: u64 = 1_000;

/// Refuses a key that is not of the namespace's kind.
///
/// # Errors
/// INVALID_ARGUMENT, with what to give instead.
pub(super) fn check_kind(namespace: &Namespace, key: Key<'_>) -> Result<(), Refusal> {
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

/// Why a term did not answer a request for `count` numbers, or that another node is to be asked.
pub(super) fn failed(error: NextError, namespace: &Namespace, term: &Term, count: u64) -> NoAnswer {
    NoAnswer::Refused(match error {
        NextError::NotLeading => return NoAnswer::Unanswered,
        NextError::Exhausted { left } => refusal!(
            NumbersExhausted,
            "count is {count}: only {left} numbers are left below {}",
            end_of(namespace)
        ),
        NextError::Unknown => outcome_unknown(&error, &namespace.config.name),
        NextError::DeadlineExceeded if namespace.config.gapless && count > 0 => {
            outcome_unknown(&error, &namespace.config.name)
        }
        NextError::Reused { keys, key, count: used } => {
            let others = match keys.saturating_sub(1) {
                0 => String::new(),
                others => format!(", and for {others} other keys"),
            };
            refusal!(
                RequestIdReused,
                "the request id was used for {used} numbers of key {} of namespace {:?}{others}; give another request \
                 another id",
                key.as_key(),
                namespace.config.name
            )
        }
        NextError::IdsFull { bytes_max } => refusal!(
            RequestIdsFull,
            "{} MB of request ids are remembered, as many as may be (request_ids_max_mb); ask again later",
            bytes_max >> 20
        )
        .retry_after(IDS_RETRY_AFTER_MS),
        NextError::IdExpired { made_ms, clock_ms } => refusal!(
            RequestIdExpired,
            "made_ms is {made_ms}, and the clock of request ids shows {clock_ms}: the message was made later than now, or so \
             long ago that its request id may be forgotten. It took nothing. If it was not sent before, send it with made_ms \
             {clock_ms}; otherwise an earlier copy may have taken its numbers: look before you ask again"
        )
        .at_request_clock(clock_ms),
        NextError::OverQuota { .. } => over_quota(namespace),
        NextError::TooLarge { count_max } => too_large(namespace, count, count_max),
        NextError::MemoryFull { max_mb } => memory_full(max_mb),
        NextError::LowDisk(low) => low_disk(low),
        // It was checked before, so `max` was lowered meanwhile.
        NextError::AboveMax => refusal!(
            NumbersExhausted,
            "a floor is above max {} of namespace {:?}, which was lowered meanwhile; raise it with: ratchet namespace \
             update {} --max N",
            namespace.config.max,
            namespace.config.name,
            namespace.config.name
        ),
        NextError::DeadlineExceeded => refusal!(
            DeadlineExceeded,
            "namespace {:?}: the deadline passed while the ceiling was being raised, or read, in term {}",
            namespace.config.name,
            term.term()
        ),
        NextError::Store(error) => refusal!(Internal, "{error}"),
    })
}

/// What a caller is told that may have taken numbers of a gapless key.
pub fn outcome_unknown(why: &impl std::fmt::Display, namespace: &str) -> Refusal {
    refusal!(
        OutcomeUnknown,
        "{why}: namespace {namespace:?} is gapless, and the numbers may be taken; with a request id it is safe to \
             ask again"
    )
}

/// Refuses a request id where none is known, and a request without one where it could leave a gap.
///
/// # Errors
/// FAILED_PRECONDITION, with what to do.
pub(super) fn check_id(namespace: &Namespace, has_id: bool) -> Result<(), Refusal> {
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
