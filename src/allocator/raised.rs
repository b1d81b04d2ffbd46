//! The answer to a call that raises a key's floor. Pure.

/// What raising a key's floor did.
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
}
