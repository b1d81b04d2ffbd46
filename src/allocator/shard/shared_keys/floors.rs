//! Raises the floors of keys that share sections, one by one or all of a section.
//!
//! Invariant: a key whose section's floor was raised asks the section before it takes another number. The shard's lock
//! is held from the one to the other.

use super::{SharedKeys, cursors::NamespaceCursors};
use crate::{
    allocator::{
        floor::{Floor, Raised},
        key_table::hasher::Hasher,
        section::{answers::RaiseAnswer, queued_section::Cursors},
    },
    planted_bugs::{Bug, is_planted},
    sequence::{Key, Namespace, SectionKey},
};

/// To find a key costs as much as to pass over this many slots, more or less.
const SLOTS_FOR_KEY: u64 = 8;

impl SharedKeys {
    /// Moves a key above `floor`, or waits for that. Its neighbours stay where they are. Otherwise as
    /// [`SharedKeys::take`].
    pub fn raise(
        &mut self, hash: u64, namespace: &Namespace, &id: &u64, floor: Floor,
    ) -> Option<(RaiseAnswer, Option<u32>)> {
        let (number, _) = self.find_key(hash, namespace, id)?;
        let section = self.sections.get_mut(number)?;
        section.is_in_use = true;
        let queued = &mut section.queued;
        let mut cursors =
            NamespaceCursors { keys: &mut self.keys, pages: &mut self.pages, namespace };
        let key = Key::Id(id);
        let (answer, bump) = (self.first_waiters).watch(queued, |queued| {
            cursors.with(hash, key, |cursor| {
                queued.raise(cursor, &namespace.config, (hash, key), floor)
            })
        })?;
        Some((answer, bump.then_some(number)))
    }

    /// Moves all keys of a key's section above `at_least`, or waits for that. The key need not be there. `None` if its
    /// section is not. Otherwise as [`SharedKeys::raise`].
    pub fn raise_section(
        &mut self, hasher: &Hasher, hash: u64, namespace: &Namespace, id: u64, at_least: u64,
    ) -> Option<(RaiseAnswer, Option<u32>)> {
        let key = Key::Id(id);
        let number = self.sections.find(&namespace.section_of(key))?;
        let section = self.sections.get_mut(number)?;
        section.is_in_use = true;
        let queued = &mut section.queued;
        let (answer, bump) = (self.first_waiters)
            .watch(queued, |queued| queued.raise_section(&namespace.config, (hash, key), at_least));
        if let RaiseAnswer::Done(Ok(Raised { is_higher: true, .. })) = answer {
            self.stop_fast_paths(hasher, namespace, number);
        }
        Some((answer, bump.then_some(number)))
    }

    /// Makes each key of section number `number` ask the section.
    pub(super) fn stop_fast_paths(&mut self, hasher: &Hasher, namespace: &Namespace, number: u32) {
        if is_planted(Bug::SectionFloorLeavesFastPath) {
            return;
        }
        let Some(section) = self.sections.get_mut(number) else {
            return;
        };
        let SectionKey::Id(ids) = section.id.key else {
            return;
        };
        if !std::mem::take(&mut section.has_fast_paths) {
            return;
        }
        let (first, last) = namespace.ids_of_section(ids);
        // The keys of a small section are looked up: the shard may have many slots, and many sections be raised.
        let size = namespace.config.section_size;
        if size > u64::from(self.keys.slots()) / SLOTS_FOR_KEY {
            return self.stop_paths_of_slots(number);
        }
        for id in first..=last {
            let hash = hasher.key(namespace.id, Key::Id(id));
            let found = self.keys.find(hash, namespace.id, &id);
            if let Some(slot) = found.and_then(|found| self.keys.get_mut_unnoted(found)) {
                slot.cursor.stop_fast_path();
            }
        }
    }

    /// Makes each key of section number `number` that is in a slot ask the section. It is no change for a node that the
    /// memory is sent to: there every key asks first.
    pub(super) fn stop_paths_of_slots(&mut self, number: u32) {
        (self.keys.iter_mut_unnoted())
            .filter(|slot| slot.section == number)
            .for_each(|slot| slot.cursor.stop_fast_path());
    }
}
