//! Why a request was not answered.

use std::fmt;

use tonic::Status;

/// Why a request was not answered.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No client can be built of what it was given; the text names it.
    #[error("{0}")]
    Invalid(String),
    /// A server refused the request, or failed, or no server answered in time.
    #[error("{server}: {message}")]
    #[non_exhaustive]
    Server {
        /// The server asked last, "host:port".
        server: String,
        /// Of which kind the failure is.
        code: Code,
        /// What was wrong, with which value, and what to do.
        message: String,
    },
    /// A number that is not greater than one that this client received for the same key before it asked:
    /// the promise is broken. Stop, and tell us.
    #[error(
        "{server}: {number} was handed out for a key of namespace {namespace:?} after {last} had been: \
         the cluster broke its promise; stop using it and report this"
    )]
    #[non_exhaustive]
    Disorder {
        /// The server that answered.
        server: String,
        /// The namespace.
        namespace: String,
        /// What was handed out before.
        last: u64,
        /// What was handed out now.
        number: u64,
    },
    /// The runtime on which the client made its first request has ended.
    #[error("the runtime that this client ran on has ended; make a new client")]
    Gone,
}

impl Error {
    /// Whether the same request may succeed when it is made again as it is, a little later. Numbers that
    /// the failed request may have taken are lost then, never handed out twice. A change of namespaces or
    /// members may have been made although it failed so: look before you ask again.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Server { code, .. } => code.is_retryable(),
            Error::Invalid(_) | Error::Disorder { .. } | Error::Gone => false,
        }
    }

    /// The kind of failure that a server told, or that nobody answered.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Server { code, .. } => Some(*code),
            Error::Invalid(_) | Error::Disorder { .. } | Error::Gone => None,
        }
    }

    pub(crate) fn status(server: &str, status: &Status) -> Self {
        Error::Server {
            server: server.to_owned(),
            code: Code::of(status.code()),
            message: status.message().to_owned(),
        }
    }
}

/// Of which kind a failure is: the standard gRPC codes that a cluster answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The request cannot be answered as it is: an argument is outside its limits.
    InvalidArgument,
    /// There is no such namespace, or no such node.
    NotFound,
    /// What is to be created exists.
    AlreadyExists,
    /// The cluster is not in a state for this; the text says what to do first.
    FailedPrecondition,
    /// The numbers of the key are used up: it reached its namespace's `max`.
    OutOfRange,
    /// Too much waits at the server; ask again a little later.
    ResourceExhausted,
    /// No server answers, or nobody leads for now.
    Unavailable,
    /// There was no answer in time.
    DeadlineExceeded,
    /// Another change was under way; ask again.
    Aborted,
    /// The server knows no such request: it is of another release.
    Unimplemented,
    /// A node's data is not what it was.
    DataLoss,
    /// A fault of the server.
    Internal,
    /// Any other; the text says more.
    Other,
}

impl Code {
    /// As [`Error::is_retryable`].
    pub fn is_retryable(self) -> bool {
        match self {
            Code::ResourceExhausted
            | Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Aborted => true,
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::DataLoss
            | Code::Internal
            | Code::Other => false,
        }
    }
}

impl Code {
    pub(crate) fn of(code: tonic::Code) -> Self {
        match code {
            tonic::Code::InvalidArgument => Code::InvalidArgument,
            tonic::Code::NotFound => Code::NotFound,
            tonic::Code::AlreadyExists => Code::AlreadyExists,
            tonic::Code::FailedPrecondition => Code::FailedPrecondition,
            tonic::Code::OutOfRange => Code::OutOfRange,
            tonic::Code::ResourceExhausted => Code::ResourceExhausted,
            tonic::Code::Unavailable => Code::Unavailable,
            // A server cancels what took too long.
            tonic::Code::DeadlineExceeded | tonic::Code::Cancelled => Code::DeadlineExceeded,
            tonic::Code::Aborted => Code::Aborted,
            tonic::Code::Internal => Code::Internal,
            tonic::Code::Unimplemented => Code::Unimplemented,
            tonic::Code::DataLoss => Code::DataLoss,
            tonic::Code::Ok
            | tonic::Code::Unknown
            | tonic::Code::PermissionDenied
            | tonic::Code::Unauthenticated => Code::Other,
        }
    }
}

impl fmt::Display for Code {
    /// As gRPC spells it: `NOT_FOUND`; [`Code::Other`] is `UNKNOWN`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::NotFound => "NOT_FOUND",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::OutOfRange => "OUT_OF_RANGE",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::Unavailable => "UNAVAILABLE",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::Aborted => "ABORTED",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::DataLoss => "DATA_LOSS",
            Code::Internal => "INTERNAL",
            Code::Other => "UNKNOWN",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_succeed_later_is_retryable_and_what_is_wrong_is_not() {
        let error = |status| Error::status("a:1", &status);
        assert!(error(Status::unavailable("x")).is_retryable());
        assert!(error(Status::resource_exhausted("x")).is_retryable());
        assert!(!error(Status::out_of_range("x")).is_retryable());
        assert!(!Error::Gone.is_retryable());
        assert_eq!(error(Status::not_found("x")).to_string(), "a:1: x");
        assert_eq!(Code::FailedPrecondition.to_string(), "FAILED_PRECONDITION");
    }
}
