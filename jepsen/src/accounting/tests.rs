//! Accounts of keys and namespaces that agree with their callers, and some that do not.

use expect_test::{Expect, expect};

use super::*;

fn accounts(handed_out: u64, skipped: u64, left: u64) -> Accounts {
    Accounts { handed_out, skipped, left }
}

/// Callers that got `got` numbers, the last one `last`.
fn taken(got: u64, last: u64, burnt_max: u64) -> TakenOfKey {
    TakenOfKey { got, last, burnt_max, is_raised: false }
}

/// The errors in the accounts of key own/1, under so many unclean changes of a step of 10.
fn judged(accounts: Accounts, taken: TakenOfKey, unclean_changes: u64) -> String {
    let key = "own/1".to_owned();
    let accounting =
        Accounting { keys: BTreeMap::from([(key.clone(), accounts)]), ..Accounting::default() };
    let than = Circumstances { unclean_changes, skipped_max: 10 };
    accounting.judge(&BTreeMap::from([(key, taken)]), than).join("\n")
}

#[test]
fn what_callers_saw_skipped_is_accounted_as_skipped_and_no_more_than_leaders_may_have_left() {
    assert_eq!(judged(accounts(7, 0, 3), taken(7, 7, 0), 0), "");
    assert_eq!(judged(accounts(5, 4, 3), taken(5, 9, 0), 1), "");
    // The numbers that the crashed leader had handed out of its last chunk count as skipped.
    assert_eq!(judged(accounts(3, 6, 3), taken(5, 9, 0), 1), "");
    assert_eq!(judged(accounts(6, 3, 3), taken(5, 9, 1), 1), "");
    let wrong = [
        judged(accounts(6, 3, 3), taken(5, 9, 0), 1),
        judged(accounts(5, 3, 3), taken(5, 9, 0), 1),
        judged(accounts(5, 11, 3), taken(5, 9, 0), 1),
        judged(accounts(5, 4, 3), taken(5, 9, 0), 0),
    ];
    expect![[r#"
        the accounts of own/1: more was handed out than callers got and may have burnt: Accounts { handed_out: 6, skipped: 3, left: 3 }, and callers: TakenOfKey { got: 5, last: 9, burnt_max: 0, is_raised: false }
        the accounts of own/1: 9 was answered, which is not used up: Accounts { handed_out: 5, skipped: 3, left: 3 }, and callers: TakenOfKey { got: 5, last: 9, burnt_max: 0, is_raised: false }
        the accounts of own/1: leaders may have left 10 numbers at most: Accounts { handed_out: 5, skipped: 11, left: 3 }, and callers: TakenOfKey { got: 5, last: 9, burnt_max: 0, is_raised: false }
        the accounts of own/1: leaders may have left 0 numbers at most: Accounts { handed_out: 5, skipped: 4, left: 3 }, and callers: TakenOfKey { got: 5, last: 9, burnt_max: 0, is_raised: false }"#]]
    .assert_eq(&wrong.join("\n"));
}

#[test]
fn where_nothing_went_wrong_the_accounts_are_what_callers_got_and_what_floors_passed_over() {
    let accounting = |handed_out, floor| Accounting {
        keys: BTreeMap::from([("own/1".to_owned(), accounts(handed_out, 0, 1))]),
        counted: BTreeMap::from([("floor".to_owned(), floor)]),
        ..Accounting::default()
    };
    let raised = TakenOfKey { is_raised: true, ..taken(5, 9, 0) };
    let than = Circumstances { unclean_changes: 0, skipped_max: 10 };
    let judged = |accounting: Accounting| {
        accounting.judge(&BTreeMap::from([("own/1".to_owned(), raised)]), than)
    };
    assert_eq!(judged(accounting(9, 4)), Vec::<String>::new());
    expect![[r#"
        ["nothing went wrong, and yet the accounts have 9 numbers handed out; callers got 5, and raised floors passed over 3"]"#]]
    .assert_eq(&format!("{:?}", judged(accounting(9, 3))));
}

/// The errors in accounts that had `before` numbers left by leaders, then metrics that count `counted`, then
/// accounts that have `skipped` of each namespace.
fn check_namespaces(
    before: u64, counted: u64, skipped: &[(&str, u64)], unclean_changes: u64, expected: Expect,
) {
    let namespaces = skipped.iter().map(|(namespace, numbers)| {
        let of_leaders = BTreeMap::from([(LEFT.to_owned(), *numbers)]);
        ((*namespace).to_owned(), of_leaders)
    });
    let accounting = Accounting {
        namespaces: namespaces.collect(),
        counted: BTreeMap::from([(LEFT.to_owned(), counted)]),
        left_before: before,
        ..Accounting::default()
    };
    let than = Circumstances { unclean_changes, skipped_max: 10 };
    expected.assert_eq(&accounting.judge(&BTreeMap::new(), than).join("\n"));
}

#[test]
fn the_metric_has_what_the_accounts_have_and_gapless_namespaces_have_no_gaps() {
    check_namespaces(3, 3, &[("own", 3), ("invoice", 0)], 1, expect![""]);
    // The leader wrote more down between the two readings of the accounts.
    check_namespaces(3, 4, &[("own", 5)], 1, expect![""]);
    // The process that had counted the rest has ended.
    check_namespaces(5, 4, &[("own", 3), ("shared", 2)], 2, expect![""]);
    check_namespaces(
        5,
        4,
        &[("own", 3), ("shared", 2)],
        1,
        expect![
            "the nodes counted 4 numbers that leaders left, and the accounts had 5 before and 5 after that; there were at most 1 unclean changes"
        ],
    );
    check_namespaces(
        3,
        4,
        &[("own", 3)],
        2,
        expect![
            "the nodes counted 4 numbers that leaders left, and the accounts had 3 before and 3 after that; there were at most 2 unclean changes"
        ],
    );
    check_namespaces(
        4,
        4,
        &[("own", 3), ("invoice", 1)],
        0,
        expect![[r#"
        the accounts of the gapless namespace invoice have gaps: {"leader_change": 1}
        no leader ended uncleanly, and the accounts of invoice have 1 numbers that one left
        no leader ended uncleanly, and the accounts of own have 3 numbers that one left"#]],
    );
}
