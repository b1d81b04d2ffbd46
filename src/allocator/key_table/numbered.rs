//! A table of named things, each under a number that it keeps. Pure.
//!
//! Invariant: a number belongs to one thing until that is removed. While changes are tracked, nothing is removed and no
//! number is given again: the reader of the changes is told of a thing's name once.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{changed_slots::ChangedSlot, segments::Segments};

/// A thing that has a name.
pub trait Named {
    /// The type of its name.
    type Name: Hash + Eq;

    /// Its name.
    fn name(&self) -> &Self::Name;
}

/// Things under numbers.
#[derive(Debug)]
pub struct Numbered<T> {
    /// A vacant slot has nothing.
    slots: Segments<Option<T>>,
    /// The numbers, by the hashes of the names.
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// The numbers of the vacant slots.
    vacant: Vec<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Numbered {
            slots: Segments::default(),
            numbers: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            vacant: Vec::new(),
        }
    }
}

impl<T: Named> Numbered<T> {
    /// The number of the thing with this name.
    #[inline]
    pub fn find(&self, name: &T::Name) -> Option<u32> {
        let is_it = |&number: &u32| self.get(number).is_some_and(|one| one.name() == name);
        let found = self.numbers.find(self.hasher.hash_one(name), is_it);
        found.copied()
    }

    /// The thing under `number`.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(number)?.as_ref()
    }

    /// The thing under `number`, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number)?.as_mut()
    }

    /// Adds a thing whose name is not in the table. Returns its number.
    pub fn add(&mut self, one: T) -> u32 {
        let reused = match self.slots.tracks_changes() {
            true => None,
            false => self.vacant.pop(),
        };
        self.put(one, reused)
    }

    /// As [`Numbered::add`], behind all others: a table that was sent keeps its sender's numbers.
    pub fn append(&mut self, one: T) -> u32 {
        self.put(one, None)
    }

    fn put(&mut self, one: T, reused: Option<u32>) -> u32 {
        let number = reused.unwrap_or_else(|| {
            u32::try_from(self.slots.len()).expect("memory ends before 2^32 things")
        });
        let hash = self.hasher.hash_one(one.name());
        match reused.and_then(|number| self.slots.get_mut(number)) {
            Some(vacant) => *vacant = Some(one),
            None => self.slots.push(Some(one)),
        }
        let (slots, hasher) = (&self.slots, &self.hasher);
        let hash_of = |&number: &u32| {
            let one = slots.get(number).and_then(Option::as_ref);
            one.map_or(0, |one| hasher.hash_one(one.name()))
        };
        self.numbers.insert_unique(hash, number, hash_of);
        number
    }

    /// Adds a vacant slot.
    pub fn add_vacant(&mut self) {
        self.vacant.push(self.slots());
        self.slots.push(None);
    }

    /// How many slots there are, with those that are vacant.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Removes number `number`. It is vacant then.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        assert!(!self.slots.tracks_changes(), "the receiver would keep the thing");
        let removed = self.slots.get_mut(number)?.take()?;
        let hash = self.hasher.hash_one(removed.name());
        if let Ok(entry) = (self.numbers).find_entry(hash, |&other| other == number) {
            entry.remove();
        }
        self.vacant.push(number);
        Some(removed)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// All of them, and their numbers, in order.
    pub fn into_numbered(self) -> impl Iterator<Item = (u32, T)> {
        let numbered = (0..).zip(self.slots.into_iter());
        numbered.filter_map(|(number, slot)| Some((number, slot?)))
    }

    /// Begins to track changes, with all slots as changed ones, or ends it.
    pub fn track_changes(&mut self, track: bool) {
        self.slots.track_changes(track);
    }

    /// True while changes are tracked.
    #[inline]
    pub fn tracks_changes(&self) -> bool {
        self.slots.tracks_changes()
    }

    /// The next slot that was changed; a vacant one is taken once. `None` at the end of the delta.
    pub fn take_changed(&mut self) -> Option<(ChangedSlot, Option<&mut T>)> {
        let changed = loop {
            let (changed, slot) = self.slots.take_changed()?;
            if changed.is_new || slot.is_some() {
                break changed;
            }
        };
        // Asked for once more: a borrow cannot leave the loop.
        let slot = self.slots.get_mut_unnoted(changed.number)?;
        Some((changed, slot.as_mut()))
    }

    /// Begins the next delta of the changed slots.
    pub fn rewind_changes(&mut self) {
        self.slots.rewind_changes();
    }

    /// How many bytes it takes, without what its things hold elsewhere.
    pub fn bytes(&self) -> usize {
        let vacant = self.vacant.capacity() * size_of::<u32>();
        self.slots.bytes() + self.numbers.allocation_size() + vacant
    }

    /// How many of these bytes are the vacant slots'.
    pub fn vacant_bytes(&self) -> usize {
        self.vacant.len() * size_of::<Option<T>>()
    }
}

#[cfg(test)]
mod tests;
