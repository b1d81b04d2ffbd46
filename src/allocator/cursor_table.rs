//! The cursors of a shard, by key: a hash table with entries of 32 bytes for ids. Pure.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::cursor::Cursor;
use crate::sequence::{Key, Namespace, NamespaceId};

/// One key and where it stands.
#[derive(Debug)]
struct Slot<K> {
    key: K,
    cursor: Cursor,
}

/// The cursors of a shard.
#[derive(Debug, Default)]
pub struct CursorTable {
    ids: HashTable<Slot<u64>>,
    names: HashTable<Slot<Box<[u8]>>>,
    /// The length of all names together.
    name_bytes: usize,
}

/// Hashes keys and sections. Seeded, so that nobody can choose keys that collide.
#[derive(Debug, Clone, Default)]
pub struct Hasher(DefaultHashBuilder);

impl Hasher {
    /// The hash of a key.
    #[inline]
    pub fn key(&self, namespace: NamespaceId, key: Key<'_>) -> u64 {
        match key {
            Key::Id(id) => self.id(namespace.0, id),
            Key::Name(name) => self.name(namespace.0, name),
        }
    }

    /// The hash of the section of a key, whose own hash is `key_hash`. It chooses the shard, so that a
    /// section and its keys are in one shard.
    #[inline]
    pub fn section(&self, key_hash: u64, namespace: &Namespace, key: Key<'_>) -> u64 {
        match (key, namespace.config.section_size) {
            (Key::Id(_), 1) | (Key::Name(_), _) => key_hash,
            (Key::Id(id), size) => self.id(namespace.id.0, id / size),
        }
    }

    #[inline]
    fn id(&self, namespace: u32, id: u64) -> u64 {
        self.0.hash_one((id, namespace))
    }

    #[inline]
    fn name(&self, namespace: u32, name: &[u8]) -> u64 {
        self.0.hash_one((name, namespace))
    }
}

impl CursorTable {
    /// The cursor of a key whose hash is `hash`. `None` if it was not asked for in this term.
    #[inline]
    pub fn find(&mut self, hash: u64, namespace: NamespaceId, key: Key<'_>) -> Option<&mut Cursor> {
        match key {
            Key::Id(id) => {
                let same =
                    |slot: &Slot<u64>| slot.key == id && slot.cursor.namespace == namespace.0;
                self.ids.find_mut(hash, same).map(|slot| &mut slot.cursor)
            }
            Key::Name(name) => {
                let same = |slot: &Slot<Box<[u8]>>| {
                    *slot.key == *name && slot.cursor.namespace == namespace.0
                };
                self.names.find_mut(hash, same).map(|slot| &mut slot.cursor)
            }
        }
    }

    /// Adds a key that is not in the table.
    pub fn insert(&mut self, hasher: &Hasher, hash: u64, key: Key<'_>, cursor: Cursor) {
        match key {
            Key::Id(key) => {
                let slot = Slot { key, cursor };
                let rehash = |slot: &Slot<u64>| hasher.id(slot.cursor.namespace, slot.key);
                self.ids.insert_unique(hash, slot, rehash);
            }
            Key::Name(name) => {
                self.name_bytes += name.len();
                let key = name.into();
                let slot = Slot { key, cursor };
                let rehash = |slot: &Slot<Box<[u8]>>| hasher.name(slot.cursor.namespace, &slot.key);
                self.names.insert_unique(hash, slot, rehash);
            }
        }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.ids.len() + self.names.len()
    }

    /// How many bytes the table and its names take.
    pub fn bytes(&self) -> usize {
        // A hash table adds one byte to each bucket.
        let (id, name) = (size_of::<Slot<u64>>() + 1, size_of::<Slot<Box<[u8]>>>() + 1);
        self.ids.num_buckets() * id + self.names.num_buckets() * name + self.name_bytes
    }

    /// The length of all names together.
    pub fn name_bytes(&self) -> usize {
        self.name_bytes
    }

    /// All cursors.
    pub fn iter(&self) -> impl Iterator<Item = &Cursor> {
        let names = self.names.iter().map(|slot| &slot.cursor);
        self.ids.iter().map(|slot| &slot.cursor).chain(names)
    }

    /// All cursors, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Cursor> {
        let names = self.names.iter_mut().map(|slot| &mut slot.cursor);
        self.ids
            .iter_mut()
            .map(|slot| &mut slot.cursor)
            .chain(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_of_an_id_is_half_a_cache_line() {
        assert_eq!(size_of::<Slot<u64>>(), 32);
    }
}
