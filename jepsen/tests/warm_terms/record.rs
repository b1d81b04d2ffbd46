//! A section's record, and the arithmetic of its ceiling: what a lift gives, bump, settle, trim.

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
    /// What lies at or below belongs to earlier tenures.
    pub floor: u8,
    /// The count of lifts when it was written.
    pub lift: u8,
    /// 0: there is no record.
    pub step: u8,
}

/// How a record stands to a lift.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Age {
    /// It was written in this tenure or in a later one.
    Written,
    /// This lift gave it a chunk: the so-manieth since it was written.
    Live(u8),
    /// It has no chunk of this lift.
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
    pub fn age(self, rules: &Rules, lift: u8) -> Age {
        match lift.saturating_sub(self.lift) {
            0 => Age::Written,
            _ if self.step == 0 => Age::NotLive,
            lifts if lifts <= rules.live_lifts => Age::Live(lifts),
            _ => Age::NotLive,
        }
    }

    /// The ceiling that the chunks of all lifts up to `lift` make, logged or not.
    pub fn ceiling(self, rules: &Rules, lift: u8) -> u8 {
        match self.age(rules, lift) {
            Age::Written => self.max_seq,
            Age::Live(lifts) => self.after_lifts(rules, lifts - 1) + self.step,
            Age::NotLive => self.after_lifts(rules, rules.live_lifts),
        }
    }

    fn after_lifts(self, rules: &Rules, lifts: u8) -> u8 {
        let unlogged = if rules.keep(EarlierLiftsCount) { lifts * self.step } else { 0 };
        self.max_seq + unlogged
    }

    /// The chunk that `lift` gave, if the section is live. Leaders ask this.
    pub fn lift_chunk(self, rules: &Rules, lift: u8) -> Option<Chunk> {
        let lifts = match self.age(rules, lift) {
            Age::Live(lifts) => lifts,
            Age::NotLive if self.step > 0 && !rules.keep(SameK) => {
                let lifts = lift - self.lift;
                (lifts == rules.live_lifts + 1).then_some(lifts)?
            }
            Age::Written | Age::NotLive => return None,
        };
        let floor = self.after_lifts(rules, lifts - 1);
        Some(Chunk::above(floor, floor + self.step))
    }

    /// Where the numbers of the tenure of `lift` begin, in a record as the holder finds it.
    fn tenure_floor(self, rules: &Rules, lift: u8) -> u8 {
        match self.age(rules, lift) {
            Age::Written => self.floor,
            Age::Live(lifts) => self.after_lifts(rules, lifts - 1),
            Age::NotLive => self.ceiling(rules, lift),
        }
    }

    /// The greatest number that earlier tenures may have handed out, as the tenure of `lift` sees it.
    pub fn used_before(self, rules: &Rules, lift: u8) -> u8 {
        if rules.keep(CurrentBelowOwnLift) {
            self.tenure_floor(rules, lift)
        } else {
            self.ceiling(rules, lift)
        }
    }

    pub fn bump(self, rules: &Rules, lift: u8, numbers: u8, step: u8) -> (Self, Chunk) {
        let old = self.ceiling(rules, lift);
        let record =
            Record { max_seq: old + numbers, floor: self.tenure_floor(rules, lift), lift, step };
        (record, Chunk::above(old, record.max_seq))
    }

    /// A bump by one number, for a floor alone: what lifts give stays as it is.
    pub fn raise(self, rules: &Rules, lift: u8) -> (Self, Chunk) {
        let step = if rules.keep(FloorGivesNoStep) { self.step } else { 1 };
        self.bump(rules, lift, 1, step)
    }

    /// Takes a number of a gapless key. Nobody owns a chunk of it: its ceiling is its floor.
    pub fn take(self, rules: &Rules, lift: u8) -> (Self, u8) {
        let number = self.ceiling(rules, lift) + 1;
        let step = u8::from(!rules.keep(TakeGivesNoStep));
        (Record { max_seq: number, floor: number, lift, step }, number)
    }

    /// Lowers the ceiling to what was used of a section that is evicted. The next chunk comes from a bump.
    pub fn release(self, rules: &Rules, lift: u8, used: u8) -> Option<Self> {
        let used = if rules.keep(ReleaseToWhatWasUsed) { used } else { 0 };
        Some(Record { lift, ..self.trim(rules, lift, used)? })
    }

    /// A namespace without a record of the key, which begins above `base`.
    pub fn above(base: u8) -> Self {
        Record { max_seq: base, floor: base, lift: 0, step: 0 }
    }

    /// Writes a lift's chunk. It costs no number. `None` if there is nothing to write.
    pub fn settle(self, rules: &Rules, lift: u8) -> Option<Self> {
        match self.age(rules, lift) {
            Age::Live(_) => Some(Record {
                max_seq: self.ceiling(rules, lift),
                floor: self.tenure_floor(rules, lift),
                lift,
                ..self
            }),
            Age::Written | Age::NotLive => None,
        }
    }

    /// Lowers the ceiling to what was used. `None` if the tenure owns no chunk of it.
    pub fn trim(self, rules: &Rules, lift: u8, used: u8) -> Option<Self> {
        let owned = self.age(rules, lift) != Age::NotLive && used <= self.ceiling(rules, lift);
        let floor = if rules.keep(TrimAboveFloor) { self.tenure_floor(rules, lift) } else { 0 };
        let max_seq = used.max(floor);
        let before = u8::from(rules.keep(TrimStaysLive));
        owned.then_some(Record { max_seq, floor: max_seq, lift: lift - before, ..self })
    }
}
