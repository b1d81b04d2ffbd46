//! How keys that share sections are kept: in slots, or dense, in pages of neighbouring ids.

mod changes;

use crate::{
    allocator::{
        key_table::{
            KeyTable, NOBODY, Slot,
            segments::{Named, Numbered},
        },
        section::{
            cursor::Cursor,
            queued_section::{Cursors, QueuedSection},
        },
    },
    planted_bugs::{Bug, is_planted},
    sequence::{Key, Namespace, NamespaceId, SectionId},
};

// Dense keys: pages of neighbouring ids of one section. A key takes 8 bytes there, for its next number.
//
// A key of a page always asks its section: it has no fast limit.
//
// Invariant: a page's keys are of one section.

/// How many neighbouring ids a page has room for.
pub const PAGE_KEYS: usize = 256;

/// What a page is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageId {
    /// The namespace of its ids.
    pub namespace: NamespaceId,
    /// Its first id. Pages begin where sections begin, and every [`PAGE_KEYS`] ids from there.
    pub first: u64,
}

/// Neighbouring ids.
#[derive(Debug)]
pub struct Page {
    id: PageId,
    /// The number of their section.
    section: u32,
    keys: Box<PageOfKeys>,
}

#[derive(Debug)]
struct PageOfKeys {
    /// The next number of each id, if the section has that many. 0 for an id that was not asked for in this term.
    next: [u64; PAGE_KEYS],
    /// A bit for each id: it was changed since it was last sent to a successor.
    changed: [u64; PAGE_KEYS / 64],
}

/// Where a key is that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct InPage {
    page: u32,
    place: usize,
    /// Its next number, if the section has that many.
    pub next: u64,
    /// The number of its section.
    pub section: u32,
}

/// Pages.
#[derive(Debug, Default)]
pub struct Pages {
    pages: Numbered<Page>,
    /// How many ids of them were asked for.
    keys: usize,
}

impl PageId {
    /// The page of an id, and its place there.
    #[inline]
    pub fn of(namespace: &Namespace, id: u64) -> (PageId, usize) {
        let place = (id % namespace.config.section_size) as usize % PAGE_KEYS;
        let page = PageId { namespace: namespace.id, first: id - place as u64 };
        (page, place)
    }
}

impl Named for Page {
    type Name = PageId;

    #[inline]
    fn name(&self) -> &PageId {
        &self.id
    }
}

impl Page {
    /// A page of ids of section number `section`. None of them was asked for.
    pub fn new(id: PageId, section: u32) -> Self {
        let keys = PageOfKeys { next: [0; PAGE_KEYS], changed: [0; PAGE_KEYS / 64] };
        Page { id, section, keys: Box::new(keys) }
    }

    /// The next numbers of the ids that were asked for.
    pub fn next_numbers(&self) -> impl Iterator<Item = u64> {
        let all = self.keys.next.iter().copied();
        all.filter(|next| *next > 0)
    }

    /// Sets the next number of the id at `place`.
    pub fn set(&mut self, place: usize, next: u64) {
        self.keys.next[place] = next;
    }
}

impl Pages {
    /// A key that was asked for. `None` if it has no page, or was not asked for.
    #[inline]
    pub fn find(&self, namespace: &Namespace, id: u64) -> Option<InPage> {
        if self.keys == 0 {
            return None;
        }
        let (name, place) = PageId::of(namespace, id);
        let number = self.pages.find(&name)?;
        let page = self.pages.get(number)?;
        let next = page.keys.next[place];
        (next > 0).then_some(InPage { page: number, place, next, section: page.section })
    }

    /// Lets `act` move the cursor of a key that was asked for. It is told the number of the key's section. `None` as in
    /// [`Pages::find`].
    #[inline]
    pub fn with<R>(
        &mut self, namespace: &Namespace, id: u64, act: impl FnOnce(u32, &mut Cursor) -> R,
    ) -> Option<R> {
        let key = self.find(namespace, id)?;
        let mut cursor = Cursor::at(key.next);
        let result = act(key.section, &mut cursor);
        if key.next != cursor.next() {
            self.set(key.page, key.place, cursor.next());
        }
        Some(result)
    }

    /// Adds a key that was not asked for, if its page is there. True if so.
    pub fn insert(&mut self, namespace: &Namespace, id: u64, cursor: &Cursor) -> bool {
        let (name, place) = PageId::of(namespace, id);
        let page = self.pages.find(&name);
        page.is_some_and(|page| self.set(page, place, cursor.next()))
    }

    /// Sets the next number of the id at `place` of a page. False if there is no such page.
    #[inline]
    fn set(&mut self, page: u32, place: usize, next: u64) -> bool {
        let is_tracked = self.pages.tracks_changes();
        let Some(page) = self.pages.get_mut(page) else {
            return false;
        };
        if is_tracked && !is_planted(Bug::PageChangesNotSent) {
            page.keys.changed[place / 64] |= 1 << (place % 64);
        }
        let was = std::mem::replace(&mut page.keys.next[place], next);
        self.keys += usize::from(was == 0);
        true
    }

