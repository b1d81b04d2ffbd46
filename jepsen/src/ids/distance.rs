//! How far the time in an id may lie from the harness's clock. Pure.

use crate::{
    cluster::Fence,
    nemesis::{Nemesis, WALL_JUMP_MAX_S, slowest_and_fastest},
};

/// Where no nemesis touches clocks. A second each: the leader's time beside its wall clock, the maker's beside the leader's,
/// and the unit of time of some formats. Three more are for keys that go on ahead after a crash of the leader, or for a
/// leader's time that arrives late: a follower that was told it takes it for the present one, and goes on from there if it
/// leads.
const UNTOUCHED_MS: u64 = 6_000;

/// How far the time in an id may lie from the harness's clock between call and answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// The distance at any time, in milliseconds.
    pub always_ms: u64,
    /// The distance that each second of the run may add, in milliseconds: the time follows a monotonic clock whose rate is
    /// wrong, until its wall clock has been believed.
    pub per_second_ms: u64,
}

impl Distance {
    /// Under these faults.
    ///
    /// Clocks that jump: a node begins with the time of its wall clock, which is off by the jump.
    pub fn under(nemesis: Nemesis, fence: Fence) -> Distance {
        let untouched = Distance { always_ms: UNTOUCHED_MS, per_second_ms: 0 };
        match nemesis {
            Nemesis::WallClock | Nemesis::WrongClocks | Nemesis::Composed => Distance {
                always_ms: UNTOUCHED_MS + WALL_JUMP_MAX_S.unsigned_abs() * 1_000,
                ..untouched.drifting(fence)
            },
            Nemesis::ClockRate
            | Nemesis::CutInSteps
            | Nemesis::RestartInLease
            | Nemesis::LateAnswers => untouched.drifting(fence),
            _ => untouched,
        }
    }

    /// Whether no clock is touched. Then no node's time goes back.
    pub fn is_of_untouched_clocks(self) -> bool {
        self == Distance { always_ms: UNTOUCHED_MS, per_second_ms: 0 }
    }

    fn drifting(self, fence: Fence) -> Distance {
        let (slowest, fastest) = slowest_and_fastest(fence);
        let drift = (1.0 - slowest).max(fastest - 1.0);
        Distance { per_second_ms: (drift * 1_000.0).ceil() as u64, ..self }
    }

    /// The distance at a time of the run, in milliseconds.
    pub fn at(self, run_ns: u64) -> u64 {
        self.always_ms + self.per_second_ms * run_ns.div_ceil(1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_nemesis_that_touches_clocks_allows_for_more_than_some_seconds() {
        let at_10_s = |nemesis, fence| Distance::under(nemesis, fence).at(10_000_000_000);
        assert_eq!(at_10_s(Nemesis::KillLeader, Fence::Lease), 6_000);
        assert_eq!(at_10_s(Nemesis::ClockRate, Fence::Lease), 10_000);
        assert_eq!(at_10_s(Nemesis::ClockRate, Fence::Quorum), 16_000);
        assert!(at_10_s(Nemesis::WallClock, Fence::Lease) > 6 * 3_600_000);
    }
}
