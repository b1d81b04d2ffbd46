//! Remembers which slots of a list were changed since a reader took the changes last. Pure.
//!
//! While a memory is sent to another node, calls go on changing it. The slots that they change are sent again.

/// One reader's tracking of a memory's changes. A change is taken once, so it must not go to a reader that was given up
/// and whose last read comes late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tracking(pub u64);

/// The numbers of changed slots. They are taken delta by delta, each in ascending order. A slot that is noted below the
/// position of the delta belongs to the next one.
#[derive(Debug, Default)]
pub struct ChangedSlots {
    /// A bit for each slot.
    words: Vec<u64>,
    /// The slot that the delta has come to.
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

    /// The next slot of the delta. `None` at its end.
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

    /// Begins the next delta.
    pub fn rewind(&mut self) {
        self.from = 0;
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests;
