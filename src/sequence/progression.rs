//! The arithmetic progression of a namespace's numbers, and ranges of it.

use serde::{Deserialize, Serialize};

/// The greatest number: 2^63 - 1, so that every number fits a signed 64-bit integer.
pub const NUMBER_MAX: u64 = i64::MAX as u64;

/// The numbers `start`, `start + increment`, `start + 2 x increment`, ... up to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progression {
    /// The first number. At least 1, so that 0 stands for "none yet".
    pub start: u64,
    /// The distance between neighbouring numbers. At least 1.
    pub increment: u64,
    /// The greatest value that a number may have.
    pub max: u64,
}

impl Progression {
    /// The smallest number above `value`. `None` if it would exceed `max`.
    pub fn first_above(&self, value: u64) -> Option<u64> {
        let next = match value.checked_sub(self.start) {
            None => self.start,
            Some(beyond) => {
                let steps = beyond / self.increment + 1;
                self.start.checked_add(steps.checked_mul(self.increment)?)?
            }
        };
        (next <= self.max).then_some(next)
    }

    /// The largest number at or below `value`. 0 if there is none.
    pub fn last_at_or_below(&self, value: u64) -> u64 {
        match value.min(self.max).checked_sub(self.start) {
            None => 0,
            Some(beyond) => self.start + beyond / self.increment * self.increment,
        }
    }

    /// The same progression without its `max`, which may be lowered below what was handed out.
    #[must_use]
    pub fn unbounded(self) -> Self {
        Progression { max: NUMBER_MAX, ..self }
    }

    /// The next `count` (at least 1) numbers above `value`. `None` if they would exceed `max`.
    pub fn range_above(&self, value: u64, count: u64) -> Option<Range> {
        let first = self.first_above(value)?;
        let span = count.checked_sub(1)?.checked_mul(self.increment)?;
        let last = first.checked_add(span)?;
        (last <= self.max).then_some(Range { first, last, increment: self.increment })
    }

    /// How many numbers lie above `low` and at or below `high`.
    pub fn count_between(&self, low: u64, high: u64) -> u64 {
        match (self.first_above(low), self.last_at_or_below(high)) {
            (Some(first), last) if last >= first => (last - first) / self.increment + 1,
            _ => 0,
        }
    }
}

/// The numbers `first`, `first + increment`, ..., `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The smallest number.
    pub first: u64,
    /// The greatest number.
    pub last: u64,
    /// The distance between neighbours.
    pub increment: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn progression(start: u64, increment: u64, max: u64) -> Progression {
        Progression { start, increment, max }
    }

    #[test]
    fn the_first_number_is_the_start_and_the_last_does_not_exceed_the_max() {
        let chapters = progression(100, 100, 1_050);
        assert_eq!(chapters.first_above(0), Some(100));
        assert_eq!(chapters.first_above(100), Some(200));
        assert_eq!(chapters.first_above(150), Some(200));
        assert_eq!(chapters.first_above(1_000), None);
        assert_eq!(chapters.last_at_or_below(5_000), 1_000);
        assert_eq!(chapters.last_at_or_below(99), 0);
        assert_eq!(chapters.range_above(900, 2), None);
    }

    #[test]
    fn the_end_of_the_number_space_does_not_overflow() {
        let all = progression(1, 1, NUMBER_MAX);
        assert_eq!(all.first_above(NUMBER_MAX), None);
        assert_eq!(all.range_above(NUMBER_MAX - 1, u64::MAX), None);
        let wide = progression(NUMBER_MAX, NUMBER_MAX, NUMBER_MAX);
        assert_eq!(wide.first_above(NUMBER_MAX), None);
        assert_eq!(wide.range_above(0, u64::MAX), None);
    }

    proptest! {
        #[test]
        fn a_range_begins_just_above_its_floor_and_holds_as_many_numbers_as_asked(
            start in 1u64..50, increment in 1u64..20, floor in 0u64..1_000, count in 1u64..100,
        ) {
            let progression = progression(start, increment, NUMBER_MAX);
            let range = progression.range_above(floor, count).unwrap();
            prop_assert!(range.first > floor);
            prop_assert!(range.first == start || range.first - floor <= increment);
            prop_assert_eq!((range.first - start) % increment, 0);
            prop_assert_eq!((range.last - range.first) / increment + 1, count);
            prop_assert_eq!(progression.count_between(floor, range.last), count);
            prop_assert_eq!(progression.last_at_or_below(range.last + increment - 1), range.last);
        }
    }
}
