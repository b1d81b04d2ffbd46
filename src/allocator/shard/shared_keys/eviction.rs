//! Evicts shared sections that nobody asked for lately, with all their keys.
//!
//! The hand goes around the keys' slots, and then around the sections. At the slots it moves the reference bits of keys
//! in use to their sections. At the sections it clears the bit of one that is in use, and evicts one whose bit is clear:
//! nobody asked for it since the hand was there before.
//!
//! The last used number of a section is the highest number taken by any of its keys, or its floor, if that is higher. The
//! others rise to it, and what they skip is counted. A section that is evicted has no numbers any more. Its pages are
//! dropped at once. Its keys' slots are removed when the hand goes around the slots: to remove all at once would hold
//! the shard's lock for long.
//!
//! Why a slot may stay meanwhile, also if its section gets numbers again: its key takes none without asking the section
//! (`stop_fast_path`). The section's next chunk begins at the number that was used of it, or above, since nobody asks
//! for a chunk before the log says what was used (`shard/eviction.rs`). Wherever the cursor in the slot stands,
//! `Owned::left` raises it above the floor of that chunk.
//!
//! Invariant: a section that is evicted is quiet, so that nobody waits for it, and no bump of it is under way. Its
//! number goes to another section only after the hand went around all slots and found none of its keys.

use std::ops::Range;

use super::{SharedKeys, hand::Turn, usage::Usage};
use crate::{
    allocator::{key_table::hasher::Hasher, shard::own_keys::eviction::Swept},
    sequence::{NamespaceId, Progression, SectionUse},
};

/// How many pages of sections that may go are read under one lock, more or less: for some tenths of a millisecond.
const LOCK_PAGES: usize = 512;
/// To evict sections, all slots of the shard are read, once for all sections that go under one lock. These are at least
/// one for this many slots, so that the reading costs little for each.
const SLOTS_FOR_SECTION: usize = 16;

impl SharedKeys {
    /// Moves the hand over `slots_max` slots at most, until `evicted_max` sections are evicted in all, or to the end of
    /// the sections. True at the end: the next call begins at the first slot. Tells `note_gone` the sections that are
    /// evicted or forgotten.
    pub fn evict(
        &mut self, hasher: &Hasher, (slots_max, evicted_max): (usize, usize),
        progression_of: impl Fn(NamespaceId) -> Option<Progression>,
        mut note_gone: impl FnMut(u32), swept: &mut Swept,
    ) -> bool {
        use Turn::*;
        let end = swept.slots + slots_max;
        while swept.slots < end && swept.evicted.len() < evicted_max {
            let slots = end - swept.slots;
            let is_at_end = match self.hand.turn {
                Slots | SlotsOfGone => self.pass_slots(hasher, slots, swept),
                Sections => {
                    let limits = (slots, evicted_max);
                    self.pass_sections(limits, &progression_of, &mut note_gone, swept)
                }
            };
            if is_at_end {
                self.hand.next = 0;
                self.hand.turn = match self.hand.turn {
                    Slots => Sections,
                    Sections if std::mem::take(&mut self.hand.has_evicted) => SlotsOfGone,
                    Sections | SlotsOfGone => Slots,
                };
                if self.hand.turn == Slots {
                    self.shrink(hasher);
                    return true;
                }
            }
        }
        false
    }

    /// Moves the reference bits of keys to their sections, and removes keys of sections that have nothing. True at the end.
    fn pass_slots(&mut self, hasher: &Hasher, slots_max: usize, swept: &mut Swept) -> bool {
        for _ in 0..slots_max {
            let number = self.hand.next;
            if number >= self.keys.slots() {
                return true;
            }
            self.hand.next += 1;
            swept.slots += 1;
            let Some(slot) = self.keys.get_mut(number) else {
                continue;
            };
            let Some(section) = self.sections.get_mut(slot.section) else {
                continue;
            };
            let is_in_use = slot.cursor.take_in_use();
            section.is_in_use |= is_in_use;
            if is_in_use || !section.has_nothing() {
                section.has_slots = true;
            } else {
                self.keys.remove(hasher, number);
                swept.keys += 1;
            }
        }
        false
    }

