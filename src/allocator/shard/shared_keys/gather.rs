//! Gathers keys that lie close together into a page.
//!
//! A page takes as much memory as some 50 slots of keys with their share of the index, so it is made where at least
//! `GATHERED_MIN` of its ids were asked for. They are counted only when a new key completes a small group of
//! neighbours.

use super::{
    SharedKeys,
    hand::Turn,
    pages::{PAGE_KEYS, Page, PageId},
};
use crate::{
    allocator::key_table::hasher::Hasher,
    sequence::{Key, Namespace},
};

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
    pub(super) fn shrink(&mut self, hasher: &Hasher) {
        if self.keys.shrink(hasher) && self.hand.turn != Turn::Sections {
            self.hand.next = 0;
        }
    }
}
