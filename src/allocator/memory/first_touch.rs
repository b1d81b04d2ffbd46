//! The first touch of a section: its record is read, and the section gets what the term's epoch gave of it. Calls that came
//! meanwhile wait at the section, and are served then.

use super::{Memory, MemoryPlace, Need};
use crate::{
    allocator::{part::SectionPlace, shard::Shard},
    metrics::FirstTouch,
    planted_bugs::{Bug, is_planted},
    sequence::{Chunk, Namespace, NamespaceConfig, SectionId, SectionRecord},
};

impl Memory {
    /// The identifier of the section at `place`, whose record is to be read, and, if nobody waits for the section, what its
    /// shard counts of sections that are evicted. `None` if nobody wants the record: the term has ended, or the
    /// section is being evicted.
    ///
    /// While calls wait for the section, it is not evicted, and they wait until the record was read: no other request of the
    /// section is under way. So its record stays as it is read.
    pub fn begin_read(&self, place: MemoryPlace) -> Option<(SectionId, Option<u64>)> {
        let shard = self.shards.lock(place.shard);
        let id = shard.section_id(place.section)?;
        let evictions = shard.is_quiet(place.section).then(|| shard.evictions());
        (!shard.is_being_evicted(&id)).then_some((id, evictions))
    }

    /// Takes in the record of the section at `place`, and serves the calls that waited for it. Says what the section needs
    /// now. If it is a new section and the disks are low, they are refused. `evictions` is what [`Memory::begin_read`]
    /// noted: if the shard counts more, the section may have been evicted since, and
    /// the record is read again.
    pub fn record_read(
        &self, place: MemoryPlace, (id, evictions): &(SectionId, Option<u64>),
        record: SectionRecord, namespace: &Namespace,
    ) -> Option<Need> {
        let mut read_again = false;
        let bump = self.serve_at(place, id, namespace, |shard, served| {
            let config = &namespace.config;
            // As in `note_added`.
            if shard.has_chunk(place.section, config) || self.has_ended() {
                return true;
            }
            // The releaser asks for the bump.
            if shard.is_being_evicted(id) {
                return false;
            }
            read_again = evictions.is_some_and(|noted| noted != shard.evictions());
            if read_again {
                return false;
            }
            if let Some(low) = self.view.limiting_disk().filter(|_| !record.exists()) {
                shard.with_waiters(place.section, |queued| queued.refuse(low, served));
                return false;
            }
            self.first_touch(shard, place.section, record, config, FirstTouch::disk);
            true
        });
        match bump {
            true => Some(Need::Bump),
            false => read_again.then_some(Need::Read),
        }
    }

    /// Gives the section at `place`, which has no chunk yet, what this term's epoch gave of it. `record` is the
    /// section's, read after the epoch was applied.
    pub(super) fn first_touch(
        &self, shard: &mut Shard, place: SectionPlace, record: SectionRecord,
        config: &NamespaceConfig, from: FirstTouch,
    ) {
        let chunk = match is_planted(Bug::ChunkFromLocalRead) || is_planted(Bug::EpochNotCounted) {
            false => record.epoch_chunk(config.progression(), self.epoch),
            true => planted_chunk(record, config, self.epoch),
        };
        let Some(chunk) = chunk else {
            self.set_metrics.first_touches.add(FirstTouch::bump, 1);
            return;
        };
        self.set_metrics.first_touches.add(from, 1);
        // It is the first chunk: the step does not change.
        let _ = shard.add_chunk(place, chunk, config, self.now(), self.bump_time());
        shard.note_uncheckpointed(place);
        self.to_checkpoint.notify_one();
    }
}

/// A planted bug: the chunk that an earlier epoch may have given, or that the last bump gave.
fn planted_chunk(record: SectionRecord, config: &NamespaceConfig, epoch: u64) -> Option<Chunk> {
    record.epoch_chunk(config.progression(), epoch)?;
    let width = record.step * config.increment;
    let old = match is_planted(Bug::ChunkFromLocalRead) {
        true => record.max_seq.saturating_sub(width),
        false => record.max_seq,
    };
    Some(Chunk { old, new: old + width })
}
