//! Why a call gets no numbers from a term.

use super::{held::Shortage, raised::NotRaised};
use crate::{
    sequence::{LostBy, OwnedKey},
    storage::{LowDisk, StoreError},
};

/// Why a term handed out nothing.
#[derive(Debug, thiserror::Error)]
pub enum NextError {
    /// The term is over, or its lease has run out for now: ask the node that leads. Or the namespace was deleted or
    /// replaced meanwhile: look for it again.
    #[error("this node does not lead any more")]
    NotLeading,
    /// The namespace's `max` leaves too few numbers.
    #[error("only {left} numbers are left below the namespace's max")]
    Exhausted {
        /// How many are left.
        left: u64,
    },
    /// The key is new, and the namespace has as many keys as it may have.
    #[error("the namespace has {keys_max} keys already")]
    OverQuota {
        /// The namespace's `keys_max`.
        keys_max: u64,
    },
    /// The key is new to the term, and the memory has no room for it, nor for one more that waits. Nothing was taken of it.
    #[error("the leader's memory of {max_mb} MB is full")]
    MemoryFull {
        /// How large the memory may be, in megabytes (2^20 bytes).
        max_mb: u64,
    },
    /// The key's section is new, and the leader's disk is low. Nothing was taken of it.
    #[error("{0}")]
    LowDisk(LowDisk),
    /// So many numbers of a gapless key may not be taken at once.
    #[error("a call may take {count_max} numbers of a key")]
    TooLarge {
        /// The most that could be taken when they were asked for first.
        count_max: u64,
    },
    /// A floor is to be raised above the namespace's `max`.
    #[error("the floor is above the namespace's max")]
    AboveMax,
    /// The caller's deadline passed before the numbers were there.
    #[error("the deadline passed")]
    DeadlineExceeded,
    /// Numbers of a gapless key were to be taken, and it is not known whether they were.
    #[error("whether the numbers were taken is not known")]
    Unknown,
    /// The request id was used for another request.
    #[error("the request id was used for {keys} other keys or counts")]
    Reused {
        /// How many keys it was used for.
        keys: u64,
        /// The first of them.
        key: OwnedKey,
        /// How many numbers of that key it was used for.
        count: u64,
    },
    /// Nothing more can be remembered under request ids.
    #[error("{bytes_max} bytes of request ids are remembered")]
    IdsFull {
        /// How many bytes may be.
        bytes_max: u64,
    },
    /// The message was made so long ago that its request id may be forgotten, or later than now.
    #[error("the message is older than its request id is remembered, or was made later than now")]
    IdExpired {
        /// When it was made, by the clock of request ids.
        made_ms: u64,
        /// What the clock of request ids shows.
        clock_ms: u64,
    },
    /// The applied table cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl NextError {
    /// Why numbers that were taken before this error count as skipped.
    pub fn lost_by(&self) -> LostBy {
        match self {
            NextError::DeadlineExceeded => LostBy::Deadline,
            NextError::NotLeading
            | NextError::Exhausted { .. }
            | NextError::Unknown
            | NextError::Reused { .. }
            | NextError::IdsFull { .. }
            | NextError::IdExpired { .. }
            | NextError::OverQuota { .. }
            | NextError::MemoryFull { .. }
            | NextError::LowDisk(_)
            | NextError::TooLarge { .. }
            | NextError::AboveMax
            | NextError::Store(_) => LostBy::Fence,
        }
    }
}

impl From<Shortage> for NextError {
    fn from(shortage: Shortage) -> Self {
        match shortage {
            Shortage::Exhausted { left } => NextError::Exhausted { left },
            Shortage::OverQuota { keys_max } => NextError::OverQuota { keys_max },
            Shortage::MemoryFull { max_mb } => NextError::MemoryFull { max_mb },
            Shortage::LowDisk(low) => NextError::LowDisk(low),
            Shortage::TooLarge { count_max } => NextError::TooLarge { count_max },
        }
    }
}

impl From<NotRaised> for NextError {
    fn from(not: NotRaised) -> Self {
        match not {
            NotRaised::AboveMax => NextError::AboveMax,
            NotRaised::OverQuota { keys_max } => NextError::OverQuota { keys_max },
            NotRaised::MemoryFull { max_mb } => NextError::MemoryFull { max_mb },
            NotRaised::LowDisk(low) => NextError::LowDisk(low),
        }
    }
}
