//! The accounts of a section.

use super::*;

#[test]
fn the_accounts_tell_what_was_handed_out_and_what_a_crash_skipped() {
    let accounts = |record: SectionRecord, epoch| {
        let accounts = record.accounts_at(ONES, epoch);
        (accounts.handed_out, accounts.skipped, accounts.left)
    };
    let record = bumped(1, 100);
    assert_eq!(accounts(record, 1), (0, 0, 100));
    let raise = CeilingRaise { numbers: 100, unused_max: 110, step: 100, up_to: 0 };
    let (record, _) = record.bump(ONES, 1, raise).unwrap();
    assert_eq!(accounts(record, 1), (90, 0, 110));
    // A crash: the next term has a chunk by its epoch.
    assert_eq!(accounts(record, 2), (90, 110, 100));
    let checkpointed = record.checkpoint(ONES, 2).unwrap();
    assert_eq!(accounts(checkpointed, 2), (90, 110, 100));
    // It used 30, trims, and is returned.
    let trimmed = checkpointed.trim(ONES, 2, 230).unwrap();
    assert_eq!(accounts(trimmed, 2), (120, 110, 100));
    let raised = trimmed.raised(ONES, 2, 1_000, 0);
    assert_eq!(accounts(raised, 2), (120, 1_910, 0), "nobody knows what the lost nodes did");
    assert_eq!(accounts(SectionRecord::default(), 5), (0, 0, 0));
}

#[test]
fn the_accounts_do_not_depend_on_a_max_that_changes() {
    let short = Progression { max: 105, ..ONES };
    let record = bumped(1, 100);
    let written = record.checkpoint(short, 2).unwrap();
    let accounts = SectionAccounts { handed_out: 0, skipped: 100, left: 100 };
    assert_eq!(written.accounts_at(short, 2), accounts);
    assert_eq!(written.accounts_at(ONES, 2), accounts);
}

/// A recovery moves the first number as well as the ceilings: what lies below it is in no account.
#[test]
fn the_accounts_of_a_raised_section_hold_what_lies_above_a_first_number_that_was_moved() {
    let unused = bumped(1, 10_000);
    // The first chunk was used up but for 7 numbers, and a crash skipped those and a step.
    let used = SectionRecord { unused_max: 7, ..unused };
    let used = used.bump(ONES, 2, step(10_000)).unwrap().0;
    for (record, start, distance) in [
        (unused, 100_001, 100_000),
        (unused, 5_001, 5_000),
        (unused, 1, 0),
        (used, 100_001, 100_000),
        (used, 9_990, 9_989),
    ] {
        let moved = Progression { start, ..ONES };
        let raised = record.raised(moved, 2, distance, 0);
        let accounts = raised.accounts_at(moved, 2);
        let all = numbers(moved, 0, raised.max_seq);
        let sum = accounts.handed_out + accounts.skipped + accounts.left;
        assert_eq!(sum, all, "{raised:?} from {start} on");
        assert_eq!(accounts.left, 0);
        // Numbers below the new start that are known to be handed out do not count, and no others are.
        let known = record.handed_out(ONES);
        assert!(accounts.handed_out <= known, "{accounts:?} after {known}");
        let (next, _) = raised.bump(moved, 3, step(10)).unwrap();
        let accounts = next.accounts_at(moved, 3);
        let all = numbers(moved, 0, next.max_seq);
        assert_eq!(accounts.handed_out + accounts.skipped + accounts.left, all);
    }
    let moved = Progression { start: 100_001, ..ONES };
    let accounts = unused.raised(moved, 1, 100_000, 0).accounts_at(moved, 1);
    assert_eq!((accounts.handed_out, accounts.skipped), (0, 90_000));
}
