//! What bumps, lifts, settles and trims do to a section's record.

use proptest::prelude::*;

use super::*;

const ONES: Progression = Progression {
    start: 1,
    increment: 1,
    max: NUMBER_MAX,
};

/// A bump by one step of `numbers` numbers.
fn step(numbers: u64) -> Raise {
    Raise {
        numbers,
        unused_max: numbers,
        step: numbers,
        up_to: 0,
    }
}

/// The record of a section that was bumped once, under lift number `lift`.
fn bumped(lift: u64, numbers: u64) -> SectionRecord {
    let fresh = SectionRecord::default();
    fresh.bump(ONES, lift, step(numbers)).unwrap().0
}

fn chunk(old: u64, new: u64, left: u64) -> Chunk {
    Chunk { old, new, left }
}

#[test]
fn chunks_of_one_tenure_are_adjacent_and_those_of_the_next_lie_above() {
    let record = SectionRecord::default();
    let (record, first) = record.bump(ONES, 1, step(10_000)).unwrap();
    let (record, second) = record.bump(ONES, 1, step(10_000)).unwrap();
    assert_eq!(first, chunk(0, 10_000, 0));
    assert_eq!(second, chunk(10_000, 20_000, 0));
    assert_eq!(record.floor, 0);
    let lifted = record.lifted(ONES, 2).unwrap();
    assert_eq!(lifted, chunk(20_000, 30_000, 10_000));
    let (record, third) = record.bump(ONES, 2, step(10_000)).unwrap();
    assert_eq!((third.old, third.new), (30_000, 40_000));
    assert_eq!((record.floor, record.lift), (20_000, 2));
}

#[test]
fn a_section_without_a_record_is_never_live_and_begins_at_its_first_number() {
    let fresh = SectionRecord::default();
    for lift in 0..5 {
        assert_eq!(fresh.lifted(ONES, lift), None);
        assert_eq!(fresh.ceiling_at(lift, 1), 0);
        assert_eq!(fresh.settle(ONES, lift), None);
        assert_eq!(fresh.trim(lift + 1, 1, 0), None);
        let (_, chunk) = fresh.bump(ONES, lift, step(10)).unwrap();
        assert_eq!((chunk.old, chunk.new, chunk.left), (0, 10, 0));
    }
}

#[test]
fn a_lift_gives_the_next_step_for_two_lifts_and_an_idle_section_loses_no_more_than_those() {
    let record = bumped(3, 100);
    assert_eq!(record.lifted(ONES, 3), None, "written under that lift");
    assert_eq!(record.lifted(ONES, 4), Some(chunk(100, 200, 100)));
    assert_eq!(record.lifted(ONES, 5), Some(chunk(200, 300, 200)));
    assert_eq!(record.lifted(ONES, 6), None, "not live any more");
    for lift in [6, 7, 1_000] {
        assert_eq!(record.ceiling_at(lift, 1), 300);
        let (after, chunk) = record.bump(ONES, lift, step(100)).unwrap();
        assert_eq!((chunk.old, chunk.new, chunk.left), (300, 400, 300));
        assert_eq!((after.floor, after.max_seq, after.lift), (300, 400, lift));
    }
}

#[test]
fn a_settled_section_is_live_again_and_costs_no_number() {
    let record = bumped(3, 100);
    let settled = record.settle(ONES, 5).unwrap();
    assert_eq!(
        (settled.floor, settled.max_seq, settled.lift),
        (200, 300, 5)
    );
    assert_eq!(settled.settle(ONES, 5), None, "written before");
    assert_eq!(settled.lifted(ONES, 6), Some(chunk(300, 400, 100)));
    assert_eq!(record.settle(ONES, 6), None, "the lift gave nothing");
    let (_, chunk) = settled.bump(ONES, 5, step(100)).unwrap();
    assert_eq!((chunk.old, chunk.new, chunk.left), (300, 400, 0));
}

#[test]
fn a_bump_counts_what_lost_tenures_may_have_left() {
    let record = bumped(3, 10_000);
    let raise = Raise {
        numbers: 1_000_000,
        unused_max: 1_000_400,
        step: 10_000,
        up_to: 0,
    };
    let (record, _) = record.bump(ONES, 3, raise).unwrap();
    let left = |record: SectionRecord, lift| record.bump(ONES, lift, step(1)).unwrap().1.left;
    assert_eq!(left(record, 4), 1_000_400);
    assert_eq!(left(record, 5), 1_010_400);
    assert_eq!(left(record, 9), 1_020_400);
}

#[test]
fn a_trim_returns_unused_numbers_if_the_tenure_owns_them() {
    let record = bumped(3, 10_000);
    assert_eq!(record.trim(3, 1, 10_001), None, "more than it was given");
    assert_eq!(record.trim(6, 1, 17), None, "no lift gave it anything");
    let trimmed = record.trim(3, 1, 17).unwrap();
    assert_eq!(trimmed.max_seq, 17);
    let again = trimmed.trim(3, 1, 5).unwrap();
    assert_eq!(again.max_seq, 17, "said to be used");
    let given_back = trimmed.lifted(ONES, 3).unwrap();
    assert_eq!(given_back, chunk(17, 10_017, 0));
    let lost = trimmed.lifted(ONES, 4).unwrap();
    assert_eq!(lost, chunk(10_017, 20_017, 10_000));
}

