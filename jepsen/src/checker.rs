//! Decides whether a history keeps the promise: linearizable, per key, in O(n log n).
//!
//! **The object.** The state of a key is `hwm`, the highest number excluded so far. `Next` answering
//! `[a, b]` is legal iff `a > hwm`, and makes it `b`. `Current` answering `v`, like raising the floor
//! to `v`, is legal iff `v >= hwm`, and makes it `v`: nothing handed out later may be `v` or less. So
//! each is an interval `(lo, hi]` with `lo >= hwm`: `(a - 1, b]` and `(v, v]`.
//!
//! **Operations of unknown outcome drop out.** Take a legal order that has one in it, and remove it:
//! `hwm` is afterwards lower or the same at every later operation, whose conditions are all of the
//! form "at least `hwm`"; so the order stays legal. Failed operations did nothing.
//!
//! **The values force the order.** Let two intervals of one key be `(a, b]` and `(c, d]`. The
//! first can stand before the second iff `c >= b`. If neither can stand before the other, the
//! history is illegal whatever the times say: two ranges overlap, or a `Current` answered a number
//! inside a range. If both can, they are equal `Current`s, and may be swapped freely. In all other
//! cases just one order is possible. So, once no pair clashes, sorting by `(hi, lo)` gives the only
//! order (up to equal `Current`s), and it is legal by itself.
//!
//! **So only time is left to check**: no operation may come before one, in that order, that had
//! returned before it was invoked. Sweep the key's invocations and returns by time, carry the highest
//! `hi` of all that returned, note it at each invocation, and require `lo >=` the note. A return at
//! the very instant of an invocation counts as concurrent: the clock cannot tell.
//!
//! Any illegal history contains two operations that are illegal alone (a clash, or a reversal), so
//! the shortest sub-history that shows it always has two.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use crate::history::{Action, History, Op};

/// What two operations did that no sequencer may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What is wrong.
    pub kind: ViolationKind,
    /// The one that came first, by time or by value.
    pub first: Op,
    /// The other.
    pub second: Op,
}

/// The kinds of [`Violation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViolationKind {
    /// An answer that its request cannot have: fewer numbers than asked for, or a range upside down.
    Malformed,
    /// The same number in two answers, or a `Current` inside a range.
    Overlap,
    /// An answer not above one that had returned before it was asked for.
    OutOfOrder,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            ViolationKind::Malformed => "an answer that does not fit its request",
            ViolationKind::Overlap => "numbers handed out twice",
            ViolationKind::OutOfOrder => "a number not above one that had returned before",
        };
        writeln!(f, "{what}, key {}:", self.first.key)?;
        f.write_str(&describe(&self.first))?;
        if self.second != self.first {
            f.write_char('\n')?;
            f.write_str(&describe(&self.second))?;
        }
        Ok(())
    }
}

fn describe(op: &Op) -> String {
    let at = |ns: u64| format!("{:.6} s", ns as f64 / 1e9);
    let what = match op.action {
        Action::Next { count } => format!("next {count} -> [{}, {}]", op.first, op.last),
        Action::Current => format!("current -> {}", op.last),
        Action::Raise { floor } => format!("raise {floor} -> {}", op.last),
    };
    let returned = op.returned_ns.map_or("never".to_owned(), at);
    format!(
        "  process {} at node {}: invoked {}, returned {returned}: {what}",
        op.process,
        op.node,
        at(op.invoked_ns)
    )
}

/// The numbers that an operation excludes: above `lo`, up to `hi`.
fn interval(op: &Op) -> (u64, u64) {
    match op.action {
        Action::Next { .. } => (op.first.saturating_sub(1), op.last),
        Action::Current | Action::Raise { .. } => (op.last, op.last),
    }
}

fn is_well_formed(op: &Op) -> bool {
    match op.action {
        Action::Next { count } => {
            // With an increment above 1 the range is wider than the count.
            op.first >= 1
                && op.last >= op.first
                && op.last - op.first >= count.saturating_sub(1)
                && (count > 1 || op.first == op.last)
        }
        Action::Current => true,
        Action::Raise { floor } => op.last >= floor,
    }
}

/// Checks that every key's answers are linearizable.
///
/// # Errors
/// The two operations that show that they are not.
pub fn check_order(history: &History) -> Result<(), Box<Violation>> {
    let mut keys: BTreeMap<&str, Vec<&Op>> = BTreeMap::new();
    for op in history.answered() {
        keys.entry(&op.key).or_default().push(op);
    }
    keys.into_values().try_for_each(check_key)
}

