//! When numbers were received, by the millisecond.
//!
//! Invariant: a millisecond of the timeline is a whole one; the last one, which may still go on, is left out by
//! [`Timeline::end`].

use std::ops::Range;

use crate::recorder::Receipt;

/// How many numbers were received in each millisecond since the start of a load.
#[derive(Debug, Default)]
pub struct Timeline {
    numbers: Vec<u64>,
}

/// A time without any number, in milliseconds: after `from`, in which numbers were received, and before `until`, in
/// which they were received again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    pub from: u64,
    pub until: u64,
}

impl Silence {
    /// How long it was. It is exact to a millisecond.
    pub fn ms(self) -> u64 {
        self.until - self.from
    }
}

impl Timeline {
    /// Adds receipts, in any order.
    pub fn add(&mut self, receipts: &[Receipt]) {
        for receipt in receipts {
            let at = receipt.ms as usize;
            if at >= self.numbers.len() {
                self.numbers.resize(at + 1, 0);
            }
            self.numbers[at] += receipt.numbers;
        }
    }

    /// The end of the timeline, in milliseconds.
    pub fn end(&self) -> u64 {
        (self.numbers.len() as u64).saturating_sub(1)
    }

    /// How many numbers were received in `ms`; the part of it that is outside of the timeline counts as empty.
    pub fn numbers(&self, ms: Range<u64>) -> u64 {
        let length = self.numbers.len();
        let (from, until) = (ms.start as usize, ms.end as usize);
        self.numbers[from.min(length)..until.min(length)].iter().sum()
    }

    /// The throughput in `ms`, in numbers a second; `None` if the timeline ends before.
    pub fn numbers_per_second(&self, ms: Range<u64>) -> Option<f64> {
        let seconds = (ms.end - ms.start) as f64 / 1_000.0;
        (ms.end <= self.end()).then(|| self.numbers(ms) as f64 / seconds)
    }

    /// The longest silence that overlaps `ms`. One that lasts to the end of the timeline counts up to there. `None` if
    /// no number was received before `ms` ends.
    pub fn longest_silence(&self, ms: Range<u64>) -> Option<Silence> {
        let received = |at: &u64| self.numbers(*at..*at + 1) > 0;
        let mut last = (0..=ms.start).rev().find(received);
        let mut longest = None;
        for at in ms.start + 1..=self.end() {
            let ended = received(&at) || at == self.end();
            if ended && let Some(from) = last {
                let silence = Silence { from, until: at };
                if longest.is_none_or(|longest: Silence| silence.ms() > longest.ms()) {
                    longest = Some(silence);
                }
            }
            if ended {
                last = Some(at);
                if at >= ms.end {
                    break;
                }
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(received: &[(u64, u64)]) -> Timeline {
        let receipts = received.iter().map(|&(ms, numbers)| Receipt { ms, numbers });
        let mut timeline = Timeline::default();
        timeline.add(&receipts.collect::<Vec<_>>());
        timeline
    }

    #[test]
    fn receipts_add_up_by_the_millisecond_in_any_order() {
        let timeline = timeline(&[(3, 5), (0, 1), (3, 2), (9, 0)]);
        assert_eq!(timeline.numbers(0..4), 8);
        assert_eq!(timeline.numbers(3..100), 7);
        assert_eq!(timeline.numbers_per_second(0..5), Some(1_600.0));
        assert_eq!(timeline.numbers_per_second(0..10), None, "not over yet");
    }

    #[test]
    fn the_longest_silence_is_the_one_that_overlaps_the_event_even_if_it_began_before() {
        let timeline = timeline(&[(0, 1), (50, 1), (60, 1), (90, 1), (92, 1), (200, 1)]);
        let longest = |ms| timeline.longest_silence(ms).map(|it| (it.from, it.until));
        assert_eq!(longest(55..70), Some((60, 90)));
        assert_eq!(longest(70..75), Some((60, 90)), "it lasts all the time");
        assert_eq!(longest(90..91), Some((90, 92)));
        assert_eq!(longest(10..300), Some((92, 200)));
    }

    #[test]
    fn a_silence_without_end_counts_to_the_end_of_the_timeline() {
        let timeline = timeline(&[(10, 1), (500, 0)]);
        let silence = timeline.longest_silence(20..30).unwrap();
        assert_eq!((silence.from, silence.ms()), (10, 490));
    }
}
