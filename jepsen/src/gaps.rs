//! Counts the numbers of a key that nobody was given, and how many of them the promise allows.

use std::collections::BTreeMap;

use crate::history::{Action, History, Op};

#[cfg(test)]
mod tests;

/// The numbers of a key that nobody was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Numbers between the key's first and last that nobody was given.
    pub missing: u64,
    /// How many may be missing.
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
    /// At least as many numbers as the nodes skipped because the fence failed after the numbers were taken.
    pub fence_skips: u64,
    /// How often a call may have been tried on its way. Each try may burn its numbers.
    pub attempts_max: u64,
    /// A call that took this long may have been tried more than once.
    pub slow_ns: u64,
}

/// The numbers of one key.
#[derive(Default)]
struct Tally {
    first: Option<u64>,
    last: u64,
    given: u64,
    /// Numbers that calls may have taken without giving them to anybody.
    burnt_max: u64,
}

impl Tally {
    fn add(&mut self, op: &Op, count: u64, bound: &GapBound) {
        if op.is_ok() {
            self.first = Some(self.first.map_or(op.first, |first| first.min(op.first)));
            self.last = self.last.max(op.last);
            self.given += count;
        }
        if !op.is_ok() || op.returned() - op.invoked_ns >= bound.slow_ns {
            self.burnt_max += count * bound.attempts_max;
        }
    }

    /// `None` if nothing was answered.
    fn gap(&self, bound: &GapBound) -> Option<Gap> {
        let span = (self.last - self.first?) / bound.increment + 1;
        Some(Gap {
            missing: span.saturating_sub(self.given),
            allowed: bound.unclean_changes * bound.step + bound.fence_skips + self.burnt_max,
        })
    }
}

/// Counts the gaps of the keys that have a section of their own.
///
/// The promise allows one step for each key and unclean leader change, and the numbers that were taken before
/// a fence failed. A call may have burnt its numbers once for each try if it failed, or if it took so long
/// that it was tried more than once.
pub fn gaps(
    history: &History,
    bound: &GapBound,
    own_section: impl Fn(&str) -> bool,
) -> BTreeMap<String, Gap> {
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for op in history.ops.iter().filter(|op| own_section(&op.key)) {
        match op.action {
            Action::Next { count } => {
                let tally = tallies.entry(&op.key).or_default();
                tally.add(op, count, bound);
            }
            Action::Current | Action::Raise { .. } => {}
        }
    }
    let gaps = tallies.into_iter();
    gaps.filter_map(|(key, tally)| Some((key.to_owned(), tally.gap(bound)?)))
        .collect()
}
