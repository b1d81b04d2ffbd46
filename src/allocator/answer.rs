//! What calls for numbers are answered: numbers of many keys, a raised floor, or why there are none.

use super::held::{Shortage, Taken};
use crate::{
    sequence::{IdsFull, LostBy, OwnedKey},
    storage::{LowDisk, StoreError},
};

/// Why a term handed out nothing.
#[derive(Debug, thiserror::Error)]
pub enum NextError {
    /// The term is over, or its lease has run out for now: ask the node that leads. Or the namespace was deleted or
    /// replaced meanwhile: look for it again.
    #[error("this node does not lead any more")]
    NotLeading,
    /// There are none for the key.
    #[error(transparent)]
    Short(#[from] Shortage),
    /// The caller's deadline passed before the numbers were there.
    #[error("the deadline passed")]
    DeadlineExceeded,
    /// Keys of the message would have to wait, and may not.
    #[error("no more keys may wait")]
    MayNotWait,
    /// Numbers of a gapless key were to be taken, and it is not known whether they were.
    #[error("whether the numbers were taken is not known")]
    Unknown,
    /// The request id was used for another request; for which one, unless that took nothing.
    #[error("the request id was used for other keys or counts")]
    Reused(Option<UsedId>),
    /// Nothing more can be remembered under request ids for the caller, or for the namespace.
    #[error("{} bytes of request ids are remembered", .0.held)]
    IdsFull(IdsFull),
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

/// What a request id was used for.
#[derive(Debug)]
pub struct UsedId {
    /// How many keys it was used for.
    pub keys: u64,
    /// The first of them.
    pub key: OwnedKey,
    /// How many numbers of that key it was used for.
    pub count: u64,
}

impl NextError {
    /// Why numbers that were taken before this error count as skipped.
    pub fn lost_by(&self) -> LostBy {
        use NextError::*;
        match self {
            DeadlineExceeded => LostBy::Deadline,
            NotLeading
            | MayNotWait
            | Short(_)
            | Unknown
            | Reused(_)
            | IdsFull(_)
            | IdExpired { .. }
            | Store(_) => LostBy::Fence,
        }
    }
}

/// The answer to a message that asks for numbers of many keys.
#[derive(Debug, Default)]
pub struct NextMany {
    /// The first number of each key, in the order of the keys. 0 for a key that got none.
    pub firsts: Vec<u64>,
    /// The places of the keys that got none because the namespace's numbers are used up, and how many
    /// numbers each key has left.
    pub exhausted: Vec<(usize, u64)>,
    /// The places of the keys that got none because they are new and the namespace has as many keys as it may have.
    pub over_quota: Vec<usize>,
    /// The keys that got none because they are new to the term, and there is no room for them.
    pub memory_full: MemoryFull,
    /// The places of the keys that got none because their counts are too large, or were when an earlier try under the
    /// message's id took the others. Gapless keys alone.
    pub too_large: Vec<usize>,
    /// The places of the keys that got none because the term was closed before their turn, or while they waited. The next
    /// leader has their numbers.
    pub late: Vec<usize>,
    /// The places of the keys that got none because an earlier try under the message's id gave none to any key of their
    /// part. Gapless keys alone.
    pub left_out: Vec<usize>,
    /// The places of the keys that got none because their sections are new and disks are low.
    pub low_disk: Vec<(usize, LowDisk)>,
}

/// Keys for which the memory has no room.
#[derive(Debug, Default)]
pub struct MemoryFull {
    /// Their places.
    pub places: Vec<usize>,
    /// How large the memory may be, in megabytes (2^20 bytes). 0 if there is room for all.
    pub max_mb: u64,
}

impl NextMany {
    /// How many of the keys got none.
    pub(super) fn refused(&self) -> usize {
        let others = self.over_quota.len() + self.memory_full.places.len() + self.low_disk.len();
        let of_gapless = self.too_large.len() + self.left_out.len();
        self.exhausted.len() + others + of_gapless + self.late.len()
    }

    /// Notes what the key at `place` got, and returns how many numbers that is. Inlined, as `Shard::take_fast`.
    #[inline(always)]
    pub(super) fn note(&mut self, place: usize, taken: Taken, count: u64) -> u64 {
        match taken {
            Ok(range) => {
                self.firsts[place] = range.first;
                count
            }
            Err(shortage) => {
                self.note_shortage(place, shortage);
                0
            }
        }
    }

    #[cold]
    fn note_shortage(&mut self, place: usize, shortage: Shortage) {
        use Shortage::*;
        match shortage {
            Exhausted { left } => self.exhausted.push((place, left)),
            OverQuota { .. } => self.over_quota.push(place),
            MemoryFull { max_mb } => {
                self.memory_full.places.push(place);
                self.memory_full.max_mb = max_mb;
            }
            LowDisk(low) => self.low_disk.push((place, low)),
            TooLarge { .. } => self.too_large.push(place),
            LeftOut => self.left_out.push(place),
            // Floors alone are refused so.
            AboveMax => self.exhausted.push((place, 0)),
        }
    }
}

// What a call that raises a floor asks for, and its answer.

/// How far a floor is raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floor {
    /// Every number that is handed out later is greater.
    pub at_least: u64,
    /// If a bump must bring the numbers up to the floor, it brings those up to here, too: soon they will be asked for. At
    /// least `at_least`.
    pub reach: u64,
}

impl From<u64> for Floor {
    fn from(at_least: u64) -> Floor {
        let reach = at_least;
        Floor { at_least, reach }
    }
}

/// Whose floor is raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloorOf {
    /// The key's own. Its neighbours stay where they are.
    Key,
    /// That of all ids that share the key's section.
    Section,
}

/// What raising a floor did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raised {
    /// The floor in force: every number that is handed out later is greater.
    pub floor: u64,
    /// True if the floor was lower before.
    pub is_higher: bool,
    /// How many numbers were passed over. Nobody gets them.
    pub passed: u64,
}
