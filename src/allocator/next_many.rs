//! The answer to a message that asks for numbers of many keys. Pure.

use super::held::{Shortage, Taken};
use crate::storage::LowDisk;

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
        self.exhausted.len() + others + self.too_large.len() + self.late.len()
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
        match shortage {
            Shortage::Exhausted { left } => self.exhausted.push((place, left)),
            Shortage::OverQuota { .. } => self.over_quota.push(place),
            Shortage::MemoryFull { max_mb } => {
                self.memory_full.places.push(place);
                self.memory_full.max_mb = max_mb;
            }
            Shortage::LowDisk(low) => self.low_disk.push((place, low)),
            Shortage::TooLarge { .. } => self.too_large.push(place),
        }
    }
}
