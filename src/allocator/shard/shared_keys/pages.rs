//! Dense keys: pages of neighbouring ids of one section. A key takes 8 bytes there, for its next number. `pages/changes.rs`
//! has pages on their way to another node.
//!
//! A key of a page always asks its section: it has no fast limit.
//!
//! Invariant: a page's keys are of one section.

mod changes;

use crate::{
    allocator::{
        key_table::numbered::{Named, Numbered},
        section::cursor::Cursor,
    },
    planted_bugs::{Bug, is_planted},
    sequence::{Namespace, NamespaceId},
};

/// How many neighbouring ids a page has room for.
pub const PAGE_KEYS: usize = 256;

/// The name of a page.
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
