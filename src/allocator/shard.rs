//! A part of the leader's memory: where the keys stand, and the sections they belong to. Pure.
//!
//! A key that is asked for costs one look into one table, whose entries are 32 bytes for an id: half a
//! cache line. The section, which knows the rest, is touched twice in a step.
//!
//! Invariant: a key and its section are in the same shard, and a place in `sections` belongs to one
//! section until the shard is emptied for good.

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::hash::BuildHasher;

use super::section::{Cursor, Section, Take};
use crate::sequence::{Key, Lattice, Namespace, NamespaceId, SectionId};

/// One key and where it stands.
#[derive(Debug)]
struct Slot<K> {
    key: K,
    cursor: Cursor,
}

/// A part of the memory.
#[derive(Debug, Default)]
pub struct Shard {
    ids: HashTable<Slot<u64>>,
    names: HashTable<Slot<Box<[u8]>>>,
    sections: Vec<Section>,
    /// Where the sections of several keys are; a key with a section of its own leads to it.
    shared: HashMap<SectionId, u32>,
}

/// What a section used, for the ceiling to be lowered to.
#[derive(Debug, PartialEq, Eq)]
pub struct Used {
    /// Which.
    pub section: SectionId,
    /// The highest number taken, where numbers are left above it.
    pub last: u64,
    /// How many numbers the other keys of the section lose by rising to it.
    pub lost: u64,
}

/// Hashes keys and sections; seeded, so that nobody can choose keys that collide.
#[derive(Debug, Clone, Default)]
pub struct Hasher(DefaultHashBuilder);

impl Hasher {
    /// Of a key.
    #[inline]
    pub fn key(&self, namespace: NamespaceId, key: Key<'_>) -> u64 {
        match key {
            Key::Id(id) => self.id(namespace.0, id),
            Key::Name(name) => self.name(namespace.0, name),
        }
    }

    /// Of a section that several ids share.
    #[inline]
    pub fn shared(&self, namespace: NamespaceId, place: u64) -> u64 {
        self.id(namespace.0, place)
    }

    #[inline]
    fn id(&self, namespace: u32, id: u64) -> u64 {
        self.0.hash_one((id, namespace))
    }

    #[inline]
    fn name(&self, namespace: u32, name: &[u8]) -> u64 {
        self.0.hash_one((name, namespace))
    }
}

impl Shard {
    /// Takes the next `count` (at least 1) numbers of a key, or says what is missing; and the place
    /// of its section, for a bump. `hash` is the key's.
    #[inline]
    pub fn take(
        &mut self,
        hasher: &Hasher,
        hash: u64,
        namespace: &Namespace,
        key: Key<'_>,
        count: u64,
    ) -> (Take, u32) {
        let cursor = match self.find(hash, namespace.id, key) {
            Some(found) => found,
            None => {
                self.insert(hasher, hash, namespace, key);
                return self.take(hasher, hash, namespace, key, count);
            }
        };
        let place = cursor.section;
        if let Some(range) = cursor.take(&namespace.config, count) {
            return (Take::Range { range, bump: false }, place);
        }
        // A copy, since the section lies beside the table that the cursor is in.
        let mut moved = *cursor;
        let take = self.sections[place as usize].take(&mut moved, &namespace.config, count);
        if let Some(cursor) = self.find(hash, namespace.id, key) {
            *cursor = moved;
        }
        (take, place)
    }

    /// The last number that this term knows to be handed out for a key: 0 for none. `None` before
    /// the first chunk of its section.
    pub fn current(&mut self, hash: u64, namespace: &Namespace, key: Key<'_>) -> Option<u64> {
        let cursor = self.find(hash, namespace.id, key).copied();
        let place = match cursor {
            Some(cursor) => cursor.section,
            None => *self.shared.get(&namespace.section_of(key))?,
        };
        let section = self.sections.get(place as usize)?;
        section.current(cursor.as_ref(), namespace.config.lattice())
    }

    /// Section number `place`.
    pub fn section(&mut self, place: u32) -> Option<&mut Section> {
        self.sections.get_mut(place as usize)
    }

    /// Has the keys of section number `place` ask it before they go on.
    pub fn consult(&mut self, place: u32) {
        let cursors = self.ids.iter_mut().map(|slot| &mut slot.cursor);
        cursors
            .chain(self.names.iter_mut().map(|slot| &mut slot.cursor))
            .filter(|cursor| cursor.section == place)
            .for_each(Cursor::consult);
    }

    /// The sections, for whoever waits at them to be told that they are gone.
    pub fn into_sections(self) -> Vec<Section> {
        self.sections
    }

