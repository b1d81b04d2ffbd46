//! The effects of takes of gapless keys on a section's record.

use super::*;

fn progression(max: u64) -> Progression {
    Progression { start: 100, increment: 10, max }
}

#[test]
fn takes_follow_one_another_without_a_gap_whatever_epochs_come_between() {
    let mut record = SectionRecord::default();
    let mut expected = 100;
    for (epoch, count) in [(1, 1), (1, 3), (2, 1), (9, 2), (9, 1)] {
        let (after, range) = record.take(progression(NUMBER_MAX), epoch, count).unwrap();
        assert_eq!(range.first, expected);
        assert_eq!(range.last, expected + (count - 1) * 10);
        expected = range.last + 10;
        record = after;
    }
    // An epoch gives nothing, there is nothing to checkpoint, and a trim takes nothing back.
    assert_eq!(record.epoch_chunk(progression(NUMBER_MAX), 10), None);
    assert_eq!(record.checkpoint(progression(NUMBER_MAX), 10), None);
    assert_eq!(record.trim(progression(NUMBER_MAX), 9, 0).unwrap().max_seq, record.max_seq);
    assert_eq!(record.ceiling_at(99, 10), record.max_seq);
    assert_eq!(record.floor_at(99, 10), record.max_seq);
}

#[test]
fn a_take_beyond_the_max_takes_nothing_and_says_what_is_left() {
    let (record, _) = SectionRecord::default().take(progression(139), 1, 2).unwrap();
    assert_eq!(record.take(progression(139), 1, 3), Err(2));
    let (record, range) = record.take(progression(139), 1, 2).unwrap();
    assert_eq!((range.first, range.last), (120, 130));
    assert_eq!(record.take(progression(139), 1, 1), Err(0));
    let wide = Progression { start: NUMBER_MAX, increment: NUMBER_MAX, max: NUMBER_MAX };
    let (record, _) = SectionRecord::default().take(wide, 1, 1).unwrap();
    assert_eq!(record.take(wide, 1, u64::MAX), Err(0));
}
