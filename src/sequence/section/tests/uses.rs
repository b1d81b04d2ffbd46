//! Any order of what can happen to a section.

use proptest::prelude::*;

use super::*;

/// One epoch after the other uses a section as the allocator does. Every number is used once, in growing order.
#[derive(Default)]
struct Uses {
    record: SectionRecord,
    /// How many epochs have begun.
    epoch: u64,
    /// The chunk of this epoch, with its first unused number's predecessor.
    owned: Option<(u64, u64)>,
    /// The greatest number used by any epoch.
    used: u64,
    /// How many numbers were used.
    taken: u64,
    /// True if an epoch has ended otherwise than by a trim and by being returned.
    has_crashed: bool,
}

impl Uses {
    fn take(&mut self, numbers: u64, step_numbers: u64) {
        if self.owned.is_none() {
            let epoch_chunk = self.record.epoch_chunk(ONES, self.epoch);
            self.owned = epoch_chunk.map(|chunk| (chunk.old, chunk.new));
        }
        let left = self.owned.map_or(0, |(used, ceiling)| ceiling - used);
        if left < numbers {
            let raise = CeilingRaise {
                numbers: numbers.max(step_numbers),
                unused_max: step_numbers + numbers,
                step: step_numbers,
                up_to: 0,
            };
            let (record, chunk) = self.record.bump(ONES, self.epoch, raise).unwrap();
            let (used, ceiling) = self.owned.unwrap_or((chunk.old, chunk.old));
            assert_eq!(ceiling, chunk.old, "the chunks of an epoch are adjacent");
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
        let epoch_chunk = self.record.epoch_chunk(ONES, self.epoch);
        self.owned = self.owned.or(epoch_chunk.map(|chunk| (chunk.old, chunk.new)));
        let at_least = self.used + numbers;
        let ceiling = self.owned.map_or(0, |(_, ceiling)| ceiling);
        if ceiling < at_least {
            let raise = CeilingRaise { numbers: 0, unused_max: 1, step: 0, up_to: at_least };
            let (record, chunk) = self.record.bump(ONES, self.epoch, raise).unwrap();
            let (used, ceiling) = self.owned.unwrap_or((chunk.old, chunk.old));
            assert_eq!(ceiling, chunk.old, "the chunks of an epoch are adjacent");
            (self.record, self.owned) = (record, Some((used, chunk.new)));
        }
        let (used, _) = self.owned.as_mut().unwrap();
        self.taken += at_least.saturating_sub(*used);
        *used = at_least.max(*used);
        self.used = *used;
    }

    /// The term evicts the section, and goes on.
    fn release(&mut self) {
        let epoch_chunk = self.record.epoch_chunk(ONES, self.epoch);
        let owned = self.owned.take();
        let owned = owned.or(epoch_chunk.map(|chunk| (chunk.old, chunk.new)));
        if let Some((used, _)) = owned {
            self.record = self.record.release(ONES, self.epoch, used).unwrap();
            assert_eq!(self.record.max_seq, used);
        }
    }

    /// The chunk of the epoch is written down, after the epoch's first touch.
    fn checkpoint(&mut self) {
        let epoch_chunk = self.record.epoch_chunk(ONES, self.epoch);
        self.owned = self.owned.or(epoch_chunk.map(|chunk| (chunk.old, chunk.new)));
        self.record = self.record.checkpoint(ONES, self.epoch).unwrap_or(self.record);
    }

    /// The epoch ends; what it leaves is said by `end`.
    fn end(&mut self, end: u8) {
        let before = self.used;
        self.has_crashed |= end != 0;
        match end {
            // It is trimmed where it was touched, and is returned.
            0 => {
                if let Some((used, _)) = self.owned.take() {
                    self.record = self.record.trim(ONES, self.epoch, used).unwrap();
                    assert_eq!(self.record.max_seq, before.max(self.record.floor));
                }
            }
            // It trims, and crashes before it is returned.
            1 => {
                if let Some((used, _)) = self.owned.take() {
                    self.record = self.record.trim(ONES, self.epoch, used).unwrap();
                }
                self.epoch += 1;
            }
            // It crashes.
            _ => self.epoch += 1,
        }
        self.owned = None;
    }

    /// The leader crashes, and so do those that follow, `epochs` in all. Nobody uses the section meanwhile.
    fn end_again_and_again(&mut self, epochs: u64) {
        (0..epochs).for_each(|_| self.end(2));
    }
}

impl Uses {
    /// Handed out + skipped + left = ceiling, and each bound holds of what was really used.
    fn check_accounts(&self) {
        let (record, epoch) = (self.record, self.epoch);
        let SectionAccounts { handed_out, skipped, left } = record.accounts_at(ONES, epoch);
        let ceiling = record.ceiling_at(epoch, 1);
        assert_eq!(handed_out + skipped + left, ceiling, "{record:?}");
        assert!(handed_out <= self.taken, "{record:?}: {} were used", self.taken);
        let unused = ceiling - self.taken;
        assert!(unused <= skipped + left, "{record:?}: {unused} are unused");
        // Numbers that were used in this epoch lie above the floor.
        let floor = record.floor_at(epoch, 1);
        let here = self.used.saturating_sub(floor);
        assert!(floor - (self.taken - here) <= skipped, "{record:?}: more were skipped");
        if !self.has_crashed {
            assert_eq!(skipped, 0, "each epoch was returned");
        }
    }
}

proptest! {
    #[test]
    fn the_floor_of_an_older_record_is_of_no_use(
        (floor, above) in (0_u64..1_000, 0_u64..1_000),
        (at, epochs) in (0_u64..5, 1_u64..EPOCHS_LIVE + 3),
        (epoch_chunk, unused_max, used) in (1_u64..50, 0_u64..50, 0_u64..3_000),
    ) {
        let record = SectionRecord {
            max_seq: floor + above,
            floor,
            epoch: at,
            step: epoch_chunk,
            unused_max,
            ..SectionRecord::default()
        };
        // As the records in memory are kept.
        let without = SectionRecord { floor: record.max_seq, ..record };
        let epoch = at + epochs;
        prop_assert_eq!(record.bump(ONES, epoch, step(10)), without.bump(ONES, epoch, step(10)));
        prop_assert_eq!(record.checkpoint(ONES, epoch), without.checkpoint(ONES, epoch));
        prop_assert_eq!(record.trim(ONES, epoch, used), without.trim(ONES, epoch, used));
        prop_assert_eq!(record.epoch_chunk(ONES, epoch), without.epoch_chunk(ONES, epoch));
        prop_assert_eq!(record.ceiling_at(epoch, 1), without.ceiling_at(epoch, 1));
        prop_assert_eq!(record.floor_at(epoch, 1), without.floor_at(epoch, 1));
    }

    /// The heart of the promise: in any order of epochs, bumps, checkpoints, releases, raised floors, trims and crashes, no
    /// number is used twice, and none below one that was used before.
    #[test]
    fn used_numbers_never_repeat(
        acts in prop::collection::vec((0u8..11, 1u64..50, 1u64..60), 1..80)
    ) {
        let mut uses = Uses { epoch: 1, ..Uses::default() };
        for (act, numbers, step_numbers) in acts {
            match act {
                0..=2 => uses.end(act),
                3 => uses.checkpoint(),
                4..=7 => uses.take(numbers, step_numbers),
                8 => uses.release(),
                9 => uses.raise(numbers),
                10 => uses.end_again_and_again(numbers % (EPOCHS_LIVE + 3)),
                _ => unreachable!("the range of acts"),
            }
            prop_assert!(uses.record.ceiling_at(uses.epoch, 1) >= uses.used);
            uses.check_accounts();
        }
    }
}
