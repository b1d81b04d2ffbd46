//! The cursor of a key: its next number, and the number up to which it need not ask its section. Pure.
//!
//! A cursor hands out numbers by itself up to its fast limit; beyond it, the section decides. It also knows whether its key
//! was asked for lately.
//!
//! Invariant: a cursor only moves up.

use crate::sequence::{NamespaceConfig, Range};

/// The fast limit of a cursor that must ask its section. Numbers begin at 1, so none is within it.
const ASK_SECTION: u64 = 0;
/// This bit of the fast limit says that the key was asked for lately. Numbers have 63 bits.
const IN_USE: u64 = 1 << 63;

/// Where a key stands.
#[derive(Debug, Clone, Copy)]
pub struct Cursor {
    /// The next number, if the section has that many.
    next: u64,
    /// Numbers up to this one are handed out without asking the section. Also holds [`IN_USE`].
    fast_limit: u64,
}

impl Cursor {
    /// A key that was not asked for in this term: the section gives its first number.
    pub fn new() -> Self {
        Cursor { next: 1, fast_limit: ASK_SECTION | IN_USE }
    }

    /// A key whose next number is `next`, if its section has that many.
    pub fn at(next: u64) -> Self {
        Cursor { next, fast_limit: ASK_SECTION | IN_USE }
    }

    /// Takes the next `count` (at least 1) numbers. `None` if the section must be asked.
    #[inline]
    pub fn take(&mut self, config: &NamespaceConfig, count: u64) -> Option<Range> {
        let span = (count - 1).checked_mul(config.increment)?;
        let last = self.next.checked_add(span)?;
        if last > self.fast_limit() || last > config.max {
            return None;
        }
        Some(self.move_to(last, config.increment))
    }

    /// Takes the numbers up to and including `last`, which the section lets it take.
    pub fn advance(&mut self, last: u64, increment: u64) -> Range {
        // `Cursor::take` makes whole increments itself. There this would cost a message of 1 000 keys 4.9 % more instructions.
        let is_whole = last.checked_sub(self.next).is_some_and(|by| by.is_multiple_of(increment));
        assert!(is_whole, "a cursor moves by increments of {increment}: {} to {last}", self.next);
        self.move_to(last, increment)
    }

    #[inline]
    fn move_to(&mut self, last: u64, increment: u64) -> Range {
        let first = self.next;
        assert!(first <= last, "a cursor only moves up: {first} to {last}");
        // Both are at most 2^63 - 1.
        self.next = last + increment;
        self.fast_limit |= IN_USE;
        Range { first, last, increment }
    }

    /// The next number, if the section has that many.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Skips the numbers below `lowest`.
    pub fn raise_to(&mut self, lowest: u64) {
        self.next = self.next.max(lowest);
    }

    /// The last number taken, if `lowest` was the first that could be taken. `None` if none was.
    pub fn last(&self, lowest: u64, increment: u64) -> Option<u64> {
        (self.next > lowest).then(|| self.next - increment)
    }

    /// Numbers up to this one are handed out without asking the section.
    #[inline]
    pub fn fast_limit(&self) -> u64 {
        self.fast_limit & !IN_USE
    }

    /// Lets the key take numbers up to `limit` without asking the section.
    pub fn set_fast_limit(&mut self, limit: u64) {
        assert!(limit < IN_USE, "{limit} is no number");
        self.fast_limit = limit | self.fast_limit & IN_USE;
    }

    /// Makes the next call for this key ask the section.
    pub fn stop_fast_path(&mut self) {
        self.set_fast_limit(ASK_SECTION);
    }

    /// True if the key was asked for since the last call of [`Cursor::take_in_use`].
    pub fn is_in_use(&self) -> bool {
        self.fast_limit & IN_USE > 0
    }

    /// True if the key was asked for since the last call of this.
    pub fn take_in_use(&mut self) -> bool {
        let was = self.is_in_use();
        self.fast_limit &= !IN_USE;
        was
    }
}

#[cfg(test)]
mod tests;
