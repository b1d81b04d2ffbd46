//! The numbers that one term owns of a section, and what it has used of them. Pure.
//!
//! Invariant: no number at or below the floor, and none above the ceiling, is this term's.

use std::time::Duration;

use super::cursor::Cursor;
use crate::{
    clock::Instant,
    sequence::{NamespaceConfig, Progression},
};

/// The numbers that a term owns of a section: those above `floor`, up to and including `ceiling`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owned {
    /// No key takes a number at or below this one. It is `old` of the first chunk, up to which earlier terms may have
    /// handed out numbers, or the floor that the section was raised to since.
    pub floor: u64,
    /// The ceiling.
    pub ceiling: u64,
    /// Above this number a bump is asked for.
    pub refill_at: u64,
    /// When the last chunk came.
    pub came_at: ChunkTime,
}

/// When a chunk came: milliseconds of the node's clock, modulo 2^31, or that this is not known, because it came to another
/// node. It takes 4 bytes.
///
/// A chunk that lasts for 24 days seems to have lasted for a moment: its section's next margin is then the
/// greatest one, and its step doubles, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkTime(u32);

impl Owned {
    /// How many numbers are left for the key at `cursor`, which is moved above the floor.
    pub fn left(&self, cursor: &mut Cursor, config: &NamespaceConfig) -> u64 {
        let Some(lowest) = self.lowest(config.progression()) else {
            return 0;
        };
        cursor.raise_to(lowest);
        let highest = self.ceiling.min(config.max);
        highest.checked_sub(cursor.next()).map_or(0, |span| span / config.increment + 1)
    }

    /// The last number that this term knows to be handed out for the key at `cursor`: 0 for none.
    pub fn current(&self, cursor: Option<&Cursor>, progression: Progression) -> u64 {
        let lowest = self.lowest(progression);
        let last = lowest.and_then(|lowest| cursor?.last(lowest, progression.increment));
        last.unwrap_or(self.floor)
    }

    /// The first number above the floor, whatever the namespace's `max` is now: it may be lowered below what was handed out.
    /// `None` at the end of the number space.
    pub fn lowest(&self, progression: Progression) -> Option<u64> {
        progression.unbounded().first_above(self.floor)
    }
}

impl ChunkTime {
    const MILLIS_MASK: u32 = u32::MAX >> 1;

    /// The time of a chunk that came to another node.
    pub const UNKNOWN: ChunkTime = ChunkTime(u32::MAX);

    /// The time of a chunk that comes at `now`.
    pub fn at(now: Instant) -> ChunkTime {
        let millis = now.as_nanos() / 1_000_000;
        ChunkTime(millis as u32 & Self::MILLIS_MASK)
    }

    /// How long the chunk has lasted at `now`. `None` if that is not known.
    pub fn lasted_at(self, now: Instant) -> Option<Duration> {
        let millis = Self::at(now).0.wrapping_sub(self.0) & Self::MILLIS_MASK;
        (self != Self::UNKNOWN).then(|| Duration::from_millis(millis.into()))
    }
}

#[cfg(test)]
mod tests;
