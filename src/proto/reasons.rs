//! Why calls fail, for programs: the reason and the outcome of a status, and the code that each reason has.
//!
//! A status carries them as `google.rpc.ErrorInfo` among its details, and the delay after which to ask again as
//! `google.rpc.RetryInfo`. Libraries that repeat calls by themselves read the delay in the trailers (gRFC A6).

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::v1::{Failure, Outcome, Reason};

/// Tells, in the metadata of a status, after how many milliseconds to ask again (gRFC A6).
const RETRY_AFTER: &str = "grpc-retry-pushback-ms";
/// Whose reasons they are.
const DOMAIN: &str = "ratchet";
/// What the outcome is called in the metadata of an `ErrorInfo`.
const OUTCOME: &str = "outcome";
/// What the time by the clock of request ids is called there.
const REQUEST_CLOCK: &str = "request_clock_ms";

/// Why a call is refused, with a text that says what was wrong, with which value, and what to do.
pub fn refused(reason: Reason, why: impl Into<String>) -> Status {
    failure(reason, why).into()
}

/// As [`refused`]; the caller is to ask again after `retry_after_ms` milliseconds.
pub fn busy(reason: Reason, retry_after_ms: u64, why: impl Into<String>) -> Status {
    Failure { retry_after_ms: Some(retry_after_ms), ..failure(reason, why) }.into()
}

/// Why a message was refused that was made too long ago, or later than now: the clock of request ids shows `clock_ms`.
pub fn expired(clock_ms: u64, why: impl Into<String>) -> Status {
    Failure { request_clock_ms: Some(clock_ms), ..failure(Reason::RequestIdExpired, why) }.into()
}

/// After how many milliseconds to ask again, if a status says so.
pub fn retry_after_ms(status: &Status) -> Option<u64> {
    let told = status.metadata().get(RETRY_AFTER)?;
    told.to_str().ok()?.parse().ok()
}

/// What the clock of request ids shows, if a status says so.
fn request_clock_ms(status: &Status) -> Option<u64> {
    status.get_details_error_info()?.metadata.get(REQUEST_CLOCK)?.parse().ok()
}

/// The reason and the outcome of a status: those that it carries, or else those of its code.
pub fn reason_of(status: &Status) -> (Reason, Outcome) {
    let by_code = by_code(status.code());
    if status.details().is_empty() {
        return by_code;
    }
    let Some(info) = status.get_details_error_info() else {
        return by_code;
    };
    let reason = Reason::from_str_name(&format!("REASON_{}", info.reason));
    let outcome = info.metadata.get(OUTCOME).map(|name| format!("OUTCOME_{name}"));
    let outcome = outcome.and_then(|name| Outcome::from_str_name(&name));
    (reason.unwrap_or(by_code.0), outcome.unwrap_or(by_code.1))
}

/// The status with its reason and outcome among its details. For what leaves this node.
pub fn explained(status: Status) -> Status {
    match status.details().is_empty() {
        true => Failure::from(&status).into(),
        false => status,
    }
}

/// Why a call fails, as the reason alone says it.
fn failure(reason: Reason, why: impl Into<String>) -> Failure {
    Failure {
        code: code_of(reason).into(),
        message: why.into(),
        reason: reason.into(),
        outcome: outcome_of(reason).into(),
        ..Failure::default()
    }
}

/// The code of each reason.
fn code_of(reason: Reason) -> Code {
    match reason {
        Reason::InvalidRequest => Code::InvalidArgument,
        Reason::RequestIdReused
        | Reason::RequestIdRequired
        | Reason::RequestIdUnsupported
        | Reason::RequestIdExpired
        | Reason::WrongState
        | Reason::ClusterMismatch => Code::FailedPrecondition,
        Reason::NumbersExhausted => Code::OutOfRange,
        Reason::KeysMaxReached
        | Reason::Busy
        | Reason::MemoryFull
        | Reason::DiskReserve
        | Reason::RequestIdsFull
        | Reason::WorkersHeld
        | Reason::IdsUsedUp => Code::ResourceExhausted,
        Reason::NoLeader
        | Reason::NodeStopping
        | Reason::NotFounded
        | Reason::NotHeardYet
        | Reason::ClockDoubted => Code::Unavailable,
        Reason::OutcomeUnknown | Reason::Unspecified => Code::Unknown,
        Reason::DeadlineExceeded => Code::DeadlineExceeded,
        Reason::Unsupported => Code::Unimplemented,
        Reason::Internal => Code::Internal,
        Reason::DataLoss => Code::DataLoss,
    }
}

