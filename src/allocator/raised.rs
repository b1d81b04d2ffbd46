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

/// The floor lies above the namespace's `max`, and nothing was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AboveMax;
