//! The keys of a shard that share sections with their neighbours, and those sections.
//!
//! Invariant: a number in `sections` belongs to one section until the shard is emptied for good.

mod changes;

use std::time::Duration;

use hashbrown::HashMap;

use super::{
    cursor::Cursor,
    hasher::Hasher,
    holding::Holding,
    key_table::{KeyTable, NOBODY, Slot},
    owned::Used,
    pending::{Answer, RaiseAnswer, Served, Waiter, Waiters},
    queued_section::{Cursors, QueuedSection},
    refill::BumpSize,
    section::{Section, StepChange},
    segments::Segments,
};
use crate::{
    clock::Instant,
    sequence::{Chunk, Key, Namespace, NamespaceConfig, NamespaceId, Progression, SectionId},
};

/// Keys and the sections that they share.
#[derive(Debug, Default)]
pub struct SharedKeys {
    keys: KeyTable<SharedSlot>,
    sections: Segments<SharedSection>,
    /// The numbers of the sections.
    numbers: HashMap<SectionId, u32>,
}

/// A key of a shared section. What every call reads comes first; all of it is half a cache line.
#[derive(Debug)]
#[repr(C)]
struct SharedSlot {
    id: u64,
    cursor: Cursor,
    namespace: NamespaceId,
    /// The number of the key's section.
    section: u32,
}

/// A section that several keys share.
#[derive(Debug)]
struct SharedSection {
    id: SectionId,
    queued: QueuedSection,
}

impl Slot for SharedSlot {
    type Key = u64;

    fn vacant() -> Self {
        SharedSlot {
            id: 0,
            cursor: Cursor::new(),
            namespace: NOBODY,
            section: u32::MAX,
        }
    }

    #[inline]
    fn key(&self) -> &u64 {
        &self.id
    }

    #[inline]
    fn namespace(&self) -> NamespaceId {
        self.namespace
    }
}

/// The cursors of the keys of one namespace.
struct OfNamespace<'a> {
    keys: &'a mut KeyTable<SharedSlot>,
    namespace: NamespaceId,
}

impl Cursors for OfNamespace<'_> {
    fn of(&mut self, waiter: &Waiter) -> Option<&mut Cursor> {
        let Key::Id(id) = waiter.key.as_key() else {
            return None;
        };
        let number = self.keys.find(waiter.hash, self.namespace, &id)?;
        self.keys.found_mut(number).map(|slot| &mut slot.cursor)
    }
}

/// What a section that got a chunk has used, while its shard is closed.
struct Closing {
    progression: Progression,
    /// The greatest number taken by any of its keys.
    last: u64,
    /// How many numbers the other keys lose by rising to `last`.
    lost: u64,
}

impl SharedKeys {
    /// As [`KeyTable::touch`].
    pub fn touch(&self, hashes: impl Iterator<Item = u64> + Clone) {
        self.keys.touch(hashes);
    }

    /// Takes the next `count` (at least 1) numbers of a key, or waits for them. Also answers the number of
    /// the section that must be bumped, if one must. `None` if the key was not asked for in this term.
    #[inline]
    pub fn take(
        &mut self,
        hash: u64,
        namespace: &Namespace,
        id: u64,
        count: u64,
    ) -> Option<(Answer, Option<u32>)> {
        let number = self.keys.find(hash, namespace.id, &id)?;
        let slot = self.keys.found_mut(number)?;
        if let Some(range) = slot.cursor.take(&namespace.config, count) {
            return Some((Answer::Taken(Ok(range)), None));
        }
        let queued = &mut self.sections.get_mut(slot.section)?.queued;
        let key = (hash, Key::Id(id));
        let (answer, bump) = queued.take(&mut slot.cursor, &namespace.config, key, count);
        Some((answer, bump.then_some(slot.section)))
    }

    /// Moves a key above `at_least`, or waits for that. Its neighbours stay where they are. Otherwise as
    /// [`SharedKeys::take`].
    pub fn raise(
        &mut self,
        hash: u64,
        namespace: &Namespace,
        id: u64,
        at_least: u64,
    ) -> Option<(RaiseAnswer, Option<u32>)> {
        let number = self.keys.find(hash, namespace.id, &id)?;
        let slot = self.keys.get_mut(number)?;
        let queued = &mut self.sections.get_mut(slot.section)?.queued;
        let key = (hash, Key::Id(id));
        let (answer, bump) = queued.raise(&mut slot.cursor, &namespace.config, key, at_least);
        Some((answer, bump.then_some(slot.section)))
    }

    /// Adds a key that was not asked for in this term, and its section, if it is the first of its keys.
    /// Returns the number of the section, and whether it is new.
    pub fn insert(
        &mut self,
        hasher: &Hasher,
        hash: u64,
        namespace: &Namespace,
        id: u64,
    ) -> (u32, bool) {
        let section_id = namespace.section_of(Key::Id(id));
        let known = self.numbers.get(&section_id).copied();
        let section = known.unwrap_or_else(|| {
            self.push_section(SharedSection {
                id: section_id,
                queued: QueuedSection::new(Section::new(&namespace.config, None)),
            })
        });
        let slot = SharedSlot {
            id,
            cursor: Cursor::new(),
            namespace: namespace.id,
            section,
        };
        self.keys.add(hasher, hash, slot);
        (section, known.is_none())
    }

    /// Adds a section. Returns its number.
    fn push_section(&mut self, section: SharedSection) -> u32 {
        let number = u32::try_from(self.sections.len()).expect("memory ends before 2^32 sections");
        self.numbers.insert(section.id.clone(), number);
        self.sections.push(section);
        number
    }

