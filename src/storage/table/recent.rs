//! The records of sections that were written lately, in memory, so that a new leader finds them without reading
//! the disk.
//!
//! Invariant: a record found here is the section's record in the table, but for its floor, which is not kept.

use std::{
    hash::BuildHasher,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::Mutex;

use crate::sequence::{NamespaceId, SectionId, SectionKey, SectionRecord};

/// How many locks the records are spread over. A power of two.
const PARTS: usize = 64;

/// How many bytes a record takes: its slot, and its share of an index that is at least 7/16 full, with 5 bytes (a
/// number and a tag) for each place. The name of a section with a name takes as many bytes more.
pub const RECORD_BYTES: usize = size_of::<Slot>() + 5 * 16 / 7;

/// The records of sections that were written lately. A record that was not written again for long gives way to a
/// new one.
pub struct RecentRecords {
    parts: Vec<Mutex<Part>>,
    hasher: DefaultHashBuilder,
    /// The term that this node leads; 0 for none.
    own_term: AtomicU64,
}

/// Some of the records: a ring of slots, and an index of them.
#[derive(Default)]
struct Part {
    slots: Vec<Slot>,
    index: HashTable<u32>,
    slots_max: usize,
    /// The slot that gives way next.
    hand: usize,
}

struct Slot {
    key: SectionKey,
    namespace: NamespaceId,
    /// True if the record was written again since the hand passed it.
    written_again: bool,
    max_seq: u64,
    lift: u64,
    step: u64,
    unused_max: u64,
}

impl RecentRecords {
    /// Room for as many records as `bytes` hold.
    pub fn new(bytes: usize) -> Self {
        let slots_max = (bytes / RECORD_BYTES / PARTS).min(u32::MAX as usize);
        let part = || {
            Mutex::new(Part {
                slots_max,
                ..Part::default()
            })
        };
        RecentRecords {
            parts: (0..PARTS).map(|_| part()).collect(),
            hasher: DefaultHashBuilder::default(),
            own_term: AtomicU64::new(0),
        }
    }

    /// This node leads `term`. The term's memory knows the sections that the term writes: their records are not
    /// added here, so that a key does not take memory twice.
    pub fn leading(&self, term: u64) {
        self.own_term.store(term, Relaxed);
    }

    /// The record of a section, if it is here and older than lift number `lift`. Its floor is not kept; nobody needs
    /// that of an older record.
    pub fn find(&self, id: &SectionId, lift: u64) -> Option<SectionRecord> {
        let hash = self.hash(id.namespace, &id.key);
        let part = self.part(hash).lock();
        let place = *part
            .index
            .find(hash, |&place| part.slots[place as usize].is(id))?;
        let slot = &part.slots[place as usize];
        (slot.lift < lift).then_some(SectionRecord {
            max_seq: slot.max_seq,
            floor: slot.max_seq,
            lift: slot.lift,
            step: slot.step,
            unused_max: slot.unused_max,
        })
    }

    /// Notes that an entry of `term` wrote this record.
    pub fn written(&self, id: SectionId, record: SectionRecord, term: u64) {
        let may_add = term != self.own_term.load(Relaxed);
        let hash = self.hash(id.namespace, &id.key);
        self.part(hash)
            .lock()
            .write(hash, id, record, may_add, |slot| {
                self.hash(slot.namespace, &slot.key)
            });
    }

    /// Forgets all records.
    pub fn clear(&self) {
        for part in &self.parts {
            let mut part = part.lock();
            let slots_max = part.slots_max;
            *part = Part {
                slots_max,
                ..Part::default()
            };
        }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().slots.len()).sum()
    }

    fn hash(&self, namespace: NamespaceId, key: &SectionKey) -> u64 {
        self.hasher.hash_one((namespace, key))
    }

    fn part(&self, hash: u64) -> &Mutex<Part> {
        // Bits from the middle: the index uses the lowest and the highest ones.
        &self.parts[(hash >> 32) as usize % PARTS]
    }
}

