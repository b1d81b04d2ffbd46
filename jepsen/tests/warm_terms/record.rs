//! A section's record, and the arithmetic of its ceiling: an epoch's chunk, bump, checkpoint, trim.

use crate::rules::{Margin::*, Rules};

/// The numbers above `cur_seq` up to `ceiling` can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Chunk {
    pub cur_seq: u8,
    pub ceiling: u8,
}

/// The record in the replicated table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Record {
    pub max_seq: u8,
    /// Numbers at or below it belong to earlier epochs.
    pub floor: u8,
    /// The count of epochs when it was written.
    pub epoch: u8,
    /// 0: there is no record.
    pub step: u8,
}

/// How a record stands to an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Age {
    /// It was written in this epoch or in a later one.
    Written,
    /// This epoch gave it a chunk: the so-manieth since it was written.
    Live(u8),
    /// It has no chunk of this epoch.
    NotLive,
}

impl Chunk {
    pub fn above(cur_seq: u8, ceiling: u8) -> Self {
        Chunk { cur_seq, ceiling }
    }

    pub fn left(self) -> u8 {
        self.ceiling.saturating_sub(self.cur_seq)
    }
}

impl Record {
    pub fn age(self, rules: &Rules, epoch: u8) -> Age {
        match epoch.saturating_sub(self.epoch) {
            0 => Age::Written,
            _ if self.step == 0 => Age::NotLive,
            epochs if epochs <= rules.live_epochs => Age::Live(epochs),
            _ => Age::NotLive,
        }
    }

    /// The ceiling that the chunks of all epochs up to `epoch` make, logged or not.
    pub fn ceiling(self, rules: &Rules, epoch: u8) -> u8 {
        match self.age(rules, epoch) {
            Age::Written => self.max_seq,
            Age::Live(epochs) => self.after_epochs(rules, epochs - 1) + self.step,
            Age::NotLive => self.after_epochs(rules, rules.live_epochs),
        }
    }

    fn after_epochs(self, rules: &Rules, epochs: u8) -> u8 {
        let unlogged = if rules.keep(EarlierEpochsCount) { epochs * self.step } else { 0 };
        self.max_seq + unlogged
    }

    /// The chunk that `epoch` gave, if the section is live. Leaders ask this.
    pub fn epoch_chunk(self, rules: &Rules, epoch: u8) -> Option<Chunk> {
        let epochs = match self.age(rules, epoch) {
            Age::Live(epochs) => epochs,
            Age::NotLive if self.step > 0 && !rules.keep(SameK) => {
                let epochs = epoch - self.epoch;
                (epochs == rules.live_epochs + 1).then_some(epochs)?
            }
            Age::Written | Age::NotLive => return None,
        };
        let floor = self.after_epochs(rules, epochs - 1);
        Some(Chunk::above(floor, floor + self.step))
    }

    /// Where the numbers of `epoch` begin, in a record as the writer finds it.
    fn epoch_floor(self, rules: &Rules, epoch: u8) -> u8 {
        match self.age(rules, epoch) {
            Age::Written => self.floor,
            Age::Live(epochs) => self.after_epochs(rules, epochs - 1),
            Age::NotLive => self.ceiling(rules, epoch),
        }
    }

    /// The greatest number that earlier epochs may have handed out, as `epoch` sees it.
    pub fn used_before(self, rules: &Rules, epoch: u8) -> u8 {
        if rules.keep(CurrentBelowOwnEpoch) {
            self.epoch_floor(rules, epoch)
        } else {
            self.ceiling(rules, epoch)
        }
    }

    pub fn bump(self, rules: &Rules, epoch: u8, numbers: u8, step: u8) -> (Self, Chunk) {
        let old = self.ceiling(rules, epoch);
        let record =
            Record { max_seq: old + numbers, floor: self.epoch_floor(rules, epoch), epoch, step };
        (record, Chunk::above(old, record.max_seq))
    }

    /// A bump by one number, for a floor alone: the chunks of epochs stay as they are.
    pub fn raise(self, rules: &Rules, epoch: u8) -> (Self, Chunk) {
        let step = if rules.keep(FloorGivesNoStep) { self.step } else { 1 };
        self.bump(rules, epoch, 1, step)
    }

    /// Takes a number of a gapless key. Nobody owns a chunk of it: its ceiling is its floor.
    pub fn take(self, rules: &Rules, epoch: u8) -> (Self, u8) {
        let number = self.ceiling(rules, epoch) + 1;
        let step = u8::from(!rules.keep(TakeGivesNoStep));
        (Record { max_seq: number, floor: number, epoch, step }, number)
    }

    /// Lowers the ceiling to the numbers that were used of a section that is evicted. The next chunk comes from a bump.
    pub fn release(self, rules: &Rules, epoch: u8, used: u8) -> Option<Self> {
        let used = if rules.keep(ReleaseToWhatWasUsed) { used } else { 0 };
        Some(Record { epoch, ..self.trim(rules, epoch, used)? })
    }

    /// A namespace without a record of the key, which begins above `base`.
    pub fn above(base: u8) -> Self {
        Record { max_seq: base, floor: base, epoch: 0, step: 0 }
    }

    /// Writes an epoch's chunk. It costs no number. `None` if there is nothing to write.
    pub fn checkpoint(self, rules: &Rules, epoch: u8) -> Option<Self> {
        match self.age(rules, epoch) {
            Age::Live(_) => Some(Record {
                max_seq: self.ceiling(rules, epoch),
                floor: self.epoch_floor(rules, epoch),
                epoch,
                ..self
            }),
            Age::Written | Age::NotLive => None,
        }
    }

    /// Lowers the ceiling to the numbers that were used. `None` if the epoch owns no chunk of it.
    pub fn trim(self, rules: &Rules, epoch: u8, used: u8) -> Option<Self> {
        let owned = self.age(rules, epoch) != Age::NotLive && used <= self.ceiling(rules, epoch);
        let floor = if rules.keep(TrimAboveFloor) { self.epoch_floor(rules, epoch) } else { 0 };
        let max_seq = used.max(floor);
        let before = u8::from(rules.keep(TrimStaysLive));
        owned.then_some(Record { max_seq, floor: max_seq, epoch: epoch - before, ..self })
    }
}
