//! Takes numbers from the memory, of one key or of many.

use std::ops::Range;

use super::{Memory, Need, Place};
use crate::{
    allocator::{
        key_table::hasher::SHARDS,
        outcome::Why,
        section::pending::Answer,
        shard::{SectionPlace, Shard},
    },
    metrics::FirstTouch as Source,
    sequence::{Key, Namespace, SectionId, SectionRecord},
};

/// How a key was added.
#[derive(Debug, Clone, Copy)]
pub(super) enum Added {
    /// The record of its section was looked at.
    WithRecord,
    /// It was not: the section has a chunk, or others wait for it, or its record is not in memory.
    WithoutRecord,
}

impl Memory {
    /// Takes the next `count` (at least 1) numbers of a key, or waits for them. Also answers the place of
    /// the section that needs something now.
    #[inline]
    pub fn take(
        &self, namespace: &Namespace, key: Key<'_>, count: u64,
    ) -> (Answer, Option<(Place, Need)>) {
        let (hash, shard) = self.shards.find(namespace, key);
        let mut locked = self.shards.lock(shard);
        if let Some(range) = locked.take_fast(hash, namespace, key, count) {
            return (Answer::Done(Ok(range)), None);
        }
        let taken = self.take_known(&mut locked, (hash, key), namespace, count);
        let (answer, need) = taken.unwrap_or_else(|| {
            let find = || self.find_record(namespace, key);
            self.take_first(&mut locked, (hash, key), namespace, count, find)
        });
        (answer, Place::in_shard(shard, need))
    }

    /// The record of a key's section, if it is in memory. The section's shard must be locked, and the section not be
    /// leaving: then what was released of it is in the record.
    pub(super) fn find_record(&self, namespace: &Namespace, key: Key<'_>) -> Option<SectionRecord> {
        // A section of a namespace that is gone is evicted without a word in the log: its record says nothing then. The
        // hand looked under the lock of the key's shard, as this does.
        self.view.namespaces().by_id(namespace.id)?;
        let records = self.view.recent_records();
        records.find(&namespace.section_of(key), self.lift)
    }

