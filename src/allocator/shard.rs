//! A part of the leader's memory: where the keys stand, and the sections they belong to. Pure.
//!
//! A key that is asked for costs one look into one table, whose entries are 32 bytes for an id: half a
//! cache line. The section, which knows the rest, is touched twice in a step.
//!
//! Invariant: a key and its section are in the same shard, and a place in `sections` belongs to one
//! section until the shard is emptied for good.

use std::{hash::BuildHasher, sync::Arc};

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use tokio::sync::oneshot;

use super::{
    held::{Handed, Taken},
    section::{Cursor, OwnedKey, Queue, Section, Take, Waiter, Wish},
};
use crate::{
    metrics::Metrics,
    sequence::{Key, Lattice, Namespace, NamespaceId, SectionId},
};

/// One key and where it stands.
#[derive(Debug)]
struct Slot<K> {
    key: K,
    cursor: Cursor,
}

/// Where the keys stand.
#[derive(Debug, Default)]
struct Cursors {
    ids: HashTable<Slot<u64>>,
    names: HashTable<Slot<Box<[u8]>>>,
}

/// A part of the memory.
#[derive(Debug, Default)]
pub struct Shard {
    cursors: Cursors,
    sections: Vec<Section>,
    /// Where the sections of several keys are; a key with a section of its own leads to it.
    shared: HashMap<SectionId, u32>,
}

/// What a call for numbers of a key came to.
#[derive(Debug)]
pub enum Answer {
    /// Numbers, or how many are left.
    Taken(Taken),
    /// They come later. Dropped: the term is lost.
    Later(oneshot::Receiver<Handed>),
}

/// A call that waited, and what it gets.
pub struct Served {
    waiter: Waiter,
    taken: Taken,
}

impl Served {
    /// Tells whoever waits.
    pub fn tell(self, metrics: &Arc<Metrics>) {
        let handed = Handed::new(self.taken, self.waiter.count, metrics.clone());
        // Nobody listens who gave up meanwhile: then it comes back, and is counted.
        drop(self.waiter.reply.send(handed));
    }
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

impl Cursors {
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
}

impl Shard {
    /// Takes the next `count` (at least 1) numbers of a key, or waits for them; and, where a bump must be
    /// asked for, the place of the section that it is for. `hash` is the key's.
    #[inline]
    pub fn take(
        &mut self,
        hasher: &Hasher,
        hash: u64,
        namespace: &Namespace,
        key: Key<'_>,
        count: u64,
    ) -> (Answer, Option<u32>) {
        let Some(cursor) = self.cursors.find(hash, namespace.id, key) else {
            self.insert(hasher, hash, namespace, key);
            return self.take(hasher, hash, namespace, key, count);
        };
        if let Some(range) = cursor.take(&namespace.config, count) {
            return (Answer::Taken(Ok(range)), None);
        }
        let place = cursor.section;
        let section = &mut self.sections[place as usize];
        let (answer, bump) = match section.take(cursor, &namespace.config, count) {
            Take::Range { range, bump } => (Answer::Taken(Ok(range)), bump),
            Take::Exhausted { left } => (Answer::Taken(Err(left)), false),
            Take::Wait => {
                // Whoever comes next stands behind.
                cursor.consult();
                let (reply, later) = oneshot::channel();
                let key = OwnedKey::from(key);
                let waiter = Waiter {
                    hash,
                    key,
                    count,
                    reply,
                };
                (Answer::Later(later), section.wait(waiter))
            }
        };
        (answer, bump.then_some(place))
    }

    /// By how much section number `place` is to be bumped; `None` where nobody wants it any more.
    pub fn wish(&mut self, place: u32, namespace: &Namespace) -> Option<Wish> {
        let cursors = &mut self.cursors;
        let section = self.sections.get_mut(place as usize)?;
        section.wish(&namespace.config, |section, waiter| {
            let cursor = cursors.find(waiter.hash, namespace.id, waiter.key.as_key());
            cursor.map_or(0, |cursor| section.left(cursor, &namespace.config))
        })
    }

