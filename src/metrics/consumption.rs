//! How fast the numbers of a namespace's fullest key are used up. Pure: time is an argument.
//!
//! The fullest key is the one whose ceiling is the greatest. Its ceiling is known whenever it rises, and no number of a key in
//! between. So the rate is how far the greatest ceiling rose in a time that has some bumps in it: the last day, or four
//! times what lay between the last bumps, if that is longer.
//!
//! Invariant: what is not known is `None`. Numbers that a raised floor passed over say nothing of the rate.

use std::collections::VecDeque;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// The rate is that of this many times what lay between the last bumps, if that is longer than a day.
const INTERVALS: u64 = 4;
/// How many points are kept, an hour or more apart: more than a day, and more than [`INTERVALS`].
const POINTS_MAX: usize = 32;
/// A rate that was seen for a shorter time says nothing.
const SEEN_MS_MIN: u64 = 10_000;

/// How much was used up at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Point {
    ms: u64,
    used: u64,
}

/// The facts about a namespace's fullest key.
#[derive(Debug)]
pub struct Consumption {
    /// The greatest ceiling.
    ceiling: u64,
    /// When it last rose, and by how much in all, without what raised floors passed over.
    last: Point,
    /// Some of the moments when it rose. The first one is when it was first seen.
    points: VecDeque<Point>,
    /// The time between the last two points. 0 if there is only one.
    interval_ms: u64,
}

impl Consumption {
    /// The greatest ceiling is `ceiling`. How it came there is not known.
    pub fn seen(now_ms: u64, ceiling: u64) -> Self {
        let last = Point { ms: now_ms, used: 0 };
        Consumption { ceiling, last, points: VecDeque::from([last]), interval_ms: 0 }
    }

    /// Notes the greatest ceiling after a bump. `is_floor` if it lies where it does because a floor was raised.
    pub fn note(&mut self, now_ms: u64, ceiling: u64, is_floor: bool) {
        if ceiling < self.ceiling {
            // Another namespace has the name.
            *self = Consumption::seen(now_ms, ceiling);
            return;
        }
        let risen = ceiling - std::mem::replace(&mut self.ceiling, ceiling);
        if risen == 0 || is_floor {
            return;
        }
        // A leader's clock may be behind the one before.
        let ms = now_ms.max(self.last.ms);
        self.last = Point { ms, used: self.last.used.saturating_add(risen) };
        let before = self.points.back().map_or(0, |point| point.ms);
        if ms - before >= HOUR_MS {
            self.interval_ms = ms - before;
            self.points.push_back(self.last);
            if self.points.len() > POINTS_MAX {
                self.points.pop_front();
            }
        }
    }

