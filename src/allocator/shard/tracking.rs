//! A shard on its way from one node to another.
//!
//! Invariant: every change that was made before a delta began, or before the delta came to it, was taken when the delta
//! is at its end.

use super::{SectionPlace, Shard};
use crate::allocator::{
    key_table::{changed_slots::Tracking, hasher::Hasher},
    part::{DamagedPart, PageChange, ShardChanges},
};

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
        self.uncheckpointed_sent = 0;
        self.tracking = tracking;
    }

    /// The next changes of the delta, at most `limit`. `None` at the end of the delta; the next call begins another
    /// one. `None` if `tracking` is not in force any more.
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
        // As long as there is room for these, all slots of the delta were sent.
        let uncheckpointed = self.uncheckpointed[self.uncheckpointed_sent..].iter().take(left);
        let uncheckpointed: Vec<SectionPlace> = uncheckpointed.copied().collect();
        self.uncheckpointed_sent += uncheckpointed.len();
        let changes = ShardChanges { sections, ids, names, shared_keys, pages, uncheckpointed };
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
        for place in changes.uncheckpointed {
            if self.section_id(place).is_none() {
                return Err(DamagedPart("names a section to checkpoint that was not sent"));
            }
            self.uncheckpointed.push(place);
        }
        Ok(())
    }

    /// True if it has all shared sections that its keys refer to.
    pub fn has_sections(&self, needed: u32) -> bool {
        self.shared.has_sections(needed)
    }
}
