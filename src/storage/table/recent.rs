//! The records of sections that may be used next, in memory, so that a new leader finds them without reading the
//! disk, and the state machine without a lookup in the database.
//!
//! Invariant: a record found here is the section's record in the table, but for its floor and for when it was
//! written, which are not kept.
//!
//! Once a record is in the table, the state machine tells of it here (`written`), one record at a time.
//! A *fill* adds records that were written before (`begin_fill`, `fill`; `records_fill.rs`). It reads them from the
//! table while the state machine goes on, and a newer record may be written between the read and the addition. The
//! leader's own term does not even add its records here, but for those of gapless keys. Still no old record stays:
//!
//! - Each part counts what was written and is not here: `missed`. The fill notes the count *before* it reads the
//!   table. It adds a record only if the section has none here and the count is the same.
//! - The lock of the section's part puts every call of `written` for the section in one of three places. *Before the
//!   count was noted*: the table had that record when the fill read it. *Between the two*: the record is here, so that
//!   nothing is added, or it is not, and the count has changed. *After the addition*: it replaces what was added, in
//!   the own term, too.
//! - A snapshot replaces the table. Then readers are shown the new records first, and `clear` follows. A fill that
//!   noted the count after `clear` reads the new table. Otherwise the count has changed, or what was added is cleared.
//!
//! No lock is held while the disk is read: if the disk hangs, the fill waits, and nobody else does.

use std::{
    hash::BuildHasher,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;

use super::recent_part::{RECORD_BYTES, RecentPart, RecordSlot};
use crate::{
    ordered_watch,
    sequence::{NamespaceId, SectionId, SectionKey, SectionRecord},
};

/// How many locks the records are spread over. A power of two.
const PARTS: usize = 64;

/// The records of sections that may be used next. A record that was not written again for long gives way to a new
/// one.
pub struct RecentRecords {
    parts: Vec<Mutex<RecentPart>>,
    hasher: DefaultHashBuilder,
    /// The last term that this node led; 0 for none.
    own_term: AtomicU64,
    cleared: ordered_watch::Sender<u64>,
}

/// The count of misses of each part before a fill began to read the table.
pub struct BeforeRead([u64; PARTS]);

/// A newer record may have been written since the table was read: it must be read again.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadAgain;

impl RecentRecords {
    /// Room for as many records as `bytes` hold.
    pub fn new(bytes: usize) -> Self {
        let slots_max = (bytes / RECORD_BYTES / PARTS).min(u32::MAX as usize);
        let part = || Mutex::new(RecentPart::new(slots_max));
        RecentRecords {
            parts: (0..PARTS).map(|_| part()).collect(),
            hasher: DefaultHashBuilder::default(),
            own_term: AtomicU64::new(0),
            cleared: ordered_watch::Sender::default(),
        }
    }

    /// This node leads `term`. The term's memory knows the sections that the term writes: their records are not
    /// added here, so that a key does not take memory twice.
    pub fn leading(&self, term: u64) {
        self.own_term.store(term, Relaxed);
    }

    /// True if this process led `term`, and has opened no later one.
    pub fn leads_last(&self, term: u64) -> bool {
        self.own_term.load(Relaxed) == term
    }

    /// The record of a section, if it is here and older than `epoch`. Its floor is not kept; nobody needs
    /// that of an older record. Nor is the time.
    pub fn find(&self, id: &SectionId, epoch: u64) -> Option<SectionRecord> {
        let hash = self.hash(id.namespace, &id.key);
        let part = self.parts[part_of(hash)].lock();
        let record = part.find(hash, id)?.record();
        (record.epoch < epoch).then_some(record)
    }

    /// As [`RecentRecords::find`], for many sections, in their order. Those of a part are looked up under one lock, so
    /// that the processor overlaps their cache misses: nothing that waits for one comes between them.
    pub fn find_many(&self, ids: &[SectionId], epoch: u64) -> Vec<Option<SectionRecord>> {
        let hash = |id: &SectionId| self.hash(id.namespace, &id.key);
        let mut places: Vec<(usize, u64, usize)> = (ids.iter().map(hash).enumerate())
            .map(|(place, hash)| (part_of(hash), hash, place))
            .collect();
        places.sort_unstable_by_key(|(part, ..)| *part);
        let mut records = vec![None; ids.len()];
        for of_part in places.chunk_by(|one, next| one.0 == next.0) {
            let part = self.parts[of_part[0].0].lock();
            for &(_, hash, place) in of_part {
                let record = part.find(hash, &ids[place]).map(RecordSlot::record);
                records[place] = record.filter(|record| record.epoch < epoch);
            }
        }
        records
    }

    /// Notes that this record was written. It is in the table already. `known_to` is the term whose memory knows the
    /// section: the one that wrote it, unless it is that of a gapless key.
    pub fn written(&self, id: SectionId, record: SectionRecord, known_to: Option<u64>) {
        let may_add = known_to != Some(self.own_term.load(Relaxed));
        let hash = self.hash(id.namespace, &id.key);
        let mut part = self.parts[part_of(hash)].lock();
        part.write(hash, id, record, may_add, self.rehash());
    }

    /// To be called before records are read from the table that may be added. `None` if there is no room for any.
    pub fn begin_fill(&self) -> Option<BeforeRead> {
        let (mut has_room, mut missed) = (false, [0; PARTS]);
        for (part, missed) in self.parts.iter().zip(&mut missed) {
            let part = part.lock();
            has_room |= !part.is_full();
            *missed = part.missed();
        }
        has_room.then_some(BeforeRead(missed))
    }

    /// Adds a record that was read from the table after `before` was noted, if the section has none here and there
    /// is room.
    ///
    /// # Errors
    /// [`ReadAgain`] if the record may be old.
    pub fn fill(
        &self, id: SectionId, record: SectionRecord, before: &BeforeRead,
    ) -> Result<(), ReadAgain> {
        let hash = self.hash(id.namespace, &id.key);
        let number = part_of(hash);
        let mut part = self.parts[number].lock();
        if part.is_full() || part.find(hash, &id).is_some() {
            return Ok(());
        }
        if part.missed() != before.0[number] {
            return Err(ReadAgain);
        }
        part.add(hash, id, record, self.rehash());
        Ok(())
    }

    /// Forgets all records. Readers have been shown another table before.
    pub fn clear(&self) {
        self.parts.iter().for_each(|part| part.lock().clear());
        self.cleared.send_modify(|times| *times += 1);
    }

    /// Counts how often all records were forgotten.
    pub fn cleared(&self) -> ordered_watch::Receiver<u64> {
        self.cleared.subscribe()
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }

    fn hash(&self, namespace: NamespaceId, key: &SectionKey) -> u64 {
        self.hasher.hash_one((namespace, key))
    }

    fn rehash(&self) -> impl Fn(&RecordSlot) -> u64 {
        |slot| {
            let (namespace, key) = slot.id();
            self.hash(namespace, key)
        }
    }
}

/// The number of the part of a section with this hash.
fn part_of(hash: u64) -> usize {
    // Bits from the middle: the index uses the lowest and the highest ones.
    (hash >> 32) as usize % PARTS
}

#[cfg(test)]
mod tests;