    /// Empties the shard and says what was used of each section that has numbers left.
    pub fn close(&mut self, lattice: impl Fn(NamespaceId) -> Option<Lattice>) -> Vec<Used> {
        let closed = std::mem::take(self);
        let lattices: Vec<Option<Lattice>> = (closed.sections.iter())
            .map(|section| lattice(section.id.namespace).filter(|_| section.has_left(0)))
            .collect();
        // The last number of a key, if it was asked for in this term.
        let last = |cursor: &Cursor| {
            let place = cursor.section as usize;
            let lattice = lattices[place]?;
            let section = &closed.sections[place];
            let taken = cursor.last(section.lowest(lattice)?, lattice.increment);
            Some((place, taken.unwrap_or(section.floor()), lattice))
        };
        let cursors = || {
            let names = closed.names.iter().map(|slot| &slot.cursor);
            closed.ids.iter().map(|slot| &slot.cursor).chain(names)
        };
        let mut used: Vec<(u64, u64)> = (closed.sections.iter())
            .map(|section| (section.floor(), 0))
            .collect();
        for (place, last, _) in cursors().filter_map(last) {
            used[place].0 = used[place].0.max(last);
        }
        for (place, last, lattice) in cursors().filter_map(last) {
            used[place].1 += lattice.count_between(last, used[place].0);
        }
        (closed.sections.into_iter().zip(used).zip(&lattices))
            .filter(|((section, (last, _)), lattice)| lattice.is_some() && section.has_left(*last))
            .map(|((section, (last, lost)), _)| Used {
                section: section.id,
                last,
                lost,
            })
            .collect()
    }

    #[inline]
    fn find(&mut self, hash: u64, namespace: NamespaceId, key: Key<'_>) -> Option<&mut Cursor> {
        match key {
            Key::Id(id) => {
                let same =
                    |slot: &Slot<u64>| slot.key == id && slot.cursor.namespace == namespace.0;
                self.ids.find_mut(hash, same).map(|slot| &mut slot.cursor)
            }
            Key::Name(name) => {
                let same = |slot: &Slot<Box<[u8]>>| {
                    *slot.key == *name && slot.cursor.namespace == namespace.0
                };
                self.names.find_mut(hash, same).map(|slot| &mut slot.cursor)
            }
        }
    }

    /// The first touch of a key in this term.
    #[cold]
    fn insert(&mut self, hasher: &Hasher, hash: u64, namespace: &Namespace, key: Key<'_>) {
        let id = namespace.section_of(key);
        let is_shared = namespace.config.section_size > 1;
        let known = self.shared.get(&id).copied().filter(|_| is_shared);
        let place = known.unwrap_or_else(|| {
            let place =
                u32::try_from(self.sections.len()).expect("memory ends before 2^32 sections");
            if is_shared {
                self.shared.insert(id.clone(), place);
            }
            self.sections.push(Section::new(id, &namespace.config));
            place
        });
        let cursor = Cursor::new(namespace.id.0, place);
        match key {
            Key::Id(key) => {
                let slot = Slot { key, cursor };
                let rehash = |slot: &Slot<u64>| hasher.id(slot.cursor.namespace, slot.key);
                self.ids.insert_unique(hash, slot, rehash);
            }
            Key::Name(name) => {
                let key = name.into();
                let slot = Slot { key, cursor };
                let rehash = |slot: &Slot<Box<[u8]>>| hasher.name(slot.cursor.namespace, &slot.key);
                self.names.insert_unique(hash, slot, rehash);
            }
        }
    }
}

