//! A call that raises a floor, and its answer.

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

/// The key, or the section, whose floor is raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloorOf {
    /// The key's own. Its neighbours stay where they are.
    Key,
    /// That of all ids that share the key's section.
    Section,
}

/// The outcome of raising a floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raised {
    /// The floor in force: every number that is handed out later is greater.
    pub floor: u64,
    /// True if the floor was lower before.
    pub is_higher: bool,
    /// How many numbers were passed over. Nobody gets them.
    pub passed: u64,
}
