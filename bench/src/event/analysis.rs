//! The figures of an event in a timeline: throughput before and after, and the silence between.

use std::ops::Range;

use super::timeline::{Silence, Timeline};
use crate::format::median;

/// The first milliseconds of a load, which do not count: connections are made.
pub const START_MS: u64 = 1_000;
/// How long after the event's end a silence may begin that is due to it.
const AFTERMATH: u64 = 1_000;
/// How many seconds after the silence are reported one by one.
const SECONDS_AFTER: u64 = 10;
/// The throughput counts as recovered when it reaches this part of the throughput before.
const RECOVERED: f64 = 0.9;
/// By how much the second moves that is looked at for recovery.
const RECOVERY_STEP: usize = 10;

/// The throughput around an event.
#[derive(Debug)]
pub struct Around {
    /// Numbers a second before the event: the median over its seconds.
    pub before: f64,
    /// The longest time without a number.
    pub silence: Silence,
    /// Numbers a second in each of the first seconds after the silence.
    pub seconds_after: Vec<f64>,
    /// From the event to the first second in which the throughput was nearly as high as before, in milliseconds; `None`
    /// if there was no such second.
    pub recovered_ms: Option<u64>,
}

impl Around {
    /// Reads `timeline` around an event that took the milliseconds `event`. `None` if no number was received before the
    /// event.
    pub fn new(timeline: &Timeline, event: Range<u64>) -> Option<Around> {
        let second = |from: u64| timeline.numbers_per_second(from..from + 1_000);
        let seconds_before = (START_MS..event.start.saturating_sub(999)).step_by(1_000);
        let before = median(seconds_before.filter_map(second).collect())?;
        let silence = timeline.longest_silence(event.start..event.end + AFTERMATH)?;
        let seconds_after = (0..SECONDS_AFTER).map(|nth| silence.until + nth * 1_000);
        let mut candidates = (silence.until..timeline.end()).step_by(RECOVERY_STEP);
        let recovered = candidates
            .find(|from| second(*from).is_some_and(|numbers| numbers >= RECOVERED * before));
        Some(Around {
            before,
            silence,
            seconds_after: seconds_after.map_while(second).collect(),
            recovered_ms: recovered.map(|at| at.saturating_sub(event.start)),
        })
    }

    /// Numbers a second in the first second after the silence; 0 if the load ended before.
    pub fn first_second(&self) -> f64 {
        self.seconds_after.first().copied().unwrap_or(0.0)
    }

    /// The throughput of the first second after the silence, relative to before.
    pub fn first_second_ratio(&self) -> f64 {
        self.first_second() / self.before.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Receipt;

    /// A timeline of 100 numbers each millisecond until 4 s, none for 500 ms, 50 until 7 s, then 100 until 10 s.
    fn timeline() -> Timeline {
        let receipts = (0..10_000).filter_map(|ms| {
            let numbers = match ms {
                0..4_000 | 7_000.. => 100,
                4_000..4_500 => return None,
                4_500..7_000 => 50,
            };
            Some(Receipt { ms, numbers })
        });
        let mut timeline = Timeline::default();
        timeline.add(&receipts.collect::<Vec<_>>());
        timeline
    }

    #[test]
    fn silence_and_recovery_are_read_from_the_timeline() {
        let around = Around::new(&timeline(), 3_900..4_100).unwrap();
        assert_eq!(around.before, 100_000.0);
        assert_eq!((around.silence.from, around.silence.until), (3_999, 4_500));
        assert_eq!(around.first_second_ratio(), 0.5);
        assert_eq!(
            around.seconds_after,
            [50e3, 50e3, 75e3, 100e3, 100e3],
            "the last half second is not a whole one"
        );
        // The second from 6.8 s on has 200 ms at half the throughput.
        assert_eq!(around.recovered_ms, Some(6_800 - 3_900));
    }

    #[test]
    fn a_load_without_a_whole_second_before_the_event_says_nothing() {
        assert!(Around::new(&timeline(), 1_900..2_000).is_none());
        assert!(Around::new(&Timeline::default(), 4_000..4_001).is_none());
    }
}