#[test]
fn a_trim_of_what_a_lift_gave_stops_where_the_lift_began() {
    let record = bumped(3, 100);
    assert_eq!(record.trim(4, 1, 130).unwrap().max_seq, 130);
    assert_eq!(record.trim(5, 1, 0).unwrap().max_seq, 200);
    assert_eq!(record.trim(5, 1, 301), None, "more than it was given");
    let settled = record.settle(ONES, 5).unwrap();
    assert_eq!(settled.trim(5, 1, 0).unwrap().max_seq, 200);
}

#[test]
fn a_raised_ceiling_is_not_lowered_by_a_trim() {
    let raised = bumped(3, 100).raised(3, 1, 1_000);
    assert_eq!(raised.max_seq, 1_300, "lifts that nobody remembers count");
    assert_eq!(raised.trim(3, 1, 50).unwrap().max_seq, 1_300);
    assert_eq!(raised.lifted(ONES, 4), Some(chunk(1_300, 1_400, 0)));
    assert_eq!(raised.raised(3, 1, u64::MAX).max_seq, NUMBER_MAX);
}

#[test]
fn the_last_chunk_ends_at_the_max_and_then_the_section_is_exhausted() {
    let tens = Progression {
        start: 10,
        increment: 10,
        max: 55,
    };
    let (record, chunk) = SectionRecord::default().bump(tens, 1, step(3)).unwrap();
    assert_eq!(chunk.new, 30);
    let (record, chunk) = record.bump(tens, 1, step(3)).unwrap();
    assert_eq!((chunk.old, chunk.new), (30, 50));
    assert_eq!(record.bump(tens, 1, step(1)), Err(Exhausted));
}

#[test]
fn a_lift_is_as_wide_as_the_step_times_the_increment_and_knows_no_max() {
    let tens = Progression {
        start: 7,
        increment: 10,
        max: 60,
    };
    let (record, chunk) = SectionRecord::default().bump(tens, 1, step(3)).unwrap();
    assert_eq!((chunk.old, chunk.new), (0, 27));
    let lifted = record.lifted(tens, 2).unwrap();
    assert_eq!((lifted.old, lifted.new, lifted.left), (27, 57, 3));
    // 67 and more lie above the max: the numbers that the first lift gave are the last ones.
    let lifted = record.lifted(tens, 3).unwrap();
    assert_eq!((lifted.old, lifted.new, lifted.left), (57, 87, 6));
    assert_eq!(record.bump(tens, 3, step(3)), Err(Exhausted));
    let wider = Progression { max: 1_000, ..tens };
    let (_, chunk) = record.bump(wider, 3, step(3)).unwrap();
    assert_eq!((chunk.old, chunk.new), (87, 117));
}

#[test]
fn the_end_of_the_number_space_is_not_lifted_over() {
    let record = SectionRecord {
        max_seq: NUMBER_MAX - 5,
        floor: 0,
        lift: 1,
        step: 10,
        unused_max: 10,
    };
    assert_eq!(record.lifted(ONES, 2).unwrap().new, NUMBER_MAX);
    assert_eq!(record.lifted(ONES, 3), None, "nothing is left to give");
    assert_eq!(record.bump(ONES, 3, step(1)), Err(Exhausted));
    let wide = SectionRecord {
        step: u64::MAX,
        ..record
    };
    assert_eq!(wide.ceiling_at(9, u64::MAX), NUMBER_MAX);
}

/// One tenure after the other uses a section as the allocator does. Every number is used once, in growing order.
#[derive(Default)]
struct Uses {
    record: SectionRecord,
    /// How many lifts were spent.
    lift: u64,
    /// The chunk of this tenure, with its first unused number's predecessor.
    owned: Option<(u64, u64)>,
    /// The greatest number used by any tenure.
    used: u64,
}

impl Uses {
    fn take(&mut self, numbers: u64, step_numbers: u64) {
        if self.owned.is_none() {
            let lifted = self.record.lifted(ONES, self.lift);
            self.owned = lifted.map(|chunk| (chunk.old, chunk.new));
        }
        let left = self.owned.map_or(0, |(used, ceiling)| ceiling - used);
        if left < numbers {
            let raise = Raise {
                numbers: numbers.max(step_numbers),
                unused_max: step_numbers + numbers,
                step: step_numbers,
                up_to: 0,
            };
            let (record, chunk) = self.record.bump(ONES, self.lift, raise).unwrap();
            let (used, ceiling) = self.owned.unwrap_or((chunk.old, chunk.old));
            assert_eq!(ceiling, chunk.old, "the chunks of a tenure are adjacent");
            (self.record, self.owned) = (record, Some((used, chunk.new)));
        }
        let (used, _) = self.owned.as_mut().unwrap();
        assert!(*used >= self.used, "{used} was handed out before");
        *used += numbers;
        self.used = *used;
    }

