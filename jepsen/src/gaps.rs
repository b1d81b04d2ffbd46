//! Counts the numbers of a key that nobody was given, and how many of them the promise allows.

use std::collections::{BTreeMap, BTreeSet};

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

/// Leader changes that may have been unclean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UncleanChanges {
    /// They did not happen before this moment, in nanoseconds since the start of the run.
    pub from_ns: u64,
    /// They had happened at this moment.
    pub to_ns: u64,
    /// How many there were at most.
    pub count: u64,
}

/// What the promise allows to be skipped.
#[derive(Debug, Clone)]
pub struct GapBound {
    /// The distance between two neighbouring numbers.
    pub increment: u64,
    /// By how much one bump raises the ceiling.
    pub step: u64,
    /// The leader changes that may have been unclean. The others may skip nothing.
    pub unclean_changes: Vec<UncleanChanges>,
    /// At least as many numbers as the nodes skipped because the fence failed after the numbers were taken.
    pub fence_skips: u64,
    /// How often a call may have been tried on its way. Each try may burn as many numbers as it asked for.
    pub attempts_max: u64,
    /// A call that took this long may have been tried more than once.
    pub slow_ns: u64,
}

impl GapBound {
    /// How many numbers the unclean changes may have skipped that lie between these two moments.
    fn skipped_max(&self, from_ns: u64, to_ns: u64) -> u64 {
        let changes = self.unclean_changes.iter();
        let between = changes.filter(|change| change.from_ns <= to_ns && from_ns <= change.to_ns);
        between.map(|change| change.count * self.step).sum()
    }
}

/// The numbers of one answer.
#[derive(Clone, Copy)]
struct Given {
    first: u64,
    last: u64,
    invoked_ns: u64,
    returned_ns: u64,
}

/// The numbers of one key.
#[derive(Default)]
struct Tally {
    given: Vec<Given>,
    /// Numbers that failed and slow calls may have taken without giving them to anybody.
    burnt_max: u64,
    /// The same for quick calls, of whose tries the fence must have failed.
    fenced_max: u64,
}

impl Tally {
    fn add(&mut self, op: &Op, count: u64, bound: &GapBound) {
        if op.is_ok() {
            self.given.push(Given {
                first: op.first,
                last: op.last,
                invoked_ns: op.invoked_ns,
                returned_ns: op.returned(),
            });
        }
        let is_quick = op.is_ok() && op.returned() - op.invoked_ns < bound.slow_ns;
        let burnt_max = if is_quick { &mut self.fenced_max } else { &mut self.burnt_max };
        *burnt_max += count * bound.attempts_max;
    }

    /// `None` if nothing was answered.
    fn gap(mut self, bound: &GapBound) -> Option<Gap> {
        self.given.sort_unstable_by_key(|given| given.first);
        let (mut missing, mut skipped_max) = (0, 0);
        let mut below = *self.given.first()?;
        for above in &self.given {
            let hole = (above.first.saturating_sub(below.last) / bound.increment).saturating_sub(1);
            if hole > 0 {
                missing += hole;
                // A change skips numbers between those that were taken before it and those taken after it.
                skipped_max += hole.min(bound.skipped_max(below.invoked_ns, above.returned_ns));
            }
            if above.last > below.last {
                below = *above;
            }
        }
        // A change that lies in the time of two holes skips one step in all.
        let from_ns = self.given.iter().map(|given| given.invoked_ns).min()?;
        let to_ns = self.given.iter().map(|given| given.returned_ns).max()?;
        let skipped_max = skipped_max.min(bound.skipped_max(from_ns, to_ns));
        Some(Gap {
            missing,
            allowed: skipped_max + bound.fence_skips.min(self.fenced_max) + self.burnt_max,
        })
    }
}

/// Counts the gaps of the keys that have a section of their own.
///
/// The promise allows one step for each key and unclean leader change. A call may have burnt its numbers once
/// for each try if it failed, or if it took so long that it was tried more than once. A quick call was tried
/// again only if a fence failed, and the nodes counted what was taken before that.
pub fn gaps(
    history: &History, bound: &GapBound, own_section: impl Fn(&str) -> bool,
) -> BTreeMap<String, Gap> {
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    let raised = |op: &&Op| matches!(op.action, Action::Raise { .. });
    // Whoever raises a key wants numbers skipped.
    let raised: BTreeSet<&str> = (history.ops.iter().filter(raised)).map(|op| &*op.key).collect();
    let counts = |op: &&Op| own_section(&op.key) && !raised.contains(&*op.key);
    for op in history.ops.iter().filter(counts) {
        match op.action {
            Action::Next { count } => {
                let tally = tallies.entry(&op.key).or_default();
                tally.add(op, count, bound);
            }
            Action::Current | Action::Raise { .. } => {}
        }
    }
    let gaps = tallies.into_iter();
    gaps.filter_map(|(key, tally)| Some((key.to_owned(), tally.gap(bound)?))).collect()
}
