//! Some of the records in memory: a ring of slots, and an index of them.
//!
//! Invariant: whatever was written and is not here was counted by `missed` after it was written.

use hashbrown::HashTable;

use crate::{
    planted_bugs::{Bug, is_planted},
    sequence::{NamespaceId, SectionId, SectionKey, SectionRecord},
};

/// How many bytes a record takes: its slot, whether it was written again, and its share of an index that is at least 7/16
/// full, with 5 bytes (a number and a tag) for each place. The name of a section with a name takes as many bytes more.
pub const RECORD_BYTES: usize = size_of::<RecordSlot>() + size_of::<bool>() + 5 * 16 / 7;

/// Some of the records: a ring of slots, and an index of them.
#[derive(Default)]
pub struct RecentPart {
    slots: Vec<RecordSlot>,
    /// For each slot: true if the record was written again since the hand passed it.
    written_again: Vec<bool>,
    index: HashTable<u32>,
    slots_max: usize,
    /// The slot that gives way next.
    hand: usize,
    /// Counts what was written and is not here: records that were not added, gave way, or were forgotten.
    missed: u64,
}

/// A section's record, but for its floor, and for when it was written.
pub struct RecordSlot {
    key: SectionKey,
    namespace: NamespaceId,
    epoch: u32,
    max_seq: u64,
    step: u64,
    unused_max: u64,
    skipped: u64,
}

impl RecentPart {
    /// Room for `slots_max` records.
    pub fn new(slots_max: usize) -> Self {
        RecentPart { slots_max, ..RecentPart::default() }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if a new record would take the place of another one.
    pub fn is_full(&self) -> bool {
        self.slots.len() >= self.slots_max
    }

    /// Counts what was written and is not here.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The section's slot.
    pub fn find(&self, hash: u64, id: &SectionId) -> Option<&RecordSlot> {
        self.place(hash, id).map(|place| &self.slots[place])
    }

    /// Takes in a record that was written. One that is not here is added if `may_add`.
    pub fn write(
        &mut self, hash: u64, id: SectionId, record: SectionRecord, may_add: bool,
        rehash: impl Fn(&RecordSlot) -> u64,
    ) {
        let Ok(epoch) = u32::try_from(record.epoch) else {
            // A slot has no room for it. No cluster has that many leader changes.
            return self.clear();
        };
        if let Some(place) = self.place(hash, &id) {
            self.written_again[place] = true;
            let record = match is_planted(Bug::StepInMemoryStays) {
                false => record,
                true => SectionRecord { step: self.slots[place].record().step, ..record },
            };
            self.slots[place].set(record, epoch);
        } else if may_add && self.slots_max > 0 {
            self.add(hash, id, record, rehash);
        } else {
            self.missed += 1;
        }
    }

    /// Adds a record that is not here.
    pub fn add(
        &mut self, hash: u64, id: SectionId, record: SectionRecord,
        rehash: impl Fn(&RecordSlot) -> u64,
    ) {
        let Ok(epoch) = u32::try_from(record.epoch) else {
            return self.clear();
        };
        let place = self.free_place(&rehash);
        let slot = RecordSlot::new(id, record, epoch);
        match self.slots.get_mut(place) {
            Some(old) => *old = slot,
            None => {
                self.slots.push(slot);
                self.written_again.push(false);
            }
        }
        let slots = &self.slots;
        self.index.insert_unique(hash, place as u32, |&place| rehash(&slots[place as usize]));
    }

    /// Forgets all records.
    pub fn clear(&mut self) {
        *self = RecentPart {
            slots_max: self.slots_max,
            missed: self.missed + 1,
            ..RecentPart::default()
        };
    }

    fn place(&self, hash: u64, id: &SectionId) -> Option<usize> {
        let is_it = |&place: &u32| self.slots[place as usize].is(id);
        self.index.find(hash, is_it).map(|&place| place as usize)
    }

    /// A place for a new slot: behind the last one, or that of a record that was not written again for a whole
    /// round of the hand.
    fn free_place(&mut self, rehash: impl Fn(&RecordSlot) -> u64) -> usize {
        if !self.is_full() {
            return self.slots.len();
        }
        self.missed += 1;
        loop {
            let place = self.hand;
            self.hand = (place + 1) % self.slots.len();
            if std::mem::take(&mut self.written_again[place]) {
                continue;
            }
            let hash = rehash(&self.slots[place]);
            if let Ok(entry) = self.index.find_entry(hash, |&other| other as usize == place) {
                entry.remove();
            }
            return place;
        }
    }
}

impl RecordSlot {
    fn new(SectionId { namespace, key }: SectionId, record: SectionRecord, epoch: u32) -> Self {
        let mut slot =
            RecordSlot { key, namespace, epoch, max_seq: 0, step: 0, unused_max: 0, skipped: 0 };
        slot.set(record, epoch);
        slot
    }

    /// The namespace and the key of the section.
    pub fn id(&self) -> (NamespaceId, &SectionKey) {
        (self.namespace, &self.key)
    }

    /// The record. Its ceiling stands for its floor, and 0 for the time.
    pub fn record(&self) -> SectionRecord {
        SectionRecord {
            max_seq: self.max_seq,
            floor: self.max_seq,
            epoch: self.epoch.into(),
            step: self.step,
            unused_max: self.unused_max,
            skipped: self.skipped,
            written_ms: 0,
        }
    }

    fn set(&mut self, record: SectionRecord, epoch: u32) {
        self.max_seq = record.max_seq;
        self.epoch = epoch;
        self.step = record.step;
        self.unused_max = record.unused_max;
        self.skipped = record.skipped;
    }

    fn is(&self, id: &SectionId) -> bool {
        self.namespace == id.namespace && self.key == id.key
    }
}
