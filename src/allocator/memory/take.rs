//! Takes numbers of one key from the memory, or says what its section needs first. A key that is known to the term is found and
//! served under one lock of its shard. Only the first call for a key looks at a record, and may add the key.

use super::{Memory, MemoryPlace, Need};
use crate::{
    allocator::{outcome::Why, part::SectionPlace, section::answers::TakeAnswer, shard::Shard},
    metrics::FirstTouch,
    sequence::{Key, Namespace, SectionRecord},
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
    ) -> (TakeAnswer, Option<(MemoryPlace, Need)>) {
        let (hash, shard) = self.shards.find(namespace, key);
        let mut locked = self.shards.lock(shard);
        if let Some(range) = locked.take_fast(hash, namespace, key, count) {
            return (TakeAnswer::Done(Ok(range)), None);
        }
        let taken = self.take_known(&mut locked, (hash, key), namespace, count);
        let (answer, need) = taken.unwrap_or_else(|| {
            let find = || self.find_record(namespace, key);
            self.take_first(&mut locked, (hash, key), namespace, count, find)
        });
        (answer, MemoryPlace::in_shard(shard, need))
    }

    /// The record of a key's section, if it is in memory. The section's shard must be locked, and the section must not be in
    /// eviction: then what was released of it is in the record.
    pub(super) fn find_record(&self, namespace: &Namespace, key: Key<'_>) -> Option<SectionRecord> {
        // A section of a deleted namespace is evicted without a log entry, so its record is stale. Eviction saw the deletion
        // before it freed the shard's lock, which is held here: so it shows here, too.
        self.view.namespaces().by_id(namespace.id)?;
        let records = self.view.recent_records();
        records.find(&namespace.section_of(key), self.epoch)
    }

    /// As [`Memory::take`], within the key's shard. `None` if the key was not asked for in this term.
    pub(super) fn take_known(
        &self, shard: &mut Shard, (hash, key): (u64, Key<'_>), namespace: &Namespace, count: u64,
    ) -> Option<(TakeAnswer, Option<(SectionPlace, Need)>)> {
        let (answer, place) = shard.take(hash, namespace, key, count)?;
        let need = place.and_then(|place| self.need_at(shard, place, namespace, key));
        Some((answer, need))
    }

    /// The first call for a key in this term. `find` finds the section's record, if it is in memory.
    #[cold]
    pub(super) fn take_first(
        &self, shard: &mut Shard, (hash, key): (u64, Key<'_>), namespace: &Namespace, count: u64,
        find: impl FnOnce() -> Option<SectionRecord>,
    ) -> (TakeAnswer, Option<(SectionPlace, Need)>) {
        let added = match self.add_key(shard, (hash, key), namespace, find) {
            Ok(added) => added,
            Err(max_mb) => return (TakeAnswer::Done(Err(Why::MemoryFull { max_mb })), None),
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
        // A term that has ended may have used numbers of the memory that it dropped, so its epoch's chunk must not be taken
        // again. While there is no room for the key, its record is read later.
        if has_nothing
            && !self.has_ended()
            && !self.room.is_full()
            && !shard.is_being_evicted(&namespace.section_of(key))
            && let Some(record) = find()
        {
            self.first_touch(shard, place, record, &namespace.config, FirstTouch::memory);
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
    /// yet, otherwise the bump. `None` while the section is being evicted: the releaser asks once the release is applied. Call
    /// this only for a section that has asked: later another section may have the place ([`Memory::next_bump`]).
    #[cold]
    pub(super) fn need_at(
        &self, shard: &mut Shard, place: SectionPlace, namespace: &Namespace, key: Key<'_>,
    ) -> Option<(SectionPlace, Need)> {
        if shard.has_chunk(place, &namespace.config) || self.has_ended() {
            return Some((place, Need::Bump));
        }
        // A call before this one may have been given up before the record was read, perhaps in the term before.
        match shard.want_evicted(&namespace.section_of(key), place) {
            true => None,
            false => Some((place, Need::Read)),
        }
    }
}
