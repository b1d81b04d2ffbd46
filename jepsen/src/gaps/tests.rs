use super::*;
use crate::history::{Op, Outcome};

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
