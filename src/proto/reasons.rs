//! Why calls fail: a [`Refusal`], for programs and for people; and how a gRPC status tells it.
//!
//! A status carries reason and outcome as `google.rpc.ErrorInfo` among its details, and the delay after which to ask again as
//! `google.rpc.RetryInfo`. Libraries that repeat calls by themselves read the delay in the trailers (gRFC A6).

use std::{collections::HashMap, fmt, ops::Deref, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::v1::{Failure, Outcome, Reason};

/// Tells, in the metadata of a status, after how many milliseconds to ask again (gRFC A6).
const RETRY_AFTER: &str = "grpc-retry-pushback-ms";
/// The product that the reasons belong to.
const DOMAIN: &str = "ratchet";
/// The name of the outcome in the metadata of an `ErrorInfo`.
const OUTCOME: &str = "outcome";
/// The name of the time by the clock of request ids there.
const REQUEST_CLOCK: &str = "request_clock_ms";
/// The most bytes of a text. A caller's own words in it may be long, and a status travels in headers, which nothing bounds.
const MESSAGE_BYTES_MAX: usize = 1_024;

/// Why a call fails: it is refused, or its outcome is unknown, or something else went wrong. The code, and what became of the
/// call, follow from the reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal(Box<Failure>);

/// Why a call fails: a [`Reason`], and a text that says what was wrong, with which value, and what to do.
macro_rules! refusal {
    ($reason:ident, $($text:tt)+) => {
        $crate::proto::Refusal::new($crate::proto::v1::Reason::$reason, format!($($text)+))
    };
}
pub(crate) use refusal;

/// Ends the function with a refusal.
macro_rules! refuse {
    ($($refusal:tt)+) => {
        return Err($crate::proto::refusal!($($refusal)+).into())
    };
}
pub(crate) use refuse;

impl Refusal {
    /// A refusal with a text that says what was wrong, with which value, and what to do. Of a long text the beginning is kept.
    pub fn new(reason: Reason, message: String) -> Refusal {
        Refusal::from(Failure {
            code: code_of(reason).into(),
            message,
            reason: reason.into(),
            outcome: outcome_of(reason).into(),
            ..Failure::default()
        })
    }

    /// The caller is to ask again after so many milliseconds.
    pub fn retry_after(mut self, millis: u64) -> Refusal {
        self.0.retry_after_ms = Some(millis);
        self
    }

    /// The work that was begun goes on.
    pub fn ongoing(mut self) -> Refusal {
        self.0.outcome = Outcome::Ongoing.into();
        self
    }

    /// Whether it was carried out, or a part of it, is not known.
    pub fn may_be_done(mut self) -> Refusal {
        if self.outcome() == Outcome::NotDone {
            self.0.outcome = Outcome::Unknown.into();
        }
        self
    }

    /// Nothing was begun.
    pub fn not_done(mut self) -> Refusal {
        self.0.outcome = Outcome::NotDone.into();
        self
    }

    /// The message was made too long ago, or later than now: the clock of request ids shows `clock_ms`.
    pub fn at_request_clock(mut self, clock_ms: u64) -> Refusal {
        self.0.request_clock_ms = Some(clock_ms);
        self
    }

    /// The same with another text, of which the beginning is kept if it is long.
    pub fn retold(mut self, message: String) -> Refusal {
        self.0.message = beginning(message);
        self
    }

    /// The gRPC code.
    pub fn code(&self) -> Code {
        self.0.code.into()
    }

    /// The text: what was wrong, with which value, and what to do.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

/// The beginning of a text.
fn beginning(mut text: String) -> String {
    let mut end = MESSAGE_BYTES_MAX.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

impl Deref for Refusal {
    type Target = Failure;

    fn deref(&self) -> &Failure {
        &self.0
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Refusal {}

impl From<Failure> for Refusal {
    /// Of a long text the beginning is kept.
    fn from(failure: Failure) -> Self {
        Refusal(Box::new(Failure { message: beginning(failure.message), ..failure }))
    }
}

impl From<Refusal> for Box<Failure> {
    fn from(refusal: Refusal) -> Self {
        refusal.0
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        *refusal.0
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        // The reason that it carries, or else what its code says.
        let info = status.get_details_error_info();
        let told = |name: &str| info.as_ref()?.metadata.get(name);
        let (reason, outcome) = by_code(status.code());
        let name = info.as_ref().map(|info| format!("REASON_{}", info.reason));
        let told_reason = name.and_then(|name| Reason::from_str_name(&name));
        let name = told(OUTCOME).map(|name| format!("OUTCOME_{name}"));
        let told_outcome = name.and_then(|name| Outcome::from_str_name(&name));
        Refusal::from(Failure {
            code: status.code().into(),
            retry_after_ms: retry_after_ms(&status),
            reason: told_reason.unwrap_or(reason).into(),
            outcome: told_outcome.unwrap_or(outcome).into(),
            request_clock_ms: told(REQUEST_CLOCK).and_then(|ms| ms.parse().ok()),
            message: status.message().to_owned(),
        })
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let failure = Failure::from(refusal);
        let reason = name_of_reason(failure.reason());
        let outcome = name_of_outcome(failure.outcome());
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

/// The name of a reason, without its prefix.
pub fn name_of_reason(reason: Reason) -> &'static str {
    reason.as_str_name().trim_start_matches("REASON_")
}

/// The name of an outcome, without its prefix.
pub fn name_of_outcome(outcome: Outcome) -> &'static str {
    outcome.as_str_name().trim_start_matches("OUTCOME_")
}

/// After how many milliseconds to ask again, if a status says so.
pub fn retry_after_ms(status: &Status) -> Option<u64> {
    let told = status.metadata().get(RETRY_AFTER)?;
    told.to_str().ok()?.parse().ok()
}

/// The reason and the outcome of a status: those that it carries, or else those of its code.
pub fn reason_of(status: &Status) -> (Reason, Outcome) {
    let refusal = Refusal::from(status.clone());
    (refusal.reason(), refusal.outcome())
}

/// The code of each reason.
fn code_of(reason: Reason) -> Code {
    use Reason::*;
    match reason {
        InvalidRequest | KeyKindMismatch | CountTooLarge => Code::InvalidArgument,
        RequestIdReused | RequestIdRequired | RequestIdUnsupported | RequestIdExpired
        | KeysMaxReached | WrongState | LeaseLost | ClusterMismatch => Code::FailedPrecondition,
        NamespaceNotFound | NodeNotFound | TokenNotFound => Code::NotFound,
        NamespaceExists | NodeExists | TokenExists => Code::AlreadyExists,
        HandoverLost => Code::Aborted,
        NumbersExhausted | FormatEnded => Code::OutOfRange,
        Busy | MemoryFull | DiskReserve | RequestIdsFull | CallerQuota | WorkersHeld
        | WorkersKept | IdsUsedUp => Code::ResourceExhausted,
        NoLeader | NodeStopping | NotFounded | NotHeardYet | ClockDoubted | StreamIdle => {
            Code::Unavailable
        }
        OutcomeUnknown | Unspecified => Code::Unknown,
        DeadlineExceeded => Code::DeadlineExceeded,
        Unauthenticated => Code::Unauthenticated,
        PermissionDenied => Code::PermissionDenied,
        Unsupported => Code::Unimplemented,
        Internal => Code::Internal,
        DataLoss => Code::DataLoss,
    }
}

fn outcome_of(reason: Reason) -> Outcome {
    use Reason::*;
    match reason {
        OutcomeUnknown | DeadlineExceeded => Outcome::Unknown,
        Internal | DataLoss | Unspecified => Outcome::Unspecified,
        _ => Outcome::NotDone,
    }
}

/// The reason of a status that carries none.
fn by_code(code: Code) -> (Reason, Outcome) {
    use Reason::*;
    let reason = match code {
        Code::InvalidArgument => InvalidRequest,
        Code::FailedPrecondition => WrongState,
        Code::OutOfRange => NumbersExhausted,
        Code::DeadlineExceeded | Code::Cancelled => DeadlineExceeded,
        Code::Unimplemented => Unsupported,
        Code::Internal => Internal,
        Code::DataLoss => DataLoss,
        Code::Unauthenticated => Unauthenticated,
        Code::PermissionDenied => PermissionDenied,
        Code::Unknown => OutcomeUnknown,
        _ => Unspecified,
    };
    let refuses = [Code::NotFound, Code::AlreadyExists, Code::Aborted, Code::ResourceExhausted];
    match refuses.contains(&code) {
        true => (reason, Outcome::NotDone),
        false => (reason, outcome_of(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_keeps_its_reason_outcome_and_delay_on_the_way_through_a_message() {
        let told = refusal!(MemoryFull, "full").retry_after(100);
        assert_eq!((told.reason(), told.outcome()), (Reason::MemoryFull, Outcome::NotDone));
        let status = Status::from(told.clone());
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "full"));
        assert_eq!(reason_of(&status), (Reason::MemoryFull, Outcome::NotDone));
        assert_eq!(retry_after_ms(&status), Some(100));
        assert_eq!(Refusal::from(status), told);
        assert_eq!(refusal!(DeadlineExceeded, "it goes on").ongoing().outcome(), Outcome::Ongoing);
        let unread = refusal!(DeadlineExceeded, "it did not arrive").not_done();
        assert_eq!(unread.outcome(), Outcome::NotDone);
        let late = refusal!(RequestIdExpired, "late").at_request_clock(7);
        assert_eq!(late.request_clock_ms, Some(7));
        assert_eq!(Refusal::from(Status::from(late.clone())), late);
    }

    #[test]
    fn a_status_without_a_reason_gets_that_of_its_code_once_it_is_a_refusal() {
        let plain = Status::from(Refusal::from(Status::invalid_argument("count is 0")));
        let info = plain.get_details_error_info().expect("an ErrorInfo");
        assert_eq!((&*info.reason, &*info.domain), ("INVALID_REQUEST", "ratchet"));
        assert_eq!(info.metadata[OUTCOME], "NOT_DONE");
        assert_eq!(plain.message(), "count is 0");
    }

    #[test]
    fn of_a_long_text_the_beginning_is_told_in_whole_characters() {
        let long = "é".repeat(1 << 20);
        let refused = refusal!(InvalidRequest, "x{long}");
        assert_eq!(refused.message(), format!("x{}", "é".repeat(511)));
        assert_eq!(refusal!(Internal, "").retold(long.clone()).message().len(), 1_024);
        assert_eq!(Refusal::from(Status::not_found(long)).message().len(), 1_024);
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
