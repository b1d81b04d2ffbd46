//! The keys of a shard that have a section of their own.
//!
//! A slot holds a key and its section (`section/own_slot.rs`). Some sections do not fit their slots:
//!
//! - one whose bump is pending, with the calls that wait for it;
//! - one that is exhausted;
//! - one whose step has followed the load.
//!
//! Such a section is *expanded*: it is in a table beside the slots. Of its slot only the key and the cursor
//! are then in use. It goes back into the slot as soon as it fits.
//!
//! `own_keys/eviction.rs` evicts keys that nobody asks for, and `own_keys/changes.rs` tells another node what changed.

mod changes;
pub mod eviction;

use std::time::Duration;

use hashbrown::{HashMap, hash_map::Entry};

use crate::{
    allocator::{
        floor::Floor,
        key_table::{KeyTable, Slot, StoredKey, hasher::Hasher},
        section::{
            Section, StepChange,
            answers::{RaiseAnswer, TakeAnswer},
            cursor::Cursor,
            first_waiters::FirstWaiters,
            holding::Holding,
            own_slot::OwnSlot,
            owned::Owned,
            pending::{ServedCall, Waiters},
            queued_section::QueuedSection,
        },
    },
    clock::Instant,
    sequence::{
        CeilingRaise, Chunk, Key, Namespace, NamespaceConfig, NamespaceId, Progression, Range,
        SectionId, SectionKey, SectionUse,
    },
};

/// Room for this many expanded sections is not freed.
const EXPANDED_KEPT: usize = 64;

/// Keys that are stored as `K`, and their sections.
#[derive(Debug)]
pub struct OwnKeys<K> {
    table: KeyTable<OwnSlot<K>>,
    /// The expanded sections, by the numbers of their slots.
    expanded: HashMap<u32, QueuedSection>,
    first_waiters: FirstWaiters,
    /// The slot that [`OwnKeys::evict`] looks at next.
    hand: u32,
}

impl<K> Default for OwnKeys<K> {
    fn default() -> Self {
        OwnKeys {
            table: KeyTable::default(),
            expanded: HashMap::new(),
            first_waiters: FirstWaiters::default(),
            hand: 0,
        }
    }
}

impl<K: StoredKey> OwnKeys<K> {
    /// As [`OwnKeys::take`], within the key's fast limit. `None` if [`OwnKeys::take`] must be called: then nothing
    /// was taken.
    #[inline]
    pub fn take_fast(
        &mut self, hash: u64, namespace: &Namespace, key: &K::Target, count: u64,
    ) -> Option<Range> {
        let number = self.table.find(hash, namespace.id, key)?;
        let slot = self.table.found_mut(number)?;
        slot.cursor.take(&namespace.config, count)
    }

    /// Takes the next `count` (at least 1) numbers of a key, or waits for them. Also answers which
    /// slot's section must be bumped, if one must. `None` if the key was not asked for in this term.
    pub fn take(
        &mut self, hash: u64, namespace: &Namespace, key: &K::Target, count: u64,
    ) -> Option<(TakeAnswer, Option<u32>)> {
        let number = self.table.find(hash, namespace.id, key)?;
        let config = &namespace.config;
        if let Some(range) = self.table.found_mut(number)?.cursor.take(config, count) {
            return Some((TakeAnswer::Done(Ok(range)), None));
        }
        let (answer, bump) = self.with_slot(number, config, |queued, cursor| {
            queued.take(cursor, config, (hash, K::as_key(key)), count)
        })?;
        Some((answer, bump.then_some(number)))
    }

    /// As [`KeyTable::touch`].
    pub fn touch(&self, hashes: impl Iterator<Item = u64> + Clone) {
        self.table.touch(hashes);
    }

