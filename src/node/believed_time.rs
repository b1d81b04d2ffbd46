//! Which time a leader believes, for ids of a time. Pure.
//!
//! A node begins to lead with what its wall clock shows, and only if the clocks of a majority agree. From then on the time
//! runs on by the clock that never jumps. It follows the wall clock only while a majority agrees with what that shows.
//!
//! Invariant: a time that is answered in a term lay within the bound of a majority's clocks when it was first answered. Later
//! ones run on from it, or follow a wall clock with which a majority agrees.

use std::fmt;

use ratchet_ids::{DateTime, Observed, Offset, SteadyTime};

use crate::{
    consensus::ClockDistance,
    planted_bugs::{Bug, is_planted},
};

/// For so long a majority's agreement need not be looked for again, while the wall clock does not jump.
const FRESH_NS: u64 = 100_000_000;
/// What counts as a jump of the wall clock.
const JUMP_MS: u64 = 1_000;

/// The time of ids, and the term in which it is believed.
pub struct BelievedTime {
    time: SteadyTime,
    term: Option<u64>,
    /// The last readings with which a majority agreed.
    agreed: Option<Readings>,
}

/// What the clocks of a node show at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Readings {
    /// The clock that never jumps.
    pub mono_ns: u64,
    /// The wall clock, in milliseconds since 1970.
    pub wall_ms: u64,
}

/// Whether a node's time is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belief {
    /// A majority agrees with its wall clock.
    Agreed {
        /// The time, in milliseconds since 1970.
        time_ms: u64,
        /// What the look at the clock showed.
        observed: Observed,
    },
    /// It does not, but it agrees with the time that was believed before, which runs on.
    RunsOn {
        /// The time, in milliseconds since 1970.
        time_ms: u64,
        /// What is wrong with the wall clock.
        doubt: ClockDoubt,
    },
    /// It does not agree. There is no time for ids.
    Doubted(ClockDoubt),
}

/// Why a wall clock is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockDoubt {
    /// What it shows, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The distance within which a majority's clocks lie. `None`: they are not known.
    pub distance: Option<ClockDistance>,
    /// What it may be.
    pub apart_max_ms: u64,
}

impl fmt::Display for ClockDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shows = DateTime::new(self.wall_ms, Offset::default());
        let Some(ClockDistance { ms, is_ahead }) = self.distance else {
            return write!(
                f,
                "it shows {shows}, and what a majority's clocks show is not known yet"
            );
        };
        let way = if is_ahead { "ahead of" } else { "behind" };
        write!(
            f,
            "it shows {shows}, which is {}.{:03} s {way} what a majority's clocks show (clock_apart_max_ms is {})",
            ms / 1_000,
            ms % 1_000,
            self.apart_max_ms
        )
    }
}

impl BelievedTime {
    /// A time that is not believed in any term yet.
    pub fn new(now: Readings) -> Self {
        BelievedTime { time: SteadyTime::new(now.mono_ns, now.wall_ms), term: None, agreed: None }
    }

    /// The time, believed or not.
    pub fn shown_ms(&self, mono_ns: u64) -> u64 {
        self.time.now_ms(mono_ns)
    }

    /// A node that does not lead looks at its wall clock: it may lead next.
    pub fn follow(&mut self, now: Readings) -> Observed {
        self.time.observe(now.mono_ns, now.wall_ms)
    }

    /// Another node, which leads, has told its time.
    pub fn told(&mut self, mono_ns: u64, leader_ms: u64) -> Observed {
        self.time.told(mono_ns, leader_ms)
    }

    /// The time of the leader of `term`. `distance` tells how far a time lies from a majority's clocks at this moment, and
    /// `apart_max_ms` how far it may.
    pub fn lead(
        &mut self, term: u64, now: Readings, apart_max_ms: u64,
        distance: impl Fn(u64) -> Option<ClockDistance>,
    ) -> Belief {
        let agrees = |distance: Option<ClockDistance>| {
            distance.is_some_and(|distance| distance.ms <= apart_max_ms)
                || is_planted(Bug::ClockBelievedAtStart)
        };
        if self.term == Some(term) && self.is_fresh(now) {
            return self.agreed(now);
        }
        let of_wall = distance(now.wall_ms);
        if agrees(of_wall) {
            self.agreed = Some(now);
            let begins = self.term.replace(term) != Some(term);
            let before_ms = self.time.now_ms(now.mono_ns);
            if begins && !agrees(distance(before_ms)) {
                // What it came from was believed in no term, or in another one.
                self.time = SteadyTime::new(now.mono_ns, now.wall_ms);
                let step_ms = ClockDistance::of(now.wall_ms, before_ms).signed_ms();
                let observed = Observed::Followed { step_ms };
                return Belief::Agreed { time_ms: now.wall_ms, observed };
            }
            return self.agreed(now);
        }
        self.agreed = None;
        let doubt = ClockDoubt { wall_ms: now.wall_ms, distance: of_wall, apart_max_ms };
        let time_ms = self.time.now_ms(now.mono_ns);
        if self.term == Some(term) && agrees(distance(time_ms)) {
            return Belief::RunsOn { time_ms, doubt };
        }
        self.term = None;
        Belief::Doubted(doubt)
    }

