//! The keys of a shard that share sections with their neighbours, and those sections.
//!
//! A key is in a slot of its own, or, if many of its neighbours are there, in a page with them. `shared_slot.rs`,
//! `pages.rs` and `shared_section.rs` are what is kept, and `gather.rs` makes pages of slots. `cursors.rs` finds where a key
//! stands, whichever of them it is in.
//!
//! Sections that nobody asks for are evicted with all their keys (`eviction.rs`, whose hand is in `hand.rs`); `usage.rs` sums
//! up what was used of them. `floors.rs` raises floors, and `changes.rs` tells another node what changed.
//!
//! Invariant: each slot, and each page, has the number of its key's section, also while the term has nothing of the
//! section.

mod changes;
mod cursors;
mod eviction;
mod floors;
mod gather;
mod hand;
mod pages;
mod shared_section;
mod shared_slot;
mod usage;

use std::time::Duration;

use self::{
    cursors::NamespaceCursors, hand::Hand, pages::Pages, shared_section::SharedSection,
    shared_slot::SharedSlot,
};
use crate::{
    allocator::{
        key_table::{KeyTable, hasher::Hasher, numbered::Numbered},
        section::{
            Section, StepChange,
            answers::TakeAnswer,
            cursor::Cursor,
            first_waiters::FirstWaiters,
            holding::Holding,
            pending::{ServedCall, Waiters},
            queued_section::QueuedSection,
        },
    },
    clock::Instant,
    planted_bugs::{Bug, is_planted},
    sequence::{CeilingRaise, Chunk, Key, Namespace, NamespaceConfig, Range, SectionId},
};

/// Keys and the sections that they share.
#[derive(Debug, Default)]
pub struct SharedKeys {
    keys: KeyTable<SharedSlot>,
    /// Keys that are not in `keys`.
    pages: Pages,
    sections: Numbered<SharedSection>,
    first_waiters: FirstWaiters,
    hand: Hand,
}

impl SharedKeys {
    /// As [`KeyTable::touch`].
    pub fn touch(&self, hashes: impl Iterator<Item = u64> + Clone) {
        self.keys.touch(hashes);
    }

    /// As [`SharedKeys::take`], within the key's fast limit. `None` if [`SharedKeys::take`] must be called: then nothing
    /// was taken.
    #[inline]
    pub fn take_fast(
        &mut self, hash: u64, namespace: &Namespace, &id: &u64, count: u64,
    ) -> Option<Range> {
        let number = self.keys.find(hash, namespace.id, &id)?;
        let slot = self.keys.found_mut(number)?;
        slot.cursor.take(&namespace.config, count)
    }

    /// Takes the next `count` (at least 1) numbers of a key, or waits for them. Also answers the number of
    /// the section that must be bumped, if one must. `None` if the key was not asked for in this term.
    pub fn take(
        &mut self, hash: u64, namespace: &Namespace, &id: &u64, count: u64,
    ) -> Option<(TakeAnswer, Option<u32>)> {
        let Some(number) = self.keys.find(hash, namespace.id, &id) else {
            return self.take_in_page(hash, namespace, id, count);
        };
        let slot = self.keys.found_mut(number)?;
        if let Some(range) = slot.cursor.take(&namespace.config, count) {
            return Some((TakeAnswer::Done(Ok(range)), None));
        }
        let section = self.sections.get_mut(slot.section)?;
        (section.is_in_use, section.has_fast_paths) = (true, true);
        let key = (hash, Key::Id(id));
        let (answer, bump) = (self.first_waiters).watch(&mut section.queued, |queued| {
            queued.take(&mut slot.cursor, &namespace.config, key, count)
        });
        Some((answer, bump.then_some(slot.section)))
    }

