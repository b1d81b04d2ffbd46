//! Takes numbers of many keys. The keys of a shard are taken one after the other under one lock. Nothing that waits for
//! the memory comes between them, so that the processor overlaps their cache misses.

use std::ops::Range;

use super::{Memory, MemoryPlace, Need};
use crate::{
    allocator::{key_table::hasher::SHARDS, section::answers::TakeAnswer},
    sequence::{Key, Namespace, SectionId, SectionRecord},
};

/// How many keys of a request are taken, raised, or looked up, before other tasks get their turn: those of a first touch
/// cost a microsecond or two each. They are spread over the shards together; a shard's lock is held for some 16 of them.
pub const KEYS_AT_ONCE: usize = 1_024;
/// Fewer keys are taken one by one.
const TOGETHER_MIN: usize = 16;

/// The keys of a message, by their places in it, and how many numbers each wants.
pub struct KeyBatch<'a, F> {
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
    /// The shard's count of evictions before the record was looked up.
    evictions: u64,
}

impl Memory {
    /// Takes the numbers of the keys at `places`, at most [`KEYS_AT_ONCE`], or waits for them, and has `note` note what
    /// each place got. A key that comes twice is served in the order of its places. Returns what sections need now.
    pub fn take_many<'k, F: Fn(usize) -> (Key<'k>, u64)>(
        &self, asked: &KeyBatch<'_, F>, places: Range<usize>,
        mut note: impl FnMut(usize, u64, TakeAnswer),
    ) -> Vec<(MemoryPlace, Need)> {
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
        &self, asked: &KeyBatch<'_, F>, places: Range<usize>,
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
        &self, shard: u32, asked: &KeyBatch<'_, F>, keys: &[Hashed],
        note: &mut impl FnMut(usize, u64, TakeAnswer), needs: &mut Vec<(MemoryPlace, Need)>,
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
                note(place, count, TakeAnswer::Done(Ok(range)));
                continue;
            }
            match self.take_known(&mut locked, (hash, key), asked.namespace, count) {
                Some((answer, need)) => {
                    note(place, count, answer);
                    needs.extend(MemoryPlace::in_shard(shard, need));
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
    /// No shard is locked meanwhile. The records that were found change only if this term gets a key of the section and evicts
    /// it again. Then that section is looked up once more.
    #[cold]
    fn take_unknown<'k, F: Fn(usize) -> (Key<'k>, u64)>(
        &self, asked: &KeyBatch<'_, F>, mut keys: Vec<Unknown>,
        note: &mut impl FnMut(usize, u64, TakeAnswer), needs: &mut Vec<(MemoryPlace, Need)>,
    ) {
        let namespace = asked.namespace;
        let section = |key: &Unknown| namespace.section_of((asked.ask)(key.place).0);
        let sections: Vec<SectionId> = keys.iter().map(section).collect();
        let records = self.view.recent_records().find_many(&sections, self.epoch);
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
                needs.extend(MemoryPlace::in_shard(shard, need));
            }
        }
    }
}
