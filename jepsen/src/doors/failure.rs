//! A call that was not answered.

use tonic::Status;

use crate::{client, history::Outcome};

/// Why a call was not answered, and whether it may have taken numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// [`Outcome::Fail`] or [`Outcome::Info`].
    pub outcome: Outcome,
    /// What the node or the connection said.
    pub note: String,
}

impl Failure {
    /// The node certainly handed out nothing, and will not.
    pub fn refused(note: impl Into<String>) -> Failure {
        Failure { outcome: Outcome::Fail, note: note.into() }
    }

    /// The node may have handed out numbers, or may still do so.
    pub fn unknown(note: impl Into<String>) -> Failure {
        Failure { outcome: Outcome::Info, note: note.into() }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure {
            outcome: client::outcome(&status),
            note: format!("{:?}: {}", status.code(), status.message()),
        }
    }
}