    /// As [`Memory::take`], within the key's shard. `None` if the key was not asked for in this term.
    pub(super) fn take_known(
        &self, shard: &mut Shard, (hash, key): (u64, Key<'_>), namespace: &Namespace, count: u64,
    ) -> Option<(Answer, Option<(SectionPlace, Need)>)> {
        let (answer, place) = shard.take(hash, namespace, key, count)?;
        let need = place.and_then(|place| self.need_at(shard, place, namespace, key));
        Some((answer, need))
    }

    /// The first call for a key in this term. `find` finds the section's record, if it is in memory.
    #[cold]
    fn take_first(
        &self, shard: &mut Shard, (hash, key): (u64, Key<'_>), namespace: &Namespace, count: u64,
        find: impl FnOnce() -> Option<SectionRecord>,
    ) -> (Answer, Option<(SectionPlace, Need)>) {
        let added = match self.add_key(shard, (hash, key), namespace, find) {
            Ok(added) => added,
            Err(max_mb) => return (Answer::Done(Err(Why::MemoryFull { max_mb })), None),
        };
        let taken = shard.take(hash, namespace, key, count);
        let (answer, place) = taken.expect("the key was added just now");
        let need =
            place.and_then(|place| self.need_of_added(shard, (place, added), namespace, key));
        (answer, need)
    }

    /// Adds a key that was not asked for in this term. `find` finds the section's record, if it is in memory.
    ///
    /// # Errors
    /// The memory's bound, in megabytes, if there is no room for the key. Then nothing is added: a key that is there could
    /// not go before its call is served, even if the caller has gone.
    pub(super) fn add_key(
        &self, shard: &mut Shard, (hash, key): (u64, Key<'_>), namespace: &Namespace,
        find: impl FnOnce() -> Option<SectionRecord>,
    ) -> Result<Added, u64> {
        self.admit(shard, namespace, key)?;
        let added = shard.insert(self.shards.hasher(), hash, namespace, key);
        Ok(self.note_added(shard, added, key, namespace, find))
    }

    /// As [`Memory::add_key`], for the section of a key that shares it. The key itself is not added.
    pub(super) fn add_section(
        &self, shard: &mut Shard, id: u64, namespace: &Namespace,
        find: impl FnOnce() -> Option<SectionRecord>,
    ) -> Result<Added, u64> {
        self.admit(shard, namespace, Key::Id(id))?;
        let added = shard.insert_section(namespace, id);
        Ok(self.note_added(shard, added, Key::Id(id), namespace, find))
    }

    /// Whether a key that is new to the term may be added.
    fn admit(&self, shard: &Shard, namespace: &Namespace, key: Key<'_>) -> Result<(), u64> {
        let admitted = self.room.admit(shard.first_waiters());
        admitted.or_else(|max_mb| match shard.has_chunk_for_new(namespace, key) {
            true => Ok(()),
            false => Err(max_mb),
        })
    }

    /// Notes that a key, or its section, was added at a place, and whether the term has nothing of the section.
    fn note_added(
        &self, shard: &mut Shard, (place, has_nothing): (SectionPlace, bool), key: Key<'_>,
        namespace: &Namespace, find: impl FnOnce() -> Option<SectionRecord>,
    ) -> Added {
        self.room.note_new_key();
        // What the memory of a term that has ended held may have been used: its lift's chunk must not be taken again. While there is no
        // room for the key, its record is read later.
        if has_nothing
            && !self.has_ended()
            && !self.room.is_full()
            && !shard.is_leaving(&namespace.section_of(key))
            && let Some(record) = find()
        {
            self.first_touch(shard, place, record, &namespace.config, Source::memory);
            return Added::WithRecord;
        }
        Added::WithoutRecord
    }

    /// As [`Memory::need_at`], for a key that was added just now.
    #[cold]
    pub(super) fn need_of_added(
        &self, shard: &mut Shard, (place, added): (SectionPlace, Added), namespace: &Namespace,
        key: Key<'_>,
    ) -> Option<(SectionPlace, Need)> {
        match added {
            Added::WithRecord => Some((place, Need::Bump)),
            Added::WithoutRecord => self.need_at(shard, place, namespace, key),
        }
    }

    /// Says what the section of a key, at `place`, needs after it asked for a bump: a read of its record if it has no chunk
    /// yet, otherwise the bump. `None` while the section is leaving: the releaser asks once the release is applied. Call
    /// this only for a section that has asked: later another section may have the place ([`Memory::next_bump`]).
    #[cold]
    pub(super) fn need_at(
        &self, shard: &mut Shard, place: SectionPlace, namespace: &Namespace, key: Key<'_>,
    ) -> Option<(SectionPlace, Need)> {
        if shard.has_chunk(place, &namespace.config) || self.has_ended() {
            return Some((place, Need::Bump));
        }
        // A call before this one may have been given up before the record was read, perhaps in the term before.
        match shard.want_leaving(&namespace.section_of(key), place) {
            true => None,
            false => Some((place, Need::Read)),
        }
    }
}

// Takes numbers of many keys. The keys of a shard are taken one after the other under one lock. Nothing that waits for
// the memory comes between them, so that the processor overlaps their cache misses.

/// How many keys of a request are taken, raised, or looked up, before other tasks get their turn: those of a first touch
/// cost a microsecond or two each. They are spread over the shards together; a shard's lock is held for some 16 of them.
pub const KEYS_AT_ONCE: usize = 1_024;
/// Fewer keys are taken one by one.
const TOGETHER_MIN: usize = 16;

/// The keys of a message, by their places in it, and how many numbers each wants.
pub struct Asked<'a, F> {
    /// The namespace of all keys.
    pub namespace: &'a Namespace,
    /// The key at a place, and its count (at least 1).
    pub ask: F,
}

/// A key's hash and its place in the message.
type Hashed = (u64, usize);

/// A key that was not asked for in this term before.
struct Unknown {
    shard: u32,
    hash: u64,
    place: usize,
    /// The record of its section, if it is in memory.
    record: Option<SectionRecord>,
    /// What the shard counted of sections that are evicted, before the record was looked up.
    evictions: u64,
}

impl Memory {
    /// Takes the numbers of the keys at `places`, at most [`KEYS_AT_ONCE`], or waits for them, and has `note` note what
    /// each place got. A key that comes twice is served in the order of its places. Returns what sections need now.
    pub fn take_many<'k, F: Fn(usize) -> (Key<'k>, u64)>(
        &self, asked: &Asked<'_, F>, places: Range<usize>, mut note: impl FnMut(usize, u64, Answer),
    ) -> Vec<(Place, Need)> {
        assert!(places.len() <= KEYS_AT_ONCE, "{places:?}");
        let mut needs = Vec::new();
        if places.len() < TOGETHER_MIN {
            for place in places {
                let (key, count) = (asked.ask)(place);
                let (answer, need) = self.take(asked.namespace, key, count);
                note(place, count, answer);
                needs.extend(need);
            }
            return needs;
        }
        let (keys, ends) = self.by_shard(asked, places);
        let mut unknown = Vec::new();
        let mut start = 0;
        for (shard, end) in (0..).zip(ends) {
            let keys = &keys[start..end];
            if !keys.is_empty() {
                let new = self.take_in_shard(shard, asked, keys, &mut note, &mut needs);
                unknown.extend(new);
            }
            start = end;
        }
        if !unknown.is_empty() {
            self.take_unknown(asked, unknown, &mut note, &mut needs);
        }
        needs
    }

    /// The keys at `places` in the order of their shards, those of a shard in the order of their places, and where each
    /// shard's keys end.
    fn by_shard<'k, F: Fn(usize) -> (Key<'k>, u64)>(
        &self, asked: &Asked<'_, F>, places: Range<usize>,
    ) -> (Vec<Hashed>, [usize; SHARDS as usize]) {
        let mut next = [0; SHARDS as usize];
        let mut found = Vec::with_capacity(places.len());
        for place in places.clone() {
            let (hash, shard) = self.shards.find(asked.namespace, (asked.ask)(place).0);
            next[shard as usize] += 1;
            found.push((hash, shard));
        }
        let mut begin = 0;
        for next in &mut next {
            begin += std::mem::replace(next, begin);
        }
        let mut keys = vec![(0, 0); places.len()];
        for (place, (hash, shard)) in places.zip(found) {
            let next = &mut next[shard as usize];
            keys[*next] = (hash, place);
            *next += 1;
        }
        (keys, next)
    }

