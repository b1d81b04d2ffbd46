//! Histories that keep or break the promise, and a comparison with brute force.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;
use crate::history::{Interface, Outcome};

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
        interface: Interface::Unary,
        note: String::new(),
    }
}

fn next(first: u64, last: u64, invoked: u64, returned: u64) -> Op {
    let count = last - first + 1;
    op(Action::Next { count }, first, last, invoked, returned)
}

fn kind(ops: Vec<Op>) -> Option<IllegalPairKind> {
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
    assert_eq!(kind(twice), Some(IllegalPairKind::Overlap));
}

#[test]
fn an_older_number_after_a_newer_one_is_out_of_order() {
    let old = vec![next(10_001, 10_001, 0, 10), next(150, 150, 11, 20)];
    assert_eq!(kind(old), Some(IllegalPairKind::OutOfOrder));
}

#[test]
fn current_stands_between_the_numbers_before_and_after_it() {
    let current = |v, i, r| op(Action::Current, v, v, i, r);
    assert_eq!(kind(vec![next(1, 5, 0, 10), current(5, 11, 12)]), None);
    assert_eq!(kind(vec![next(1, 5, 0, 10), current(9, 11, 12)]), None);
    let low = vec![next(1, 5, 0, 10), current(4, 11, 12)];
    assert_eq!(kind(low), Some(IllegalPairKind::Overlap));
    let above = vec![current(9, 0, 5), next(8, 8, 6, 7)];
    assert_eq!(kind(above), Some(IllegalPairKind::OutOfOrder));
}

#[test]
fn an_answer_has_as_many_numbers_as_were_asked_for_at_the_keys_distance() {
    let range = |count, first, last| op(Action::Next { count }, first, last, first, first);
    let malformed = Some(IllegalPairKind::Malformed);
    // The distance is 10.
    let tens = vec![range(3, 7, 27), range(1, 37, 37), range(2, 47, 57)];
    assert_eq!(kind(tens.clone()), None);
    for odd in [
        range(3, 67, 77),
        range(3, 67, 97),
        range(3, 67, 107),
        range(1, 67, 77),
        range(2, 67, 57),
        range(1, 68, 68),
        range(2, 0, 10),
        range(u64::MAX, 67, 87),
    ] {
        assert_eq!(kind([tens.clone(), vec![odd.clone()]].concat()), malformed, "{odd:?}");
    }
    // Of the only range, the numbers around it tell.
    let wide = vec![range(1, 1, 1), range(3, 2, 6), range(1, 7, 7)];
    assert_eq!(kind(wide), malformed);
}

#[test]
fn an_illegal_pair_shows_the_two_operations() {
    let ops = vec![next(7, 7, 0, 10), next(9, 9, 0, 9), next(7, 7, 20, 30)];
    let text = check_order(&History { ops }).unwrap_err().to_string();
    assert!(text.contains("[7, 7]") && !text.contains("[9, 9]"), "{text}");
}

/// Tries every order that the times allow, and every value for an operation with an unknown outcome.
fn brute_force(ops: &[Op]) -> bool {
    const VALUE_MAX: u64 = 9;
    fn place(ops: &[Op], done: u32, hwm: u64) -> bool {
        let waits = |at: usize| done & (1 << at) == 0;
        if ops.iter().enumerate().all(|(at, op)| !waits(at) || !op.is_ok()) {
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
                (Outcome::Ok, Action::Next { .. }) => op.first > hwm && place(ops, done, op.last),
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
            assert!(!brute_force(&alone), "seed {seed}: {alone:#?} is legal alone");
        }
    }
    assert!((20_000..80_000).contains(&legal), "{legal} of 100 000 legal");
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