fn outcome_of(reason: Reason) -> Outcome {
    match reason {
        Reason::OutcomeUnknown | Reason::DeadlineExceeded => Outcome::Unknown,
        Reason::Internal | Reason::DataLoss | Reason::Unspecified => Outcome::Unspecified,
        _ => Outcome::NotDone,
    }
}

/// The reason of a status that carries none.
fn by_code(code: Code) -> (Reason, Outcome) {
    let reason = match code {
        Code::InvalidArgument => Reason::InvalidRequest,
        Code::FailedPrecondition => Reason::WrongState,
        Code::OutOfRange => Reason::NumbersExhausted,
        Code::DeadlineExceeded | Code::Cancelled => Reason::DeadlineExceeded,
        Code::Unimplemented => Reason::Unsupported,
        Code::Internal => Reason::Internal,
        Code::DataLoss => Reason::DataLoss,
        Code::Unknown => Reason::OutcomeUnknown,
        _ => Reason::Unspecified,
    };
    let refuses = [Code::NotFound, Code::AlreadyExists, Code::Aborted, Code::ResourceExhausted];
    match refuses.contains(&code) {
        true => (reason, Outcome::NotDone),
        false => (reason, outcome_of(reason)),
    }
}

/// DEADLINE_EXCEEDED for a change that goes on.
pub fn ongoing(why: impl Into<String>) -> Status {
    let outcome = Outcome::Ongoing.into();
    Failure { outcome, ..failure(Reason::DeadlineExceeded, why) }.into()
}

impl From<&Status> for Failure {
    fn from(status: &Status) -> Self {
        let (reason, outcome) = reason_of(status);
        Failure {
            code: status.code().into(),
            message: status.message().to_owned(),
            retry_after_ms: retry_after_ms(status),
            reason: reason.into(),
            outcome: outcome.into(),
            request_clock_ms: request_clock_ms(status),
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let reason = failure.reason().as_str_name().trim_start_matches("REASON_");
        let outcome = failure.outcome().as_str_name().trim_start_matches("OUTCOME_");
        let clock = failure.request_clock_ms.map(|ms| (REQUEST_CLOCK.to_owned(), ms.to_string()));
        let mut metadata = HashMap::from([(OUTCOME.to_owned(), outcome.to_owned())]);
        metadata.extend(clock);
        let mut details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
        details.set_retry_info(failure.retry_after_ms.map(Duration::from_millis));
        let code = failure.code.into();
        let mut status = Status::with_error_details(code, failure.message, details);
        if let Some(millis) = failure.retry_after_ms {
            status.metadata_mut().insert(RETRY_AFTER, millis.into());
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_keeps_its_reason_outcome_and_delay_on_the_way_through_a_message() {
        let told = busy(Reason::MemoryFull, 100, "full");
        assert_eq!(told.code(), Code::ResourceExhausted);
        let failure = Failure::from(&told);
        assert_eq!(failure.reason(), Reason::MemoryFull);
        assert_eq!((failure.outcome(), failure.retry_after_ms), (Outcome::NotDone, Some(100)));
        let again = Status::from(failure);
        assert_eq!(reason_of(&again), (Reason::MemoryFull, Outcome::NotDone));
        assert_eq!((again.code(), again.message()), (told.code(), "full"));
        assert_eq!(retry_after_ms(&again), Some(100));
        assert_eq!(reason_of(&ongoing("it goes on")).1, Outcome::Ongoing);
        let late = Failure::from(&expired(7, "late"));
        assert_eq!(late.request_clock_ms, Some(7));
        assert_eq!(Failure::from(&Status::from(late.clone())), late);
    }

    #[test]
    fn a_status_without_a_reason_gets_that_of_its_code_when_it_leaves() {
        let plain = explained(Status::invalid_argument("count is 0"));
        let info = plain.get_details_error_info().expect("an ErrorInfo");
        assert_eq!((&*info.reason, &*info.domain), ("INVALID_REQUEST", "ratchet"));
        assert_eq!(info.metadata[OUTCOME], "NOT_DONE");
        assert_eq!(plain.message(), "count is 0");
    }

    #[test]
    fn what_may_have_been_done_is_unknown_and_never_unavailable() {
        for number in 0..100 {
            let Ok(reason) = Reason::try_from(number) else { continue };
            let (code, outcome) = (code_of(reason), outcome_of(reason));
            let harmless = [Code::Unavailable, Code::ResourceExhausted].contains(&code);
            assert!(!harmless || outcome == Outcome::NotDone, "{reason:?}");
            assert!(outcome != Outcome::Unknown || !harmless, "{reason:?}");
        }
    }
}
