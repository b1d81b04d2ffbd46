//! The books of a section.

use super::*;

#[test]
fn the_books_tell_what_was_handed_out_and_what_a_crash_skipped() {
    let books = |record: SectionRecord, lift| {
        let books = record.books_at(ONES, lift);
        (books.handed_out, books.skipped, books.left)
    };
    let record = bumped(1, 100);
    assert_eq!(books(record, 1), (0, 0, 100));
    let raise = Raise {
        numbers: 100,
        unused_max: 110,
        step: 100,
        up_to: 0,
    };
    let (record, _) = record.bump(ONES, 1, raise).unwrap();
    assert_eq!(books(record, 1), (90, 0, 110));
    // A crash: the next term has a chunk by its lift.
    assert_eq!(books(record, 2), (90, 110, 100));
    let settled = record.settle(ONES, 2).unwrap();
    assert_eq!(books(settled, 2), (90, 110, 100));
    // It used 30, trims, and gives its lift back.
    let trimmed = settled.trim(ONES, 2, 230).unwrap();
    assert_eq!(books(trimmed, 2), (120, 110, 100));
    let raised = trimmed.raised(ONES, 2, 1_000);
    assert_eq!(
        books(raised, 2),
        (120, 1_310, 0),
        "nobody knows what the lost nodes did"
    );
    assert_eq!(books(SectionRecord::default(), 5), (0, 0, 0));
}

#[test]
fn the_books_do_not_depend_on_a_max_that_changes() {
    let short = Progression { max: 105, ..ONES };
    let record = bumped(1, 100);
    let lifted = record.settle(short, 2).unwrap();
    let books = SectionBooks {
        handed_out: 0,
        skipped: 100,
        left: 100,
    };
    assert_eq!(lifted.books_at(short, 2), books);
    assert_eq!(lifted.books_at(ONES, 2), books);
    // Of the 100 numbers that the lift gave, 5 were numbers of the namespace then.
    assert_eq!(lifted.bump(ONES, 3, step(1)).unwrap().1.left, 100);
    assert_eq!(lifted.left_at(short, 3), 5);
}
