//! Lets keys go that nobody asked for lately: the *clock* algorithm (Corbato, A Paging Experiment with the Multics
//! System, 1968). A hand goes around the slots. It takes the mark off a key that is in use, and lets a key without a
//! mark go.
//!
//! Invariant: the section of a key that is let go is quiet, so that nobody waits for it, and no bump of it is under way.

use super::OwnKeys;
use crate::{
    allocator::{
        hasher::Hasher,
        key_table::{Slot, StoredKey},
    },
    planted_bugs::{Bug, is_planted},
    sequence::{NamespaceId, Progression, Trim},
};

/// What the hand has done.
#[derive(Debug, Default)]
pub struct Swept {
    /// The sections that were let go, and the last number used of each.
    pub released: Vec<Trim>,
    /// How many keys were let go. One that got no chunk in this term has nothing to release; those of a shared section are
    /// released with it.
    pub keys: usize,
    /// How many sections that keys share were let go.
    pub shared_sections: usize,
    /// How many slots the hand has passed.
    pub slots: usize,
}

impl<K: StoredKey> OwnKeys<K> {
    /// Moves the hand over `slots_max` slots at most, until `released_max` sections are let go, or to the end of the
    /// slots. True at the end: the next call begins at the first slot. Tells `note_gone` the keys that are let go.
    pub fn let_go(
        &mut self, hasher: &Hasher, (slots_max, released_max): (usize, usize),
        progression_of: impl Fn(NamespaceId) -> Option<Progression>,
        mut note_gone: impl FnMut(u32, &K::Target), swept: &mut Swept,
    ) -> bool {
        let mut passed = 0;
        while passed < slots_max && swept.released.len() < released_max {
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
            self.release(number, &progression_of, swept);
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

    /// Notes what was used of the section in slot number `number`, if the term has a chunk of it and there is its
    /// namespace.
    fn release(
        &self, number: u32, progression_of: impl Fn(NamespaceId) -> Option<Progression>,
        swept: &mut Swept,
    ) {
        let used = self.table.get(number).and_then(|slot| {
            let progression = progression_of(slot.namespace())?;
            let owned = self.owned(number, slot, progression)?;
            Some(Trim {
                section: super::section_id(slot),
                used: match is_planted(Bug::ReleaseSkipsRest) {
                    false => owned.current(Some(&slot.cursor), progression),
                    true => owned.ceiling,
                },
                lost: 0,
            })
        });
        swept.released.extend(used);
    }
}
