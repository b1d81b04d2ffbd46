//! Why a request was not answered.

use tonic::Status;

/// Why a request was not answered.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// A server's address cannot be one.
    #[error("{0}")]
    Server(String),
    /// A server answered with an error, or none answered.
    #[error("{server}: {message}", message = status.message())]
    Status {
        /// The server asked last.
        server: String,
        /// What it said.
        status: Box<Status>,
    },
    /// A number that is not greater than one that was handed out for the same key before it was asked
    /// for: the promise is broken. Stop, and tell us.
    #[error(
        "{server}: {number} was handed out for a key of namespace {namespace:?} after {last} had been: \
         the cluster broke its promise; stop using it and report this"
    )]
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

impl ClientError {
    pub(super) fn status(server: &str, status: Status) -> Self {
        ClientError::Status {
            server: server.to_owned(),
            status: Box::new(status),
        }
    }
}
