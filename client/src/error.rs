//! Errors: why a request failed, and whether to try it again.

use std::fmt;

use tonic::Status;

use crate::{api::Reason, causes, reasons::reason_of};

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client cannot be built, or a server cannot be asked: a setting is invalid. The text names it.
    #[error("{0}")]
    Invalid(String),
    /// A server refused the request, a server failed, or no server answered in time.
    #[error("{server}: {message}")]
    #[non_exhaustive]
    Server {
        /// The server asked last, "host:port".
        server: String,
        /// The kind of failure.
        code: Code,
        /// The reason, for programs: unspecified if the server gave none, or one that this release does not know.
        reason: Reason,
        /// The cause, the value that was wrong, and what to do.
        message: String,
    },
    /// A number is not greater than one that this client had received for the same key before it asked.
    /// The cluster broke its promise: stop using it, and report this.
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
        /// The number received before.
        last: u64,
        /// The number received now.
        number: u64,
    },
    /// The call may have been carried out, or may still be: numbers of a gapless namespace may be taken, a change of
    /// namespaces or members may be made.
    #[error("{server}: {message}; whether it was carried out is not known")]
    #[non_exhaustive]
    OutcomeUnknown {
        /// The server asked last, "host:port".
        server: String,
        /// The cause.
        message: String,
        /// The request id of the application: with it, it is safe to ask again ([`Client::next_once`](
        /// crate::Client::next_once)). `None`: look before you ask again.
        request_id: Option<Vec<u8>>,
    },
    /// A server belongs to another cluster than the one that this client asks. Its answer is refused, or it has refused the
    /// call. The client leaves it and asks another one, if there is one.
    #[error(
        "{server} belongs to cluster {found}, and this client asks cluster {expected}: correct the address; to ask cluster \
         {found}, make another client"
    )]
    #[non_exhaustive]
    OtherCluster {
        /// The server.
        server: String,
        /// The cluster that the client was built with, or that answered it first.
        expected: String,
        /// The cluster that the server belongs to.
        found: String,
    },
    /// The runtime on which the client made its first request has ended.
    #[error("the runtime that this client ran on has ended; make a new client")]
    Gone,
}

impl Error {
    /// True if the same request may succeed when it is repeated unchanged, a little later, and that does no harm. Numbers
    /// that the failed request took are burnt; they are never handed out twice.
    pub fn is_retryable(&self) -> bool {
        self.code().is_some_and(Code::is_retryable)
    }

    /// The kind of failure, for [`Error::Server`].
    pub fn code(&self) -> Option<Code> {
        use Error::*;
        match self {
            Server { code, .. } => Some(*code),
            Invalid(_) | Disorder { .. } | OutcomeUnknown { .. } | OtherCluster { .. } | Gone => {
                None
            }
        }
    }

    /// The error of a call that may have been carried out.
    pub(crate) fn outcome_unknown(server: &str, message: &str, request_id: Option<&[u8]>) -> Self {
        Error::OutcomeUnknown {
            server: server.to_owned(),
            message: message.to_owned(),
            request_id: request_id.map(<[u8]>::to_vec),
        }
    }

    /// The error that a gRPC status of `server` stands for.
    pub(crate) fn status(server: &str, status: &Status) -> Self {
        if let Some(OtherCluster { expected, found }) = OtherCluster::of(status) {
            return Error::OtherCluster {
                server: server.to_owned(),
                expected: expected.clone(),
                found: found.clone(),
            };
        }
        Error::Server {
            server: server.to_owned(),
            code: Code::of(status),
            reason: reason_of(status),
            message: causes::text(status),
        }
    }
}

/// A server belongs to another cluster than the client asks: the source of such a failure.
#[derive(Debug, thiserror::Error)]
#[error("the server belongs to cluster {found}, and not to {expected}")]
pub(crate) struct OtherCluster {
    /// The cluster that the client asks.
    pub(crate) expected: String,
    /// The one that answered.
    pub(crate) found: String,
}

