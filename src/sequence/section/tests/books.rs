//! The books of a section.

use super::*;

#[test]
fn the_books_tell_what_was_handed_out_and_what_a_crash_skipped() {
    let books = |record: SectionRecord, epoch| {
        let books = record.books_at(ONES, epoch);
        (books.handed_out, books.skipped, books.left)
    };
    let record = bumped(1, 100);
    assert_eq!(books(record, 1), (0, 0, 100));
    let raise = Raise { numbers: 100, unused_max: 110, step: 100, up_to: 0 };
    let (record, _) = record.bump(ONES, 1, raise).unwrap();
    assert_eq!(books(record, 1), (90, 0, 110));
    // A crash: the next term has a chunk by its epoch.
    assert_eq!(books(record, 2), (90, 110, 100));
    let checkpointed = record.checkpoint(ONES, 2).unwrap();
    assert_eq!(books(checkpointed, 2), (90, 110, 100));
    // It used 30, trims, and is given back.
    let trimmed = checkpointed.trim(ONES, 2, 230).unwrap();
    assert_eq!(books(trimmed, 2), (120, 110, 100));
    let raised = trimmed.raised(ONES, 2, 1_000, 0);
    assert_eq!(books(raised, 2), (120, 1_910, 0), "nobody knows what the lost nodes did");
    assert_eq!(books(SectionRecord::default(), 5), (0, 0, 0));
}

#[test]
fn the_books_do_not_depend_on_a_max_that_changes() {
    let short = Progression { max: 105, ..ONES };
    let record = bumped(1, 100);
    let written = record.checkpoint(short, 2).unwrap();
    let books = SectionBooks { handed_out: 0, skipped: 100, left: 100 };
    assert_eq!(written.books_at(short, 2), books);
    assert_eq!(written.books_at(ONES, 2), books);
}

/// A recovery moves the first number as well as the ceilings: what lies below it belongs to no books.
#[test]
fn the_books_of_a_raised_section_hold_what_lies_above_a_first_number_that_was_moved() {
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
        let books = raised.books_at(moved, 2);
        let all = numbers(moved, 0, raised.max_seq);
        let sum = books.handed_out + books.skipped + books.left;
        assert_eq!(sum, all, "{raised:?} from {start} on");
        assert_eq!(books.left, 0);
        // What is known to be handed out below the new start does not count, and nothing else is.
        let known = record.handed_out(ONES);
        assert!(books.handed_out <= known, "{books:?} after {known}");
        let (next, _) = raised.bump(moved, 3, step(10)).unwrap();
        let books = next.books_at(moved, 3);
        let all = numbers(moved, 0, next.max_seq);
        assert_eq!(books.handed_out + books.skipped + books.left, all);
    }
    let moved = Progression { start: 100_001, ..ONES };
    let books = unused.raised(moved, 1, 100_000, 0).books_at(moved, 1);
    assert_eq!((books.handed_out, books.skipped), (0, 90_000));
}
