//! A table of keys: a slot for each, and an index by hash. Pure.
//!
//! A look-up costs two cache misses at most: one for the index (`index.rs`), one for the slot (`segments.rs`). `hasher.rs`
//! hashes the keys, and `changed_slots.rs` knows which slots another node must be sent. `numbered.rs` is the same for what few
//! calls look up: shared sections, and pages of keys.
//!
//! Invariant: a slot that lost its key is vacant until another key takes it. While changes are tracked, no slot loses its
//! key and no key takes a vacant one: the reader of the changes is told of a slot's key once.

pub(super) mod changed_slots;
pub(super) mod hasher;
mod index;
pub(super) mod numbered;
mod segments;

use std::hint::black_box;

use self::{changed_slots::ChangedSlot, hasher::Hasher, index::Index, segments::Segments};
use crate::sequence::{Key, NamespaceId};

/// A table with fewer slots, and those of the other shards, fit into the processor's cache.
const LARGE: usize = 1_024;
/// A table with fewer slots keeps them.
const SHRUNK_MIN: usize = 4_096;

/// A key, as it is stored.
pub trait StoredKey: Default {
    /// The type that a reference to the key points to.
    type Target: ?Sized + PartialEq;

    /// Copies a key out of its message.
    fn store(key: &Self::Target) -> Self;

    /// The stored key, borrowed.
    fn borrow(&self) -> &Self::Target;

    /// The key, of whichever kind.
    fn as_key(key: &Self::Target) -> Key<'_>;
}

impl StoredKey for u64 {
    type Target = u64;

    fn store(id: &u64) -> Self {
        *id
    }

    #[inline]
    fn borrow(&self) -> &u64 {
        self
    }

    #[inline]
    fn as_key(id: &u64) -> Key<'_> {
        Key::Id(*id)
    }
}

impl StoredKey for Box<[u8]> {
    type Target = [u8];

    fn store(name: &[u8]) -> Self {
        name.into()
    }

    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }

    #[inline]
    fn as_key(name: &[u8]) -> Key<'_> {
        Key::Name(name)
    }
}

/// The namespace of a vacant slot. Those of keys begin at 1.
pub const NOBODY: NamespaceId = NamespaceId(0);

/// A slot of the table.
pub trait Slot {
    /// Its key, as it is stored.
    type Key: StoredKey;

    /// A slot without a key. Its namespace is [`NOBODY`].
    fn vacant() -> Self;

    /// Its key.
    fn key(&self) -> &KeyOf<Self>;

    /// The namespace of its key.
    fn namespace(&self) -> NamespaceId;
}

/// A key of a table, while it is in its message.
pub type KeyOf<S> = <<S as Slot>::Key as StoredKey>::Target;

/// A table of keys.
#[derive(Debug)]
pub struct KeyTable<S> {
    slots: Segments<S>,
    index: Index,
    /// The numbers of the vacant slots.
    vacant: Vec<u32>,
}

impl<S> Default for KeyTable<S> {
    fn default() -> Self {
        KeyTable { slots: Segments::default(), index: Index::default(), vacant: Vec::new() }
    }
}

impl<S: Slot> KeyTable<S> {
    /// The index of the slot of a key whose hash is `hash`.
    #[inline]
    pub fn find(&self, hash: u64, namespace: NamespaceId, key: &KeyOf<S>) -> Option<u32> {
        self.index.find(hash, |number| {
            let slot = self.slots.get(number);
            slot.is_some_and(|slot| slot.key() == key && slot.namespace() == namespace)
        })
    }

    /// Brings what [`KeyTable::find`] and [`KeyTable::get_mut`] read of these keys into the cache. These reads do not
    /// depend on one another, so that the processor overlaps their cache misses. In a table that fits into the cache
    /// they would cost more than they save: nothing is done then.
    pub fn touch(&self, hashes: impl Iterator<Item = u64> + Clone) {
        if self.len() < LARGE {
            return;
        }
        // First the index: a search that must guess where its key is would wait for each miss.
        let mut sum = 0;
        for hash in hashes.clone() {
            sum ^= self.index.first_entry(hash);
        }
        for hash in hashes {
            let slot = self.index.find(hash, |_| true);
            let slot = slot.and_then(|number| self.slots.get(number));
            sum ^= slot.map_or(0, |slot| slot.namespace().0);
        }
        // So that the reads are made.
        black_box(sum);
    }

    /// The slot of the key that [`KeyTable::find`] found.
    #[inline]
    pub fn found_mut(&mut self, number: u32) -> Option<&mut S> {
        self.slots.get_mut(number)
    }

    /// Slot number `number`, if it has a key.
    pub fn get(&self, number: u32) -> Option<&S> {
        self.slots.get(number).filter(|slot| has_key(*slot))
    }

