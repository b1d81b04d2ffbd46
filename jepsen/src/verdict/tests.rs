//! Verdicts on whole runs. To accept the code's present answers: `UPDATE_EXPECT=1`.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};

use super::*;
use crate::history::{Interface, Outcome};

fn next(key: &str, first: u64, last: u64, invoked_ns: u64, outcome: Outcome) -> Op {
    Op {
        process: 1,
        key: key.to_owned(),
        action: Action::Next { count: last - first + 1 },
        invoked_ns,
        returned_ns: Some(invoked_ns + 10),
        outcome,
        first,
        last,
        node: 2,
        interface: Interface::Unary,
        note: String::new(),
    }
}

fn fault(took_effect: bool, violation: Option<&str>) -> Fault {
    Fault {
        nemesis: Nemesis::KillLeader,
        from_ns: 0,
        to_ns: 10,
        description: "kill -9 of node 1".to_owned(),
        took_effect,
        violations: violation.map(|what| Finding::Node.told(what)).into_iter().collect(),
    }
}

const CRITERIA: Criteria = Criteria {
    nemesis: Nemesis::KillLeader,
    ops_min: 1,
    keys_min: 1,
    changes_min: 1,
    evicted_min: 0,
    evicted: 0,
    step: 10,
    unclean_changes: Vec::new(),
    changes: 1,
    fence_skips: 0,
    waiting_max: 0,
    accounting: None,
    exported: Exported { rows: BTreeMap::new(), missing: Vec::new() },
    panics: Vec::new(),
    two_leaders: Vec::new(),
    gapless: Findings { violations: Vec::new(), shortcomings: Vec::new() },
    ids: Findings { violations: Vec::new(), shortcomings: Vec::new() },
    own_section: |key| key.starts_with("own"),
};

const SOMETIME: UncleanChanges = UncleanChanges { from_ns: 0, to_ns: u64::MAX, count: 1 };

fn check(ops: Vec<Op>, faults: &[Fault], final_reads: &[Op], expected: Expect) {
    let criteria = Criteria { unclean_changes: vec![SOMETIME], ..CRITERIA };
    let verdict = Verdict::decide(&History { ops }, faults, final_reads, &criteria);
    expected.assert_eq(&verdict.to_string());
}

#[test]
fn an_ordered_history_under_a_fault_that_took_effect_passes() {
    let ops = vec![next("own/1", 1, 5, 0, Outcome::Ok)];
    check(ops, &[fault(true, None)], &[], expect!["pass"]);
}

