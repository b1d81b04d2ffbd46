//! The effects of bumps, epochs, checkpoints and trims on a section's record.

mod accounts;
mod takes;
mod uses;

use super::*;

const ONES: Progression = Progression { start: 1, increment: 1, max: NUMBER_MAX };

/// A bump by one step of `numbers` numbers.
fn step(numbers: u64) -> CeilingRaise {
    CeilingRaise { numbers, unused_max: numbers, step: numbers, up_to: 0 }
}

/// The record of a section that was bumped once, under `epoch`.
fn bumped(epoch: u64, numbers: u64) -> SectionRecord {
    let fresh = SectionRecord::default();
    fresh.bump(ONES, epoch, step(numbers)).unwrap().0
}

fn chunk(old: u64, new: u64) -> Chunk {
    Chunk { old, new }
}

#[test]
fn chunks_of_one_epoch_are_adjacent_and_those_of_the_next_lie_above() {
    let record = SectionRecord::default();
    let (record, first) = record.bump(ONES, 1, step(10_000)).unwrap();
    let (record, second) = record.bump(ONES, 1, step(10_000)).unwrap();
    assert_eq!(first, chunk(0, 10_000));
    assert_eq!(second, chunk(10_000, 20_000));
    assert_eq!(record.floor, 0);
    let epoch_chunk = record.epoch_chunk(ONES, 2).unwrap();
    assert_eq!(epoch_chunk, chunk(20_000, 30_000));
    let (record, third) = record.bump(ONES, 2, step(10_000)).unwrap();
    assert_eq!((third.old, third.new), (30_000, 40_000));
    assert_eq!((record.floor, record.epoch), (20_000, 2));
}

#[test]
fn a_section_without_a_record_is_never_live_and_begins_at_its_first_number() {
    let fresh = SectionRecord::default();
    for epoch in 0..5 {
        assert_eq!(fresh.epoch_chunk(ONES, epoch), None);
        assert_eq!(fresh.ceiling_at(epoch, 1), 0);
        assert_eq!(fresh.checkpoint(ONES, epoch), None);
        assert_eq!(fresh.trim(ONES, epoch + 1, 0), None);
        let (_, chunk) = fresh.bump(ONES, epoch, step(10)).unwrap();
        assert_eq!((chunk.old, chunk.new), (0, 10));
    }
}

#[test]
fn an_epoch_gives_the_next_step_for_eight_epochs_and_an_idle_section_loses_no_more_than_those() {
    let record = bumped(3, 100);
    assert_eq!(record.epoch_chunk(ONES, 3), None, "written in that epoch");
    for epochs in 1..=8 {
        assert!(record.is_live_next(2 + epochs));
        let given = record.epoch_chunk(ONES, 3 + epochs);
        assert_eq!(given, Some(chunk(epochs * 100, (epochs + 1) * 100)), "epoch {epochs} since");
    }
    assert_eq!(record.epoch_chunk(ONES, 12), None, "not live any more");
    for epoch in [12, 13, 1_000] {
        assert!(!record.is_live_next(epoch));
        assert_eq!(record.ceiling_at(epoch, 1), 900);
        let (after, chunk) = record.bump(ONES, epoch, step(100)).unwrap();
        assert_eq!((chunk.old, chunk.new), (900, 1_000));
        assert_eq!((after.floor, after.max_seq, after.epoch), (900, 1_000, epoch));
    }
}

#[test]
fn a_checkpointed_section_is_live_again_and_costs_no_number() {
    let record = bumped(3, 100);
    let checkpointed = record.checkpoint(ONES, 5).unwrap();
    assert_eq!((checkpointed.floor, checkpointed.max_seq, checkpointed.epoch), (200, 300, 5));
    assert_eq!(checkpointed.checkpoint(ONES, 5), None, "written before");
    assert_eq!(checkpointed.epoch_chunk(ONES, 6), Some(chunk(300, 400)));
    assert_eq!(record.checkpoint(ONES, 12), None, "the epoch gave nothing");
    let (_, chunk) = checkpointed.bump(ONES, 5, step(100)).unwrap();
    assert_eq!((chunk.old, chunk.new), (300, 400));
}

