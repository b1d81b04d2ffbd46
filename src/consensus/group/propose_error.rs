//! Why a proposal failed, or why its outcome is unknown.

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
    /// The proposal is refused: the membership cannot change in this way now, or the outcome is none of its kind.
    #[error("{0}")]
    Refused(String),
}
