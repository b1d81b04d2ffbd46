//! Gaps in histories, and how many skipped numbers the promise allows there.

use expect_test::expect;

use super::*;
use crate::history::{Interface, Outcome};

fn next(first: u64, last: u64, took_ns: u64, outcome: Outcome) -> Op {
    Op {
        process: 0,
        key: "k".to_owned(),
        action: Action::Next { count: last - first + 1 },
        invoked_ns: 0,
        returned_ns: Some(took_ns),
        outcome,
        first,
        last,
        node: 1,
        interface: Interface::Unary,
        note: String::new(),
    }
}

/// A change that may have happened at any time.
const SOMETIME: UncleanChanges = UncleanChanges { from_ns: 0, to_ns: u64::MAX, count: 1 };

#[test]
fn a_gap_is_what_nobody_was_given_and_calls_may_have_burnt() {
    let calls = [
        next(1, 10, 10, Outcome::Ok),
        next(1, 4, 10, Outcome::Info),
        next(31, 31, 10, Outcome::Ok),
        next(40, 40, 50, Outcome::Ok),
    ];
    let bound = GapBound {
        increment: 1,
        step: 10,
        unclean_changes: vec![SOMETIME],
        fence_skips: 3,
        lost_max: 2,
        slow_ns: 50,
    };
    let mut transcript = String::new();
    let mut ops = Vec::new();
    for op in calls {
        let (outcome, first, last) = (op.outcome, op.first, op.last);
        ops.push(op);
        let history = History { ops: ops.clone() };
        let Gap { missing, allowed } = gaps(&history, &bound, |_| true)["k"];
        let took_ns = history.ops[history.ops.len() - 1].returned();
        transcript.push_str(&format!(
            "[{first}, {last}] {outcome:?} after {took_ns} ns -> missing {missing}, allowed {allowed}\n"
        ));
    }
    expect![[r#"
        [1, 10] Ok after 10 ns -> missing 0, allowed 3
        [1, 4] Info after 10 ns -> missing 0, allowed 11
        [31, 31] Ok after 10 ns -> missing 20, allowed 21
        [40, 40] Ok after 50 ns -> missing 28, allowed 22
    "#]]
    .assert_eq(&transcript);
}

#[test]
fn a_fence_that_failed_burns_what_the_calls_of_the_key_asked_for_and_no_more() {
    let ops = vec![next(1, 3, 10, Outcome::Ok), next(40, 40, 10, Outcome::Ok)];
    let history = History { ops };
    let allowed = |fence_skips| {
        let bound = GapBound {
            increment: 1,
            step: 10,
            unclean_changes: Vec::new(),
            fence_skips,
            lost_max: 2,
            slow_ns: 50,
        };
        gaps(&history, &bound, |_| true)["k"].allowed
    };
    assert_eq!([0, 5, 500].map(allowed), [0, 5, 32]);
}

#[test]
fn an_unclean_change_allows_a_step_where_it_may_have_happened_and_nothing_elsewhere() {
    let taken_at =
        |number, invoked_ns| Op { invoked_ns, ..next(number, number, invoked_ns + 5, Outcome::Ok) };
    let ops = vec![taken_at(1, 100), taken_at(5, 200), taken_at(25, 300), taken_at(30, 400)];
    let history = History { ops };
    let gap = |changes: &[(u64, u64, u64)]| {
        let changes =
            changes.iter().map(|&(from_ns, to_ns, count)| UncleanChanges { from_ns, to_ns, count });
        let bound = GapBound {
            increment: 1,
            step: 10,
            unclean_changes: changes.collect(),
            fence_skips: 0,
            lost_max: 1,
            slow_ns: 50,
        };
        let Gap { missing, allowed } = gaps(&history, &bound, |_| true)["k"];
        format!("missing {missing}, allowed {allowed}\n")
    };
    let transcript = [
        gap(&[]),
        gap(&[(0, 99, 1), (406, 500, 1)]),
        // Only three numbers are missing between the first two.
        gap(&[(0, 100, 1)]),
        gap(&[(206, 299, 1)]),
        gap(&[(206, 299, 2)]),
        // The change may have happened anywhere, but only once.
        gap(&[(0, 500, 1)]),
        gap(&[(0, 500, 1), (0, 100, 1)]),
    ];
    expect![[r#"
        missing 26, allowed 0
        missing 26, allowed 0
        missing 26, allowed 3
        missing 26, allowed 10
        missing 26, allowed 19
        missing 26, allowed 10
        missing 26, allowed 17
    "#]]
    .assert_eq(&transcript.concat());
}

#[test]
fn a_key_without_answers_or_in_a_shared_section_has_no_gap() {
    let ops = vec![next(1, 4, 10, Outcome::Info)];
    let bound = GapBound {
        increment: 1,
        step: 10,
        unclean_changes: Vec::new(),
        fence_skips: 0,
        lost_max: 1,
        slow_ns: 50,
    };
    assert!(gaps(&History { ops }, &bound, |_| true).is_empty());
    let ops = vec![next(1, 4, 10, Outcome::Ok)];
    assert!(gaps(&History { ops }, &bound, |_| false).is_empty());
}
