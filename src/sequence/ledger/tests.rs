//! The writer of a ledger, and hand-offs to its successor.

use super::*;

const DIGEST: MemoryDigest = MemoryDigest { parts: 7, checksum: 0xC0FFEE };

fn memory_for(successor: NodeId) -> TermEnd {
    TermEnd::HandOff { successor, digest: DIGEST }
}

#[test]
fn the_term_that_began_an_epoch_writes_until_the_next_one_begins() {
    let mut ledger = Ledger::default();
    let none = LedgerRefused::NotWriter { term: 1, writer: 0 };
    assert_eq!(ledger.check_writer(1), Err(none));
    assert_eq!(ledger.begin_epoch(1), Ok(1));
    assert_eq!(ledger.check_writer(1), Ok(()));
    assert_eq!(ledger.begin_epoch(1), Err(LedgerRefused::HoldsAlready(1)));
    assert_eq!(ledger.begin_epoch(4), Ok(2));
    let later = LedgerRefused::NotWriter { term: 1, writer: 4 };
    assert_eq!(ledger.check_writer(1), Err(later));
    assert_eq!(ledger.end_term(1, TermEnd::Return), Err(later));
}

#[test]
fn a_term_that_handed_off_its_chunks_writes_nothing_any_more() {
    let mut ledger = Ledger::default();
    ledger.begin_epoch(1).unwrap();
    ledger.end_term(1, memory_for(2)).unwrap();
    assert_eq!(ledger.check_writer(1), Err(LedgerRefused::Ended(1)));
    assert_eq!(ledger.end_term(1, TermEnd::Return), Err(LedgerRefused::Ended(1)));
    assert_eq!(ledger.begin_epoch(1), Err(LedgerRefused::HoldsAlready(1)));
}

#[test]
fn the_successor_that_holds_the_memory_takes_over_once_and_goes_on_in_the_same_epoch() {
    let mut ledger = Ledger::default();
    ledger.begin_epoch(1).unwrap();
    ledger.end_term(1, memory_for(2)).unwrap();
    let other = MemoryDigest { checksum: 1, ..DIGEST };
    assert_eq!(ledger.take_over(2, 3, DIGEST), Err(LedgerRefused::NotSuccessor(3)));
    assert_eq!(ledger.take_over(2, 2, other), Err(LedgerRefused::NotSuccessor(2)));
    // A term in which nothing was written comes between.
    assert_eq!(ledger.take_over(3, 2, DIGEST), Ok(1));
    assert_eq!(ledger.check_writer(3), Ok(()));
    assert_eq!(ledger.take_over(4, 2, DIGEST), Err(LedgerRefused::NotSuccessor(2)));
}

#[test]
fn a_successor_that_comes_after_another_terms_epoch_gets_nothing() {
    let mut ledger = Ledger::default();
    ledger.begin_epoch(1).unwrap();
    ledger.end_term(1, memory_for(2)).unwrap();
    assert_eq!(ledger.begin_epoch(2), Ok(2));
    assert_eq!(ledger.take_over(3, 2, DIGEST), Err(LedgerRefused::NotSuccessor(2)));
}

#[test]
fn an_epoch_that_was_returned_is_given_again_and_one_that_was_handed_off_to_a_successor_is_not() {
    let mut ledger = Ledger::default();
    ledger.begin_epoch(1).unwrap();
    ledger.end_term(1, TermEnd::Return).unwrap();
    assert_eq!(ledger.take_over(2, 2, DIGEST), Err(LedgerRefused::NotSuccessor(2)));
    assert_eq!(ledger.begin_epoch(2), Ok(1));
    assert_eq!(ledger.end, None);
    ledger.end_term(2, memory_for(3)).unwrap();
    assert_eq!(ledger.begin_epoch(3), Ok(2));
}