    /// True if a majority agreed a moment ago, and the wall clock has not jumped since.
    fn is_fresh(&self, now: Readings) -> bool {
        self.agreed.is_some_and(|agreed| {
            let elapsed_ns = now.mono_ns.saturating_sub(agreed.mono_ns);
            let due_ms = agreed.wall_ms.saturating_add(elapsed_ns / 1_000_000);
            elapsed_ns < FRESH_NS && due_ms.abs_diff(now.wall_ms) <= JUMP_MS
        })
    }

    fn agreed(&mut self, now: Readings) -> Belief {
        let observed = self.time.observe(now.mono_ns, now.wall_ms);
        Belief::Agreed { time_ms: self.time.now_ms(now.mono_ns), observed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000;
    const HOUR: u64 = 3_600 * S;
    const MAX: u64 = 60 * S;
    /// 70 years.
    const WRONG: u64 = 2_208_988_800 * S;

    fn at(elapsed_ms: u64, wall_ms: u64) -> Readings {
        Readings { mono_ns: elapsed_ms * 1_000_000, wall_ms }
    }

    /// Looks in a term, while the clocks of the others show `others_ms`: two of three voters, of which this is the third.
    fn lead(time: &mut BelievedTime, term: u64, now: Readings, others_ms: u64) -> Belief {
        time.lead(term, now, MAX, |time_ms| Some(ClockDistance::of(time_ms, others_ms)))
    }

    fn time_of(belief: Belief) -> Option<u64> {
        match belief {
            Belief::Agreed { time_ms, .. } | Belief::RunsOn { time_ms, .. } => Some(time_ms),
            Belief::Doubted(_) => None,
        }
    }

    #[test]
    fn a_clock_that_is_wrong_at_the_start_is_not_believed_and_once_it_is_mended_it_is_at_once() {
        let mut time = BelievedTime::new(at(0, WRONG));
        let doubted = lead(&mut time, 1, at(1_000, WRONG + 1_000), HOUR);
        let Belief::Doubted(doubt) = doubted else { panic!("{doubted:?}") };
        let text = doubt.to_string();
        assert!(text.contains("2040-01-01T00:00:01.000Z"), "{text}");
        assert!(text.contains("2208985201.000 s ahead of"), "{text}");
        assert!(text.contains("clock_apart_max_ms is 60000"), "{text}");
        let mended = lead(&mut time, 1, at(2_000, HOUR + 1_000), HOUR + 1_000);
        assert_eq!(time_of(mended), Some(HOUR + 1_000));
    }

    #[test]
    fn nothing_is_believed_before_a_majority_has_told_its_time() {
        let mut time = BelievedTime::new(at(0, HOUR));
        let belief = time.lead(1, at(0, HOUR), MAX, |_| None);
        let Belief::Doubted(doubt) = belief else { panic!("{belief:?}") };
        assert!(doubt.to_string().contains("is not known yet"), "{doubt}");
    }

    #[test]
    fn a_clock_may_be_apart_by_the_bound_and_not_by_more() {
        let mut time = BelievedTime::new(at(0, HOUR + MAX));
        assert_eq!(time_of(lead(&mut time, 1, at(0, HOUR + MAX), HOUR)), Some(HOUR + MAX));
        let mut time = BelievedTime::new(at(0, HOUR + MAX + 1));
        assert_eq!(time_of(lead(&mut time, 1, at(0, HOUR + MAX + 1), HOUR)), None);
    }

    #[test]
    fn a_clock_that_jumps_by_itself_is_never_followed_and_the_time_runs_on_without_it() {
        let mut time = BelievedTime::new(at(0, HOUR));
        assert_eq!(time_of(lead(&mut time, 1, at(0, HOUR), HOUR)), Some(HOUR));
        for elapsed in (50..300 * S).step_by(50) {
            let belief = lead(&mut time, 1, at(elapsed, WRONG + elapsed), HOUR + elapsed);
            assert!(matches!(belief, Belief::RunsOn { .. }), "{belief:?} after {elapsed} ms");
            assert_eq!(time_of(belief), Some(HOUR + elapsed));
        }
        // In the next term it is not believed.
        assert_eq!(time_of(lead(&mut time, 2, at(300 * S, WRONG), HOUR + 300 * S)), None);
    }

    #[test]
    fn a_jump_of_a_majoritys_clocks_is_followed_after_a_minute() {
        let mut time = BelievedTime::new(at(0, HOUR));
        assert_eq!(time_of(lead(&mut time, 1, at(0, HOUR), HOUR)), Some(HOUR));
        let look = |time: &mut BelievedTime, elapsed| {
            let all_show = 2 * HOUR + elapsed;
            time_of(lead(time, 1, at(elapsed, all_show), all_show))
        };
        assert_eq!(look(&mut time, S), Some(HOUR + S));
        assert_eq!(look(&mut time, 61 * S), Some(2 * HOUR + 61 * S));
    }

    #[test]
    fn a_time_that_drifts_away_while_the_wall_clock_is_wrong_is_believed_no_longer() {
        let mut time = BelievedTime::new(at(0, HOUR));
        assert_eq!(time_of(lead(&mut time, 1, at(0, HOUR), HOUR)), Some(HOUR));
        let others = HOUR + 100 * S;
        assert_eq!(time_of(lead(&mut time, 1, at(30 * S, WRONG), others)), None);
    }
}
