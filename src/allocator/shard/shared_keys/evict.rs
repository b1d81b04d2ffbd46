//! Keeps the memory of shared keys small: evicts sections that nobody asked for lately, and gathers neighbours in
//! pages.

use std::ops::Range;

use super::{
    SharedKeys,
    pages::{PAGE_KEYS, Page, PageId, Turn},
};
use crate::{
    allocator::{key_table::hasher::Hasher, section::cursor::Owned, shard::own_keys::Swept},
    sequence::{Key, Namespace, NamespaceId, Progression, Trim},
};

// Evicts shared sections that nobody asked for lately, with all their keys.
//
// The hand goes around the keys' slots, and then around the sections. At the slots it moves the reference bits of keys
// in use to their sections. At the sections it clears the bit of one that is in use, and evicts one whose bit is clear:
// nobody asked for it since the hand was there before.
//
// What is used of a section is the highest number taken by any of its keys, or its floor, if that is higher. The
// others rise to it, and what they lose is counted. A section that is evicted has no numbers any more. Its pages are
// dropped at once. Its keys' slots are removed when the hand goes around the slots: to remove all at once would hold
// the shard's lock for long.
//
// Why a slot may stay meanwhile, also if its section gets numbers again: its key takes none without asking the section
// (`stop_fast_path`). The section's next chunk begins at the number that was used of it, or above, since nobody asks
// for a chunk before the log says what was used (`shard/leaving.rs`). Wherever the cursor in the slot stands,
// `Owned::left` raises it above the floor of that chunk.
//
// Invariant: a section that is evicted is quiet, so that nobody waits for it, and no bump of it is under way. Its
// number goes to another section only after the hand went around all slots and found none of its keys.

/// How many pages of sections that may go are read under one lock, more or less: for some tenths of a millisecond.
const LOCK_PAGES: usize = 512;
/// To evict sections, all slots of the shard are read, once for all sections that go under one lock. These are at least
/// one for every so many slots, so that the reading costs little for each.
const SLOTS_FOR_SECTION: usize = 16;

