//! What leaves a shard: sections that are evicted, and keys that are sent to another node.

use std::collections::HashSet;

use super::{HandIsAt, Leaving, SectionPlace, Shard, own_keys::Swept};
use crate::{
    allocator::{
        key_table::{hasher::Hasher, segments::Tracking},
        memory::part::{DamagedPart, PageChange, ShardChanges},
    },
    sequence::{Key, Namespace, NamespaceId, Progression, SectionId},
};

// Sections that were evicted and are *leaving*: the log does not say yet what was used of them.
//
// Invariant: no number of a section that is leaving is taken, and its record is not read. Otherwise its lift's chunk
// could be taken a second time.

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

// A shard on its way from one node to another.
//
// Invariant: every change that was made before a pass began, or before the pass came to it, was taken when the pass
// is at its end.

impl Shard {
    /// Begins to track changes, with everything as changed. Ends any other tracking.
    pub fn begin_tracking(&mut self, tracking: Tracking) {
        self.track(Some(tracking));
    }

    /// Ends a tracking, if it is the one in force.
    pub fn end_tracking(&mut self, tracking: Tracking) {
        if self.tracking == Some(tracking) {
            self.track(None);
        }
    }

    fn track(&mut self, tracking: Option<Tracking>) {
        self.ids.track_changes(tracking.is_some());
        self.names.track_changes(tracking.is_some());
        self.shared.track_changes(tracking.is_some());
        self.unsettled_sent = 0;
        self.tracking = tracking;
    }

    /// The next changes of the pass, at most `limit`. `None` at the end of the pass; the next call begins another one.
    /// `None` if `tracking` is not in force any more.
    pub fn take_changes(&mut self, tracking: Tracking, limit: usize) -> Option<ShardChanges> {
        if self.tracking != Some(tracking) {
            return None;
        }
        let sections = self.shared.take_section_changes(limit);
        let mut left = limit - sections.len();
        let ids = self.ids.take_changes(left);
        left -= ids.len();
        let names = self.names.take_changes(left);
        left -= names.len();
        let shared_keys = self.shared.take_key_changes(left);
        left -= shared_keys.len();
        let pages = self.shared.take_page_changes(left);
        // A page's keys are sent together, so that they may be more than were left.
        left = left.saturating_sub(pages.iter().map(PageChange::len).sum());
        // As long as there is room for these, all slots of the pass were sent.
        let unsettled = self.unsettled[self.unsettled_sent..].iter().take(left);
        let unsettled: Vec<SectionPlace> = unsettled.copied().collect();
        self.unsettled_sent += unsettled.len();
        let changes = ShardChanges { sections, ids, names, shared_keys, pages, unsettled };
        if changes.len() > 0 {
            return Some(changes);
        }
        self.ids.rewind_changes();
        self.names.rewind_changes();
        self.shared.rewind_changes();
        None
    }

    /// Takes in changes of shard number `shard` that were sent in this order. The shard must have no calls yet.
    /// Raises `sections_needed` to the number of shared sections that its keys refer to.
    ///
    /// # Errors
    /// [`DamagedPart`] if they do not fit what was sent before, or the hasher finds a key in another shard.
    pub fn apply_changes(
        &mut self, (hasher, shard): (&Hasher, u32), changes: ShardChanges,
        sections_needed: &mut u32,
    ) -> Result<(), DamagedPart> {
        let at = (hasher, shard);
        self.shared.apply_section_changes(at, changes.sections)?;
        self.ids.apply_changes(at, changes.ids, |_| {})?;
        let name_bytes = &mut self.name_bytes;
        let note_name = |name: &[u8]| *name_bytes += name.len();
        self.names.apply_changes(at, changes.names, note_name)?;
        let note_section =
            |number: u32| *sections_needed = (*sections_needed).max(number.saturating_add(1));
        let shared_keys = changes.shared_keys;
        (self.shared).apply_key_changes(hasher, shared_keys, note_section)?;
        self.shared.apply_page_changes(changes.pages)?;
        for place in changes.unsettled {
            if self.section_id(place).is_none() {
                return Err(DamagedPart("names a section to settle that was not sent"));
            }
            self.unsettled.push(place);
        }
        Ok(())
    }

    /// True if it has all shared sections that its keys refer to.
    pub fn has_sections(&self, needed: u32) -> bool {
        self.shared.has_sections(needed)
    }
}
