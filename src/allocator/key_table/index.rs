//! The index of a table of slots: from the hash of a key to the number of its slot. Pure.
//!
//! It is a hash table with open addressing and linear probing. An entry has 32 bits. With `2^b` entries,
//! the low `b` bits are the number of a slot, and the other bits are bits of the key's hash (the *tag*).
//! With 2^18 entries 14 bits of the hash agree by accident in one of 16 384 comparisons, so a look-up
//! hardly ever reads the slot of another key.
//!
//! A search ends at an empty entry. So when an entry is removed, those behind it that a search would not reach any more
//! move up (Knuth, The Art of Computer Programming 6.4, algorithm R).
//!
//! Invariant: at most 7 of 8 entries are in use, so that every search ends at an empty one.

/// No slot. It is no entry of a slot: its number would be `2^b - 1`, and no more than 7/8 of `2^b` slots
/// have a number.
const EMPTY: u32 = u32::MAX;
/// How many entries the first table has.
const ENTRIES_MIN: usize = 8;

/// The numbers of slots, by the hashes of their keys.
#[derive(Debug, Default)]
pub struct Index {
    /// Their number is zero or a power of two.
    entries: Vec<u32>,
    /// How many entries are in use.
    len: u32,
}

impl Index {
    /// The number of the slot that `is_it`, among those whose keys may have the hash `hash`.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mask = self.entries.len().wrapping_sub(1);
        let mut place = hash as usize & mask;
        let number_bits = mask as u32;
        let tag = tag(hash, number_bits);
        loop {
            // There is no such place if the index is empty.
            let entry = *self.entries.get(place)?;
            if entry == EMPTY {
                return None;
            }
            if entry & !number_bits == tag && is_it(entry & number_bits) {
                return Some(entry & number_bits);
            }
            place = (place + 1) & mask;
        }
    }

    /// Reads the entry at which a search for a key with the hash `hash` begins. For [`KeyTable::touch`].
    ///
    /// [`KeyTable::touch`]: super::KeyTable::touch
    #[inline]
    pub fn first_entry(&self, hash: u64) -> u32 {
        let mask = self.entries.len().wrapping_sub(1);
        let entry = self.entries.get(hash as usize & mask);
        entry.copied().unwrap_or(EMPTY)
    }

    /// Adds slot number `number`, whose key is not in the index and has the hash `hash`. `hashes` tells the numbers and
    /// hashes of all slots that are in the index.
    pub fn add<H: Iterator<Item = (u32, u64)>>(
        &mut self, hash: u64, number: u32, hashes: impl FnOnce() -> H,
    ) {
        let slots = self.len.max(number) as usize + 1;
        if slots > self.entries.len() / 8 * 7 {
            self.grow(slots, hashes());
        }
        self.len += 1;
        self.insert(hash, number);
    }

    /// Removes slot number `number`, whose key has the hash `hash`. `hash_of` tells the hash of any other slot that is in
    /// the index.
    pub fn remove(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        let mask = self.entries.len() - 1;
        let number_bits = mask as u32;
        let mut hole = hash as usize & mask;
        while self.entries[hole] & number_bits != number || self.entries[hole] == EMPTY {
            assert_ne!(self.entries[hole], EMPTY, "the slot is in the index");
            hole = (hole + 1) & mask;
        }
        self.len -= 1;
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let entry = self.entries[place];
            if entry == EMPTY {
                break;
            }
            let home = hash_of(entry & number_bits) as usize & mask;
            // A search from `home` passes the hole before it comes to `place`.
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(hole) & mask {
                self.entries[hole] = entry;
                hole = place;
            }
        }
        self.entries[hole] = EMPTY;
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u32>()
    }

    /// Doubles the number of entries, once or until there is room for `slots` slots.
    #[cold]
    fn grow(&mut self, slots: usize, hashes: impl Iterator<Item = (u32, u64)>) {
        let mut entries = (self.entries.len() * 2).max(ENTRIES_MIN);
        // Many vacant slots may lie before the one that is added.
        while slots > entries / 8 * 7 {
            entries *= 2;
        }
        assert!(u32::try_from(entries).is_ok(), "memory ends before 2^32 keys");
        // The old entries are not needed, and their memory is free before the new ones take theirs.
        self.entries = Vec::new();
        self.entries = vec![EMPTY; entries];
        hashes.for_each(|(number, hash)| self.insert(hash, number));
    }

    fn insert(&mut self, hash: u64, number: u32) {
        let mask = self.entries.len() - 1;
        let mut place = hash as usize & mask;
        while self.entries[place] != EMPTY {
            place = (place + 1) & mask;
        }
        self.entries[place] = tag(hash, mask as u32) | number;
    }
}

/// The bits of a hash that an entry holds above the number of a slot. The place of an entry comes from
/// the lower half of the hash, the tag from the upper one.
#[inline]
fn tag(hash: u64, number_bits: u32) -> u32 {
    (hash >> 32) as u32 & !number_bits
}

#[cfg(test)]
mod tests;
