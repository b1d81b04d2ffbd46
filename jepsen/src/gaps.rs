//! Counts the numbers that were skipped.

use std::collections::BTreeMap;

use crate::history::{Action, History};

#[cfg(test)]
mod tests;

/// How many numbers of a key were neither acknowledged nor can have been burnt by calls that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Numbers between the key's first and last that nobody was given.
    pub missing: u64,
    /// How many of those the promise allows.
    pub allowed: u64,
}

/// What the promise allows to be skipped.
#[derive(Debug, Clone, Copy)]
pub struct GapBound {
    /// The distance between two neighbouring numbers.
    pub increment: u64,
    /// By how much one bump raises the ceiling.
    pub step: u64,
    /// How many leader changes may have been unclean.
    pub unclean_changes: u64,
    /// No fewer than the nodes skipped since the fence failed after numbers were taken.
    pub fence_skips: u64,
    /// How often a call may have been tried on its way, burning its numbers each time.
    pub attempts_max: u64,
    /// A call that took this long may have been tried more than once.
    pub slow_ns: u64,
}

/// Counts the gaps of the keys that have a section of their own.
///
/// The promise allows one step per key and unclean leader change, and what was taken before a fence
/// that failed; and a call that failed, or took so long that it was tried more than once, may have
/// burnt its numbers once per attempt.
pub fn gaps(
    history: &History,
    bound: &GapBound,
    own_section: impl Fn(&str) -> bool,
) -> BTreeMap<String, Gap> {
    #[derive(Default)]
    struct Tally {
        low: Option<u64>,
        high: u64,
        given: u64,
        burnt: u64,
    }
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for op in history.ops.iter().filter(|op| own_section(&op.key)) {
        let Action::Next { count } = op.action else {
            continue;
        };
        let tally = tallies.entry(&op.key).or_default();
        if op.is_ok() {
            tally.low = Some(tally.low.map_or(op.first, |low| low.min(op.first)));
            tally.high = tally.high.max(op.last);
            tally.given += count;
        }
        if !op.is_ok() || op.returned() - op.invoked_ns >= bound.slow_ns {
            tally.burnt += count * bound.attempts_max;
        }
    }
    let answered = tallies.into_iter().filter_map(|(key, tally)| {
        let span = (tally.high - tally.low?) / bound.increment + 1;
        let gap = Gap {
            missing: span.saturating_sub(tally.given),
            allowed: bound.unclean_changes * bound.step + bound.fence_skips + tally.burnt,
        };
        Some((key.to_owned(), gap))
    });
    answered.collect()
}
