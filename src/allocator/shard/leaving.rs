//! Sections that were evicted and are *leaving*: the log does not say yet what was used of them.
//!
//! Invariant: no number of a section that is leaving is taken, and its record is not read. Otherwise its lift's chunk
//! could be taken a second time.

use std::collections::HashSet;

use super::{HandIsAt, Leaving, SectionPlace, Shard, own_keys::evict::Swept};
use crate::{
    allocator::key_table::hasher::Hasher,
    sequence::{Key, Namespace, NamespaceId, Progression, SectionId},
};

impl Shard {
    /// Moves the hand over `slots_max` slots at most, and evicts `released_max` sections at most. Nothing goes while
    /// changes are tracked. True if the hand came to the end of the shard.
    pub fn evict(
        &mut self, hasher: &Hasher, (slots_max, released_max): (usize, usize),
        progression_of: impl Fn(NamespaceId) -> Option<Progression>, swept: &mut Swept,
    ) -> bool {
        if self.tracking.is_some() {
            return true;
        }
        let (from, keys) = (swept.released.len(), swept.keys);
        let mut gone = Vec::new();
        let limits = (slots_max, from + released_max);
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
        self.forget_unsettled(&gone);
        for released in &swept.released[from..] {
            let leaving = Leaving { used: released.used, wanted: None };
            self.leaving.insert(released.section.clone(), leaving);
        }
        at_end
    }

    /// Sections that are gone are not to be settled: what was used of them is logged. Another key may have the slot soon.
    fn forget_unsettled(&mut self, gone: &[SectionPlace]) {
        if gone.is_empty() || self.unsettled.is_empty() {
            return;
        }
        let gone: HashSet<&SectionPlace> = gone.iter().collect();
        self.unsettled.retain(|place| !gone.contains(place));
        self.unsettled_sent = 0;
    }

    /// Counts how often a section was evicted, and how often its release was applied. What was read of a section without
    /// the shard's lock may be old if this has changed since.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// True if the log does not say yet what was used of the section.
    pub fn is_leaving(&self, id: &SectionId) -> bool {
        self.leaving.contains_key(id)
    }

    /// Notes that a call waits for the section at `place`, of which the term has nothing. False if the section is not
    /// leaving.
    pub fn want_leaving(&mut self, id: &SectionId, place: SectionPlace) -> bool {
        let leaving = self.leaving.get_mut(id);
        leaving.map(|leaving| leaving.wanted = Some(place)).is_some()
    }

    /// The log says what was used of the section. Returns where it is now, if a call waits for it.
    pub fn end_leaving(&mut self, id: &SectionId) -> Option<SectionPlace> {
        self.evictions += 1;
        let wanted = self.leaving.remove(id)?.wanted;
        if self.leaving.is_empty() {
            self.leaving = super::HashMap::new();
        }
        wanted
    }

    /// The last number handed out for a key whose section is leaving.
    pub(super) fn last_of_leaving(&self, namespace: &Namespace, key: Key<'_>) -> Option<u64> {
        if self.leaving.is_empty() {
            return None;
        }
        let leaving = self.leaving.get(&namespace.section_of(key))?;
        Some(leaving.used)
    }
}
