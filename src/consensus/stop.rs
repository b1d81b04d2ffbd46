//! Why a node has to stop: what a supervisor can mend by starting it again, and what it cannot.

/// Why a node cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopReason {
    /// Its disk, its data or its cluster: somebody has to see to it first.
    #[error("{0}")]
    Unfit(String),
    /// A part of the program panicked. What is on the disk is whole.
    #[error(
        "a fault in the program: {0}; the log tells where. Start the node again, it goes on from its \
         disk, and report the fault"
    )]
    Fault(String),
}

impl From<String> for StopReason {
    fn from(reason: String) -> Self {
        StopReason::Unfit(reason)
    }
}
