//! Any order of what can happen to a section.

use proptest::prelude::*;

use super::*;

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
    /// How many numbers were used.
    taken: u64,
    /// True if a tenure has ended otherwise than by a trim and by giving its lift back.
    lost: bool,
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
        self.taken += numbers;
    }

    /// Raises the floor by `numbers`: these count as used.
    fn raise(&mut self, numbers: u64) {
        let lifted = self.record.lifted(ONES, self.lift);
        self.owned = self.owned.or(lifted.map(|chunk| (chunk.old, chunk.new)));
        let at_least = self.used + numbers;
        let ceiling = self.owned.map_or(0, |(_, ceiling)| ceiling);
        if ceiling < at_least {
            let raise = Raise { numbers: 0, unused_max: 1, step: 0, up_to: at_least };
            let (record, chunk) = self.record.bump(ONES, self.lift, raise).unwrap();
            let (used, ceiling) = self.owned.unwrap_or((chunk.old, chunk.old));
            assert_eq!(ceiling, chunk.old, "the chunks of a tenure are adjacent");
            (self.record, self.owned) = (record, Some((used, chunk.new)));
        }
        let (used, _) = self.owned.as_mut().unwrap();
        self.taken += at_least.saturating_sub(*used);
        *used = at_least.max(*used);
        self.used = *used;
    }

    /// The tenure evicts the section, and goes on.
    fn release(&mut self) {
        let lifted = self.record.lifted(ONES, self.lift);
        let owned = self.owned.take();
        let owned = owned.or(lifted.map(|chunk| (chunk.old, chunk.new)));
        if let Some((used, _)) = owned {
            self.record = self.record.release(ONES, self.lift, used).unwrap();
            assert_eq!(self.record.max_seq, used);
        }
    }

    /// What the lift gave is written down, after the tenure's first touch.
    fn settle(&mut self) {
        let lifted = self.record.lifted(ONES, self.lift);
        self.owned = self.owned.or(lifted.map(|chunk| (chunk.old, chunk.new)));
        self.record = self.record.settle(ONES, self.lift).unwrap_or(self.record);
    }

    /// The tenure ends; what it leaves is said by `end`.
    fn end(&mut self, end: u8) {
        let before = self.used;
        self.lost |= end != 0;
        match end {
            // It trims what it touched, and gives its lift back.
            0 => {
                if let Some((used, _)) = self.owned.take() {
                    self.record = self.record.trim(ONES, self.lift, used).unwrap();
                    assert_eq!(self.record.max_seq, before.max(self.record.floor));
                }
            }
            // It trims, and crashes before it gives its lift back.
            1 => {
                if let Some((used, _)) = self.owned.take() {
                    self.record = self.record.trim(ONES, self.lift, used).unwrap();
                }
                self.lift += 1;
            }
            // It crashes.
            _ => self.lift += 1,
        }
        self.owned = None;
    }

    /// The tenure crashes, and so do those that follow, `lifts` in all. Nobody uses the section meanwhile.
    fn end_again_and_again(&mut self, lifts: u64) {
        (0..lifts).for_each(|_| self.end(2));
    }
}

impl Uses {
    /// Handed out + skipped + left = ceiling, and each bound holds of what was really used.
    fn check_books(&self) {
        let (record, lift) = (self.record, self.lift);
        let SectionBooks { handed_out, skipped, left } = record.books_at(ONES, lift);
        let ceiling = record.ceiling_at(lift, 1);
        assert_eq!(handed_out + skipped + left, ceiling, "{record:?}");
        assert!(handed_out <= self.taken, "{record:?}: {} were used", self.taken);
        let unused = ceiling - self.taken;
        assert!(unused <= skipped + left, "{record:?}: {unused} are unused");
        // What was used in this tenure lies above the floor.
        let floor = record.floor_at(lift, 1);
        let here = self.used.saturating_sub(floor);
        assert!(floor - (self.taken - here) <= skipped, "{record:?}: more were skipped");
        if !self.lost {
            assert_eq!(skipped, 0, "nothing was lost");
        }
    }
}

proptest! {
    #[test]
    fn the_floor_of_an_older_record_is_of_no_use(
        (floor, above) in (0_u64..1_000, 0_u64..1_000),
        (at, lifts) in (0_u64..5, 1_u64..LIFTS_LIVE + 3),
        (lifted, unused_max, used) in (1_u64..50, 0_u64..50, 0_u64..3_000),
    ) {
        let record = SectionRecord {
            max_seq: floor + above,
            floor,
            lift: at,
            step: lifted,
            unused_max,
            ..SectionRecord::default()
        };
        // As the records in memory are kept.
        let without = SectionRecord { floor: record.max_seq, ..record };
        let lift = at + lifts;
        prop_assert_eq!(record.bump(ONES, lift, step(10)), without.bump(ONES, lift, step(10)));
        prop_assert_eq!(record.settle(ONES, lift), without.settle(ONES, lift));
        prop_assert_eq!(record.trim(ONES, lift, used), without.trim(ONES, lift, used));
        prop_assert_eq!(record.lifted(ONES, lift), without.lifted(ONES, lift));
        prop_assert_eq!(record.ceiling_at(lift, 1), without.ceiling_at(lift, 1));
        prop_assert_eq!(record.floor_at(lift, 1), without.floor_at(lift, 1));
    }

    /// The heart of the promise: in any order of lifts, bumps, settles, releases, raised floors, trims and crashes, no
    /// number is used twice, and none below one that was used before.
    #[test]
    fn used_numbers_never_repeat(
        acts in prop::collection::vec((0u8..11, 1u64..50, 1u64..60), 1..80)
    ) {
        let mut uses = Uses { lift: 1, ..Uses::default() };
        for (act, numbers, step_numbers) in acts {
            match act {
                0..=2 => uses.end(act),
                3 => uses.settle(),
                4..=7 => uses.take(numbers, step_numbers),
                8 => uses.release(),
                9 => uses.raise(numbers),
                10 => uses.end_again_and_again(numbers % (LIFTS_LIVE + 3)),
                _ => unreachable!("the range of acts"),
            }
            prop_assert!(uses.record.ceiling_at(uses.lift, 1) >= uses.used);
            uses.check_books();
        }
    }
}
