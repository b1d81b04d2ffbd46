//! What a call that raises a floor asks for, and its answer. Pure.

use crate::{sequence::Key, storage::LowDisk};

/// What is raised.
#[derive(Debug, Clone, Copy)]
pub enum RaiseOf<'k> {
    /// A key.
    Key(Key<'k>),
    /// All ids that share the section of this one.
    SectionOf(u64),
}

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

impl RaiseOf<'_> {
    /// The key, or one of the section's.
    pub fn key(&self) -> Key<'_> {
        match *self {
            RaiseOf::Key(key) => key,
            RaiseOf::SectionOf(id) => Key::Id(id),
        }
    }
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

/// Why a floor was not raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRaised {
    /// It lies above the namespace's `max`.
    AboveMax,
    /// The key's section is new, and the namespace has as many keys as it may have.
    OverQuota {
        /// The namespace's `keys_max`.
        keys_max: u64,
    },
    /// The key, or its section, is new to the term, and the memory has no room for it, nor for one more that waits.
    MemoryFull {
        /// How large the memory may be, in megabytes (2^20 bytes).
        max_mb: u64,
    },
    /// The key's section is new, and the leader's disk is low.
    LowDisk(LowDisk),
}
