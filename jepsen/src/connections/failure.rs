//! A call that was not answered.

use tonic::Status;

use crate::{client, history::Outcome};

/// Why a call was not answered, and whether it may have taken numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// [`Outcome::Fail`] or [`Outcome::Info`].
    pub outcome: Outcome,
    /// The node said that nothing was done, or nothing was sent: if the namespace is gapless, no number was taken. In
    /// others a number may have been skipped all the same.
    pub not_done: bool,
    /// The message of the node or the connection.
    pub note: String,
}

impl Failure {
    /// The node certainly handed out nothing, and will not.
    pub fn refused(note: impl Into<String>) -> Failure {
        Failure { outcome: Outcome::Fail, not_done: true, note: note.into() }
    }

    /// The node says that nothing was done: it may have taken numbers, and skipped them.
    pub fn not_done(note: impl Into<String>) -> Failure {
        Failure { outcome: Outcome::Info, not_done: true, note: note.into() }
    }

    /// The node may have handed out numbers, or may still do so.
    pub fn unknown(note: impl Into<String>) -> Failure {
        Failure { outcome: Outcome::Info, not_done: false, note: note.into() }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure {
            outcome: client::outcome(&status),
            not_done: client::is_not_done(&status),
            note: format!("{:?}: {}", status.code(), status.message()),
        }
    }
}