    /// Moves a key above `floor`, or waits for that. Otherwise as [`OwnKeys::take`].
    pub fn raise(
        &mut self, hash: u64, namespace: &Namespace, key: &K::Target, floor: Floor,
    ) -> Option<(RaiseAnswer, Option<u32>)> {
        let number = self.table.find(hash, namespace.id, key)?;
        let config = &namespace.config;
        let (answer, bump) = self.with_slot(number, config, |queued, cursor| {
            queued.raise(cursor, config, (hash, K::as_key(key)), floor)
        })?;
        Some((answer, bump.then_some(number)))
    }

    /// Adds a key that was not asked for in this term. Returns its slot's index, and that the term has nothing of its
    /// section.
    pub fn insert(
        &mut self, hasher: &Hasher, hash: u64, namespace: &Namespace, key: &K::Target,
    ) -> (u32, bool) {
        let slot = OwnSlot::new(K::store(key), namespace.id);
        (self.table.add(hasher, hash, slot), true)
    }

    /// The identifier of the section in slot number `number`.
    pub fn section_id(&self, number: u32) -> Option<SectionId> {
        self.table.get(number).map(section_id)
    }

    /// As [`QueuedSection::next_bump`], for the section in slot number `number`.
    pub fn next_bump(&mut self, number: u32, namespace: &Namespace) -> Option<CeilingRaise> {
        self.with_slot(number, &namespace.config, |queued, cursor| {
            queued.next_bump(cursor, namespace)
        })?
    }

    /// As [`Section::add_chunk`], for the section in slot number `number`.
    pub fn add_chunk(
        &mut self, number: u32, chunk: Chunk, config: &NamespaceConfig, now: Instant,
        bump_time: Duration,
    ) -> Option<StepChange> {
        self.with_slot(number, config, |queued, cursor| {
            let added = queued.section.add_chunk(chunk, config, now, bump_time);
            if added.keys_must_ask {
                cursor.stop_fast_path();
            }
            added.step_change
        })?
    }

    /// As [`QueuedSection::is_quiet`], for the section in slot number `number`.
    pub fn is_quiet(&self, number: u32) -> bool {
        (self.expanded.get(&number)).is_none_or(|queued| queued.is_quiet())
    }

    /// Lets `act` work with the section in slot number `number`, if calls wait for it. Such a section is expanded.
    pub fn with_waiters(&mut self, number: u32, act: impl FnOnce(&mut QueuedSection)) {
        if let Some(queued) = self.expanded.get_mut(&number) {
            self.first_waiters.watch(queued, act);
        }
    }

    /// As [`QueuedSection::serve`], for the section in slot number `number`.
    pub fn serve(
        &mut self, _: &Hasher, number: u32, namespace: &Namespace, served: &mut Vec<ServedCall>,
    ) -> bool {
        let config = &namespace.config;
        let again =
            self.with_slot(number, config, |queued, cursor| queued.serve(cursor, config, served));
        again.unwrap_or(false)
    }

    /// The holding of a key's section. `None` before the first chunk.
    pub fn holding(&self, hash: u64, namespace: &Namespace, key: &K::Target) -> Option<Holding> {
        let number = self.table.find(hash, namespace.id, key)?;
        let (slot, progression) = (self.table.get(number)?, namespace.config.progression());
        let owned = self.owned(number, slot, progression)?;
        Some(Holding::new(&owned, Some(&slot.cursor), progression))
    }

    /// True if the term has a chunk of the section in slot number `number`.
    pub fn has_chunk(&self, number: u32, config: &NamespaceConfig) -> bool {
        let slot = self.table.get(number);
        slot.is_some_and(|slot| self.owned(number, slot, config.progression()).is_some())
    }

    /// How many calls wait for keys of which the term has nothing yet.
    pub fn first_waiters(&self) -> usize {
        self.first_waiters.len()
    }

