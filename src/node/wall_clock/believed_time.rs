//! Which time a leader believes, for ids of a time.
//!
//! A node begins to lead with what its wall clock shows, and only if the clocks of a majority agree. From then on the
//! time runs on by the clock that never jumps. It follows the wall clock only while a majority agrees with what that
//! shows.
//!
//! Invariant: a time that is answered in a term lay within the bound of a majority's clocks when it was first answered.
//! Later ones run on from it, or follow a wall clock with which a majority agrees.

use std::fmt;

use ratchet_ids::{DateTime, Offset, SteadyTime};

use crate::{
    consensus::ClockDistance,
    planted_bugs::{Bug, is_planted},
};

/// For so long a majority's agreement need not be looked for again, while the wall clock does not jump.
const FRESH_NS: u64 = 100_000_000;
/// The greatest difference of the wall clock that is no jump yet.
const JUMP_MS: u64 = 1_000;

/// The time of ids, and the term in which it is believed.
pub struct BelievedTime {
    time: SteadyTime,
    term: Option<u64>,
    /// The last readings with which a majority agreed.
    agreed: Option<Readings>,
}

/// The readings of a node's clocks at a moment.
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
        /// By how many milliseconds its wall clock is ahead, if that differs and is followed from now on.
        followed: Option<i64>,
    },
    /// It does not, but it agrees with the time that was believed before, which runs on.
    RunsOn {
        /// The time, in milliseconds since 1970.
        time_ms: u64,
        /// The doubt about the wall clock.
        doubt: ClockDoubt,
    },
    /// It does not agree. There is no time for ids.
    Doubted(ClockDoubt),
}

/// Why a wall clock is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockDoubt {
    /// Its reading, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The distance within which a majority's clocks lie. `None`: they are not known.
    pub distance: Option<ClockDistance>,
    /// The greatest distance at which the clock is believed.
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
    pub fn follow(&mut self, now: Readings) -> Option<i64> {
        self.time.observe(now.mono_ns, now.wall_ms)
    }

    /// Another node, which leads, has told its time.
    pub fn told(&mut self, mono_ns: u64, leader_ms: u64) -> Option<i64> {
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
                // The time that it came from was believed in no term, or in another one.
                self.time = SteadyTime::new(now.mono_ns, now.wall_ms);
                let followed = Some(ClockDistance::of(now.wall_ms, before_ms).signed_ms());
                return Belief::Agreed { time_ms: now.wall_ms, followed };
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
        let followed = self.time.observe(now.mono_ns, now.wall_ms);
        Belief::Agreed { time_ms: self.time.now_ms(now.mono_ns), followed }
    }
}

#[cfg(test)]
mod tests;
