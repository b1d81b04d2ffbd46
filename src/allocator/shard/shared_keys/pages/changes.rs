//! Pages on their way from one node to another. A page that was sent before is not sent whole: only its keys that were
//! changed since.

use super::{Page, PageId, Pages};
use crate::allocator::part::{DamagedPart, NO_NEXT_NUMBER, NextNumbers, PageChange, SlotNumber};

impl Page {
    /// The ids that were asked for: all, or those that were changed since this was called last.
    fn take_changes(&mut self, all: bool) -> NextNumbers {
        let changed = std::mem::take(&mut self.keys.changed);
        let is_changed = |place: u8| changed[place as usize / 64] >> (place % 64) & 1 > 0;
        let numbered = (0..=u8::MAX).zip(self.keys.next);
        numbered.filter(|(place, next)| *next > 0 && (all || is_changed(*place))).collect()
    }
}

impl Pages {
    /// Begins to track changes, with all pages as changed ones, or ends it.
    pub fn track_changes(&mut self, track: bool) {
        self.pages.track_changes(track);
    }

    /// Begins the next delta of the changed pages.
    pub fn rewind_changes(&mut self) {
        self.pages.rewind_changes();
    }

    /// The next changed pages of the delta. Of a page that was sent before come the keys that were changed since. They
    /// end with the page that brings their keys to `limit`.
    pub fn take_changes(&mut self, limit: usize) -> Vec<PageChange> {
        let (mut changes, mut keys) = (Vec::new(), 0);
        while keys < limit
            && let Some((changed, page)) = self.pages.take_changed()
        {
            let change = match page {
                None => PageChange { page: SlotNumber::Vacant, next: Vec::new() },
                Some(page) => PageChange {
                    page: match changed.is_new {
                        true => SlotNumber::New((page.id.namespace, page.id.first, page.section)),
                        false => SlotNumber::Known(changed.number),
                    },
                    next: page.take_changes(changed.is_new),
                },
            };
            keys += change.len();
            changes.push(change);
        }
        changes
    }

    /// Takes in changed pages that were sent in this order. Tells `note_new` the number of each new page's section, and the
    /// page's own.
    ///
    /// # Errors
    /// [`DamagedPart`] if a page is unknown, and what `note_new` answers.
    pub fn apply_changes(
        &mut self, changes: Vec<PageChange>,
        mut note_new: impl FnMut(u32, u32) -> Result<(), DamagedPart>,
    ) -> Result<(), DamagedPart> {
        for PageChange { page, next } in changes {
            let number = match page {
                SlotNumber::New((namespace, first, section)) => {
                    let id = PageId { namespace, first };
                    let number = self.pages.append(Page::new(id, section));
                    note_new(section, number)?;
                    number
                }
                SlotNumber::Known(number) => number,
                SlotNumber::Vacant => {
                    self.pages.add_vacant();
                    continue;
                }
            };
            self.take_in(number, next)?;
        }
        Ok(())
    }

    fn take_in(&mut self, page: u32, next: NextNumbers) -> Result<(), DamagedPart> {
        for (place, next) in next {
            if next == 0 {
                return Err(NO_NEXT_NUMBER);
            }
            if !self.set(page, place.into(), next) {
                return Err(DamagedPart("changes a page that was not sent"));
            }
        }
        Ok(())
    }
}