    /// Slot number `number`, if it has a key, to be changed.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut S> {
        self.slots.get_mut(number).filter(|slot| has_key(*slot))
    }

    /// As [`KeyTable::get_mut`], to be changed in what a reader of the changes need not know.
    pub fn get_mut_unnoted(&mut self, number: u32) -> Option<&mut S> {
        let slot = self.slots.get_mut_unnoted(number);
        slot.filter(|slot| has_key(*slot))
    }

    /// Adds the slot of a key that is not in the table and whose hash is `hash`. Returns its number.
    pub fn add(&mut self, hasher: &Hasher, hash: u64, slot: S) -> u32 {
        assert!(has_key(&slot), "a slot without a key is vacant");
        let reused = match self.slots.tracks_changes() {
            true => None,
            false => self.vacant.pop(),
        };
        self.put(hasher, hash, slot, reused)
    }

    /// As [`KeyTable::add`], in a slot behind all others: a table that is sent has the numbers of its sender.
    pub fn append(&mut self, hasher: &Hasher, hash: u64, slot: S) -> u32 {
        self.put(hasher, hash, slot, None)
    }

    /// Adds a key in a vacant slot, or in a new one.
    fn put(&mut self, hasher: &Hasher, hash: u64, slot: S, reused: Option<u32>) -> u32 {
        let number = reused.unwrap_or(self.slots.len() as u32);
        let hashes = || numbered(&self.slots).map(|(number, slot)| (number, hash_of(hasher, slot)));
        self.index.add(hash, number, hashes);
        match reused.and_then(|number| self.slots.get_mut(number)) {
            Some(vacant) => *vacant = slot,
            None => self.slots.push(slot),
        }
        number
    }

    /// Removes the key of slot number `number`, which has one. The slot is vacant then.
    pub fn remove(&mut self, hasher: &Hasher, number: u32) -> Option<S> {
        assert!(!self.slots.tracks_changes(), "the receiver would keep the key");
        let hash = hash_of(hasher, self.get(number)?);
        let slots = &self.slots;
        self.index
            .remove(hash, number, |other| slots.get(other).map_or(0, |slot| hash_of(hasher, slot)));
        self.vacant.push(number);
        let slot = self.slots.get_mut(number)?;
        Some(std::mem::replace(slot, S::vacant()))
    }

    /// Gives memory back once less than a quarter of the slots have keys. The slots get other numbers then. True if so.
    pub fn shrink(&mut self, hasher: &Hasher) -> bool {
        let slots = self.slots.len();
        if slots < SHRUNK_MIN || self.len() >= slots / 4 || self.slots.tracks_changes() {
            return false;
        }
        let sparse = std::mem::take(self);
        for slot in sparse.slots.into_iter().filter(has_key) {
            let hash = hash_of(hasher, &slot);
            self.add(hasher, hash, slot);
        }
        true
    }

    /// Adds a vacant slot.
    pub fn add_vacant(&mut self) {
        self.vacant.push(self.slots.len() as u32);
        self.slots.push(S::vacant());
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// How many slots there are, with those that are vacant.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// All slots with keys, and their numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &S)> {
        numbered(&self.slots)
    }

    /// All slots with keys, in the order of their numbers, to be changed in what a reader of the changes need not know.
    pub fn iter_mut_unnoted(&mut self) -> impl Iterator<Item = &mut S> {
        (self.slots.iter_mut_unnoted()).filter(|slot| has_key(*slot))
    }

    /// Begins to track changes, with all slots as changed ones, or ends it.
    pub fn track_changes(&mut self, track: bool) {
        self.slots.track_changes(track);
    }

    /// The next slot that was changed; a vacant one is taken once. `None` at the end of the delta.
    pub fn take_changed(&mut self) -> Option<(ChangedSlot, &S)> {
        loop {
            let (changed, slot) = self.slots.take_changed()?;
            if changed.is_new || has_key(slot) {
                // Asked for once more: a borrow cannot leave the loop.
                return Some((changed, self.slots.get(changed.number)?));
            }
        }
    }

    /// Begins the next delta of the changed slots.
    pub fn rewind_changes(&mut self) {
        self.slots.rewind_changes();
    }

    /// How many bytes the table takes, without the bytes of names.
    pub fn bytes(&self) -> usize {
        let vacant = self.vacant.capacity() * size_of::<u32>();
        self.slots.bytes() + self.index.bytes() + vacant
    }

    /// True while changes are tracked.
    pub fn tracks_changes(&self) -> bool {
        self.slots.tracks_changes()
    }

    /// How many of these bytes are the vacant slots'.
    pub fn vacant_bytes(&self) -> usize {
        self.vacant.len() * size_of::<S>()
    }
}

/// True unless the slot is vacant.
pub fn has_key<S: Slot>(slot: &S) -> bool {
    slot.namespace() != NOBODY
}

fn numbered<S: Slot>(slots: &Segments<S>) -> impl Iterator<Item = (u32, &S)> {
    (0..).zip(slots.iter()).filter(|(_, slot)| has_key(*slot))
}

fn hash_of<S: Slot>(hasher: &Hasher, slot: &S) -> u64 {
    hasher.key(slot.namespace(), S::Key::as_key(slot.key()))
}

#[cfg(test)]
mod tests;
