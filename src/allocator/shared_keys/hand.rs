//! The state of the clock algorithm that lets shared sections go (see `own_keys/let_go.rs`).

/// Where the hand is that lets sections go (`let_go.rs`).
#[derive(Debug, Default)]
pub struct Hand {
    /// What it goes around.
    pub turn: Turn,
    /// The number of the slot, or of the section, that it looks at next.
    pub next: u32,
    /// True if it has let a section go on its way around the sections.
    pub has_let_go: bool,
}

/// What the hand goes around.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The slots.
    #[default]
    Slots,
    /// The sections.
    Sections,
    /// The slots, because keys of sections that were let go are there.
    SlotsOfGone,
}
