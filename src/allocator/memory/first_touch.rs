//! What a term's lift gave of a section, at the section's first touch in the term.

use super::Memory;
use crate::{
    allocator::shard::{SectionPlace, Shard},
    metrics::{FirstTouch as Source, SkipCause},
    planted_bugs::{Bug, is_planted},
    sequence::{Chunk, NamespaceConfig, SectionRecord},
};

impl Memory {
    /// Gives the section at `place`, which has no chunk yet, what this term's lift gave of it. `record` is the
    /// section's, read after the lift was applied.
    pub(super) fn first_touch(
        &self,
        shard: &mut Shard,
        place: SectionPlace,
        record: SectionRecord,
        config: &NamespaceConfig,
        source: Source,
    ) {
        let chunk = match is_planted(Bug::ChunkFromLocalRead) || is_planted(Bug::LiftNotCounted) {
            false => record.lifted(config.progression(), self.lift),
            true => planted_chunk(record, config, self.lift),
        };
        let Some(chunk) = chunk else {
            self.metrics.first_touches.add(Source::bump, 1);
            return;
        };
        self.metrics.first_touches.add(source, 1);
        self.metrics.skip(SkipCause::leader_change, chunk.left);
        // It is the first chunk: the step does not change.
        let _ = shard.grant(place, chunk, config, self.now(), self.bump_time());
        shard.note_unsettled(place);
        self.to_settle.notify_one();
    }
}

/// A planted bug: the chunk that a lift before may have given, or that the last bump gave.
fn planted_chunk(record: SectionRecord, config: &NamespaceConfig, lift: u64) -> Option<Chunk> {
    let live = record.lifted(config.progression(), lift)?;
    let width = record.step * config.increment;
    let old = match is_planted(Bug::ChunkFromLocalRead) {
        true => record.max_seq.saturating_sub(width),
        false => record.max_seq,
    };
    Some(Chunk {
        old,
        new: old + width,
        ..live
    })
}
