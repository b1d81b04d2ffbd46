//! Which keys of a memory are evicted, and what happens when the log says what was used of their sections.

use super::{Memory, MemoryPlace};
use crate::{
    allocator::{key_table::hasher::shard_of, shard::own_keys::eviction::Swept},
    metrics::SkipCause,
    sequence::SectionUse,
};

/// How many slots of a shard the hand passes before it passes as many of the next one. It does so under one lock, which a
/// call that needs the shard waits for: some tens of microseconds. When shared sections are evicted, all slots of the shard
/// are read under that lock as well (`shard/shared_keys/eviction.rs`).
const TURN_SLOTS: usize = 256;

impl Memory {
    /// Moves the hand over `slots` slots, or until `sections` sections are evicted, or to the end of its round. The log
    /// must be told what was used of them, and then [`Memory::end_eviction`]. True at the end of the round. Blocks for some
    /// milliseconds.
    pub fn evict(&self, slots: usize, sections: usize) -> (Swept, bool) {
        let namespaces = self.view.namespaces();
        let progression_of = |id| Some(namespaces.by_id(id)?.config.progression());
        let mut swept = Swept::default();
        // The releaser alone moves the hand: nobody waits for this lock.
        let mut round = self.round.lock();
        while swept.slots < slots && swept.evicted.len() < sections && !self.has_ended() {
            let number = round.next_turn();
            let limits = (TURN_SLOTS, sections - swept.evicted.len());
            let mut shard = self.shards.lock(number);
            let at_end = shard.evict(self.shards.hasher(), limits, progression_of, &mut swept);
            if at_end && round.end_shard(number) {
                return (swept, true);
            }
        }
        (swept, false)
    }

    /// The log says what was used of the sections. Returns the places of those that calls ask for again: they must be
    /// bumped.
    pub fn end_eviction(&self, sections: &[SectionUse]) -> Vec<MemoryPlace> {
        let hasher = self.shards.hasher();
        let wanted = sections.iter().filter_map(|SectionUse { section, skipped, .. }| {
            self.counts_of(section.namespace).skip(SkipCause::shared_section, *skipped);
            let number = shard_of(hasher.section_id(section));
            let place = self.shards.lock(number).end_eviction(section)?;
            Some(MemoryPlace { shard: number, section: place })
        });
        wanted.collect()
    }
}
