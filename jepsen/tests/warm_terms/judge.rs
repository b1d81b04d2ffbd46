//! Hands out numbers, and judges whether a promise is broken.

use crate::{ledger::Outcome, rules::*, state::*};

impl State {
    /// Hands out the next number of the memory of `n`.
    pub fn hand_out(&mut self, rules: &Rules, n: usize) -> Option<()> {
        let leads = self.nodes[n].leads.as_mut()?;
        let chunk = leads.memory.as_mut().filter(|chunk| chunk.left() > 0)?;
        possible(chunk.cur_seq < rules.numbers.min(self.table.max))?;
        chunk.cur_seq += 1;
        let number = chunk.cur_seq;
        self.give(rules, n, number)
    }

    /// The leader `n` hands out a number.
    pub fn give(&mut self, rules: &Rules, n: usize, number: u8) -> Option<()> {
        let leads = self.nodes[n].leads?;
        match rules.check {
            Check::Unique => self.judge(self.handed_out.numbers >> number & 1 == 0),
            Check::Order => self.judge(number > leads.seen),
            Check::Strict => self.judge(leads.fits(leads.seen, number)),
            Check::Gap => self.judge(self.may_skip(rules, number, leads.epoch)),
            Check::Happens(Event::EpochChunksUsed) => {
                let ledger = self.table.ledger;
                if ledger.epoch == leads.epoch && self.table.record.epoch < leads.epoch {
                    self.happened |= 1 << leads.epoch;
                }
            }
            Check::Happens(Event::SuccessorWentOn) => {
                self.happened |= u8::from(number <= leads.taken_over)
            }
            Check::Happens(Event::TakenOnceAbandoned) => {
                self.happened |= u8::from(leads.is_abandoned());
            }
            Check::Happens(_) => {}
        }
        self.note(rules, leads, number);
        Some(())
    }

    /// The leader `n` answers that all numbers up to `floor` are passed over: the numbers that follow must
    /// be greater.
    pub fn pass_over(&mut self, rules: &Rules, n: usize, floor: u8) {
        let Some(leads) = self.nodes[n].leads else {
            return;
        };
        self.note(rules, leads, floor);
    }

    /// Notes that `number` was handed out.
    fn note(&mut self, rules: &Rules, by: Term, number: u8) {
        let handed_out = &mut self.handed_out;
        if rules.check == Check::Unique {
            handed_out.numbers |= 1 << number;
        }
        if number > handed_out.top {
            handed_out.top = number;
            if rules.knows_epoch_of_top() {
                (handed_out.top_epoch, handed_out.touches) = (by.epoch, 0);
            }
        }
        for other in self.nodes.iter_mut().flat_map(|node| &mut node.leads) {
            if other.term >= by.term {
                other.seen = other.seen.max(number);
            } else if other.below == 0 || number < other.below {
                other.below = number;
            }
        }
    }

    /// The leader `n` answers `current`: not less than the numbers that were handed out before. Numbers
    /// that are handed out later must be greater.
    pub fn answer_current(&mut self, rules: &Rules, n: usize, current: u8) {
        let Some(leads) = self.nodes[n].leads.as_mut() else {
            return;
        };
        let is_kept = current >= leads.seen;
        if matches!(rules.check, Check::Order | Check::Strict) {
            leads.seen = current;
            self.judge(is_kept);
        }
    }

    /// The numbers that are skipped up to `number` are within the bound.
    fn may_skip(&self, rules: &Rules, number: u8, epoch: u8) -> bool {
        let HandedOut { top, top_epoch, touches, .. } = self.handed_out;
        let epochs = epoch.saturating_sub(top_epoch.max(1));
        let touched_here = u8::from(self.table.record.epoch == epoch);
        let is_idle = touches <= touched_here;
        let steps = if is_idle { epochs.min(rules.idle_steps) } else { epochs };
        let step = rules.steps.iter().max().copied().unwrap_or(0);
        number <= top + 1 + steps * step
    }

    /// Notes that the section was touched, if it was.
    pub fn note_write(&mut self, rules: &Rules, outcome: Outcome) {
        let touched = match outcome {
            Outcome::Bumped(_) | Outcome::Checkpointed => true,
            Outcome::Trimmed | Outcome::Released => {
                self.table.record.max_seq != self.handed_out.top
            }
            Outcome::Raised(_) | Outcome::Deleted | Outcome::Took(_) => false,
            Outcome::Refused | Outcome::Begun(_) | Outcome::TermEnded => false,
        };
        if touched && rules.check == Check::Gap {
            self.handed_out.touches = 2.min(self.handed_out.touches + 1);
        }
    }

    /// Notes that an event happened in `epoch`.
    pub fn happens(&mut self, rules: &Rules, event: Event, epoch: u8) {
        if rules.check == Check::Happens(event) {
            self.happened |= 1 << epoch;
        }
    }

    pub fn judge(&mut self, is_kept: bool) {
        self.broken |= !is_kept;
    }
}

impl Term {
    /// The numbers above `from` up to `to` are above the numbers of earlier terms and below the numbers of
    /// later ones.
    pub fn fits(&self, from: u8, to: u8) -> bool {
        from >= self.seen && to > self.seen && (self.below == 0 || to < self.below)
    }
}