#[test]
fn the_accounts_count_what_epochs_may_have_left_that_were_not_returned() {
    let record = bumped(3, 10_000);
    let raise = CeilingRaise { numbers: 1_000_000, unused_max: 1_000_400, step: 10_000, up_to: 0 };
    let (record, _) = record.bump(ONES, 3, raise).unwrap();
    for (epoch, skipped) in [(4, 1_000_400), (5, 1_010_400), (12, 1_080_400), (99, 1_080_400)] {
        let (bumped, _) = record.bump(ONES, epoch, step(1)).unwrap();
        assert_eq!(bumped.skipped, skipped);
    }
}

#[test]
fn a_trim_returns_unused_numbers_if_the_epoch_owns_them() {
    let record = bumped(3, 10_000);
    assert_eq!(record.trim(ONES, 3, 10_001), None, "more than it was given");
    assert_eq!(record.trim(ONES, 12, 17), None, "no epoch gave it anything");
    let trimmed = record.trim(ONES, 3, 17).unwrap();
    assert_eq!(trimmed.max_seq, 17);
    let again = trimmed.trim(ONES, 3, 5).unwrap();
    assert_eq!(again.max_seq, 17, "said to be used");
    let returned = trimmed.epoch_chunk(ONES, 3).unwrap();
    assert_eq!(returned, chunk(17, 10_017));
    let after_a_crash = trimmed.epoch_chunk(ONES, 4).unwrap();
    assert_eq!(after_a_crash, chunk(10_017, 20_017));
}

#[test]
fn a_trim_of_what_an_epoch_gave_stops_where_the_epoch_began() {
    let record = bumped(3, 100);
    assert_eq!(record.trim(ONES, 4, 130).unwrap().max_seq, 130);
    assert_eq!(record.trim(ONES, 5, 0).unwrap().max_seq, 200);
    assert_eq!(record.trim(ONES, 5, 301), None, "more than it was given");
    let checkpointed = record.checkpoint(ONES, 5).unwrap();
    assert_eq!(checkpointed.trim(ONES, 5, 0).unwrap().max_seq, 200);
}

#[test]
fn a_raised_ceiling_is_not_lowered_by_a_trim() {
    let raised = bumped(3, 100).raised(ONES, 3, 1_000, 0);
    assert_eq!(raised.max_seq, 1_900, "epochs that nobody remembers count");
    assert_eq!(raised.trim(ONES, 3, 50).unwrap().max_seq, 1_900);
    assert_eq!(raised.epoch_chunk(ONES, 4), Some(chunk(1_900, 2_000)));
    assert_eq!(raised.raised(ONES, 3, u64::MAX, 0).max_seq, NUMBER_MAX);
    assert_eq!(raised.raised(ONES, 3, 5, 9_000).max_seq, 9_000);
    assert_eq!(raised.raised(ONES, 3, 5, 1_000).max_seq, 2_705);
}

#[test]
fn the_last_chunk_ends_at_the_max_and_then_the_section_is_exhausted() {
    let tens = Progression { start: 10, increment: 10, max: 55 };
    let (record, chunk) = SectionRecord::default().bump(tens, 1, step(3)).unwrap();
    assert_eq!(chunk.new, 30);
    let (record, chunk) = record.bump(tens, 1, step(3)).unwrap();
    assert_eq!((chunk.old, chunk.new), (30, 50));
    assert_eq!(record.bump(tens, 1, step(1)), Err(Exhausted));
}

#[test]
fn an_epoch_is_as_wide_as_the_step_times_the_increment_and_knows_no_max() {
    let tens = Progression { start: 7, increment: 10, max: 60 };
    let (record, chunk) = SectionRecord::default().bump(tens, 1, step(3)).unwrap();
    assert_eq!((chunk.old, chunk.new), (0, 27));
    let epoch_chunk = record.epoch_chunk(tens, 2).unwrap();
    assert_eq!((epoch_chunk.old, epoch_chunk.new), (27, 57));
    // 67 and more lie above the max: the numbers that the first epoch gave are the last ones.
    let epoch_chunk = record.epoch_chunk(tens, 3).unwrap();
    assert_eq!((epoch_chunk.old, epoch_chunk.new), (57, 87));
    assert_eq!(record.bump(tens, 3, step(3)), Err(Exhausted));
    let wider = Progression { max: 1_000, ..tens };
    let (_, chunk) = record.bump(wider, 3, step(3)).unwrap();
    assert_eq!((chunk.old, chunk.new), (87, 117));
}

