//! The counts that entries add to accounts.

use super::*;

const DAY_MS: u64 = 86_400_000;

/// Bumps section 7 by `numbers` on `day`.
fn bump_on(table: &mut Memory, term: u64, day: u64, numbers: u64, skipped: Vec<Skipped>) {
    let bump = Command::Bump { bumps: vec![bump(7, numbers)], skipped, now_ms: day * DAY_MS + 5 };
    let outcome = run(table, term, bump);
    assert!(matches!(outcome, EntryOutcome::Bumped(_)), "{outcome:?}");
}

#[test]
fn what_entries_do_is_accounted_on_their_days_and_a_month_is_kept() {
    let book = NamespaceId(1);
    let accounts = |table: &Memory, day: u32| table.days.get(&(book, day)).copied();
    let mut table = with_book();
    bump_on(&mut table, 1, 100, 10, vec![]);
    assert_eq!(accounts(&table, 100), None, "nothing was handed out for sure");
    // Ten more are needed: the first ten are handed out.
    bump_on(&mut table, 1, 100, 10, vec![]);
    let handed_out = |handed_out| DayAccounts { handed_out, ..DayAccounts::default() };
    assert_eq!(accounts(&table, 100), Some(handed_out(10)));
    // A crash: the next term's bump finds what the last one left, and what the epoch gave.
    run(&mut table, 2, Command::BeginEpoch);
    let fenced = |namespace, numbers| Skipped { namespace, by: SkippedBy::Fence, numbers };
    let told = vec![fenced(book, 3), fenced(NamespaceId(9), 5)];
    bump_on(&mut table, 2, 101, 10, told);
    // The bump says that at most ten of the epoch's and its own numbers are unused.
    let skipped =
        DayAccounts { handed_out: 10, leader_change: 10, fence: 3, ..DayAccounts::default() };
    assert_eq!(accounts(&table, 101), Some(skipped));
    assert_eq!(table.days.len(), 2, "no accounts of a namespace that does not exist");
    let trim = Command::Trim {
        sections: vec![SectionUse { section: section(7), used: 38, skipped: 4 }],
        now_ms: 101 * DAY_MS,
    };
    run(&mut table, 2, trim);
    let trimmed = DayAccounts { handed_out: 18, shared_section: 4, ..skipped };
    assert_eq!(accounts(&table, 101), Some(trimmed));
}

#[test]
fn the_accounts_of_31_days_are_kept_and_a_clock_that_was_wrong_for_a_moment_costs_one_of_them() {
    let mut table = with_book();
    let account_on = |table: &mut Memory, day| {
        let skipped = Skipped { namespace: NamespaceId(1), by: SkippedBy::Fence, numbers: 1 };
        bump_on(table, 1, day, 10, vec![skipped]);
        table.days.keys().map(|(_, day)| u64::from(*day)).collect::<Vec<_>>()
    };
    let a_month: Vec<u64> = (100..131).collect();
    for day in &a_month {
        account_on(&mut table, *day);
    }
    let long_ago = 1;
    let far_ahead = 30_000;
    assert_eq!(account_on(&mut table, far_ahead), [&a_month[1..], &[far_ahead]].concat());
    assert_eq!(account_on(&mut table, 131), [&a_month[1..], &[131]].concat());
    assert_eq!(account_on(&mut table, long_ago), [&[long_ago], &a_month[1..]].concat());
    // Days without accounts between them do not count.
    let later = [&a_month[1..], &[1_000]].concat();
    assert_eq!(account_on(&mut table, 1_000), later);
    assert_eq!(account_on(&mut table, 1_000), later);
}

#[test]
fn what_two_crashes_in_a_row_skip_is_counted_once_and_what_ids_skip_is_not() {
    let mut table = with_book();
    let ids =
        NamespaceConfig { format: Some("rongcloud".to_owned()), ..NamespaceConfig::new("chat") };
    run(&mut table, 1, Command::create_namespace(ids));
    let of = |namespace| SectionId { namespace: NamespaceId(namespace), ..section(7) };
    for namespace in [1, 2] {
        let first = Bump { section: of(namespace), ..bump(7, 10) };
        run(&mut table, 1, bumps(vec![first]));
    }
    // The first of the new leaders writes nothing down.
    run(&mut table, 2, Command::BeginEpoch);
    run(&mut table, 3, Command::BeginEpoch);
    assert_eq!(table.skipped, 0);
    let checkpointed = run(&mut table, 3, checkpoints(vec![of(1), of(2)]));
    assert_eq!(checkpointed, EntryOutcome::Written(2));
    let skipped_of = |table: &Memory, namespace| {
        let days = table.days.iter().filter(|((id, _), _)| *id == NamespaceId(namespace));
        days.map(|(_, accounts)| accounts.leader_change).sum::<u64>()
    };
    assert_eq!((skipped_of(&table, 1), skipped_of(&table, 2)), (20, 20));
    assert_eq!(table.skipped, 20);
}