impl Part {
    fn write(
        &mut self,
        hash: u64,
        id: SectionId,
        record: SectionRecord,
        may_add: bool,
        rehash: impl Fn(&Slot) -> u64,
    ) {
        let found = self
            .index
            .find(hash, |&place| self.slots[place as usize].is(&id));
        if let Some(&place) = found {
            let slot = &mut self.slots[place as usize];
            slot.written_again = true;
            slot.set(record);
            return;
        }
        if !may_add || self.slots_max == 0 {
            return;
        }
        let place = self.free_place(&rehash);
        let slot = Slot::new(id, record);
        match self.slots.get_mut(place) {
            Some(old) => *old = slot,
            None => self.slots.push(slot),
        }
        let slots = &self.slots;
        self.index
            .insert_unique(hash, place as u32, |&place| rehash(&slots[place as usize]));
    }

    /// A place for a new slot: behind the last one, or that of a record that was not written again for a whole
    /// round of the hand.
    fn free_place(&mut self, rehash: impl Fn(&Slot) -> u64) -> usize {
        if self.slots.len() < self.slots_max {
            return self.slots.len();
        }
        loop {
            let place = self.hand;
            self.hand = (place + 1) % self.slots.len();
            let slot = &mut self.slots[place];
            if std::mem::take(&mut slot.written_again) {
                continue;
            }
            let hash = rehash(slot);
            if let Ok(entry) = self
                .index
                .find_entry(hash, |&other| other as usize == place)
            {
                entry.remove();
            }
            return place;
        }
    }
}

impl Slot {
    fn new(SectionId { namespace, key }: SectionId, record: SectionRecord) -> Self {
        let mut slot = Slot {
            key,
            namespace,
            written_again: false,
            max_seq: 0,
            lift: 0,
            step: 0,
            unused_max: 0,
        };
        slot.set(record);
        slot
    }

    fn set(&mut self, record: SectionRecord) {
        self.max_seq = record.max_seq;
        self.lift = record.lift;
        self.step = record.step;
        self.unused_max = record.unused_max;
    }

    fn is(&self, id: &SectionId) -> bool {
        self.namespace == id.namespace && self.key == id.key
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn id(key: u64) -> SectionId {
        SectionId {
            namespace: NamespaceId(1),
            key: match key % 3 {
                0 => SectionKey::Name(key.to_string().into_bytes().into()),
                _ => SectionKey::Id(key),
            },
        }
    }

    fn record(max_seq: u64) -> SectionRecord {
        SectionRecord {
            max_seq,
            floor: max_seq,
            lift: 1,
            step: 10,
            unused_max: 5,
        }
    }

    #[test]
    fn a_record_takes_as_many_bytes_as_the_settings_page_says() {
        assert_eq!(RECORD_BYTES, 67);
    }

    #[test]
    fn the_memory_is_bounded_and_holds_the_last_record_of_each_section_or_none() {
        let recent = RecentRecords::new(PARTS * 10 * RECORD_BYTES);
        let mut table = HashMap::new();
        for step in 0..20_000u64 {
            let key = step * step % 1_777;
            table.insert(key, record(step));
            recent.written(id(key), record(step), 1);
        }
        assert!(recent.len() <= PARTS * 10, "{}", recent.len());
        let found = table.iter().filter(|(key, record)| {
            let found = recent.find(&id(**key), 2);
            assert!(found.is_none_or(|found| found == **record));
            found.is_some()
        });
        let found = found.count();
        assert_eq!(found, recent.len(), "every slot is found by its section");
        recent.clear();
        assert_eq!((recent.len(), recent.find(&id(1), 2)), (0, None));
    }

    #[test]
    fn what_is_written_again_stays_and_what_is_not_gives_way() {
        let recent = RecentRecords::new(PARTS * 10 * RECORD_BYTES);
        for key in 0..100_000 {
            recent.written(id(key), record(key), 1);
            recent.written(id(7), record(key), 1);
        }
        assert_eq!(recent.find(&id(7), 2), Some(record(99_999)));
        assert_eq!(recent.find(&id(8), 2), None);
    }

    #[test]
    fn the_leaders_own_term_adds_no_record_but_none_becomes_stale() {
        let recent = RecentRecords::new(1 << 20);
        recent.written(id(1), record(10), 4);
        recent.leading(5);
        recent.written(id(1), record(20), 5);
        recent.written(id(2), record(20), 5);
        assert_eq!(recent.find(&id(1), 2), Some(record(20)));
        assert_eq!(recent.find(&id(2), 2), None);
        recent.written(id(2), record(30), 6);
        assert_eq!(recent.find(&id(2), 2), Some(record(30)));
        assert_eq!(recent.find(&id(2), 1), None, "it lacks its floor");
    }
}