#[test]
fn no_epoch_reaches_over_the_end_of_the_number_space() {
    let record = SectionRecord {
        max_seq: NUMBER_MAX - 5,
        floor: 0,
        epoch: 1,
        step: 10,
        unused_max: 10,
        ..SectionRecord::default()
    };
    assert_eq!(record.epoch_chunk(ONES, 2).unwrap().new, NUMBER_MAX);
    assert_eq!(record.epoch_chunk(ONES, 3), None, "nothing is left to give");
    assert_eq!(record.bump(ONES, 3, step(1)), Err(Exhausted));
    let wide = SectionRecord { step: u64::MAX, ..record };
    assert_eq!(wide.ceiling_at(9, u64::MAX), NUMBER_MAX);
}

#[test]
fn a_released_section_has_no_gap_whichever_epoch_follows_and_is_bumped_in_the_epoch_that_released_it()
 {
    let record = bumped(3, 100);
    for (used, epoch) in [(0, 3), (40, 3), (100, 3), (150, 4), (250, 5)] {
        let released = record.release(ONES, epoch, used).unwrap();
        assert_eq!((released.max_seq, released.floor), (used, used));
        assert_eq!(released.epoch_chunk(ONES, epoch), None, "its epoch owns nothing");
        assert_eq!(released.floor_at(epoch, 1), used);
        // Also if the epoch was returned and comes again.
        let (_, chunk) = released.bump(ONES, epoch, step(10)).unwrap();
        assert_eq!((chunk.old, chunk.new), (used, used + 10));
        let next = released.epoch_chunk(ONES, epoch + 1).unwrap();
        assert_eq!((next.old, next.new), (used, used + 100));
        // A term that bumps it again, and releases it again, owns the chunk of that bump.
        let (again, _) = released.bump(ONES, epoch, step(10)).unwrap();
        assert_eq!(again.release(ONES, epoch, used + 7).unwrap().max_seq, used + 7);
        assert_eq!(again.release(ONES, epoch, used + 11), None, "more than it owns");
    }
    assert_eq!(record.release(ONES, 12, 900), None, "not live: it owns nothing");
}

#[test]
fn a_bump_for_a_floor_alone_brings_what_it_needs_and_leaves_nothing_to_an_epoch() {
    let floor = |up_to| CeilingRaise { numbers: 1, unused_max: 1, step: 0, up_to };
    let (record, chunk) = SectionRecord::default().bump(ONES, 1, floor(5_000)).unwrap();
    assert_eq!((chunk.old, chunk.new), (0, 5_000));
    assert_eq!((record.max_seq, record.step), (5_000, 0));
    assert_eq!(record.epoch_chunk(ONES, 2), None);
    assert_eq!(record.ceiling_at(9, 1), 5_000);
    assert_eq!(record.floor_at(2, 1), 5_000, "what Current reads in a later term");
    // One that is below the ceiling brings one number: the term must learn where the ceiling is.
    let (record, chunk) = record.bump(ONES, 2, floor(10)).unwrap();
    assert_eq!((chunk.old, chunk.new), (5_000, 5_001));
    // A section that is used keeps its step.
    let (used, _) = record.bump(ONES, 2, step(100)).unwrap();
    let (raised, chunk) = used.bump(ONES, 2, floor(9_000)).unwrap();
    assert_eq!((raised.step, chunk.new), (100, 9_000));
    let short = Progression { max: 7, ..ONES };
    let (_, chunk) = SectionRecord::default().bump(short, 1, floor(9)).unwrap();
    assert_eq!(chunk.new, 7);
}

#[test]
fn a_record_whose_floor_lies_above_its_ceiling_is_not_read() {
    let read = |max_seq, floor| {
        let record = SectionRecord { max_seq, floor, ..SectionRecord::default() };
        let stored = serde_json::to_string(&record).unwrap();
        serde_json::from_str::<SectionRecord>(&stored).map_err(|error| error.to_string())
    };
    assert_eq!(read(6, 6).map(|record| record.floor), Ok(6));
    let error = read(5, 6).unwrap_err();
    assert!(error.contains("a floor above its ceiling"), "{error}");
    assert!(read(NUMBER_MAX + 1, 6).is_err());
}