    /// Serves those who waited for a bump of section number `place`, in their order, and adds whom to
    /// tell to `served`. True where a further bump must be asked for.
    pub fn serve(&mut self, place: u32, namespace: &Namespace, served: &mut Vec<Served>) -> bool {
        let Some(section) = self.sections.get_mut(place as usize) else {
            return false;
        };
        let mut queue = section.served();
        let mut again = false;
        while let Some(waiter) = queue.pop_front() {
            let key = waiter.key.as_key();
            let Some(cursor) = (self.cursors.find(waiter.hash, namespace.id, key))
                .filter(|_| !waiter.reply.is_closed())
            else {
                continue;
            };
            let taken = match section.take_now(cursor, &namespace.config, waiter.count) {
                Take::Range { range, bump } => {
                    again |= bump;
                    Ok(range)
                }
                Take::Exhausted { left } => Err(left),
                Take::Wait => {
                    queue.push_front(waiter);
                    break;
                }
            };
            served.push(Served { waiter, taken });
        }
        if queue.is_empty() {
            return again;
        }
        for waiter in &queue {
            // It may have been served before, and would be overtaken by itself.
            let key = waiter.key.as_key();
            if let Some(cursor) = self.cursors.find(waiter.hash, namespace.id, key) {
                cursor.consult();
            }
        }
        section.wait_on(queue);
        true
    }

    /// The last number that this term knows to be handed out for a key: 0 for none. `None` before
    /// the first chunk of its section.
    pub fn current(&mut self, hash: u64, namespace: &Namespace, key: Key<'_>) -> Option<u64> {
        let cursor = self.cursors.find(hash, namespace.id, key).copied();
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
        let Cursors { ids, names } = &mut self.cursors;
        let ids = ids.iter_mut().map(|slot| &mut slot.cursor);
        ids.chain(names.iter_mut().map(|slot| &mut slot.cursor))
            .filter(|cursor| cursor.section == place)
            .for_each(Cursor::consult);
    }