impl OtherCluster {
    /// Why a call failed, if it is this.
    pub(crate) fn of(status: &Status) -> Option<&OtherCluster> {
        std::error::Error::source(status)?.downcast_ref()
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident $text:literal $is_retryable:literal $($of:ident)+;)*) => {
        /// The kind of a failure: the standard gRPC codes that a cluster uses.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// See [`Error::is_retryable`].
            pub fn is_retryable(self) -> bool {
                match self {
                    $(Code::$name => $is_retryable,)*
                }
            }

            /// The kind of failure that a gRPC status stands for.
            pub(crate) fn of(status: &Status) -> Self {
                match status.code() {
                    $($(tonic::Code::$of)|+ => Code::$name,)*
                }
            }
        }

        impl fmt::Display for Code {
            /// Writes the code as gRPC spells it: `NOT_FOUND`; [`Code::Other`] is `UNKNOWN`.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Code::$name => $text,)*
                })
            }
        }
    };
}

// The name and the text of each, whether the same request may succeed later, and the codes of gRPC that it stands for.
codes! {
    /// An argument is outside its limits.
    InvalidArgument "INVALID_ARGUMENT" false InvalidArgument;
    /// There is no such namespace, or no such node.
    NotFound "NOT_FOUND" false NotFound;
    /// The server does not know the caller: it shows no token where one is needed, or one that is unknown, revoked or
    /// expired.
    Unauthenticated "UNAUTHENTICATED" false Unauthenticated;
    /// Too little is granted to the caller.
    PermissionDenied "PERMISSION_DENIED" false PermissionDenied;
    /// The thing to be created exists already.
    AlreadyExists "ALREADY_EXISTS" false AlreadyExists;
    /// The cluster is not in the state for this request; the text says what to do first.
    FailedPrecondition "FAILED_PRECONDITION" false FailedPrecondition;
    /// The numbers of the key are used up: it has reached the `max` of its namespace.
    OutOfRange "OUT_OF_RANGE" false OutOfRange;
    /// Too many requests wait at the server, or the key is new to the leader and its memory is full: try again a little later.
    ResourceExhausted "RESOURCE_EXHAUSTED" true ResourceExhausted;
    /// No server answers, or there is no leader at the moment.
    Unavailable "UNAVAILABLE" true Unavailable;
    /// No answer came in time. A server cancels a request that took too long.
    DeadlineExceeded "DEADLINE_EXCEEDED" true DeadlineExceeded Cancelled;
    /// Another node leads now than the one that was asked for, or the namespace was replaced meanwhile; try again.
    Aborted "ABORTED" true Aborted;
    /// The server does not know the request: it runs another release.
    Unimplemented "UNIMPLEMENTED" false Unimplemented;
    /// The data of a node is damaged or missing.
    DataLoss "DATA_LOSS" false DataLoss;
    /// A bug in the server.
    Internal "INTERNAL" false Internal;
    /// Any other kind; the text says more.
    Other "UNKNOWN" false Ok Unknown;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_retryable_if_the_same_request_may_succeed_later() {
        let error = |status| Error::status("a:1", &status);
        assert!(error(Status::unavailable("x")).is_retryable());
        assert!(error(Status::resource_exhausted("x")).is_retryable());
        assert!(!error(Status::failed_precondition("x")).is_retryable());
        assert!(!error(Status::out_of_range("x")).is_retryable());
        assert!(!error(Status::unauthenticated("x")).is_retryable());
        assert!(!error(Status::permission_denied("x")).is_retryable());
        assert!(!Error::Gone.is_retryable());
        assert_eq!(error(Status::not_found("x")).to_string(), "a:1: x");
        assert_eq!(Code::FailedPrecondition.to_string(), "FAILED_PRECONDITION");
        assert_eq!(error(Status::unauthenticated("x")).code(), Some(Code::Unauthenticated));
        assert_eq!(error(Status::permission_denied("x")).code(), Some(Code::PermissionDenied));
    }
}
