//! Lists of slots that grow without copying: plain ones, which of their slots were changed, and things under numbers
//! that stay. Pure.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

// A list that grows without copying and without holes in the heap.
//
// It consists of segments of `SEGMENT_SLOTS` slots. A `Vec` copies all it holds whenever it doubles,
// has up to half of its memory unused, and leaves holes of the sizes that it outgrew.
//
// While its changes are tracked, it remembers which slots were lent to be changed.
//
// Invariant: all segments but the last are full.

/// How many slots a segment has.
const SEGMENT_SLOTS: usize = 512;

/// A list of slots, numbered from 0.
#[derive(Debug)]
pub struct Segments<S> {
    segments: Vec<Vec<S>>,
    /// `None` while changes are not tracked.
    changed: Option<Box<ChangedSlots>>,
}

impl<S> Default for Segments<S> {
    fn default() -> Self {
        Segments { segments: Vec::new(), changed: None }
    }
}

impl<S> Segments<S> {
    /// Slot number `number`.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&S> {
        let number = number as usize;
        self.segments.get(number / SEGMENT_SLOTS)?.get(number % SEGMENT_SLOTS)
    }

    /// Slot number `number`, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut S> {
        let place = number as usize;
        let segment = self.segments.get_mut(place / SEGMENT_SLOTS)?;
        let slot = segment.get_mut(place % SEGMENT_SLOTS)?;
        if let Some(changed) = &mut self.changed {
            changed.note(number);
        }
        Some(slot)
    }

    /// Slot number `number`, to be changed in what a reader of the changes need not know.
    pub fn get_mut_unnoted(&mut self, number: u32) -> Option<&mut S> {
        let place = number as usize;
        let segment = self.segments.get_mut(place / SEGMENT_SLOTS)?;
        segment.get_mut(place % SEGMENT_SLOTS)
    }

    /// Adds a slot at the end.
    pub fn push(&mut self, slot: S) {
        let number = self.len() as u32;
        if let Some(changed) = &mut self.changed {
            changed.note(number);
        }
        match self.segments.last_mut() {
            Some(last) if last.len() < SEGMENT_SLOTS => last.push(slot),
            // The first segment grows with its slots: most lists of a small memory are short.
            None => self.segments.push(vec![slot]),
            Some(_full) => {
                let mut segment = Vec::with_capacity(SEGMENT_SLOTS);
                segment.push(slot);
                self.segments.push(segment);
            }
        }
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        let full = self.segments.len().saturating_sub(1);
        self.segments.last().map_or(0, |last| full * SEGMENT_SLOTS + last.len())
    }

    /// All slots, in order.
    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.segments.iter().flatten()
    }

    /// All slots, in order, to be changed in what a reader of the changes need not know.
    pub fn iter_mut_unnoted(&mut self) -> impl Iterator<Item = &mut S> {
        self.segments.iter_mut().flatten()
    }

    /// The slots, in order.
    pub fn into_iter(self) -> impl Iterator<Item = S> {
        self.segments.into_iter().flatten()
    }

    /// Begins to track changes, with all slots as changed ones, or ends it.
    pub fn track_changes(&mut self, track: bool) {
        self.changed = track.then(|| Box::new(ChangedSlots::all(self.len())));
    }

    /// True while changes are tracked.
    pub fn tracks_changes(&self) -> bool {
        self.changed.is_some()
    }

    /// The next slot that was changed. `None` at the end of the pass, and while changes are not tracked.
    pub fn take_changed(&mut self) -> Option<(ChangedSlot, &S)> {
        let changed = self.changed.as_mut()?.take_next()?;
        Some((changed, self.get(changed.number)?))
    }

    /// Begins another pass over the changed slots.
    pub fn rewind_changes(&mut self) {
        if let Some(changed) = &mut self.changed {
            changed.rewind();
        }
    }

    /// How many bytes the list takes, without what its slots hold elsewhere.
    pub fn bytes(&self) -> usize {
        let slots: usize = self.segments.iter().map(Vec::capacity).sum();
        let changed = self.changed.as_ref().map_or(0, |changed| changed.bytes());
        slots * size_of::<S>() + self.segments.capacity() * size_of::<Vec<S>>() + changed
    }
}

// Which slots of a list were changed since they were last taken from here.
//
// While a memory is sent to another node, calls go on changing it. What they change is sent again.

/// One reader's tracking of a memory's changes. A change is taken once, so it must not go to a reader that was given up
/// and whose last read comes late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tracking(pub u64);

/// The numbers of changed slots. They are taken in ascending order, in passes. A slot that is noted behind the pass's
/// position is taken in the next pass.
#[derive(Debug, Default)]
pub struct ChangedSlots {
    /// A bit for each slot.
    words: Vec<u64>,
    /// Where the pass is.
    from: u32,
    /// All slots with lower numbers were taken at least once.
    known: u32,
}

/// A slot that was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedSlot {
    /// Its number.
    pub number: u32,
    /// True if it is taken for the first time.
    pub is_new: bool,
}

impl ChangedSlots {
    /// All of `len` slots.
    pub fn all(len: usize) -> Self {
        let mut words = vec![u64::MAX; len / 64];
        if !len.is_multiple_of(64) {
            words.push((1 << (len % 64)) - 1);
        }
        ChangedSlots { words, ..ChangedSlots::default() }
    }

    /// Notes that a slot changed, or is new.
    #[cold]
    pub fn note(&mut self, number: u32) {
        let word = number as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (number % 64);
    }

    /// The next slot of the pass. `None` at its end.
    pub fn take_next(&mut self) -> Option<ChangedSlot> {
        let mut word = self.from as usize / 64;
        let mut mask = u64::MAX << (self.from % 64);
        while word < self.words.len() {
            let bits = self.words[word] & mask;
            if bits != 0 {
                let number = word as u32 * 64 + bits.trailing_zeros();
                self.words[word] &= !(1 << (number % 64));
                self.from = number + 1;
                let is_new = number >= self.known;
                self.known = self.known.max(number + 1);
                return Some(ChangedSlot { number, is_new });
            }
            (word, mask) = (word + 1, u64::MAX);
        }
        None
    }

    /// Begins another pass.
    pub fn rewind(&mut self) {
        self.from = 0;
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

// Things that have names, under numbers that stay.
//
// Invariant: a number belongs to one thing until that is removed. While changes are tracked, nothing is removed and no
// number is given again: whoever reads the changes is told of a thing's name once.

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
mod tests;