    /// True if the term has a chunk of section number `number`.
    pub fn has_chunk(&self, number: u32) -> bool {
        let section = self.sections.get(number);
        section.is_some_and(|section| section.queued.section.owned().is_some())
    }

    /// As [`Section::step_within_bounds`], for section number `number`.
    pub fn step(&mut self, number: u32, config: &NamespaceConfig) -> u64 {
        let section = self.sections.get_mut(number);
        section.map_or(config.step, |section| {
            section.queued.section.step_within_bounds(config)
        })
    }

    /// The identifier of section number `number`.
    pub fn section_id(&self, number: u32) -> Option<&SectionId> {
        self.sections.get(number).map(|section| &section.id)
    }

    /// As [`QueuedSection::propose_bump`], for section number `number`.
    pub fn propose_bump(&mut self, number: u32, namespace: &Namespace) -> Option<BumpSize> {
        let queued = &mut self.sections.get_mut(number)?.queued;
        let mut cursors = OfNamespace {
            keys: &mut self.keys,
            namespace: namespace.id,
        };
        queued.propose_bump(&mut cursors, namespace)
    }

    /// As [`Section::grant`], for section number `number`.
    pub fn grant(
        &mut self,
        number: u32,
        chunk: Chunk,
        config: &NamespaceConfig,
        now: Instant,
        bump_time: Duration,
    ) -> Option<StepChange> {
        let section = &mut self.sections.get_mut(number)?.queued.section;
        let granted = section.grant(chunk, config, now, bump_time);
        if granted.keys_must_ask {
            (self.keys.iter_mut())
                .filter(|slot| slot.section == number)
                .for_each(|slot| slot.cursor.stop_fast_path());
        }
        granted.step_change
    }

    /// As [`Section::exhaust`], for section number `number`.
    pub fn exhaust(&mut self, number: u32, max: u64) {
        if let Some(section) = self.sections.get_mut(number) {
            section.queued.section.exhaust(max);
        }
    }

    /// As [`Section::exceed_quota`], for section number `number`.
    pub fn exceed_quota(&mut self, number: u32, keys_max: u64) {
        if let Some(section) = self.sections.get_mut(number) {
            section.queued.section.exceed_quota(keys_max);
        }
    }

    /// As [`QueuedSection::drop_waiters`], for section number `number`.
    pub fn drop_waiters(&mut self, number: u32) {
        if let Some(section) = self.sections.get_mut(number) {
            section.queued.drop_waiters();
        }
    }

    /// As [`QueuedSection::serve`], for section number `number`.
    pub fn serve(&mut self, number: u32, namespace: &Namespace, served: &mut Vec<Served>) -> bool {
        let Some(section) = self.sections.get_mut(number) else {
            return false;
        };
        let mut cursors = OfNamespace {
            keys: &mut self.keys,
            namespace: namespace.id,
        };
        (section.queued).serve(&mut cursors, &namespace.config, served)
    }

    /// What the term has of a key's section. `None` before the first chunk.
    pub fn holding(&self, hash: u64, namespace: &Namespace, id: u64) -> Option<Holding> {
        let slot =
            (self.keys.find(hash, namespace.id, &id)).and_then(|number| self.keys.get(number));
        let number = match slot {
            Some(slot) => slot.section,
            None => *self.numbers.get(&namespace.section_of(Key::Id(id)))?,
        };
        let section = &self.sections.get(number)?.queued.section;
        let cursor = slot.map(|slot| &slot.cursor);
        let progression = namespace.config.progression();
        section
            .owned()
            .map(|owned| Holding::new(owned, cursor, progression))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// How many sections there are.
    pub fn sections(&self) -> usize {
        self.sections.len()
    }

    /// How many bytes they take.
    pub fn bytes(&self) -> usize {
        self.keys.bytes() + self.sections.bytes() + self.numbers.allocation_size()
    }

    /// The calls that wait, by section.
    pub fn into_waiters(self) -> impl Iterator<Item = (SectionId, Waiters)> {
        let sections = self.sections.into_iter();
        sections.map(|section| (section.id, section.queued.into_waiters()))
    }

    /// What was used of each section that got a chunk, but for namespaces without a known progression.
    pub fn used(
        self,
        progression_of: impl Fn(NamespaceId) -> Option<Progression>,
    ) -> impl Iterator<Item = Used> {
        let mut closing: Vec<Option<Closing>> = (self.sections.iter())
            .map(|section| {
                let progression = progression_of(section.id.namespace)?;
                // Without a key: the section's floor.
                let last = section.queued.section.owned()?.current(None, progression);
                let lost = 0;
                Some(Closing {
                    progression,
                    last,
                    lost,
                })
            })
            .collect();
        let mut each_key = |note: fn(&mut Closing, u64)| {
            for (_, slot) in self.keys.iter() {
                let number = slot.section as usize;
                let section = self.sections.get(slot.section);
                let owned = section.and_then(|section| section.queued.section.owned());
                if let (Some(closing), Some(owned)) = (&mut closing[number], owned) {
                    let last = owned.current(Some(&slot.cursor), closing.progression);
                    note(closing, last);
                }
            }
        };
        each_key(|closing, last| closing.last = closing.last.max(last));
        each_key(|closing, last| {
            closing.lost += closing.progression.count_between(last, closing.last);
        });
        (self.sections.into_iter().zip(closing)).filter_map(|(section, closing)| {
            let Closing { last, lost, .. } = closing?;
            let ceiling = section.queued.section.owned()?.ceiling;
            Some(Used {
                has_left: last < ceiling,
                section: section.id,
                last,
                lost,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_of_a_shared_key_takes_half_a_cache_line() {
        assert_eq!(size_of::<SharedSlot>(), 32);
    }
}
