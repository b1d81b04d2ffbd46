//! Why a proposal failed, or why its outcome is unknown.

use openraft::errors::{ClientWriteError, RaftError};

use crate::storage::Types;

/// Why a proposal failed, or why its outcome is unknown.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProposeError {
    /// This node does not lead in that term; nothing was proposed.
    #[error("this node does not lead in term {0}")]
    NotLeader(u64),
    /// The proposal was made, and the leadership lost before it was known to be committed.
    #[error("the leadership of term {0} was lost while a proposal was under way")]
    Unknown(u64),
    /// Raft has stopped on this node.
    #[error("Raft has stopped on this node: {0}")]
    Stopped(String),
    /// The membership cannot change in this way now.
    #[error("{0}")]
    Refused(String),
}

impl ProposeError {
    /// What the failure of a membership change in `term` means for its proposer, if it logged nothing, or Raft stopped.
    pub(in crate::consensus) fn of_membership_change(
        term: u64, error: RaftError<Types, ClientWriteError<Types>>,
    ) -> ProposeError {
        match error {
            RaftError::APIError(error) => match error {
                ClientWriteError::ForwardToLeader(_) => ProposeError::NotLeader(term),
                ClientWriteError::LogEntryDiscarded(_) => ProposeError::Unknown(term),
                ClientWriteError::ChangeMembershipError(_)
                | ClientWriteError::PreconditionFailed(_) => {
                    ProposeError::Refused(error.to_string())
                }
            },
            RaftError::Fatal(fatal) => ProposeError::Stopped(fatal.to_string()),
        }
    }
}
