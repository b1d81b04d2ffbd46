//! Counts the numbers of a key that nobody was given, and how many of them the promise allows.

use std::collections::BTreeMap;

use crate::history::{Action, History, Op, Outcome};

#[cfg(test)]
mod tests;

/// How often a call may have been tried at most, so that each time the fence failed. The numbers taken then are counted.
const FENCED_TRIES_MAX: u64 = 8;

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

/// The numbers that the promise allows to be skipped.
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
    /// How many answers to one call may have been lost on its way. Each has as many numbers as the call asked for.
    pub lost_max: u64,
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

/// The numbers that callers took of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TakenOfKey {
    /// How many numbers they got.
    pub got: u64,
    /// The greatest of them.
    pub last: u64,
    /// How many numbers may have been taken for them beside those.
    pub burnt_max: u64,
    /// Whether somebody raised its floor.
    pub is_raised: bool,
}

/// The numbers of one answer.
#[derive(Clone, Copy, Default)]
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
    got: u64,
    /// Numbers of answers that may have been lost.
    lost_max: u64,
    /// Numbers that may have been taken by tries whose fence failed.
    fenced_max: u64,
    is_raised: bool,
}

impl Tally {
    fn add(&mut self, op: &Op, count: u64, bound: &GapBound) {
        if op.is_ok() {
            self.got += count;
            self.given.push(Given {
                first: op.first,
                last: op.last,
                invoked_ns: op.invoked_ns,
                returned_ns: op.returned(),
            });
        }
        let lost_max = match op.outcome {
            Outcome::Fail => 0,
            Outcome::Info => bound.lost_max,
            // The last answer arrived.
            Outcome::Ok if op.returned() - op.invoked_ns >= bound.slow_ns => bound.lost_max - 1,
            Outcome::Ok => 0,
        };
        self.lost_max += count * lost_max;
        self.fenced_max += count * FENCED_TRIES_MAX;
    }

    /// How many of the numbers that calls took nobody got, at most.
    fn burnt_max(&self, bound: &GapBound) -> u64 {
        self.lost_max + bound.fence_skips.min(self.fenced_max)
    }

    fn taken(&self, bound: &GapBound) -> TakenOfKey {
        TakenOfKey {
            got: self.got,
            last: self.given.iter().map(|given| given.last).max().unwrap_or_default(),
            burnt_max: self.burnt_max(bound),
            is_raised: self.is_raised,
        }
    }

    /// `None` if nothing was answered.
    fn gap(mut self, bound: &GapBound) -> Option<Gap> {
        self.given.sort_unstable_by_key(|given| given.first);
        let (mut missing, mut skipped_max) = (0, 0);
        // The first number of a key may be skipped, too.
        let mut below = Given::default();
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
        let to_ns = self.given.iter().map(|given| given.returned_ns).max()?;
        let skipped_max = skipped_max.min(bound.skipped_max(0, to_ns));
        Some(Gap { missing, allowed: skipped_max + self.burnt_max(bound) })
    }
}

/// Counts the gaps of the keys that have a section of their own.
///
/// The promise allows one step for each key and unclean leader change. The answer to a call may have been lost between two
/// nodes, and the call tried again, which takes its time; and between the node and the caller. Whenever a fence failed, the
/// nodes counted the numbers taken before that.
pub fn gaps(
    history: &History, bound: &GapBound, own_section: impl Fn(&str) -> bool,
) -> BTreeMap<String, Gap> {
    let tallies = tallies(history, bound, own_section).into_iter();
    // A client that raises a key wants numbers skipped.
    let counted = tallies.filter(|(_, tally)| !tally.is_raised);
    counted.filter_map(|(key, tally)| Some((key.to_owned(), tally.gap(bound)?))).collect()
}

/// The numbers that callers took of the keys that have a section of their own.
pub fn taken(
    history: &History, bound: &GapBound, own_section: impl Fn(&str) -> bool,
) -> BTreeMap<String, TakenOfKey> {
    let tallies = tallies(history, bound, own_section).into_iter();
    tallies.map(|(key, tally)| (key.to_owned(), tally.taken(bound))).collect()
}

fn tallies<'h>(
    history: &'h History, bound: &GapBound, own_section: impl Fn(&str) -> bool,
) -> BTreeMap<&'h str, Tally> {
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for op in history.ops.iter().filter(|op| own_section(&op.key)) {
        let tally = tallies.entry(&op.key).or_default();
        match op.action {
            Action::Next { count } => tally.add(op, count, bound),
            Action::Raise { .. } => tally.is_raised = true,
            Action::Current => {}
        }
    }
    tallies
}
