//! Things that have names, under numbers that stay. Pure.
//!
//! Invariant: a number belongs to one thing until that is removed. While changes are tracked, nothing is removed and no
//! number is given again: whoever reads the changes is told of a thing's name once.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{changed_slots::ChangedSlot, segments::Segments};

/// A thing that has a name.
pub trait Named {
    /// What its name is.
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
    /// The number of what has this name.
    #[inline]
    pub fn find(&self, name: &T::Name) -> Option<u32> {
        let is_it = |&number: &u32| self.get(number).is_some_and(|one| one.name() == name);
        let found = self.numbers.find(self.hasher.hash_one(name), is_it);
        found.copied()
    }

    /// Number `number`.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(number)?.as_ref()
    }

    /// Number `number`, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number)?.as_mut()
    }

    /// Adds what has a name that is not here. Returns its number.
    pub fn add(&mut self, one: T) -> u32 {
        let reused = match self.slots.tracks_changes() {
            true => None,
            false => self.vacant.pop(),
        };
        self.put(one, reused)
    }

    /// As [`Numbered::add`], behind all others: what is sent has the numbers of its sender.
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
        debug_assert!(!self.slots.tracks_changes(), "the receiver would keep the thing");
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

    /// The next slot that was changed; a vacant one is taken once. `None` at the end of the pass.
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

    /// Begins another pass over the changed slots.
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
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Thing(String);

    impl Named for Thing {
        type Name = String;

        fn name(&self) -> &String {
            &self.0
        }
    }

    fn thing(number: u32) -> Thing {
        Thing(number.to_string())
    }

    #[test]
    fn a_thing_is_found_by_its_name_under_the_number_that_it_got() {
        let mut things = Numbered::default();
        for number in 0..5_000 {
            assert_eq!(things.find(&number.to_string()), None);
            assert_eq!(things.add(thing(number)), number);
        }
        for number in 0..5_000 {
            assert_eq!(things.find(&number.to_string()), Some(number));
            assert_eq!(things.get(number), Some(&thing(number)));
        }
        assert_eq!(things.len(), 5_000);
        assert!(things.bytes() > 5_000 * size_of::<Thing>());
        let all: Vec<(u32, Thing)> = things.into_numbered().collect();
        assert_eq!(all[4_999], (4_999, thing(4_999)));
    }

    #[test]
    fn the_number_of_what_was_removed_goes_to_the_next_thing() {
        let mut things = Numbered::default();
        for number in 0..100 {
            things.add(thing(number));
        }
        assert_eq!(things.remove(7), Some(thing(7)));
        assert_eq!(things.remove(7), None);
        assert_eq!((things.find(&"7".to_owned()), things.get(7)), (None, None));
        assert_eq!((things.len(), things.slots()), (99, 100));
        assert_eq!(things.vacant_bytes(), size_of::<Thing>());
        assert_eq!(things.append(thing(100)), 100);
        assert_eq!(things.add(thing(101)), 7);
        assert_eq!(things.find(&"101".to_owned()), Some(7));
        for number in (0..7).chain(8..101) {
            assert_eq!(things.find(&number.to_string()), Some(number));
        }
    }

    #[test]
    fn what_was_changed_is_taken_once_in_each_pass() {
        let mut things = Numbered::default();
        for number in 0..3 {
            things.add(thing(number));
        }
        things.add_vacant();
        things.track_changes(true);
        let pass = |things: &mut Numbered<Thing>| {
            things.rewind_changes();
            let changes = std::iter::from_fn(|| {
                let (changed, one) = things.take_changed()?;
                Some((changed.number, changed.is_new, one.map(|one| one.0.clone())))
            });
            changes.collect::<Vec<_>>()
        };
        let new = |number: u32| (number, true, (number < 3).then(|| number.to_string()));
        assert_eq!(pass(&mut things), [new(0), new(1), new(2), new(3)]);
        assert!(things.get_mut(1).is_some() && things.get_mut(3).is_none());
        // Behind the vacant one: the receiver counts as the sender does.
        assert_eq!(things.add(thing(4)), 4);
        let changed = [(1, false, Some("1".to_owned())), (4, true, Some("4".to_owned()))];
        assert_eq!(pass(&mut things), changed);
        assert!(pass(&mut things).is_empty());
    }
}
