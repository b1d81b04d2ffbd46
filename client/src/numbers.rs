//! The numbers of a range, and an iterator over them.

/// The numbers `first`, `first + increment`, ..., `last`.
///
/// The iterator yields them in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The smallest number.
    pub first: u64,
    /// The greatest number.
    pub last: u64,
    /// The distance between neighbouring numbers.
    pub increment: u64,
}

impl IntoIterator for Numbers {
    type Item = u64;
    type IntoIter = NumbersIter;

    fn into_iter(self) -> NumbersIter {
        NumbersIter { next: (self.first <= self.last).then_some(self.first), numbers: self }
    }
}

/// Iterates over the numbers of a range, smallest first.
#[derive(Debug, Clone)]
pub struct NumbersIter {
    next: Option<u64>,
    numbers: Numbers,
}

impl Iterator for NumbersIter {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let number = self.next?;
        let following = number.checked_add(self.numbers.increment.max(1));
        self.next = following.filter(|following| *following <= self.numbers.last);
        Some(number)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = |next| (self.numbers.last - next) / self.numbers.increment.max(1) + 1;
        let left = self.next.map_or(0, left);
        (usize::try_from(left).unwrap_or(usize::MAX), usize::try_from(left).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_iterated_in_steps_of_its_increment_up_to_its_end() {
        let numbers = |first, last, increment| Numbers { first, last, increment };
        let all: Vec<u64> = numbers(10, 40, 10).into_iter().collect();
        assert_eq!(all, [10, 20, 30, 40]);
        assert_eq!(numbers(7, 7, 5).into_iter().size_hint(), (1, Some(1)));
        assert_eq!(numbers(u64::MAX - 1, u64::MAX, 1).into_iter().count(), 2);
    }
}