    /// How many days are left until the fullest key comes to `limit`. `None` if no rate is known: nothing was used in the
    /// time that counts, or too little time was seen.
    pub fn days_until(&self, limit: u64, now_ms: u64) -> Option<f64> {
        let left = limit.saturating_sub(self.ceiling);
        if left == 0 {
            return Some(0.0);
        }
        let now_ms = now_ms.max(self.last.ms);
        let span_ms = DAY_MS.max(self.interval_ms.saturating_mul(INTERVALS));
        let is_old = |point: &&Point| point.ms.saturating_add(span_ms) <= now_ms;
        let newest_first = std::iter::once(&self.last).chain(self.points.iter().rev());
        let from = newest_first.clone().find(is_old).or(self.points.front())?;
        let (used, ms) = (self.last.used - from.used, now_ms - from.ms);
        (used > 0 && ms >= SEEN_MS_MIN)
            .then(|| left as f64 / used as f64 * ms as f64 / DAY_MS as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;

    /// A fullest key whose ceiling rises by `step` every `interval_ms`, `times` times; and when it last did.
    fn steady(step: u64, interval_ms: u64, times: u64) -> (Consumption, u64) {
        let mut seen = Consumption::seen(1_000, step);
        for n in 1..=times {
            seen.note(1_000 + n * interval_ms, step * (n + 1), false);
        }
        (seen, 1_000 + times * interval_ms)
    }

    fn assert_near(days: Option<f64>, wanted: f64, share: f64) {
        let days = days.expect("a rate is known");
        assert!((days / wanted - 1.0).abs() <= share, "{days} days, not {wanted}");
    }

    #[test]
    fn a_steady_rate_is_told_whether_ceilings_rise_each_second_or_each_month() {
        for interval_ms in [1_000, MINUTE_MS, HOUR_MS / 2, 7 * HOUR_MS, 5 * DAY_MS, 30 * DAY_MS] {
            let times = (3 * DAY_MS / interval_ms).max(40);
            let (seen, now) = steady(100, interval_ms, times);
            let per_day = 100.0 * DAY_MS as f64 / interval_ms as f64;
            let limit = seen.ceiling + 1_000_000;
            // Also right before the next bump.
            for later in [0, interval_ms / 2, interval_ms - 1] {
                let days = seen.days_until(limit, now + later);
                assert_near(days, 1_000_000.0 / per_day, 0.26);
            }
        }
    }

    #[test]
    fn what_was_not_seen_is_not_told() {
        let seen = Consumption::seen(5_000, 10_000);
        assert_eq!(seen.days_until(1 << 53, 5_000), None, "how it came there is not known");
        assert_eq!(seen.days_until(1 << 53, 9 * DAY_MS), None, "it does not rise");
        let (seen, now) = steady(10_000, 2_000, 2);
        assert_eq!(seen.days_until(1 << 53, now), None, "four seconds say nothing");
        assert!(seen.days_until(1 << 53, now + SEEN_MS_MIN).is_some());
    }

    #[test]
    fn a_limit_that_is_reached_leaves_no_day_whatever_the_rate_is() {
        let seen = Consumption::seen(5_000, 1 << 31);
        assert_eq!(seen.days_until(1 << 31, 5_000), Some(0.0));
        assert_eq!(seen.days_until(7, 5_000), Some(0.0));
        assert_eq!(seen.days_until((1 << 31) + 1, 5_000), None);
    }

    #[test]
    fn a_burst_is_forgotten_a_day_after_it_ended() {
        let (seen, ended) = steady(1_000_000, 100, 600);
        let limit = 1 << 31;
        assert!(seen.days_until(limit, ended + HOUR_MS).is_some_and(|days| days < 1.0));
        assert_eq!(seen.days_until(limit, ended + DAY_MS), None);
    }

    #[test]
    fn a_key_that_slows_down_is_told_so_after_a_day() {
        let (mut seen, mut now) = steady(1_000, MINUTE_MS, 3 * 24 * 60);
        assert_near(seen.days_until(seen.ceiling + 1_440_000, now), 1.0, 0.05);
        // A tenth of it from now on.
        for _ in 0..2 * 24 * 6 {
            now += 10 * MINUTE_MS;
            seen.note(now, seen.ceiling + 1_000, false);
        }
        assert_near(seen.days_until(seen.ceiling + 1_440_000, now), 10.0, 0.05);
    }

    #[test]
    fn what_raised_floors_pass_over_brings_the_limit_nearer_and_is_no_rate() {
        let (mut seen, now) = steady(1_000, MINUTE_MS, 24 * 60);
        let limit = seen.ceiling + 2_000_000_000;
        let before = seen.days_until(limit, now).expect("a rate");
        seen.note(now + 1, seen.ceiling + 1_000_000_000, true);
        assert_near(seen.days_until(limit, now + 1), before / 2.0, 0.01);
        let mut raised = Consumption::seen(1_000, 10);
        raised.note(DAY_MS, 1_000_000, true);
        assert_eq!(raised.days_until(1 << 31, 2 * DAY_MS), None);
    }

    #[test]
    fn a_greatest_ceiling_that_falls_belongs_to_another_namespace() {
        let (mut seen, now) = steady(1_000, MINUTE_MS, 100);
        seen.note(now + 1, 500, false);
        assert_eq!(seen.days_until(1 << 31, now + DAY_MS), None);
        assert_eq!(seen.ceiling, 500);
    }

    #[test]
    fn a_clock_that_goes_back_changes_nothing_that_was_seen() {
        let (mut seen, now) = steady(1_000, MINUTE_MS, 100);
        let days = seen.days_until(1 << 31, now);
        assert_eq!(seen.days_until(1 << 31, 0), days);
        seen.note(3, seen.ceiling + 1_000, false);
        assert_near(seen.days_until(1 << 31, now), days.expect("a rate"), 0.02);
    }
}
