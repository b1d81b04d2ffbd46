//! A table of keys: one slot for each, in the order of their arrival, and an index by hash. Pure.
//!
//! A look-up costs two cache misses at most: one for the index, one for the slot.

use std::hint::black_box;

use super::{changed_slots::ChangedSlot, hasher::Hasher, index::Index, segments::Segments};
use crate::sequence::{Key, NamespaceId};

/// A table with fewer slots, and those of the other shards, fit into the processor's cache.
const LARGE: usize = 1_024;

/// What a key is stored as.
pub trait StoredKey {
    /// What a reference to the key points to.
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

/// A slot of the table.
pub trait Slot {
    /// What its key is stored as.
    type Key: StoredKey;

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
}

impl<S> Default for KeyTable<S> {
    fn default() -> Self {
        KeyTable {
            slots: Segments::default(),
            index: Index::default(),
        }
    }
}

impl<S: Slot> KeyTable<S> {
    /// The number of the slot of a key whose hash is `hash`.
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

    /// Slot number `number`.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&S> {
        self.slots.get(number)
    }

    /// Slot number `number`, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut S> {
        self.slots.get_mut(number)
    }

    /// Adds the slot of a key that is not in the table and whose hash is `hash`. Returns its number.
    pub fn push(&mut self, hasher: &Hasher, hash: u64, slot: S) -> u32 {
        let hash_of = |slot: &S| hasher.key(slot.namespace(), S::Key::as_key(slot.key()));
        let number = self.index.push(hash, || self.slots.iter().map(hash_of));
        debug_assert_eq!(number as usize, self.slots.len());
        self.slots.push(slot);
        number
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// All slots, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.slots.iter()
    }

    /// All slots, in the order of their numbers, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.slots.iter_mut()
    }

    /// Begins to track changes, with all slots as changed ones, or ends it.
    pub fn track_changes(&mut self, track: bool) {
        self.slots.track_changes(track);
    }

    /// The next slot that was changed. `None` at the end of the pass.
    pub fn take_changed(&mut self) -> Option<(ChangedSlot, &S)> {
        self.slots.take_changed()
    }

    /// Begins another pass over the changed slots.
    pub fn rewind_changes(&mut self) {
        self.slots.rewind_changes();
    }

    /// How many bytes the table takes, without the bytes of names.
    pub fn bytes(&self) -> usize {
        self.slots.bytes() + self.index.bytes()
    }
}

#[cfg(test)]
mod tests;