    /// Takes the numbers of the keys that were asked for in this term before. Returns the others.
    fn take_in_shard<'k, F: Fn(usize) -> (Key<'k>, u64)>(
        &self, shard: u32, asked: &Asked<'_, F>, keys: &[Hashed],
        note: &mut impl FnMut(usize, u64, Answer), needs: &mut Vec<(Place, Need)>,
    ) -> Vec<Unknown> {
        let mut unknown = Vec::new();
        let mut locked = self.shards.lock(shard);
        if let Some(&(_, first)) = keys.first() {
            let like = (asked.ask)(first).0;
            locked.touch(asked.namespace, like, keys.iter().map(|(hash, _)| *hash));
        }
        for &(hash, place) in keys {
            let (key, count) = (asked.ask)(place);
            if let Some(range) = locked.take_fast(hash, asked.namespace, key, count) {
                note(place, count, Answer::Done(Ok(range)));
                continue;
            }
            match self.take_known(&mut locked, (hash, key), asked.namespace, count) {
                Some((answer, need)) => {
                    note(place, count, answer);
                    needs.extend(Place::in_shard(shard, need));
                }
                None => unknown.push(Unknown {
                    shard,
                    hash,
                    place,
                    record: None,
                    evictions: locked.evictions(),
                }),
            }
        }
        unknown
    }

    /// Takes the numbers of keys that were not asked for in this term before; those of a shard follow one another. The
    /// records of all are looked up together, so that these cache misses overlap, too.
    ///
    /// No shard is locked meanwhile. What was found changes only if this term gets a key of the section and evicts it
    /// again. Then it is looked up once more.
    #[cold]
    fn take_unknown<'k, F: Fn(usize) -> (Key<'k>, u64)>(
        &self, asked: &Asked<'_, F>, mut keys: Vec<Unknown>,
        note: &mut impl FnMut(usize, u64, Answer), needs: &mut Vec<(Place, Need)>,
    ) {
        let namespace = asked.namespace;
        let section = |key: &Unknown| namespace.section_of((asked.ask)(key.place).0);
        let sections: Vec<SectionId> = keys.iter().map(section).collect();
        let records = self.view.recent_records().find_many(&sections, self.lift);
        for (key, record) in keys.iter_mut().zip(records) {
            key.record = record;
        }
        for of_shard in keys.chunk_by(|one, next| one.shard == next.shard) {
            let shard = of_shard[0].shard;
            let mut locked = self.shards.lock(shard);
            for &Unknown { hash, place, record, evictions, .. } in of_shard {
                let (key, count) = (asked.ask)(place);
                // It is known if it came before in this message, or in another one meanwhile.
                let taken = self.take_known(&mut locked, (hash, key), namespace, count);
                let is_current = locked.evictions() == evictions;
                let find = || match is_current {
                    // Of a namespace that is gone the record says nothing, as in `find_record`.
                    true => self.view.namespaces().by_id(namespace.id).and(record),
                    false => self.find_record(namespace, key),
                };
                let (answer, need) = taken.unwrap_or_else(|| {
                    self.take_first(&mut locked, (hash, key), namespace, count, find)
                });
                note(place, count, answer);
                needs.extend(Place::in_shard(shard, need));
            }
        }
    }
}