    /// Those who wait, by section.
    pub fn into_waiting(self) -> impl Iterator<Item = (SectionId, Queue)> {
        let sections = self.sections.into_iter();
        sections.filter_map(|mut section| {
            let queue = section.served();
            (!queue.is_empty()).then_some((section.id, queue))
        })
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
            let Cursors { ids, names } = &closed.cursors;
            let names = names.iter().map(|slot| &slot.cursor);
            ids.iter().map(|slot| &slot.cursor).chain(names)
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
                self.cursors.ids.insert_unique(hash, slot, rehash);
            }
            Key::Name(name) => {
                let key = name.into();
                let slot = Slot { key, cursor };
                let rehash = |slot: &Slot<Box<[u8]>>| hasher.name(slot.cursor.namespace, &slot.key);
                self.cursors.names.insert_unique(hash, slot, rehash);
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

        fn take(&mut self, key: Key<'_>, count: u64) -> (Answer, Option<u32>) {
            let hash = self.hasher.key(self.namespace.id, key);
            self.shard
                .take(&self.hasher, hash, &self.namespace, key, count)
        }

        fn took(&mut self, key: Key<'_>, count: u64) -> (u64, u64) {
            match self.take(key, count).0 {
                Answer::Taken(Ok(range)) => (range.first, range.last),
                other => panic!("expected numbers, got {other:?}"),
            }
        }

        fn current(&mut self, key: Key<'_>) -> Option<u64> {
            let hash = self.hasher.key(self.namespace.id, key);
            self.shard.current(hash, &self.namespace, key)
        }

        /// A call that waits.
        fn wait(&mut self, key: Key<'_>, count: u64) -> oneshot::Receiver<Handed> {
            match self.take(key, count).0 {
                Answer::Later(later) => later,
                other => panic!("expected to wait, got {other:?}"),
            }
        }

        /// The place of a key's section.
        fn place(&mut self, key: Key<'_>) -> u32 {
            let hash = self.hasher.key(self.namespace.id, key);
            if self
                .shard
                .cursors
                .find(hash, self.namespace.id, key)
                .is_none()
            {
                self.shard.insert(&self.hasher, hash, &self.namespace, key);
            }
            let cursor = self.shard.cursors.find(hash, self.namespace.id, key);
            cursor.unwrap().section
        }

        /// The chunk of a key's section, and whether a further bump is needed.
        fn grant(&mut self, key: Key<'_>, old: u64, new: u64) -> bool {
            let place = self.place(key);
            let chunk = Chunk { old, new, left: 0 };
            let section = self.shard.section(place).unwrap();
            let now = Instant::from_nanos(1);
            if section.grant(chunk, &self.namespace.config, now, Duration::ZERO) {
                self.shard.consult(place);
            }
            self.serve(key)
        }

        fn serve(&mut self, key: Key<'_>) -> bool {
            let place = self.place(key);
            let mut served = Vec::new();
            let again = self.shard.serve(place, &self.namespace, &mut served);
            let metrics = Metrics::new();
            served.into_iter().for_each(|one| one.tell(&metrics));
            again
        }

        fn wish(&mut self, key: Key<'_>) -> (u64, u64) {
            let place = self.place(key);
            let wish = self.shard.wish(place, &self.namespace).unwrap();
            (wish.numbers, wish.unused_max)
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

    fn handed(mut later: oneshot::Receiver<Handed>) -> Result<(u64, u64), u64> {
        let taken = later.try_recv().expect("served").accept();
        taken.map(|range| (range.first, range.last))
    }

    #[test]
    fn calls_that_wait_are_served_in_the_order_of_their_arrival_and_small_ones_do_not_overtake() {
        let mut one = One::new(|config| config.step = 100);
        one.grant(KEY, 0, 100);
        let large = one.wait(KEY, 1_000);
        // Numbers are left for them; they come after all the same.
        let small: Vec<_> = (0..50).map(|_| one.wait(KEY, 1)).collect();
        assert_eq!(one.wish(KEY), (950, 1_050), "enough for all of them");
        assert!(
            one.grant(KEY, 100, 1_050),
            "nothing is left for the next one"
        );
        assert_eq!(handed(large), Ok((1, 1_000)));
        for (n, later) in (1_001..).zip(small) {
            assert_eq!(handed(later), Ok((n, n)));
        }
    }

    #[test]
    fn a_call_that_came_while_the_bump_was_under_way_is_not_overtaken_either() {
        let mut one = One::new(|config| config.step = 100);
        let first = one.wait(KEY, 1);
        assert_eq!(one.wish(KEY), (100, 100));
        let large = one.wait(KEY, 500);
        assert!(one.grant(KEY, 0, 100), "a further bump is needed");
        assert_eq!(handed(first), Ok((1, 1)));
        let small = one.wait(KEY, 1);
        assert_eq!(one.wish(KEY), (402, 501));
        one.grant(KEY, 100, 502);
        assert_eq!(handed(large), Ok((2, 501)));
        assert_eq!(handed(small), Ok((502, 502)));
    }

    #[test]
    fn a_call_that_is_gone_takes_nothing() {
        let mut one = One::new(|config| config.step = 100);
        drop(one.wait(KEY, 60));
        let second = one.wait(KEY, 5);
        one.grant(KEY, 0, 100);
        assert_eq!(handed(second), Ok((1, 5)));
    }

    #[test]
    fn those_who_wait_at_the_end_of_the_number_space_get_what_is_left_in_their_order() {
        let mut one = One::new(|config| (config.step, config.max) = (100, 50));
        let waiting: Vec<_> = (0..60).map(|_| one.wait(KEY, 1)).collect();
        assert!(one.grant(KEY, 0, 50), "ten go on waiting");
        let place = one.place(KEY);
        one.shard.section(place).unwrap().exhaust(50);
        assert!(!one.serve(KEY));
        let got: Vec<_> = waiting.into_iter().map(handed).collect();
        for (n, got) in got.iter().enumerate() {
            let number = n as u64 + 1;
            let expected = if n < 50 { Ok((number, number)) } else { Err(0) };
            assert_eq!(*got, expected);
        }
    }

    #[test]
    fn a_maximum_raised_while_a_call_waits_at_the_old_one_serves_it() {
        let mut one = One::new(|config| (config.step, config.max) = (100, 50));
        one.grant(KEY, 0, 50);
        assert_eq!(one.took(KEY, 50), (1, 50));
        let later = one.wait(KEY, 1);
        // The bump was decided under 50, and by its answer the maximum has been raised.
        one.namespace.config.max = 1_000;
        let place = one.place(KEY);
        one.shard.section(place).unwrap().exhaust(50);
        assert!(one.serve(KEY), "asks again, under the new maximum");
        assert_eq!(one.wish(KEY), (100, 100));
        one.grant(KEY, 50, 150);
        assert_eq!(handed(later), Ok((51, 51)));
        assert_eq!(one.took(KEY, 1), (52, 52));
    }

    #[test]
    fn a_maximum_lowered_while_a_call_waits_is_told_at_once() {
        let mut one = One::new(|config| config.step = 100);
        one.grant(KEY, 0, 100);
        assert_eq!(one.took(KEY, 100), (1, 100));
        let later = one.wait(KEY, 1);
        one.namespace.config.max = 60;
        let place = one.place(KEY);
        one.shard.section(place).unwrap().exhaust(60);
        assert!(!one.serve(KEY), "no further entry");
        assert_eq!(handed(later), Err(0));
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
        drop(one.wait(Key::Name(&name), 1));
        drop(one.wait(KEY, 1));
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
