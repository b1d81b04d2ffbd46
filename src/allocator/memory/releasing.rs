//! Which keys of a memory are let go, and what happens when the log says what was used of their sections.

use std::sync::atomic::Ordering::Relaxed;

use super::{Memory, Place};
use crate::{
    allocator::{hasher::SHARDS, own_keys::Swept},
    sequence::Trim,
};

/// How many slots the hand passes under one lock, which a call that needs the shard waits for: some tens of
/// microseconds.
const LOCK_SLOTS: usize = 256;

impl Memory {
    /// Moves the hand over `slots` slots, or until `sections` sections are let go, or once around all shards. The log
    /// must be told what was used of them, and then [`Memory::released`]. True if the hand has come around to the first
    /// shard. Blocks for some milliseconds.
    pub fn let_go(&self, slots: usize, sections: usize) -> (Swept, bool) {
        let namespaces = self.view.namespaces();
        let progression_of = |id| Some(namespaces.by_id(id)?.config.progression());
        let (mut swept, mut ended, mut around) = (Swept::default(), 0, false);
        while ended < SHARDS
            && swept.slots < slots
            && swept.released.len() < sections
            && !self.is_abandoned()
        {
            let number = self.letting_go.load(Relaxed);
            let at_end = {
                let mut shard = self.shards.lock(number);
                let limits = (LOCK_SLOTS, sections - swept.released.len());
                shard.let_go(self.shards.hasher(), limits, progression_of, &mut swept)
            };
            if at_end {
                ended += 1;
                // The releaser alone moves the hand.
                self.letting_go.store((number + 1) % SHARDS, Relaxed);
                around |= number + 1 == SHARDS;
            }
        }
        (swept, around)
    }

    /// The log says what was used of the sections. Returns the places of those that calls ask for again: they must be
    /// bumped.
    pub fn released(&self, sections: &[Trim]) -> Vec<Place> {
        let hasher = self.shards.hasher();
        let wanted = sections.iter().filter_map(|Trim { section, .. }| {
            let number = crate::allocator::hasher::shard_of(hasher.section_id(section));
            let place = self.shards.lock(number).end_leaving(section)?;
            Some(Place {
                shard: number,
                section: place,
            })
        });
        wanted.collect()
    }
}
