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
//! **The values force the order.** Let two intervals of one key be `(a, b]` and `(c, d]`. The first can stand before the
//! second iff `c >= b`. If neither can stand before the other, the history is illegal at any times of the calls: two
//! ranges overlap, or a `Current` answered a number inside a range. If both can, they are equal `Current`s, and may be
//! swapped freely. In all other cases just one order is possible. So, once no pair clashes, sorting by `(hi, lo)` gives
//! the only order (up to equal `Current`s), and it is legal by itself.
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

#[cfg(test)]
mod tests;

/// Two operations whose answers no sequencer may give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IllegalPair {
    /// The rule that the two operations break.
    pub kind: IllegalPairKind,
    /// The one that came first, by time or by value.
    pub first: Op,
    /// The other operation.
    pub second: Op,
}

/// The kinds of [`IllegalPair`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IllegalPairKind {
    /// An answer that its request cannot have: fewer or more numbers than asked for, or a range upside down.
    Malformed,
    /// The same number in two answers, or a `Current` inside a range.
    Overlap,
    /// An answer not above one that had returned before it was asked for.
    OutOfOrder,
}

impl fmt::Display for IllegalPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            IllegalPairKind::Malformed => "an answer that does not fit its request",
            IllegalPairKind::Overlap => "numbers handed out twice",
            IllegalPairKind::OutOfOrder => "a number not above one that had returned before",
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
        "  process {} at node {} through {}: invoked {}, returned {returned}: {what}",
        op.process,
        op.node,
        op.interface.name(),
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

/// The distance between two numbers of a key, as its answers have it: the smallest of any range.
fn increment_of(ops: &[&Op]) -> u64 {
    let distance = |op: &&Op| match op.action {
        Action::Next { count } => {
            op.last.saturating_sub(op.first).checked_div(count.saturating_sub(1))
        }
        Action::Current | Action::Raise { .. } => None,
    };
    ops.iter().filter_map(distance).min().unwrap_or(1).max(1)
}

/// Whether an answer fits its request: as many numbers as were asked for, at their distance.
fn is_well_formed(op: &Op, increment: u64) -> bool {
    match op.action {
        Action::Next { count } => {
            let width = count.checked_sub(1).and_then(|steps| steps.checked_mul(increment));
            let last = width.and_then(|width| op.first.checked_add(width));
            op.first >= 1 && last == Some(op.last)
        }
        Action::Current => true,
        Action::Raise { floor } => op.last >= floor,
    }
}

/// Checks that each answer of a key fits its request, and that all of its numbers lie at one distance. A key of which only
/// one range is known shows by its other numbers whether that one is too wide.
fn check_form(ops: &[&Op]) -> Result<(), Box<IllegalPair>> {
    let increment = increment_of(ops);
    if let Some(op) = ops.iter().find(|op| !is_well_formed(op, increment)) {
        return Err(illegal_pair(IllegalPairKind::Malformed, op, op));
    }
    let mut numbers = ops.iter().filter(|op| matches!(op.action, Action::Next { .. }));
    let Some(first) = numbers.next() else {
        return Ok(());
    };
    match numbers.find(|op| op.first.abs_diff(first.first) % increment != 0) {
        Some(odd) => Err(illegal_pair(IllegalPairKind::Malformed, first, odd)),
        None => Ok(()),
    }
}

/// Checks that every key's answers are linearizable.
///
/// # Errors
/// The two operations that show that they are not.
pub fn check_order(history: &History) -> Result<(), Box<IllegalPair>> {
    let mut keys: BTreeMap<&str, Vec<&Op>> = BTreeMap::new();
    for op in history.answered() {
        keys.entry(&op.key).or_default().push(op);
    }
    keys.into_values().try_for_each(check_key)
}

fn illegal_pair(kind: IllegalPairKind, first: &Op, second: &Op) -> Box<IllegalPair> {
    let (first, second) = (first.clone(), second.clone());
    Box::new(IllegalPair { kind, first, second })
}

fn check_key(mut ops: Vec<&Op>) -> Result<(), Box<IllegalPair>> {
    check_form(&ops)?;
    ops.sort_by_key(|op| {
        let (lo, hi) = interval(op);
        (hi, lo)
    });
    for pair in ops.windows(2) {
        if interval(pair[1]).0 < interval(pair[0]).1 {
            return Err(illegal_pair(IllegalPairKind::Overlap, pair[0], pair[1]));
        }
    }
    check_times(&ops)
}

fn check_times(ops: &[&Op]) -> Result<(), Box<IllegalPair>> {
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
            let kind = IllegalPairKind::OutOfOrder;
            return Err(illegal_pair(kind, ops[before], ops[at]));
        }
        if highest.is_none_or(|highest| hi > interval(ops[highest]).1) {
            highest = Some(at);
        }
    }
    Ok(())
}