impl SharedKeys {
    /// Moves the hand over `slots_max` slots at most, until `released_max` sections are released in all, or to the end of
    /// the sections. True at the end: the next call begins at the first slot. Tells `note_gone` the sections that are
    /// evicted or forgotten.
    pub fn evict(
        &mut self, hasher: &Hasher, (slots_max, released_max): (usize, usize),
        progression_of: impl Fn(NamespaceId) -> Option<Progression>,
        mut note_gone: impl FnMut(u32), swept: &mut Swept,
    ) -> bool {
        use Turn::*;
        let end = swept.slots + slots_max;
        while swept.slots < end && swept.released.len() < released_max {
            let slots = end - swept.slots;
            let is_at_end = match self.hand.turn {
                Slots | SlotsOfGone => self.pass_slots(hasher, slots, swept),
                Sections => {
                    let limits = (slots, released_max);
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
        &mut self, (slots_max, released_max): (usize, usize),
        progression_of: &impl Fn(NamespaceId) -> Option<Progression>,
        note_gone: &mut impl FnMut(u32), swept: &mut Swept,
    ) -> bool {
        let sections_max = slots_max.max(self.keys.slots() as usize / SLOTS_FOR_SECTION);
        let going_max = released_max - swept.released.len();
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
            swept.released.extend(usage.map(|usage| Trim {
                section: section.id.clone(),
                used: usage.last(),
                lost: usage.lost(),
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

// What was used of shared sections.

/// What was used of a section that got a chunk, summed up over its keys.
#[derive(Debug)]
pub struct Usage {
    owned: Owned,
    progression: Progression,
    lowest: Option<u64>,
    /// How many keys took numbers above the floor, the greatest and the sum of their next numbers.
    keys: u64,
    next_max: u64,
    next_sum: u128,
    /// How many keys took none.
    keys_at_floor: u64,
    /// True if a key was asked for since the hand came by.
    pub is_in_use: bool,
}

impl Usage {
    /// What was used of a section that has no key.
    pub fn new(owned: &Owned, progression: Progression) -> Self {
        Usage {
            owned: *owned,
            progression,
            lowest: owned.lowest(progression),
            keys: 0,
            next_max: 0,
            next_sum: 0,
            keys_at_floor: 0,
            is_in_use: false,
        }
    }

    /// Adds a key whose next number is `next`. As [`Owned::current`] says where it stands.
    pub fn add(&mut self, next: u64) {
        match self.lowest {
            Some(lowest) if next > lowest => {
                self.keys += 1;
                self.next_max = self.next_max.max(next);
                self.next_sum += u128::from(next);
            }
            _ => self.keys_at_floor += 1,
        }
    }

    /// The greatest number taken by any of the keys, or the section's floor, if that is higher.
    pub fn last(&self) -> u64 {
        match self.keys {
            0 => self.owned.floor,
            _ => self.next_max - self.progression.increment,
        }
    }

    /// How many numbers the other keys lose by rising to [`Usage::last`].
    pub fn lost(&self) -> u64 {
        // Their next numbers belong to one progression.
        let distance = u128::from(self.keys) * u128::from(self.next_max) - self.next_sum;
        let lost = distance / u128::from(self.progression.increment);
        let above_floor = (self.progression).count_between(self.owned.floor, self.last());
        let lost = lost + u128::from(self.keys_at_floor) * u128::from(above_floor);
        u64::try_from(lost).unwrap_or(u64::MAX)
    }
}

impl SharedKeys {
    /// What was used of section number `number`. Its keys are not added yet. `None` if it got no chunk, or the progression
    /// of its namespace is not known.
    fn usage(
        &self, number: u32, progression_of: impl Fn(NamespaceId) -> Option<Progression>,
    ) -> Option<Usage> {
        let section = self.sections.get(number)?;
        let progression = progression_of(section.id.namespace)?;
        Some(Usage::new(section.queued.section.owned()?, progression))
    }

    /// Adds the keys of the sections from number `first` on to their usages.
    fn add_keys(&self, first: u32, usages: &mut [Option<Usage>]) {
        for (_, slot) in self.keys.iter() {
            let place = slot.section.wrapping_sub(first) as usize;
            if let Some(Some(usage)) = usages.get_mut(place) {
                usage.add(slot.cursor.next());
                usage.is_in_use |= slot.cursor.is_in_use();
            }
        }
        for (number, usage) in (first..).zip(usages) {
            if let (Some(section), Some(usage)) = (self.sections.get(number), usage) {
                let pages = section.pages.iter().filter_map(|page| self.pages.get(*page));
                pages.flat_map(Page::next_numbers).for_each(|next| usage.add(next));
            }
        }
    }

    /// What was used of each section that got a chunk, but for namespaces without a known progression; and whether it was
    /// used up.
    pub fn used(
        self, progression_of: impl Fn(NamespaceId) -> Option<Progression>,
    ) -> impl Iterator<Item = (bool, Trim)> {
        let numbers = 0..self.sections.slots();
        let mut usages: Vec<Option<Usage>> =
            numbers.map(|number| self.usage(number, &progression_of)).collect();
        self.add_keys(0, &mut usages);
        let sections = self.sections.into_numbered();
        sections.filter_map(move |(number, section)| {
            let usage = usages[number as usize].as_ref()?;
            let trim = Trim { section: section.id, used: usage.last(), lost: usage.lost() };
            Some((trim.used >= usage.owned.ceiling, trim))
        })
    }
}

// Gathers keys that lie close together into a page.
//
// A page takes as much memory as some 50 slots of keys with their share of the index, so it is made where at least
// `GATHERED_MIN` of its ids were asked for. They are counted only when a new key completes a small group of
// neighbours.

/// How many neighbours, in whose place the first is divisible by it, must be there before the others are counted. If ids
/// are asked for in random order, a page is made when some 100 of its ids were.
const GROUP: usize = 4;
/// How many ids of a page must be there before it is made.
const GATHERED_MIN: usize = 64;

impl SharedKeys {
    /// Makes a page of the keys around `id`, which was added to section number `section` just now, if there are enough
    /// of them. Not while changes are tracked: the receiver would keep the slots.
    pub fn gather(&mut self, hasher: &Hasher, namespace: &Namespace, id: u64, section: u32) {
        if self.keys.tracks_changes() {
            return;
        }
        let (page, place) = PageId::of(namespace, id);
        let slot_at = |place: usize| {
            let id = page.first.checked_add(place as u64)?;
            // The next section begins within the page's room.
            if place > 0 && PageId::of(namespace, id).0 != page {
                return None;
            }
            let hash = hasher.key(namespace.id, Key::Id(id));
            self.keys.find(hash, namespace.id, &id)
        };
        let group = place - place % GROUP;
        if !(group..group + GROUP).all(|other| other == place || slot_at(other).is_some()) {
            return;
        }
        let slots: Vec<(usize, u32)> =
            (0..PAGE_KEYS).filter_map(|place| Some((place, slot_at(place)?))).collect();
        if slots.len() < GATHERED_MIN {
            return;
        }
        let mut page = Page::new(page, section);
        for (place, number) in slots {
            if let Some(slot) = self.keys.remove(hasher, number) {
                page.set(place, slot.cursor.next());
            }
        }
        let number = self.pages.add(page);
        if let Some(section) = self.sections.get_mut(section) {
            section.pages.push(number);
        }
        self.shrink(hasher);
    }

    /// Gives memory of slots back if most of them are vacant. The slots have other numbers then.
    fn shrink(&mut self, hasher: &Hasher) {
        if self.keys.shrink(hasher) && self.hand.turn != Turn::Sections {
            self.hand.next = 0;
        }
    }
}