    /// The tenure ends; what it leaves is said by `end`.
    fn end(&mut self, end: u8) {
        let before = self.used;
        match end {
            // It trims what it touched, and gives its lift back.
            0 => {
                if let Some((used, _)) = self.owned.take() {
                    self.record = self.record.trim(self.lift, 1, used).unwrap();
                    assert_eq!(self.record.max_seq, before.max(self.record.floor));
                }
            }
            // It trims, and crashes before it gives its lift back.
            1 => {
                if let Some((used, _)) = self.owned.take() {
                    self.record = self.record.trim(self.lift, 1, used).unwrap();
                }
                self.lift += 1;
            }
            // It crashes.
            _ => self.lift += 1,
        }
        self.owned = None;
    }
}

proptest! {
    #[test]
    fn the_floor_of_an_older_record_is_of_no_use(
        (floor, above) in (0_u64..1_000, 0_u64..1_000),
        (at, lifts) in (0_u64..5, 1_u64..5),
        (lifted, unused_max, used) in (1_u64..50, 0_u64..50, 0_u64..3_000),
    ) {
        let record = SectionRecord {
            max_seq: floor + above,
            floor,
            lift: at,
            step: lifted,
            unused_max,
        };
        // As the records in memory are kept.
        let without = SectionRecord { floor: record.max_seq, ..record };
        let lift = at + lifts;
        prop_assert_eq!(record.bump(ONES, lift, step(10)), without.bump(ONES, lift, step(10)));
        prop_assert_eq!(record.settle(ONES, lift), without.settle(ONES, lift));
        prop_assert_eq!(record.trim(lift, 1, used), without.trim(lift, 1, used));
        prop_assert_eq!(record.lifted(ONES, lift), without.lifted(ONES, lift));
        prop_assert_eq!(record.ceiling_at(lift, 1), without.ceiling_at(lift, 1));
        prop_assert_eq!(record.floor_at(lift, 1), without.floor_at(lift, 1));
    }

    /// The heart of the promise: in any order of lifts, bumps, settles, trims and crashes, no number is used twice,
    /// and none below one that was used before.
    #[test]
    fn used_numbers_never_repeat(
        acts in prop::collection::vec((0u8..8, 1u64..50, 1u64..60), 1..80)
    ) {
        let mut uses = Uses { lift: 1, ..Uses::default() };
        for (act, numbers, step_numbers) in acts {
            match act {
                0..=2 => uses.end(act),
                3 => uses.record = uses.record.settle(ONES, uses.lift).unwrap_or(uses.record),
                4..=7 => uses.take(numbers, step_numbers),
                _ => unreachable!("the range of acts"),
            }
            prop_assert!(uses.record.ceiling_at(uses.lift, 1) >= uses.used);
        }
    }
}

#[test]
fn a_released_section_has_no_gap_whichever_lift_follows_and_is_bumped_in_the_tenure_that_released_it()
 {
    let record = bumped(3, 100);
    for (used, lift) in [(0, 3), (40, 3), (100, 3), (150, 4), (250, 5)] {
        let released = record.release(lift, 1, used).unwrap();
        assert_eq!((released.max_seq, released.floor), (used, used));
        assert_eq!(released.lifted(ONES, lift), None, "its tenure owns nothing");
        assert_eq!(released.floor_at(lift, 1), used);
        // Also if the lift was given back and comes again.
        let (_, chunk) = released.bump(ONES, lift, step(10)).unwrap();
        assert_eq!((chunk.old, chunk.new, chunk.left), (used, used + 10, 0));
        let next = released.lifted(ONES, lift + 1).unwrap();
        assert_eq!((next.old, next.new, next.left), (used, used + 100, 0));
        // Who bumps it again, and releases it again, owns what the bump gave.
        let (again, _) = released.bump(ONES, lift, step(10)).unwrap();
        assert_eq!(again.release(lift, 1, used + 7).unwrap().max_seq, used + 7);
        assert_eq!(again.release(lift, 1, used + 11), None, "more than it owns");
    }
    assert_eq!(record.release(6, 1, 300), None, "not live: it owns nothing");
}

#[test]
fn a_bump_for_a_floor_alone_brings_what_it_needs_and_leaves_nothing_to_a_lift() {
    let floor = |up_to| Raise {
        numbers: 1,
        unused_max: 1,
        step: 0,
        up_to,
    };
    let (record, chunk) = SectionRecord::default()
        .bump(ONES, 1, floor(5_000))
        .unwrap();
    assert_eq!((chunk.old, chunk.new), (0, 5_000));
    assert_eq!((record.max_seq, record.step), (5_000, 0));
    assert_eq!(record.lifted(ONES, 2), None);
    assert_eq!(record.ceiling_at(9, 1), 5_000);
    assert_eq!(
        record.floor_at(2, 1),
        5_000,
        "what Current reads in a later term"
    );
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
