//! Evicts keys that nobody asked for lately: the *clock* algorithm (Corbato, A Paging Experiment with the Multics
//! System, 1968). A hand goes around the slots. It clears the reference bit of a key that is in use, and evicts a key whose
//! bit is clear.
//!
//! Invariant: the section of a key that is evicted is quiet, so that nobody waits for it, and no bump of it is under way.

use super::OwnKeys;
use crate::{
    allocator::key_table::{Slot, StoredKey, hasher::Hasher},
    planted_bugs::{Bug, is_planted},
    sequence::{NamespaceId, Progression, SectionUse},
};

/// The outcome of a sweep of the clock hand.
#[derive(Debug, Default)]
pub struct Swept {
    /// The sections that were evicted, and the last number used of each.
    pub evicted: Vec<SectionUse>,
    /// How many keys were evicted. One that got no chunk in this term has nothing to release; those of a shared section are
    /// released with it.
    pub keys: usize,
    /// How many sections that keys share were evicted.
    pub shared_sections: usize,
    /// How many slots the hand has passed.
    pub slots: usize,
}

impl<K: StoredKey> OwnKeys<K> {
    /// Moves the hand over `slots_max` slots at most, until `evicted_max` sections are evicted, or to the end of the
    /// slots. True at the end: the next call begins at the first slot. Tells `note_gone` the keys that are evicted.
    pub fn evict(
        &mut self, hasher: &Hasher, (slots_max, evicted_max): (usize, usize),
        progression_of: impl Fn(NamespaceId) -> Option<Progression>,
        mut note_gone: impl FnMut(u32, &K::Target), swept: &mut Swept,
    ) -> bool {
        let mut passed = 0;
        while passed < slots_max && swept.evicted.len() < evicted_max {
            let number = self.hand;
            if number >= self.table.slots() {
                self.hand = 0;
                return true;
            }
            self.hand += 1;
            passed += 1;
            swept.slots += 1;
            let Some(slot) = self.table.get_mut(number) else {
                continue;
            };
            if slot.cursor.take_in_use() || !self.is_quiet(number) {
                continue;
            }
            let slot = self.table.get(number);
            let evicted = slot.and_then(|slot| self.use_of(number, slot, &progression_of));
            if let Some((mut evicted, owned)) = evicted {
                if is_planted(Bug::ReleaseSkipsRest) {
                    evicted.used = owned.ceiling;
                }
                swept.evicted.push(evicted);
            }
            if self.expanded.remove(&number).is_some() {
                self.shrink();
            }
            if let Some(gone) = self.table.remove(hasher, number) {
                note_gone(number, gone.key());
            }
            swept.keys += 1;
        }
        false
    }
}