#[test]
fn a_run_in_which_too_little_happened_is_unknown() {
    check(
        vec![],
        &[fault(false, None)],
        &[],
        expect![[r#"
            unknown
            - 0 operations were answered; the run needs at least 1
            - 0 keys were answered for; the run needs at least 1
            - KillLeader never took effect
            - no number was handed out"#]],
    );
}

#[test]
fn a_run_in_which_one_of_the_events_of_kubernetes_had_no_effect_is_unknown() {
    let ops = vec![next("own/1", 1, 5, 0, Outcome::Ok)];
    let event = |took_effect, what: &str| Fault {
        nemesis: Nemesis::Pods,
        description: what.to_owned(),
        ..fault(took_effect, None)
    };
    let events = [event(true, "Update: all"), event(false, "Scale: none")];
    check(
        ops,
        &events,
        &[],
        expect![[r#"
            unknown
            - without effect: Scale: none"#]],
    );
}

#[test]
fn gaps_final_reads_and_faults_that_break_the_promise_are_violations() {
    let ops = vec![next("own/1", 1, 5, 0, Outcome::Ok), next("own/1", 30, 30, 20, Outcome::Ok)];
    let mut low = next("own/1", 7, 7, 40, Outcome::Ok);
    low.action = Action::Current;
    let mut failed = next("own/1", 0, 0, 50, Outcome::Info);
    failed.note = "Unavailable: no leader".to_owned();
    check(
        ops,
        &[fault(true, Some("node 1 did not come back"))],
        &[low, failed],
        expect![[r#"
            VIOLATION
            - the final read of own/1 at node 2 answered 7, although 30 had been acknowledged
            - the final read of own/1 at node 2 failed: Unavailable: no leader
            - key own/1: 24 numbers were skipped; the promise allows 10 (step 10 for each unclean leader change in between, at most 0 numbers whose fence failed, and what failed calls may have burnt)
            - kill -9 of node 1: node 1 did not come back"#]],
    );
}

#[test]
fn a_run_in_which_one_of_the_interfaces_was_never_answered_is_unknown() {
    let mut unanswered = next("own/1", 0, 0, 20, Outcome::Info);
    unanswered.interface = Interface::Http;
    let ops = vec![next("own/1", 1, 5, 0, Outcome::Ok), unanswered];
    check(
        ops,
        &[fault(true, None)],
        &[],
        expect![[r#"
            unknown
            - no operation through http was answered"#]],
    );
}

#[test]
fn a_run_in_which_a_node_panicked_or_two_led_one_term_is_a_violation() {
    let history = History { ops: vec![next("own/1", 1, 5, 0, Outcome::Ok)] };
    let criteria = Criteria {
        panics: vec!["node 2: the task \"bumper\" panicked: why".to_owned()],
        two_leaders: vec!["nodes 1 and 2 both said that they lead term 3".to_owned()],
        ..CRITERIA
    };
    let verdict = Verdict::decide(&history, &[fault(true, None)], &[], &criteria);
    expect![[r#"
        VIOLATION
        - node 2: the task "bumper" panicked: why
        - nodes 1 and 2 both said that they lead term 3"#]]
    .assert_eq(&verdict.to_string());
}

#[test]
fn a_graceful_change_may_skip_nothing_and_a_verdict_names_ten_keys_that_skipped() {
    let calls_of = |key: String| {
        let before = next(&key, 1, 5, 0, Outcome::Ok);
        [before, next(&key, 7, 7, 20, Outcome::Ok)]
    };
    let keys = (10..22).map(|n| format!("own/{n}"));
    let ops = keys.chain(["shared/1".to_owned()]).flat_map(calls_of);
    let history = History { ops: ops.collect() };
    let verdict = |unclean_changes: &[UncleanChanges]| {
        let criteria = Criteria { unclean_changes: unclean_changes.to_vec(), ..CRITERIA };
        Verdict::decide(&history, &[fault(true, None)], &[], &criteria)
    };
    assert_eq!(verdict(&[SOMETIME]), Verdict::Pass);
    let Verdict::Violation(reasons) = verdict(&[]) else {
        panic!("a number of each key was skipped");
    };
    assert_eq!(reasons.len(), 11);
    expect!["key own/10: 1 numbers were skipped; the promise allows 0 (step 10 for each unclean leader change in between, at most 0 numbers whose fence failed, and what failed calls may have burnt)"]
    .assert_eq(&reasons[0].text);
    expect!["2 more keys skipped too many numbers"].assert_eq(&reasons[10].text);
}

#[test]
fn exit_codes_stand_for_kinds_and_any_other_code_is_a_harness_error() {
    for kind in VerdictKind::ALL {
        let code = Some(i32::from(kind.exit_code()));
        assert_eq!(VerdictKind::from_exit_code(code), kind);
    }
    for code in [None, Some(2), Some(101)] {
        let kind = VerdictKind::from_exit_code(code);
        assert_eq!(kind, VerdictKind::HarnessError);
    }
}

#[test]
fn a_verdict_names_what_was_found_and_each_once() {
    let twice = vec![next("own/1", 1, 5, 0, Outcome::Ok), next("own/1", 5, 6, 20, Outcome::Ok)];
    let silent = Fault {
        violations: vec![Finding::Silence.told("no id was handed out for 2000 ms")],
        ..fault(true, Some("node 2 did not come back"))
    };
    let faults = [silent, fault(true, Some("node 3 did not come back"))];
    let verdict = Verdict::decide(&History { ops: twice }, &faults, &[], &CRITERIA);
    let found: Vec<Finding> = verdict.findings().into_iter().collect();
    assert_eq!(found, [Finding::Order, Finding::Silence, Finding::Node]);
    assert!(Verdict::Pass.findings().is_empty());
}
