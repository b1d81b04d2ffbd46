//! Sections that are *being evicted*: the log does not say yet what was used of them.
//!
//! Invariant: no number of a section that is being evicted is taken, and its record is not read. Otherwise its epoch's chunk
//! could be taken a second time.

use std::collections::HashSet;

use super::{Evicting, HandIsAt, SectionPlace, Shard, own_keys::eviction::Swept};
use crate::{
    allocator::key_table::hasher::Hasher,
    sequence::{Key, Namespace, NamespaceId, Progression, SectionId},
};

impl Shard {
    /// Moves the hand over `slots_max` slots at most, and evicts `evicted_max` sections at most. Nothing goes while
    /// changes are tracked. True if the hand came to the end of the shard.
    pub fn evict(
        &mut self, hasher: &Hasher, (slots_max, evicted_max): (usize, usize),
        progression_of: impl Fn(NamespaceId) -> Option<Progression>, swept: &mut Swept,
    ) -> bool {
        if self.tracking.is_some() {
            return true;
        }
        let (from, keys) = (swept.evicted.len(), swept.keys);
        let mut gone = Vec::new();
        let limits = (slots_max, from + evicted_max);
        if self.hand == HandIsAt::Ids {
            let ids = &mut self.ids;
            let note_gone = |number: u32, _: &u64| gone.push(SectionPlace::Id(number));
            if ids.evict(hasher, limits, &progression_of, note_gone, swept) {
                self.hand = HandIsAt::Names;
            }
        }
        if self.hand == HandIsAt::Names {
            let name_bytes = &mut self.name_bytes;
            let note_gone = |number: u32, name: &[u8]| {
                *name_bytes -= name.len();
                gone.push(SectionPlace::Name(number));
            };
            if (self.names).evict(hasher, limits, &progression_of, note_gone, swept) {
                self.hand = HandIsAt::Shared;
            }
        }
        let mut at_end = false;
        if self.hand == HandIsAt::Shared {
            let note_gone = |number: u32| gone.push(SectionPlace::Shared(number));
            at_end = (self.shared).evict(hasher, limits, &progression_of, note_gone, swept);
            if at_end {
                self.hand = HandIsAt::Ids;
            }
        }
        self.evictions += (swept.keys - keys + gone.len()) as u64;
        self.forget_uncheckpointed(&gone);
        for released in &swept.evicted[from..] {
            let evicting = Evicting { used: released.used, wanted: None };
            self.evicting.insert(released.section.clone(), evicting);
        }
        at_end
    }

    /// Sections that are gone are not to be checkpointed: what was used of them is logged. Another key may have the slot soon.
    fn forget_uncheckpointed(&mut self, gone: &[SectionPlace]) {
        if gone.is_empty() || self.uncheckpointed.is_empty() {
            return;
        }
        let gone: HashSet<&SectionPlace> = gone.iter().collect();
        self.uncheckpointed.retain(|place| !gone.contains(place));
        self.uncheckpointed_sent = 0;
    }

    /// Counts how often a section was evicted, and how often its release was applied. A reading of a section without the
    /// shard's lock may be old if this has changed since.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// True if the log does not say yet what was used of the section.
    pub fn is_being_evicted(&self, id: &SectionId) -> bool {
        self.evicting.contains_key(id)
    }

    /// Notes that a call waits for the section at `place`, of which the term has nothing. False if the section is not
    /// being evicted.
    pub fn want_evicted(&mut self, id: &SectionId, place: SectionPlace) -> bool {
        let evicting = self.evicting.get_mut(id);
        evicting.map(|evicting| evicting.wanted = Some(place)).is_some()
    }

    /// The log says what was used of the section. Returns where it is now, if a call waits for it.
    pub fn end_eviction(&mut self, id: &SectionId) -> Option<SectionPlace> {
        self.evictions += 1;
        let wanted = self.evicting.remove(id)?.wanted;
        if self.evicting.is_empty() {
            self.evicting = super::HashMap::new();
        }
        wanted
    }

    /// The last number handed out for a key whose section is being evicted.
    pub(super) fn last_of_evicted(&self, namespace: &Namespace, key: Key<'_>) -> Option<u64> {
        if self.evicting.is_empty() {
            return None;
        }
        let evicting = self.evicting.get(&namespace.section_of(key))?;
        Some(evicting.used)
    }
}
