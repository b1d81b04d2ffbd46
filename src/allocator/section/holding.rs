//! A view for people of the numbers that a term has of a key's section. Pure.

use super::{
    cursor::Cursor,
    owned::{ChunkTime, Owned},
};
use crate::sequence::Progression;

/// The numbers that a term has of a key's section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// The ceiling.
    pub ceiling: u64,
    /// The last number that the term knows to be handed out for the key: 0 for none.
    pub last: u64,
    /// When the last chunk came.
    pub came_at: ChunkTime,
}

impl Holding {
    /// The holding of a term that owns `owned`, for the key at `cursor`; `None` for a key that was not asked for.
    pub fn new(owned: &Owned, cursor: Option<&Cursor>, progression: Progression) -> Self {
        Holding {
            ceiling: owned.ceiling,
            last: owned.current(cursor, progression),
            came_at: owned.came_at,
        }
    }

    /// The holding of a section that the term evicted after number `last`.
    pub fn gone(last: u64) -> Self {
        Holding { ceiling: last, last, came_at: ChunkTime::UNKNOWN }
    }
}
