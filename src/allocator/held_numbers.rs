//! Numbers that were taken and are not answered yet.
//!
//! Invariant: each number is either answered or counted as skipped, exactly once.

use std::{cell::Cell, ops::Deref, sync::Arc};

use super::outcome::Why;
use crate::{
    metrics::{NamespaceCounts, SkipCause},
    sequence::Range,
};

thread_local! {
    /// How many numbers were burnt by calls on this thread.
    static BURNT: Cell<u64> = const { Cell::new(0) };
}

/// How many numbers were burnt on this thread so far, because a call was dropped that held them. It wraps around. Numbers that
/// are burnt between two looks were burnt by the code that ran between them.
pub fn burnt_on_this_thread() -> u64 {
    BURNT.get()
}

/// How many numbers of a namespace a call has taken. If it is dropped before they are answered, for example because the
/// caller hangs up, they count as skipped.
#[derive(Debug)]
pub struct HeldNumbers<C: Deref<Target = NamespaceCounts>> {
    counts: C,
    numbers: u64,
}

impl<C: Deref<Target = NamespaceCounts>> HeldNumbers<C> {
    /// Holds `numbers` numbers.
    pub fn new(counts: C, numbers: u64) -> Self {
        HeldNumbers { counts, numbers }
    }

    /// Holds `numbers` more.
    pub fn add(&mut self, numbers: u64) {
        self.numbers += numbers;
    }

    /// True if it holds none.
    pub fn is_empty(&self) -> bool {
        self.numbers == 0
    }

    /// Lets go of `numbers` of the numbers, which are counted otherwise. Returns how many they are.
    pub fn split(&mut self, numbers: u64) -> u64 {
        self.numbers -= numbers;
        numbers
    }

    /// Notes that the numbers are counted otherwise. Returns how many they are.
    pub fn release(mut self) -> u64 {
        std::mem::take(&mut self.numbers)
    }

    /// Counts the numbers as handed out, with the answers of `answers` keys.
    #[inline]
    pub fn answer(mut self, answers: u64) {
        self.counts.hand_out(std::mem::take(&mut self.numbers), answers);
    }
}

impl<C: Deref<Target = NamespaceCounts>> Drop for HeldNumbers<C> {
    fn drop(&mut self) {
        if self.numbers > 0 {
            self.counts.skip(SkipCause::cancelled, self.numbers);
            // A thread that ends counts nothing any more.
            let _ = BURNT.try_with(|burnt| burnt.set(burnt.get().wrapping_add(self.numbers)));
        }
    }
}

/// The numbers for a call that waited. They count as skipped if nobody accepts them.
#[derive(Debug)]
pub struct Delivery {
    taken: Result<Range, Why>,
    held: HeldNumbers<Arc<NamespaceCounts>>,
}

impl Delivery {
    /// A delivery of `taken` to a call that asked for `count` numbers.
    pub fn new(taken: Result<Range, Why>, count: u64, counts: Arc<NamespaceCounts>) -> Self {
        let numbers = if taken.is_ok() { count } else { 0 };
        Delivery { taken, held: HeldNumbers::new(counts, numbers) }
    }

    /// Takes the numbers over: the caller must hold or answer them from here on.
    pub fn accept(self) -> Result<Range, Why> {
        self.accept_counted().0
    }

    /// As [`Delivery::accept`]. Also returns how many numbers would have counted as skipped.
    pub fn accept_counted(self) -> (Result<Range, Why>, u64) {
        (self.taken, self.held.release())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn numbers_that_nobody_answers_with_are_counted_as_skipped() {
        let metrics = Metrics::new();
        let range = Range { first: 1, last: 5, increment: 1 };
        let counts = metrics.namespaces().of(1, "book").shared();
        let mut held = HeldNumbers::new(&*counts, 2);
        held.add(3);
        held.answer(1);
        assert_eq!((metrics.numbers.get(), metrics.answers.get()), (5, 1));
        assert_eq!(HeldNumbers::new(&*counts, 5).release(), 5);
        assert_eq!(Delivery::new(Ok(range), 5, counts.clone()).accept(), Ok(range));
        assert_eq!(metrics.skipped(SkipCause::cancelled), 0);
        drop(HeldNumbers::new(&*counts, 7));
        drop(Delivery::new(Ok(range), 5, counts.clone()));
        let few = Why::Exhausted { left: 5 };
        drop(Delivery::new(Err(few), 9, counts.clone()));
        assert_eq!(metrics.skipped(SkipCause::cancelled), 12);
    }
}