    /// As [`SharedKeys::take`], for a key that has no slot.
    fn take_in_page(
        &mut self, hash: u64, namespace: &Namespace, id: u64, count: u64,
    ) -> Option<(TakeAnswer, Option<u32>)> {
        let (sections, waiters) = (&mut self.sections, &mut self.first_waiters);
        self.pages.with(namespace, id, |number, cursor| {
            let section = sections.get_mut(number)?;
            section.is_in_use = true;
            let key = (hash, Key::Id(id));
            let (answer, bump) = waiters.watch(&mut section.queued, |queued| {
                queued.take(cursor, &namespace.config, key, count)
            });
            Some((answer, bump.then_some(number)))
        })?
    }

    /// Adds a key that was not asked for in this term, and its section, if it is the first of its keys.
    /// Returns the number of the section, and whether the term has nothing of it, and nobody waits for it.
    pub fn insert(
        &mut self, hasher: &Hasher, hash: u64, namespace: &Namespace, &id: &u64,
    ) -> (u32, bool) {
        let (section, has_nothing) = self.insert_section(namespace, id);
        if let Some(section) = self.sections.get_mut(section) {
            section.has_slots = true;
        }
        let cursor = Cursor::new();
        if !self.pages.insert(namespace, id, &cursor) {
            let slot = SharedSlot { id, cursor, namespace: namespace.id, section };
            self.keys.add(hasher, hash, slot);
            self.gather(hasher, namespace, id, section);
        }
        (section, has_nothing)
    }

    /// Adds the section of a key, if it is not there. Otherwise as [`SharedKeys::insert`].
    pub fn insert_section(&mut self, namespace: &Namespace, id: u64) -> (u32, bool) {
        let section_id = namespace.section_of(Key::Id(id));
        let known = self.sections.find(&section_id);
        let number = known.unwrap_or_else(|| {
            let queued = QueuedSection::new(Section::new(&namespace.config, None));
            self.sections.add(SharedSection::new(section_id, queued))
        });
        let mut has_nothing = false;
        if let Some(section) = self.sections.get_mut(number) {
            section.is_in_use = true;
            has_nothing = section.has_nothing();
        }
        (number, has_nothing)
    }

    /// True if the term has a chunk of section number `number`.
    pub fn has_chunk(&self, number: u32, _: &NamespaceConfig) -> bool {
        let section = self.sections.get(number);
        section.is_some_and(|section| section.queued.section.owned().is_some())
    }

    /// The identifier of section number `number`.
    pub fn section_id(&self, number: u32) -> Option<SectionId> {
        self.sections.get(number).map(|section| section.id.clone())
    }

    /// As [`QueuedSection::next_bump`], for section number `number`.
    pub fn next_bump(&mut self, number: u32, namespace: &Namespace) -> Option<CeilingRaise> {
        let queued = &mut self.sections.get_mut(number)?.queued;
        let mut cursors =
            NamespaceCursors { keys: &mut self.keys, pages: &mut self.pages, namespace };
        (self.first_waiters).watch(queued, |queued| queued.next_bump(&mut cursors, namespace))
    }

    /// As [`Section::add_chunk`], for section number `number`.
    pub fn add_chunk(
        &mut self, number: u32, chunk: Chunk, config: &NamespaceConfig, now: Instant,
        bump_time: Duration,
    ) -> Option<StepChange> {
        let section = self.sections.get_mut(number)?;
        let added = (self.first_waiters).watch(&mut section.queued, |queued| {
            (queued.section).add_chunk(chunk, config, now, bump_time)
        });
        if added.keys_must_ask && std::mem::take(&mut section.has_fast_paths) {
            self.stop_paths_of_slots(number);
        }
        added.step_change
    }

    /// Lets `act` work with section number `number`.
    pub fn with_section<R>(
        &mut self, number: u32, _: &NamespaceConfig, act: impl FnOnce(&mut QueuedSection) -> R,
    ) -> Option<R> {
        let section = self.sections.get_mut(number)?;
        Some(self.first_waiters.watch(&mut section.queued, act))
    }

