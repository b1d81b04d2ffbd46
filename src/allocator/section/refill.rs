//! The refill rule: when a section asks for its next chunk, by how much that bump raises the ceiling,
//! and how the step follows the load. Pure: no I/O, and time is an argument.
//!
//! **When.** A bump is one round of Raft. A section asks for it while numbers are left, so that no
//! caller waits: as soon as fewer than the *margin* are left. The margin is what is used up in two
//! bumps' time, as measured, within two bounds:
//!
//! ```text
//! margin = numbers used up in 2 x bump time,  at least step / 16,  at most step / 11
//! ```
//!
//! A term's first chunk of a section has no measured rate; its margin is the lower bound. The rate is one
//! step in the time that the last chunk lasted. A chunk brought at most 1/11 less, so that the margin is
//! up to 10 % greater than what two bumps' time uses up. Where calls asked for more than a step, or few
//! numbers were left under `max`, the estimate is worse. The bounds hold in any case.
//!
//! **By how much.** A bump fills the section up to one step and no further: it brings `step - left`
//! numbers. An unclean leader change therefore skips at most one step. If calls wait that need more
//! than a step together, the bump brings enough for them.
//!
//! **What the margin costs.** A bump brings `step - margin` numbers. With a step of 10 000, a million
//! numbers of one key take:
//!
//! ```text
//! no margin    1 000 000 / 10 000           100 bumps
//! step / 16    1 000 000 / (10 000 - 625)   107 bumps
//! step / 11    1 000 000 / (10 000 - 909)   110 bumps
//! ```
//!
//! The bounds are narrow because the margin counts against the one step that a crash may skip. Leaf
//! asks when 10 % of a step is *used*, and so holds almost two steps. If a bump takes longer than 1/11
//! of a step lasts, calls wait for it: the step should be greater.
//!
//! **The step.** It grows and shrinks with how long the last chunk lasted, within the namespace's `step_min`
//! and `step_max`:
//!
//! ```text
//! less than 250 ms    step x 2
//! up to 2 s           step
//! more than 2 s       step / 2
//! ```
//!
//! The rule is Leaf's, with the times of a log entry in place of a database's. A section is therefore
//! bumped about four times a second at most, until its step reaches `step_max`.

use std::time::Duration;

/// A chunk that lasted less makes the step grow.
const CHUNK_LASTS_MIN: Duration = Duration::from_millis(250);
/// A chunk that lasted longer makes the step shrink.
const CHUNK_LASTS_MAX: Duration = Duration::from_secs(2);
/// The smallest margin is the step divided by this.
const MARGIN_MIN_DIVISOR: u64 = 16;
/// The greatest margin is the step divided by this.
const MARGIN_MAX_DIVISOR: u64 = 11;

/// By how much a bump raises a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BumpSize {
    /// How many numbers it brings; 0 if it is for floors alone.
    pub numbers: u64,
    /// How many numbers are unused at most once it is in force. Those that a raised floor passes over do not count.
    pub unused_max: u64,
    /// The ceiling reaches this number at least. 0 where no floor is raised.
    pub up_to: u64,
}

impl BumpSize {
    /// Fills the `left` unused numbers up to `unused`, and brings at least one.
    pub fn fill(unused: u64, left: u64) -> BumpSize {
        let numbers = unused.saturating_sub(left).max(1);
        BumpSize { numbers, unused_max: left.saturating_add(numbers), up_to: 0 }
    }

    /// Brings what a key needs whose floor is raised to `at_least`, and no step beyond it. `unused_max` is what the
    /// section's keys leave unused then.
    pub fn floor(at_least: u64, unused_max: u64) -> BumpSize {
        BumpSize { numbers: 0, unused_max, up_to: at_least }
    }

    /// The smallest size that is enough for both.
    pub fn covering(self, other: BumpSize) -> BumpSize {
        BumpSize {
            numbers: self.numbers.max(other.numbers),
            unused_max: self.unused_max.max(other.unused_max),
            up_to: self.up_to.max(other.up_to),
        }
    }
}

/// The margin of a section's first chunk in a term.
pub fn first_margin(step: u64) -> u64 {
    step / MARGIN_MIN_DIVISOR
}

/// How many numbers are left when the next bump is asked for, after a chunk lasted for `lasted`.
/// `bump_time` is how long a bump takes.
pub fn margin(step: u64, lasted: Duration, bump_time: Duration) -> u64 {
    let used_meanwhile = u128::from(step) * 2 * bump_time.as_nanos();
    let wanted = used_meanwhile / lasted.as_nanos().max(1);
    u64::try_from(wanted)
        .unwrap_or(u64::MAX)
        .clamp(step / MARGIN_MIN_DIVISOR, step / MARGIN_MAX_DIVISOR)
}

/// The step that follows `step` after a chunk that lasted for `lasted`, within `bounds`.
pub fn next_step(step: u64, bounds: (u64, u64), lasted: Duration) -> u64 {
    let wanted = if lasted < CHUNK_LASTS_MIN {
        step.saturating_mul(2)
    } else if lasted > CHUNK_LASTS_MAX {
        step / 2
    } else {
        step
    };
    wanted.clamp(bounds.0, bounds.1)
}

#[cfg(test)]
mod tests;
