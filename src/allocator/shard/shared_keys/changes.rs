//! Keys that share sections, and those sections, on their way from one node to another.
//!
//! Invariant: a key that arrives goes on where it stood. Its first call asks its section.

use super::{SharedKeys, shared_section::SharedSection, shared_slot::SharedSlot};
use crate::allocator::{
    key_table::{
        StoredKey, has_key,
        hasher::{Hasher, shard_of},
    },
    part::{
        DamagedPart, NO_NEXT_NUMBER, OTHER_HASH, PageChange, SharedKeyChange, SharedSectionChange,
        SlotNumber, WholeSection,
    },
    section::{Section, cursor::Cursor, queued_section::QueuedSection},
};

impl SharedKeys {
    /// Begins to track changes, with all keys and sections as changed ones, or ends it.
    pub fn track_changes(&mut self, track: bool) {
        self.keys.track_changes(track);
        self.pages.track_changes(track);
        self.sections.track_changes(track);
    }

    /// Begins the next delta of the changed keys and sections.
    pub fn rewind_changes(&mut self) {
        self.keys.rewind_changes();
        self.pages.rewind_changes();
        self.sections.rewind_changes();
    }

    /// The next changed sections of the delta, at most `limit`.
    pub fn take_section_changes(&mut self, limit: usize) -> Vec<SharedSectionChange> {
        let changes = std::iter::from_fn(|| {
            let (changed, section) = self.sections.take_changed()?;
            let Some(SharedSection { id, queued, .. }) = section else {
                return Some(SharedSectionChange {
                    number: SlotNumber::Vacant,
                    section: WholeSection::new(0, None),
                });
            };
            let number = match changed.is_new {
                true => SlotNumber::New(id.clone()),
                false => SlotNumber::Known(changed.number),
            };
            let section = WholeSection::new(queued.section.step(), queued.section.owned());
            Some(SharedSectionChange { number, section })
        });
        changes.take(limit).collect()
    }

    /// The next changed keys of the delta, at most `limit`.
    pub fn take_key_changes(&mut self, limit: usize) -> Vec<SharedKeyChange> {
        let changes = std::iter::from_fn(|| {
            let (changed, slot) = self.keys.take_changed()?;
            let next = slot.cursor.next();
            let slot = match changed.is_new {
                _ if !has_key(slot) => SlotNumber::Vacant,
                true => SlotNumber::New((slot.namespace, slot.id, slot.section)),
                false => SlotNumber::Known(changed.number),
            };
            Some(SharedKeyChange { slot, next })
        });
        changes.take(limit).collect()
    }

    /// The next changed pages of the delta: as many as have some `limit` changed keys.
    pub fn take_page_changes(&mut self, limit: usize) -> Vec<PageChange> {
        self.pages.take_changes(limit)
    }

    /// Takes in changed sections of shard number `shard` that were sent in this order.
    ///
    /// # Errors
    /// [`DamagedPart`] if the hasher finds a section in another shard, a section is unknown, or its limits are out of
    /// order.
    pub fn apply_section_changes(
        &mut self, (hasher, shard): (&Hasher, u32), changes: Vec<SharedSectionChange>,
    ) -> Result<(), DamagedPart> {
        for SharedSectionChange { number, section } in changes {
            let queued = QueuedSection::new(Section::received(section.step, section.owned()?));
            match number {
                SlotNumber::New(id) => {
                    if shard_of(hasher.section_id(&id)) != shard {
                        return Err(OTHER_HASH);
                    }
                    self.sections.append(SharedSection::new(id, queued));
                }
                SlotNumber::Vacant => self.sections.add_vacant(),
                SlotNumber::Known(number) => {
                    let section = self.sections.get_mut(number);
                    let unknown = DamagedPart("changes a section that was not sent");
                    section.ok_or(unknown)?.queued = queued;
                }
            }
        }
        Ok(())
    }

    /// Takes in changed keys that were sent in this order. A new key may come before its section, whose number is told
    /// to `note_section`.
    ///
    /// # Errors
    /// [`DamagedPart`] if a key is unknown.
    pub fn apply_key_changes(
        &mut self, hasher: &Hasher, changes: Vec<SharedKeyChange>,
        mut note_section: impl FnMut(u32),
    ) -> Result<(), DamagedPart> {
        for SharedKeyChange { slot, next } in changes {
            if next == 0 {
                return Err(NO_NEXT_NUMBER);
            }
            let cursor = Cursor::at(next);
            match slot {
                SlotNumber::New((namespace, id, section)) => {
                    note_section(section);
                    let hash = hasher.key(namespace, u64::as_key(&id));
                    let slot = SharedSlot { id, cursor, namespace, section };
                    self.keys.append(hasher, hash, slot);
                }
                SlotNumber::Vacant => self.keys.add_vacant(),
                SlotNumber::Known(number) => {
                    let slot = self.keys.get_mut(number);
                    let slot = slot.ok_or(DamagedPart("changes a key that was not sent"))?;
                    slot.cursor = cursor;
                }
            }
        }
        Ok(())
    }

    /// Takes in changed pages that were sent in this order. No page is made while changes are tracked, so that its section
    /// comes before it.
    ///
    /// # Errors
    /// [`DamagedPart`] if a page, or the section of a new one, is unknown.
    pub fn apply_page_changes(&mut self, changes: Vec<PageChange>) -> Result<(), DamagedPart> {
        let sections = &mut self.sections;
        self.pages.apply_changes(changes, |section, page| {
            let section = sections.get_mut(section);
            let unknown = DamagedPart("has a page of a section that was not sent");
            section.ok_or(unknown)?.pages.push(page);
            Ok(())
        })
    }
}