    /// Lets `act` work with section number `number`, for the calls that wait for it.
    pub fn with_waiters(&mut self, number: u32, act: impl FnOnce(&mut QueuedSection)) {
        if let Some(section) = self.sections.get_mut(number) {
            self.first_waiters.watch(&mut section.queued, act);
        }
    }

    /// As [`QueuedSection::is_quiet`], for section number `number`.
    pub fn is_quiet(&self, number: u32) -> bool {
        let section = self.sections.get(number);
        section.is_none_or(|section| section.queued.is_quiet())
    }

    /// As [`QueuedSection::serve`], for section number `number`.
    pub fn serve(
        &mut self, hasher: &Hasher, number: u32, namespace: &Namespace,
        served: &mut Vec<ServedCall>,
    ) -> bool {
        let Some(section) = self.sections.get_mut(number) else {
            return false;
        };
        let mut cursors =
            NamespaceCursors { keys: &mut self.keys, pages: &mut self.pages, namespace };
        let (floor, before) = (section.floor(), served.len());
        let bump = (self.first_waiters).watch(&mut section.queued, |queued| {
            queued.serve(&mut cursors, &namespace.config, served)
        });
        let mut new = served[before..].iter();
        section.has_fast_paths |= new.any(|one| matches!(one, ServedCall::Numbers { .. }));
        if section.floor() != floor {
            self.stop_fast_paths(hasher, namespace, number);
        }
        bump
    }

    /// The holding of a key's section. `None` before the first chunk.
    pub fn holding(&self, hash: u64, namespace: &Namespace, &id: &u64) -> Option<Holding> {
        let (number, cursor) = match self.find_key(hash, namespace, id) {
            Some(found) => found,
            None => (self.sections.find(&namespace.section_of(Key::Id(id)))?, None),
        };
        let section = &self.sections.get(number)?.queued.section;
        let progression = namespace.config.progression();
        (section.owned()).map(|owned| Holding::new(owned, cursor.as_ref(), progression))
    }

    /// The number of the section of a key that was asked for, and where the key stands.
    fn find_key(&self, hash: u64, namespace: &Namespace, id: u64) -> Option<(u32, Option<Cursor>)> {
        match self.keys.find(hash, namespace.id, &id) {
            Some(number) => self.keys.get(number).map(|slot| (slot.section, Some(slot.cursor))),
            None => self.pages.find(namespace, id).map(|key| {
                let is_known = !is_planted(Bug::CurrentOfPageAtFloor);
                (key.section, is_known.then(|| Cursor::at(key.next)))
            }),
        }
    }

    /// True if the term has a chunk of the section of a key, which need not be there.
    pub fn has_chunk_of(&self, namespace: &Namespace, id: u64) -> bool {
        let number = self.sections.find(&namespace.section_of(Key::Id(id)));
        number.is_some_and(|number| self.has_chunk(number, &namespace.config))
    }

    /// How many calls wait for sections of which the term has nothing yet.
    pub fn first_waiters(&self) -> usize {
        self.first_waiters.len()
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len() + self.pages.len()
    }

    /// How many sections there are.
    pub fn sections(&self) -> usize {
        self.sections.len()
    }

    /// True if there are as many sections, with vacant numbers.
    pub fn has_sections(&self, needed: u32) -> bool {
        self.sections.slots() >= needed
    }

    /// How many bytes they take.
    pub fn bytes(&self) -> usize {
        self.keys.bytes() + self.pages.bytes() + self.sections.bytes()
    }

    /// How many of these bytes are free for new keys.
    pub fn vacant_bytes(&self) -> usize {
        self.keys.vacant_bytes() + self.pages.vacant_bytes() + self.sections.vacant_bytes()
    }

    /// The calls that wait, by section.
    pub fn into_waiters(self) -> impl Iterator<Item = (SectionId, Waiters)> {
        let sections = self.sections.into_numbered();
        sections.map(|(_, section)| (section.id, section.queued.into_waiters()))
    }
}