    /// How many keys there are. Each has a section.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// How many bytes they take, without the bytes of names.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.expanded.allocation_size()
    }

    /// How many of these bytes are free for new keys.
    pub fn vacant_bytes(&self) -> usize {
        self.table.vacant_bytes()
    }

    /// The calls that wait, by section.
    pub fn into_waiters(self) -> impl Iterator<Item = (SectionId, Waiters)> {
        let OwnKeys { table, expanded, .. } = self;
        expanded.into_iter().filter_map(move |(number, queued)| {
            Some((section_id(table.get(number)?), queued.into_waiters()))
        })
    }

    /// The last number used of each section that got a chunk, and whether the section was used up. Leaves out namespaces
    /// without a known progression.
    pub fn used(
        &self, progression_of: impl Fn(NamespaceId) -> Option<Progression>,
    ) -> impl Iterator<Item = (bool, SectionUse)> {
        (self.table.iter()).filter_map(move |(number, slot)| {
            let (section, owned) = self.use_of(number, slot, &progression_of)?;
            Some((section.used >= owned.ceiling, section))
        })
    }

    /// The last number used of the section in slot number `number`, and the part that the term owns. `None` if the term has no
    /// chunk of it, or the progression of its namespace is not known.
    fn use_of(
        &self, number: u32, slot: &OwnSlot<K>,
        progression_of: impl Fn(NamespaceId) -> Option<Progression>,
    ) -> Option<(SectionUse, Owned)> {
        let progression = progression_of(slot.namespace)?;
        let owned = self.owned(number, slot, progression)?;
        let used = owned.current(Some(&slot.cursor), progression);
        Some((SectionUse { section: section_id(slot), used, skipped: 0 }, owned))
    }

    /// The part of the section in slot number `number` that the term owns.
    fn owned(&self, number: u32, slot: &OwnSlot<K>, progression: Progression) -> Option<Owned> {
        match self.expanded.get(&number) {
            Some(queued) => queued.section.owned().copied(),
            None => slot.owned(progression),
        }
    }

    /// Lets `act` work with the section in slot number `number`.
    pub fn with_section<R>(
        &mut self, number: u32, config: &NamespaceConfig, act: impl FnOnce(&mut QueuedSection) -> R,
    ) -> Option<R> {
        self.with_slot(number, config, |queued, _| act(queued))
    }

    /// Lets `act` work with the section in slot number `number` and its key's cursor. The section is
    /// expanded afterwards if it does not fit its slot.
    fn with_slot<R>(
        &mut self, number: u32, config: &NamespaceConfig,
        act: impl FnOnce(&mut QueuedSection, &mut Cursor) -> R,
    ) -> Option<R> {
        let slot = self.table.get_mut(number)?;
        let progression = config.progression();
        let fits = |queued: &QueuedSection, slot: &mut OwnSlot<K>| {
            let section = &queued.section;
            queued.is_quiet() && section.is_plain(config) && slot.put(section.owned(), progression)
        };
        let result = match self.expanded.entry(number) {
            Entry::Occupied(mut entry) => {
                let waiters = &mut self.first_waiters;
                let result = waiters.watch(entry.get_mut(), |queued| act(queued, &mut slot.cursor));
                if fits(entry.get(), slot) {
                    entry.remove();
                    self.shrink();
                }
                result
            }
            Entry::Vacant(entry) => {
                let section = Section::new(config, slot.owned(progression));
                let mut queued = QueuedSection::new(section);
                let waiters = &mut self.first_waiters;
                let result = waiters.watch(&mut queued, |queued| act(queued, &mut slot.cursor));
                if !fits(&queued, slot) {
                    entry.insert(queued);
                }
                result
            }
        };
        Some(result)
    }

    /// Gives memory back once at most an eighth of it is in use.
    fn shrink(&mut self) {
        let room = (self.expanded.len() * 2).max(EXPANDED_KEPT);
        if self.expanded.capacity() > room * 4 {
            self.expanded.shrink_to(room);
        }
    }
}

fn section_id<K: StoredKey>(slot: &OwnSlot<K>) -> SectionId {
    SectionId {
        namespace: slot.namespace,
        key: match K::as_key(slot.key()) {
            Key::Id(id) => SectionKey::Id(id),
            Key::Name(name) => SectionKey::Name(name.into()),
        },
    }
}

#[cfg(test)]
mod tests;