fn violation(kind: ViolationKind, first: &Op, second: &Op) -> Box<Violation> {
    let (first, second) = (first.clone(), second.clone());
    Box::new(Violation {
        kind,
        first,
        second,
    })
}

fn check_key(mut ops: Vec<&Op>) -> Result<(), Box<Violation>> {
    if let Some(op) = ops.iter().find(|op| !is_well_formed(op)) {
        return Err(violation(ViolationKind::Malformed, op, op));
    }
    ops.sort_by_key(|op| {
        let (lo, hi) = interval(op);
        (hi, lo)
    });
    for pair in ops.windows(2) {
        if interval(pair[1]).0 < interval(pair[0]).1 {
            return Err(violation(ViolationKind::Overlap, pair[0], pair[1]));
        }
    }
    check_times(&ops)
}

fn check_times(ops: &[&Op]) -> Result<(), Box<Violation>> {
    // At one instant, invocations come before returns: such a pair is concurrent.
    const INVOKED: u8 = 0;
    const RETURNED: u8 = 1;
    let mut events: Vec<(u64, u8, usize)> = Vec::with_capacity(2 * ops.len());
    for (at, op) in ops.iter().enumerate() {
        events.push((op.invoked_ns, INVOKED, at));
        events.push((op.returned(), RETURNED, at));
    }
    events.sort_unstable();
    // The highest that returned so far, and for each operation the one noted at its invocation.
    let mut highest: Option<usize> = None;
    let mut noted: Vec<Option<usize>> = vec![None; ops.len()];
    for (_, kind, at) in events {
        if kind == INVOKED {
            noted[at] = highest;
            continue;
        }
        let (lo, hi) = interval(ops[at]);
        if let Some(before) = noted[at]
            && lo < interval(ops[before]).1
        {
            let kind = ViolationKind::OutOfOrder;
            return Err(violation(kind, ops[before], ops[at]));
        }
        if highest.is_none_or(|highest| hi > interval(ops[highest]).1) {
            highest = Some(at);
        }
    }
    Ok(())
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;
    use crate::history::Outcome;

    fn op(action: Action, first: u64, last: u64, invoked: u64, returned: u64) -> Op {
        Op {
            process: 0,
            key: "k".to_owned(),
            action,
            invoked_ns: invoked,
            returned_ns: Some(returned),
            outcome: Outcome::Ok,
            first,
            last,
            node: 1,
            note: String::new(),
        }
    }

    fn next(first: u64, last: u64, invoked: u64, returned: u64) -> Op {
        let count = last - first + 1;
        op(Action::Next { count }, first, last, invoked, returned)
    }

    fn kind(ops: Vec<Op>) -> Option<ViolationKind> {
        check_order(&History { ops }).err().map(|wrong| wrong.kind)
    }

    #[test]
    fn numbers_that_grow_with_time_pass_in_whatever_order_they_are_recorded() {
        assert_eq!(kind(vec![next(3, 5, 20, 30), next(1, 2, 0, 10)]), None);
    }

    #[test]
    fn concurrent_answers_may_come_in_any_order_but_not_twice() {
        assert_eq!(kind(vec![next(3, 5, 0, 10), next(1, 2, 5, 20)]), None);
        let twice = vec![next(3, 5, 0, 10), next(5, 6, 5, 20)];
        assert_eq!(kind(twice), Some(ViolationKind::Overlap));
    }

    #[test]
    fn an_older_number_after_a_newer_one_is_out_of_order() {
        let old = vec![next(10_001, 10_001, 0, 10), next(150, 150, 11, 20)];
        assert_eq!(kind(old), Some(ViolationKind::OutOfOrder));
    }

    #[test]
    fn current_stands_between_the_numbers_before_and_after_it() {
        let current = |v, i, r| op(Action::Current, v, v, i, r);
        assert_eq!(kind(vec![next(1, 5, 0, 10), current(5, 11, 12)]), None);
        assert_eq!(kind(vec![next(1, 5, 0, 10), current(9, 11, 12)]), None);
        let low = vec![next(1, 5, 0, 10), current(4, 11, 12)];
        assert_eq!(kind(low), Some(ViolationKind::Overlap));
        let above = vec![current(9, 0, 5), next(8, 8, 6, 7)];
        assert_eq!(kind(above), Some(ViolationKind::OutOfOrder));
    }

    #[test]
    fn a_violation_shows_the_two_operations() {
        let ops = vec![next(7, 7, 0, 10), next(9, 9, 0, 9), next(7, 7, 20, 30)];
        let text = check_order(&History { ops }).unwrap_err().to_string();
        assert!(
            text.contains("[7, 7]") && !text.contains("[9, 9]"),
            "{text}"
        );
    }

    #[test]
    fn a_gap_is_what_nobody_was_given_and_nobody_may_have_burnt() {
        let mut lost = next(1, 4, 0, 10);
        lost.outcome = Outcome::Info;
        let ops = vec![next(1, 10, 0, 10), lost, next(31, 31, 20, 30)];
        let bound = GapBound {
            increment: 1,
            step: 10,
            unclean_changes: 1,
            fence_skips: 3,
            attempts_max: 2,
            slow_ns: 50,
        };
        let found = gaps(&History { ops }, &bound, |_| true);
        let gap = found["k"];
        assert_eq!((gap.missing, gap.allowed), (20, 21));
    }

    /// Tries every order that the times allow, and every value for what has an unknown outcome.
    fn brute_force(ops: &[Op]) -> bool {
        const VALUE_MAX: u64 = 9;
        fn place(ops: &[Op], done: u32, hwm: u64) -> bool {
            let waits = |at: usize| done & (1 << at) == 0;
            if ops
                .iter()
                .enumerate()
                .all(|(at, op)| !waits(at) || !op.is_ok())
            {
                return true;
            }
            (0..ops.len()).filter(|at| waits(*at)).any(|at| {
                let op = &ops[at];
                let too_early = (0..ops.len()).any(|other| {
                    other != at
                        && waits(other)
                        && ops[other].is_ok()
                        && ops[other].returned() < op.invoked_ns
                });
                if too_early {
                    return false;
                }
                let done = done | (1 << at);
                match (op.outcome, op.action) {
                    (Outcome::Fail, _) => place(ops, done, hwm),
                    // It happens with any answer that is legal, or never.
                    (Outcome::Info, _) => (hwm..=VALUE_MAX).any(|after| place(ops, done, after)),
                    (Outcome::Ok, Action::Next { .. }) => {
                        op.first > hwm && place(ops, done, op.last)
                    }
                    (Outcome::Ok, _) => op.last >= hwm && place(ops, done, op.last),
                }
            })
        }
        place(ops, 0, 0)
    }

    fn random_history(seed: u64) -> Vec<Op> {
        let mut rng = StdRng::seed_from_u64(seed);
        let count = rng.random_range(1..=5);
        (0..count)
            .map(|_| {
                let invoked = rng.random_range(0..8);
                let returned = invoked + rng.random_range(0..5);
                let first = rng.random_range(1..=7);
                let mut op = if rng.random_bool(0.7) {
                    next(first, first + rng.random_range(0..2), invoked, returned)
                } else {
                    op(Action::Current, first, first, invoked, returned)
                };
                match rng.random_range(0..10) {
                    0 => op.outcome = Outcome::Fail,
                    1 => op.outcome = Outcome::Info,
                    2 => (op.outcome, op.returned_ns) = (Outcome::Info, None),
                    _ => {}
                }
                op
            })
            .collect()
    }

    #[test]
    fn it_agrees_with_brute_force_on_100_000_random_histories() {
        let mut legal = 0;
        for seed in 0..100_000 {
            let ops = random_history(seed);
            let expected = brute_force(&ops);
            legal += u32::from(expected);
            let found = check_order(&History { ops: ops.clone() });
            assert_eq!(found.is_ok(), expected, "seed {seed}: {ops:#?} {found:?}");
            if let Err(wrong) = found {
                let alone = [wrong.first, wrong.second];
                assert!(
                    !brute_force(&alone),
                    "seed {seed}: {alone:#?} is legal alone"
                );
            }
        }
        assert!(
            (20_000..80_000).contains(&legal),
            "{legal} of 100 000 legal"
        );
    }

    proptest! {
        #[test]
        fn a_real_sequencer_always_passes(
            spans in proptest::collection::vec((1_u64..5, 0_u64..50, 0_u64..50), 1..200),
        ) {
            let (mut now, mut hwm, mut ops) = (100_u64, 0, vec![]);
            for (count, before, after) in spans {
                now += 1;
                ops.push(next(hwm + 1, hwm + count, now - before, now + after));
                hwm += count;
            }
            prop_assert_eq!(kind(ops), None);
        }
    }
}
