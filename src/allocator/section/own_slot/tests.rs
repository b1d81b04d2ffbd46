//! The values that a slot holds, and those that it refuses.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{clock::Instant, sequence::NUMBER_MAX};

const ONES: Progression = Progression { start: 1, increment: 1, max: NUMBER_MAX };

fn slot() -> OwnSlot<u64> {
    OwnSlot::new(7, NamespaceId(1))
}

fn owned(floor: u64, ceiling: u64, refill_at: u64) -> Owned {
    Owned { floor, ceiling, refill_at, came_at: ChunkTime::at(Instant::from_nanos(5_000_000)) }
}

#[test]
fn the_slot_of_an_id_takes_40_bytes_and_that_of_a_name_48() {
    assert_eq!(size_of::<OwnSlot<u64>>(), 40);
    assert_eq!(size_of::<OwnSlot<Box<[u8]>>>(), 48);
}

#[test]
fn a_fresh_slot_owns_nothing_and_asks_its_section() {
    let mut slot = slot();
    assert_eq!(slot.owned(ONES), None);
    assert_eq!(slot.cursor.fast_limit(), 0);
    assert!(slot.put(Some(&owned(0, 100, 94)), ONES));
    assert!(slot.put(None, ONES));
    assert_eq!((slot.owned(ONES), slot.cursor.fast_limit()), (None, 0));
}

#[test]
fn what_was_put_comes_back() {
    let mut slot = slot();
    let fresh = owned(1_000, 2_000, 1_940);
    assert!(slot.put(Some(&fresh), ONES));
    assert_eq!(slot.owned(ONES), Some(fresh));
    let came_at = slot.owned(ONES).unwrap().came_at;
    let now = Instant::from_nanos(12_000_000);
    assert_eq!(came_at.lasted_at(now), Some(Duration::from_millis(7)));
    // The first number is the first above the floor.
    assert_eq!(slot.cursor.next(), 1_001);
    assert_eq!(slot.cursor.fast_limit(), 1_940);
}

#[test]
fn a_floor_that_is_no_number_of_the_namespace_fits_once_a_number_above_it_was_taken() {
    let tens = Progression { start: 5, increment: 10, ..ONES };
    let mut slot = slot();
    // Raised by hand: nobody was given 1 003.
    let raised = owned(1_003, 2_003, 1_940);
    assert!(!slot.put(Some(&raised), tens));
    assert_eq!(slot.owned(tens), None);
    slot.cursor.advance(1_005, 10);
    assert!(slot.put(Some(&raised), tens));
    let held = slot.owned(tens).unwrap();
    assert_eq!(held.current(Some(&slot.cursor), tens), 1_005);
}

#[test]
fn a_max_that_was_lowered_below_what_was_taken_changes_nothing() {
    let mut slot = slot();
    assert!(slot.put(Some(&owned(50, 100, 94)), ONES));
    slot.cursor.advance(60, 1);
    let lowered = Progression { max: 40, ..ONES };
    let held = slot.owned(lowered).unwrap();
    assert_eq!(held.current(Some(&slot.cursor), lowered), 60);
    assert!(slot.put(Some(&held), lowered));
    assert_eq!(slot.owned(ONES), Some(held));
}

#[test]
fn the_end_of_the_number_space_fits() {
    let mut slot = slot();
    let last = owned(NUMBER_MAX - 10, NUMBER_MAX, NUMBER_MAX);
    assert!(slot.put(Some(&last), ONES));
    slot.cursor.advance(NUMBER_MAX, 1);
    let held = slot.owned(ONES).unwrap();
    assert_eq!(held.current(Some(&slot.cursor), ONES), NUMBER_MAX);
    assert!(slot.put(Some(&held), ONES));
    assert_eq!(slot.owned(ONES), Some(held));
}

proptest! {
    /// Whatever was put, and however much of it was taken: the slot answers as the section would.
    #[test]
    fn a_slot_knows_what_is_left_and_what_was_handed_out_as_its_section_does(
        start in 1u64..30,
        increment in 1u64..20,
        floor in 0u64..2_000,
        chunk in 1u64..500,
        takes in prop::collection::vec(1u64..20, 0..8),
    ) {
        let config = crate::sequence::NamespaceConfig {
            start,
            increment,
            ..crate::sequence::NamespaceConfig::new("book")
        };
        let progression = config.progression();
        let range = progression.range_above(floor, chunk).unwrap();
        let section = owned(floor, range.last, range.last - range.last / 10);
        let mut cursor = Cursor::new();
        let mut slot = slot();
        let mut put = slot.put(Some(&section), progression);
        for count in takes {
            let left = section.left(&mut cursor, &config);
            if put {
                let held = slot.owned(progression).unwrap();
                prop_assert_eq!(held.left(&mut slot.cursor, &config), left);
                let current = held.current(Some(&slot.cursor), progression);
                prop_assert_eq!(current, section.current(Some(&cursor), progression));
            }
            if count <= left {
                cursor.advance(cursor.next() + (count - 1) * increment, increment);
                slot.cursor = cursor;
                put = slot.put(Some(&section), progression);
                prop_assert!(put, "after a number was taken every section fits");
            }
        }
    }
}
