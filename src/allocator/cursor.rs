//! Where the keys stand: what every number touches. Pure.
//!
//! Invariant: a cursor only moves up.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::sequence::{Key, Namespace, NamespaceConfig, NamespaceId, Range};

/// Where a key stands; the part of the memory that every number touches.
#[derive(Debug, Clone, Copy)]
pub struct Cursor {
    /// The next number, if the section has that many.
    pub next: u64,
    /// Up to here numbers are handed out without asking the section.
    pub soft: u64,
    /// Whose section this is.
    pub namespace: u32,
    /// Its place in the shard.
    pub section: u32,
}

impl Cursor {
    /// A key that was not asked for in this term.
    pub fn new(namespace: u32, section: u32) -> Self {
        Cursor {
            // Above `soft`: the first number is the section's to give.
            next: 1,
            soft: 0,
            namespace,
            section,
        }
    }

    /// Takes the next `count` (at least 1) numbers, unless the section must be asked.
    #[inline]
    pub fn take(&mut self, config: &NamespaceConfig, count: u64) -> Option<Range> {
        let span = (count - 1).checked_mul(config.increment)?;
        let last = self.next.checked_add(span)?;
        if last > self.soft || last > config.max {
            return None;
        }
        Some(self.advance(last, config.increment))
    }

    /// The last number handed out, where the first one would have been `lowest`.
    pub fn last(&self, lowest: u64, increment: u64) -> Option<u64> {
        (self.next > lowest).then(|| self.next - increment)
    }

    /// Sends the next taker to the section.
    pub fn consult(&mut self) {
        self.soft = 0;
    }

    /// Takes the numbers up to `last`.
    pub fn advance(&mut self, last: u64, increment: u64) -> Range {
        let first = self.next;
        // Both are at most 2^63 - 1.
        self.next = last + increment;
        Range {
            first,
            last,
            increment,
        }
    }
}

/// One key and where it stands.
#[derive(Debug)]
struct Slot<K> {
    key: K,
    cursor: Cursor,
}

/// Where the keys of a shard stand.
#[derive(Debug, Default)]
pub struct Cursors {
    ids: HashTable<Slot<u64>>,
    names: HashTable<Slot<Box<[u8]>>>,
    /// How long the names are together.
    name_bytes: usize,
}

/// Hashes keys and sections; seeded, so that nobody can choose keys that collide.
#[derive(Debug, Clone, Default)]
pub struct Hasher(DefaultHashBuilder);

impl Hasher {
    /// Of a key.
    #[inline]
    pub fn key(&self, namespace: NamespaceId, key: Key<'_>) -> u64 {
        match key {
            Key::Id(id) => self.id(namespace.0, id),
            Key::Name(name) => self.name(namespace.0, name),
        }
    }

    /// Of a section that several ids share.
    #[inline]
    pub fn shared(&self, namespace: NamespaceId, place: u64) -> u64 {
        self.id(namespace.0, place)
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

impl Cursors {
    /// Where a key stands, if it was asked for in this term. `hash` is the key's.
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

    /// Adds a key.
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

    /// What they take.
    pub fn bytes(&self) -> usize {
        // A table has a byte of its own for each place.
        let (id, name) = (size_of::<Slot<u64>>() + 1, size_of::<Slot<Box<[u8]>>>() + 1);
        self.ids.num_buckets() * id + self.names.num_buckets() * name + self.name_bytes
    }

    /// How long the names are together.
    pub fn name_bytes(&self) -> usize {
        self.name_bytes
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Cursor> {
        let names = self.names.iter().map(|slot| &slot.cursor);
        self.ids.iter().map(|slot| &slot.cursor).chain(names)
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Cursor> {
        let names = self.names.iter_mut().map(|slot| &mut slot.cursor);
        self.ids
            .iter_mut()
            .map(|slot| &mut slot.cursor)
            .chain(names)
    }
}

/// The shard of a key: of its section's, so that they are together.
#[inline]
pub fn shard_of(hasher: &Hasher, hash: u64, namespace: &Namespace, key: Key<'_>) -> u64 {
    match (key, namespace.config.section_size) {
        (Key::Id(_), 1) | (Key::Name(_), _) => hash,
        (Key::Id(id), size) => hasher.shared(namespace.id, id / size),
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
