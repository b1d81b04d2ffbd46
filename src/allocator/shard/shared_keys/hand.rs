//! The hand of the clock algorithm that evicts shared sections (see `shard/own_keys/eviction.rs`).

/// Where the hand is that evicts sections (`eviction.rs`).
#[derive(Debug, Default)]
pub struct Hand {
    /// The kind of places that it goes around now.
    pub turn: Turn,
    /// The number of the slot, or of the section, that it looks at next.
    pub next: u32,
    /// True if it evicted a section on its way around the sections.
    pub has_evicted: bool,
}

/// The kind of places that the hand goes around.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The slots.
    #[default]
    Slots,
    /// The sections.
    Sections,
    /// The slots, because keys of sections that were evicted are there.
    SlotsOfGone,
}
