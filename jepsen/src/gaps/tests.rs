use expect_test::expect;

use super::*;
use crate::history::Outcome;

fn next(first: u64, last: u64, took_ns: u64, outcome: Outcome) -> Op {
    Op {
        process: 0,
        key: "k".to_owned(),
        action: Action::Next {
            count: last - first + 1,
        },
        invoked_ns: 0,
        returned_ns: Some(took_ns),
        outcome,
        first,
        last,
        node: 1,
        note: String::new(),
    }
}

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
        unclean_changes: 1,
        fence_skips: 3,
        attempts_max: 2,
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
        [1, 10] Ok after 10 ns -> missing 0, allowed 13
        [1, 4] Info after 10 ns -> missing 0, allowed 21
        [31, 31] Ok after 10 ns -> missing 20, allowed 21
        [40, 40] Ok after 50 ns -> missing 28, allowed 23
    "#]]
    .assert_eq(&transcript);
}

#[test]
fn a_key_without_answers_or_in_a_shared_section_has_no_gap() {
    let ops = vec![next(1, 4, 10, Outcome::Info)];
    let bound = GapBound {
        increment: 1,
        step: 10,
        unclean_changes: 0,
        fence_skips: 0,
        attempts_max: 1,
        slow_ns: 50,
    };
    assert!(gaps(&History { ops }, &bound, |_| true).is_empty());
    let ops = vec![next(1, 4, 10, Outcome::Ok)];
    assert!(gaps(&History { ops }, &bound, |_| false).is_empty());
}