    /// Clears the reference bits of sections, and evicts those whose bit is clear. True at the end.
    fn pass_sections(
        &mut self, (slots_max, evicted_max): (usize, usize),
        progression_of: &impl Fn(NamespaceId) -> Option<Progression>,
        note_gone: &mut impl FnMut(u32), swept: &mut Swept,
    ) -> bool {
        let sections_max = slots_max.max(self.keys.slots() as usize / SLOTS_FOR_SECTION);
        let going_max = evicted_max - swept.evicted.len();
        let first = self.hand.next;
        let (mut goes, mut going, mut pages) = (Vec::new(), 0, 0);
        while self.hand.next < self.sections.slots()
            && goes.len() < sections_max
            && going < going_max
            && pages < LOCK_PAGES
        {
            let number = self.hand.next;
            self.hand.next += 1;
            let may_go = self.clear_bit(number, note_gone);
            if let Some(section) = self.sections.get(number).filter(|_| may_go) {
                going += 1;
                pages += section.pages.len();
            }
            goes.push(may_go);
        }
        swept.slots += goes.len();
        if going > 0 {
            self.evict_sections(first, goes, progression_of, note_gone, swept);
        }
        self.hand.next >= self.sections.slots()
    }

    /// Clears the reference bit of section number `number`. True if it was clear, and the section may be evicted. Forgets the
    /// section if nothing is left of it.
    fn clear_bit(&mut self, number: u32, note_gone: &mut impl FnMut(u32)) -> bool {
        let Some(section) = self.sections.get_mut(number) else {
            return false;
        };
        let was_in_use = std::mem::take(&mut section.is_in_use);
        let has_slots = std::mem::take(&mut section.has_slots);
        if was_in_use || !section.queued.is_quiet() {
            return false;
        }
        if !section.has_nothing() || !section.pages.is_empty() {
            return true;
        }
        if !has_slots {
            self.sections.remove(number);
            note_gone(number);
        }
        false
    }

    /// Evicts those of the sections from number `first` on for which `goes` is true, unless one of their keys was asked for
    /// meanwhile.
    fn evict_sections(
        &mut self, first: u32, mut goes: Vec<bool>,
        progression_of: &impl Fn(NamespaceId) -> Option<Progression>,
        note_gone: &mut impl FnMut(u32), swept: &mut Swept,
    ) {
        let numbers: Range<u32> = first..first + goes.len() as u32;
        let usage = |(number, goes): (u32, &bool)| match goes {
            true => self.usage(number, progression_of),
            false => None,
        };
        let mut usages: Vec<Option<Usage>> = numbers.clone().zip(&goes).map(usage).collect();
        self.add_keys(first, &mut usages);
        for ((number, goes), usage) in numbers.zip(&mut goes).zip(usages) {
            let Some(section) = self.sections.get_mut(number).filter(|_| *goes) else {
                continue;
            };
            if usage.as_ref().is_some_and(|usage| usage.is_in_use) {
                section.is_in_use = true;
                *goes = false;
                continue;
            }
            swept.evicted.extend(usage.map(|usage| SectionUse {
                section: section.id.clone(),
                used: usage.last(),
                skipped: usage.skipped(),
            }));
            section.queued.section.forget();
            for page in std::mem::take(&mut section.pages) {
                swept.keys += self.pages.remove(page);
            }
            note_gone(number);
            swept.shared_sections += 1;
            self.hand.has_evicted = true;
        }
        for slot in self.keys.iter_mut_unnoted() {
            if goes.get(slot.section.wrapping_sub(first) as usize) == Some(&true) {
                slot.cursor.stop_fast_path();
            }
        }
    }
}
