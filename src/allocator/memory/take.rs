//! Takes numbers from the memory. A key that is new to the term takes them from the chunk that the term's lift gave, if
//! the section's record is in memory.

use super::{AnswerAndNeed, AnswerInShard, Memory, Need, Place};
use crate::{
    allocator::shard::{SectionPlace, Shard},
    metrics::FirstTouch as Source,
    sequence::{Key, Namespace, SectionId, SectionRecord},
};

impl Memory {
    /// Takes the next `count` (at least 1) numbers of a key, or waits for them. Also answers the place of
    /// the section that needs something now.
    #[inline]
    pub fn take(&self, namespace: &Namespace, key: Key<'_>, count: u64) -> AnswerAndNeed {
        let taken = self.take_or(namespace, key, count, |shard, hash| {
            let find = || {
                let records = self.view.recent_records();
                records.find(&namespace.section_of(key), self.lift)
            };
            Some(self.take_first(shard, (hash, key), namespace, count, find))
        });
        taken.expect("an unknown key is added")
    }

    /// As [`Memory::take`], if the key was asked for in this term. Otherwise `None`.
    #[inline]
    pub fn take_known(
        &self,
        namespace: &Namespace,
        key: Key<'_>,
        count: u64,
    ) -> Option<AnswerAndNeed> {
        self.take_or(namespace, key, count, |_, _| None)
    }

    /// The records, as far as they are in memory, of the sections of keys that may be unknown to this term. To look
    /// many up together takes a fraction of the time.
    pub fn look_up<'k>(
        &self,
        namespace: &Namespace,
        keys: impl Iterator<Item = Key<'k>>,
    ) -> Vec<Option<SectionRecord>> {
        let sections: Vec<SectionId> = keys.map(|key| namespace.section_of(key)).collect();
        self.view.recent_records().find_many(&sections, self.lift)
    }

    /// As [`Memory::take`], with what [`Memory::look_up`] found for the key.
    pub fn take_with(
        &self,
        namespace: &Namespace,
        key: Key<'_>,
        count: u64,
        record: Option<SectionRecord>,
    ) -> AnswerAndNeed {
        // Still the section's record if the section is new to this term: nobody else writes it.
        let taken = self.take_or(namespace, key, count, |shard, hash| {
            Some(self.take_first(shard, (hash, key), namespace, count, || record))
        });
        taken.expect("an unknown key is added")
    }

    #[inline]
    fn take_or(
        &self,
        namespace: &Namespace,
        key: Key<'_>,
        count: u64,
        take_unknown: impl FnOnce(&mut Shard, u64) -> Option<AnswerInShard>,
    ) -> Option<AnswerAndNeed> {
        let (hash, shard) = self.shards.find(namespace, key);
        let mut locked = self.shards.lock(shard);
        let (answer, need) = match locked.take(hash, namespace, key, count) {
            Some((answer, place)) => {
                let need = place.map(|place| (place, self.need_of(&locked, place, namespace)));
                (answer, need)
            }
            None => take_unknown(&mut locked, hash)?,
        };
        let need = need.map(|(section, need)| (Place { shard, section }, need));
        Some((answer, need))
    }

    /// What the section at `place` needs, for which a bump is asked for.
    #[cold]
    fn need_of(&self, shard: &Shard, place: SectionPlace, namespace: &Namespace) -> Need {
        // A call before this one may have been given up before the record was read, perhaps in the term before.
        match shard.has_chunk(place, &namespace.config) || self.is_abandoned() {
            true => Need::Bump,
            false => Need::Read,
        }
    }

    /// The first call for a key in this term. `find` finds the section's record, if it is in memory.
    #[cold]
    fn take_first(
        &self,
        shard: &mut Shard,
        (hash, key): (u64, Key<'_>),
        namespace: &Namespace,
        count: u64,
        find: impl FnOnce() -> Option<SectionRecord>,
    ) -> AnswerInShard {
        let (place, is_new) = shard.insert(self.shards.hasher(), hash, namespace, key);
        // What an abandoned memory held may have been used: its lift's chunk must not be taken again.
        let need = if is_new
            && !self.is_abandoned()
            && let Some(record) = find()
        {
            self.first_touch(shard, place, record, &namespace.config, Source::memory);
            Need::Bump
        } else {
            self.need_of(shard, place, namespace)
        };
        let taken = shard.take(hash, namespace, key, count);
        let (answer, place) = taken.expect("the key was added just now");
        (answer, place.map(|place| (place, need)))
    }
}