    /// Adds a page.
    pub fn add(&mut self, page: Page) -> u32 {
        self.keys += page.next_numbers().count();
        self.pages.add(page)
    }

    /// Page number `number`.
    pub fn get(&self, number: u32) -> Option<&Page> {
        self.pages.get(number)
    }

    /// Removes a page. Returns how many of its ids were asked for.
    pub fn remove(&mut self, number: u32) -> usize {
        let removed = self.pages.remove(number);
        let keys = removed.map_or(0, |page| page.next_numbers().count());
        self.keys -= keys;
        keys
    }

    /// How many ids were asked for.
    pub fn len(&self) -> usize {
        self.keys
    }

    /// How many bytes they take, with their numbers in their sections.
    pub fn bytes(&self) -> usize {
        self.pages.bytes() + self.pages.len() * (size_of::<PageOfKeys>() + size_of::<u32>())
    }

    /// How many of these bytes are free for new pages.
    pub fn vacant_bytes(&self) -> usize {
        self.pages.vacant_bytes()
    }
}

// The slot of a key that shares its section with others.

/// A key of a shared section. What every call reads comes first; all of it is half a cache line.
#[derive(Debug)]
#[repr(C)]
pub struct SharedSlot {
    /// The id.
    pub id: u64,
    /// Where the key stands.
    pub cursor: Cursor,
    /// The namespace of the id.
    pub namespace: NamespaceId,
    /// The number of the key's section.
    pub section: u32,
}

impl Slot for SharedSlot {
    type Key = u64;

    fn vacant() -> Self {
        SharedSlot { id: 0, cursor: Cursor::new(), namespace: NOBODY, section: u32::MAX }
    }

    #[inline]
    fn key(&self) -> &u64 {
        &self.id
    }

    #[inline]
    fn namespace(&self) -> NamespaceId {
        self.namespace
    }
}

// A section that keys share.

/// A section that several keys share.
#[derive(Debug)]
pub struct SharedSection {
    /// Its identifier.
    pub id: SectionId,
    /// The section, and the calls that wait for it.
    pub queued: QueuedSection,
    /// The numbers of its pages.
    pub pages: Vec<u32>,
    /// The section was asked, or the hand found a key of it in use, since the hand came by the section.
    pub is_in_use: bool,
    /// The hand found a slot of it, or one was added, since the hand came by the section.
    pub has_slots: bool,
    /// A key in a slot may take numbers without asking the section. The keys of pages always ask.
    pub has_fast_paths: bool,
}

impl SharedSection {
    /// A section that is asked for just now.
    pub fn new(id: SectionId, queued: QueuedSection) -> Self {
        SharedSection {
            id,
            queued,
            pages: Vec::new(),
            is_in_use: true,
            has_slots: true,
            has_fast_paths: false,
        }
    }

    /// No key takes a number at or below it. `None` before the first chunk.
    pub fn floor(&self) -> Option<u64> {
        self.queued.section.owned().map(|owned| owned.floor)
    }

    /// True if the term has no numbers of it, and nobody waits for any.
    pub fn has_nothing(&self) -> bool {
        self.queued.section.owned().is_none() && self.queued.is_quiet()
    }
}

impl Named for SharedSection {
    type Name = SectionId;

    #[inline]
    fn name(&self) -> &SectionId {
        &self.id
    }
}

// The cursors of keys that share sections, wherever they are.

/// The cursors of the keys of one namespace.
pub struct OfNamespace<'a> {
    /// Those in slots.
    pub keys: &'a mut KeyTable<SharedSlot>,
    /// Those in pages.
    pub pages: &'a mut Pages,
    /// The namespace.
    pub namespace: &'a Namespace,
}

impl Cursors for OfNamespace<'_> {
    fn with<R>(
        &mut self, hash: u64, key: Key<'_>, act: impl FnOnce(&mut Cursor) -> R,
    ) -> Option<R> {
        let Key::Id(id) = key else {
            return None;
        };
        if let Some(number) = self.keys.find(hash, self.namespace.id, &id) {
            return (self.keys.found_mut(number)).map(|slot| act(&mut slot.cursor));
        }
        self.pages.with(self.namespace, id, |_, cursor| act(cursor))
    }
}

// The state of the clock algorithm that evicts shared sections (see `shard/own_keys.rs`).

/// Where the hand is that evicts sections (`evict.rs`).
#[derive(Debug, Default)]
pub struct Hand {
    /// What it goes around.
    pub turn: Turn,
    /// The number of the slot, or of the section, that it looks at next.
    pub next: u32,
    /// True if it evicted a section on its way around the sections.
    pub has_evicted: bool,
}

/// What the hand goes around.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The slots.
    #[default]
    Slots,
    /// The sections.
    Sections,
    /// The slots, because keys of sections that were evicted are there.
    SlotsOfGone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_of_a_shared_key_takes_half_a_cache_line() {
        assert_eq!(size_of::<SharedSlot>(), 32);
    }
}
