//! The index beside a standard map.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Keys by the numbers of their slots, their index, and what must be found.
#[derive(Default)]
struct World {
    keys: Vec<u64>,
    index: Index,
    expected: HashMap<u64, u32>,
    /// Slots without a key.
    vacant: Vec<u32>,
}

impl World {
    fn push(&mut self, key: u64, hash_of: fn(u64) -> u64) {
        let number = self.vacant.pop().unwrap_or(self.keys.len() as u32);
        let hashes = || (self.expected.iter()).map(|(&key, &number)| (number, hash_of(key)));
        self.index.add(hash_of(key), number, hashes);
        match self.keys.get_mut(number as usize) {
            Some(vacant) => *vacant = key,
            None => self.keys.push(key),
        }
        self.expected.insert(key, number);
    }

    fn remove(&mut self, key: u64, hash_of: fn(u64) -> u64) {
        let number = self.expected.remove(&key).expect("a key");
        let keys = &self.keys;
        let hash_of_slot = |number: u32| hash_of(keys[number as usize]);
        self.index.remove(hash_of(key), number, hash_of_slot);
        self.vacant.push(number);
    }

    fn find(&self, key: u64, hash_of: fn(u64) -> u64) -> Option<u32> {
        let is_it = |number: u32| self.keys[number as usize] == key;
        self.index.find(hash_of(key), is_it)
    }
}

/// A hash whose bits are all in use, as those of the memory are.
fn good(key: u64) -> u64 {
    let mixed = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Few hashes, so that keys share places and tags.
fn poor(key: u64) -> u64 {
    key % 5 * 0x1111_1111_1111
}

/// The same place for all keys, at the end of the table, and tags that are all ones.
fn last_place(_: u64) -> u64 {
    u64::MAX
}

proptest! {
    #[test]
    fn each_key_is_found_at_its_number_and_no_other_key_is(
        keys in prop::collection::vec((0u64..2_000, 0..3), 1..1_000), kind in 0usize..3,
    ) {
        let hash_of = [good, poor, last_place][kind];
        let mut world = World::default();
        for &(key, dice) in &keys {
            if world.find(key, hash_of).is_none() {
                world.push(key, hash_of);
            } else if dice > 0 {
                world.remove(key, hash_of);
            }
            // Now and then some old key goes.
            if dice == 2 && let Some(&old) = world.expected.keys().min() {
                world.remove(old, hash_of);
            }
        }
        for key in 0..2_000 {
            prop_assert_eq!(world.find(key, hash_of), world.expected.get(&key).copied());
        }
    }
}

#[test]
fn an_empty_index_holds_nothing_and_takes_nothing() {
    let index = Index::default();
    assert_eq!(index.find(7, |_| true), None);
    assert_eq!(index.bytes(), 0);
}

#[test]
fn an_index_takes_at_most_10_bytes_for_each_key_once_it_has_grown() {
    let mut world = World::default();
    for key in 0..100_000 {
        world.push(key, good);
        let bytes = world.index.bytes() as f64 / world.keys.len() as f64;
        assert!(key < 8 || (4.5..10.0).contains(&bytes), "{bytes} at {key}");
    }
}

#[test]
fn a_look_up_compares_hardly_any_key_but_the_one_that_is_meant() {
    let mut world = World::default();
    (0..100_000).for_each(|key| world.push(key, good));
    let mut compared = 0;
    for key in 0..100_000 {
        let is_it = |number: u32| {
            compared += 1;
            world.keys[number as usize] == key
        };
        world.index.find(good(key), is_it).unwrap();
    }
    assert!(compared < 100_100, "{compared}");
}
