//! Sections that were let go and are *leaving*: the log does not say yet what was used of them.
//!
//! Invariant: no number of a section that is leaving is taken, and its record is not read. Otherwise its lift's chunk
//! could be taken a second time.

use super::{SectionPlace, Shard};
use crate::{
    allocator::{hasher::Hasher, own_keys::Swept},
    sequence::{Key, Namespace, NamespaceId, Progression, SectionId},
};

/// A section that is leaving.
#[derive(Debug)]
pub struct Leaving {
    /// The last number used of it.
    used: u64,
    /// Where it is now, if a call asked for it again: the call waits there.
    wanted: Option<SectionPlace>,
}

impl Shard {
    /// Moves the hand over `slots_max` slots at most, and lets `released_max` sections go at most. Nothing goes while
    /// changes are tracked. True if the hand came to the end of the shard.
    pub fn let_go(
        &mut self,
        hasher: &Hasher,
        (slots_max, released_max): (usize, usize),
        progression_of: impl Fn(NamespaceId) -> Option<Progression>,
        swept: &mut Swept,
    ) -> bool {
        if self.tracking.is_some() {
            return true;
        }
        let (from, keys) = (swept.released.len(), swept.keys);
        let limits = (slots_max, from + released_max);
        if !self.hand_is_at_names {
            let ids = &mut self.ids;
            self.hand_is_at_names = ids.let_go(hasher, limits, &progression_of, |_| {}, swept);
        }
        let mut at_end = false;
        if self.hand_is_at_names {
            let name_bytes = &mut self.name_bytes;
            let note_gone = |name: &[u8]| *name_bytes -= name.len();
            at_end = (self.names).let_go(hasher, limits, &progression_of, note_gone, swept);
            self.hand_is_at_names = !at_end;
        }
        self.times_let_go += (swept.keys - keys) as u64;
        for released in &swept.released[from..] {
            let leaving = Leaving {
                used: released.used,
                wanted: None,
            };
            self.leaving.insert(released.section.clone(), leaving);
        }
        at_end
    }

    /// How often a section was let go. What was read of a section without the shard's lock may be old if this has
    /// changed since.
    pub fn times_let_go(&self) -> u64 {
        self.times_let_go
    }

    /// Notes that a call waits for the section at `place`, which is new here. False if the section is not leaving.
    pub fn want_leaving(&mut self, id: &SectionId, place: SectionPlace) -> bool {
        let leaving = self.leaving.get_mut(id);
        leaving
            .map(|leaving| leaving.wanted = Some(place))
            .is_some()
    }

    /// The log says what was used of the section. Returns where it is now, if a call waits for it.
    pub fn end_leaving(&mut self, id: &SectionId) -> Option<SectionPlace> {
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