/// The shard of a key: of its section's, so that they are together.
#[inline]
pub fn shard_of(hasher: &Hasher, hash: u64, namespace: &Namespace, key: Key<'_>) -> u64 {
    match (key, namespace.config.section_size) {
        (Key::Id(_), 1) | (Key::Name(_), _) => hash,
        (Key::Id(id), size) => hasher.shared(namespace.id, id / size),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        clock::Instant,
        sequence::{Chunk, KeyKind, NamespaceConfig, NamespaceId},
    };

    /// A namespace and the one shard that all of its keys are in.
    struct One {
        namespace: Namespace,
        hasher: Hasher,
        shard: Shard,
    }

    impl One {
        fn new(change: impl FnOnce(&mut NamespaceConfig)) -> One {
            let mut config = NamespaceConfig::new("book");
            change(&mut config);
            One {
                namespace: Namespace {
                    id: NamespaceId(1),
                    config,
                },
                hasher: Hasher::default(),
                shard: Shard::default(),
            }
        }

        fn take(&mut self, key: Key<'_>, count: u64) -> (Take, u32) {
            let hash = self.hasher.key(self.namespace.id, key);
            self.shard
                .take(&self.hasher, hash, &self.namespace, key, count)
        }

        fn took(&mut self, key: Key<'_>, count: u64) -> (u64, u64) {
            match self.take(key, count).0 {
                Take::Range { range, .. } => (range.first, range.last),
                other => panic!("expected numbers, got {other:?}"),
            }
        }

        fn current(&mut self, key: Key<'_>) -> Option<u64> {
            let hash = self.hasher.key(self.namespace.id, key);
            self.shard.current(hash, &self.namespace, key)
        }

        /// The first touch, and the chunk that it leads to.
        fn grant(&mut self, key: Key<'_>, old: u64, new: u64) {
            let (_, place) = self.take(key, 1);
            let chunk = Chunk { old, new, left: 0 };
            let section = self.shard.section(place).unwrap();
            if section.grant(
                chunk,
                &self.namespace.config,
                Instant::from_nanos(1),
                Duration::ZERO,
            ) {
                self.shard.consult(place);
            }
        }

        fn close(&mut self) -> Vec<(SectionId, u64, u64)> {
            let lattice = self.namespace.config.lattice();
            let used = self.shard.close(|_| Some(lattice));
            used.into_iter()
                .map(|used| (used.section, used.last, used.lost))
                .collect()
        }
    }

    const KEY: Key<'static> = Key::Id(7);

    #[test]
    fn a_slot_of_an_id_is_half_a_cache_line() {
        assert_eq!(size_of::<Slot<u64>>(), 32);
    }

    #[test]
    fn keys_of_a_shared_section_stand_at_the_floor_and_grow_apart() {
        let mut one = One::new(|config| config.section_size = 100);
        one.grant(Key::Id(1), 500, 550);
        assert_eq!(one.took(Key::Id(1), 10), (501, 510));
        assert_eq!(one.took(Key::Id(2), 2), (501, 502));
        assert_eq!(one.current(Key::Id(3)), Some(500));
        assert_eq!(one.current(Key::Id(100)), None, "another section");
        let section = one.namespace.section_of(Key::Id(1));
        assert_eq!(one.close(), [(section, 510, 8)]);
    }

    #[test]
    fn a_chunk_that_is_not_adjacent_lifts_every_key_of_its_section() {
        let mut one = One::new(|config| config.section_size = 100);
        one.grant(Key::Id(1), 0, 10);
        assert_eq!(one.took(Key::Id(1), 2), (1, 2));
        assert_eq!(one.took(Key::Id(2), 1), (1, 1));
        one.grant(Key::Id(3), 20, 30);
        assert_eq!(one.took(Key::Id(1), 1), (21, 21));
        assert_eq!(one.took(Key::Id(2), 1), (21, 21));
    }

    #[test]
    fn what_was_used_above_a_maximum_that_was_lowered_is_not_forgotten() {
        let mut one = One::new(|_| ());
        one.grant(KEY, 50, 100);
        assert_eq!(one.took(KEY, 10), (51, 60));
        one.namespace.config.max = 40;
        assert_eq!(one.current(KEY), Some(60));
        let section = one.namespace.section_of(KEY);
        assert_eq!(one.close(), [(section, 60, 0)]);
    }

    #[test]
    fn names_and_ids_of_one_namespace_and_the_same_key_of_two_do_not_meet() {
        let mut one = One::new(|config| config.key_kind = KeyKind::Name);
        let name = 7u64.to_le_bytes();
        one.grant(Key::Name(&name), 0, 100);
        assert_eq!(one.took(Key::Name(&name), 3), (1, 3));
        one.namespace.id = NamespaceId(2);
        assert!(matches!(one.take(Key::Name(&name), 1).0, Take::Wait { .. }));
        assert!(matches!(one.take(KEY, 1).0, Take::Wait { .. }));
    }

    #[test]
    fn many_keys_stay_apart_while_the_tables_grow() {
        let mut one = One::new(|_| ());
        for id in 0..5_000 {
            one.grant(Key::Id(id), id, id + 100);
        }
        for id in 0..5_000 {
            assert_eq!(one.took(Key::Id(id), 1).0, id + 1);
        }
    }

    #[test]
    fn closing_an_untouched_or_used_up_section_trims_nothing() {
        let mut one = One::new(|_| ());
        let _ = one.take(KEY, 1);
        assert_eq!(one.close(), []);
        one.grant(KEY, 0, 10);
        let _ = one.take(KEY, 10);
        assert_eq!(one.close(), []);
        one.grant(KEY, 0, 10);
        let section = one.namespace.section_of(KEY);
        assert_eq!(one.close(), [(section, 0, 0)]);
    }

    #[test]
    fn what_was_used_in_a_namespace_that_is_not_known_is_not_told() {
        let mut one = One::new(|_| ());
        one.grant(KEY, 0, 10);
        assert_eq!(one.took(KEY, 2), (1, 2));
        assert_eq!(one.shard.close(|_| None), []);
    }
}
