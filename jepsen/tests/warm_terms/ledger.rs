//! The ledger of terms, and the effects of a committed entry on the replicated table.

use crate::{
    record::{Chunk, Record},
    rules::{Margin::*, Rules},
};

/// The chunk of the section in a leader's memory. `None`: its epoch has not touched it.
pub type Memory = Option<Chunk>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ledger {
    /// S: how many epochs have begun.
    pub epoch: u8,
    /// The term that may write sections. 0: none.
    pub writer: u8,
    pub end: Option<TermEnd>,
}

/// The writer's last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TermEnd {
    /// `None`: the term trimmed the section that it had touched, and returns its epoch.
    pub successor: Option<usize>,
    /// The digest is the memory itself: digests do not collide.
    pub digest: Memory,
}

/// The replicated table: the ledger and the record of the one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Table {
    pub ledger: Ledger,
    pub record: Record,
    /// Numbers above the namespace's `max` are not handed out. It may be raised.
    pub max: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    BeginEpoch,
    TakeOver { successor: usize, digest: Memory },
    EndTerm(TermEnd),
    Bump { numbers: u8, step: u8 },
    Checkpoint,
    Trim { used: u8 },
    Release { used: u8 },
    Raise,
    Delete,
    Take,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    Refused,
    /// The term holds the epoch of this count.
    Begun(u8),
    TermEnded,
    Bumped(Chunk),
    Checkpointed,
    Trimmed,
    Released,
    /// All of these are passed over.
    Raised(Chunk),
    Deleted,
    Took(u8),
}

impl Table {
    /// Applies one committed entry of `term`.
    pub fn apply(&mut self, rules: &Rules, term: u8, entry: Entry) -> Outcome {
        let outcome = match entry {
            Entry::BeginEpoch => self.ledger.begin_epoch(rules, term),
            Entry::TakeOver { successor, digest } => {
                self.ledger.take_over(rules, term, successor, digest)
            }
            Entry::EndTerm(end) => self.ledger.end_term(rules, term, end),
            Entry::Bump { .. }
            | Entry::Checkpoint
            | Entry::Trim { .. }
            | Entry::Release { .. }
            | Entry::Raise
            | Entry::Take => self.write(rules, term, entry),
            Entry::Delete => Some(self.delete(rules)),
        };
        outcome.unwrap_or(Outcome::Refused)
    }

    fn write(&mut self, rules: &Rules, term: u8, entry: Entry) -> Option<Outcome> {
        let (before, epoch) = (self.record, self.ledger.epoch);
        let (record, outcome) = match entry {
            Entry::Bump { numbers, step } => {
                let left = self.max.saturating_sub(before.ceiling(rules, epoch));
                let numbers = Some(numbers.min(left)).filter(|&numbers| numbers > 0)?;
                let (record, chunk) = before.bump(rules, epoch, numbers, step);
                (record, Outcome::Bumped(chunk))
            }
            Entry::Checkpoint => {
                let mut record = before.checkpoint(rules, epoch)?;
                if !rules.keep(NotClipped) {
                    record.max_seq = record.max_seq.min(self.max);
                }
                (record, Outcome::Checkpointed)
            }
            Entry::Trim { used } => (before.trim(rules, epoch, used)?, Outcome::Trimmed),
            Entry::Release { used } => (before.release(rules, epoch, used)?, Outcome::Released),
            Entry::Raise => {
                let (record, chunk) = before.raise(rules, epoch);
                (record, Outcome::Raised(chunk))
            }
            Entry::Take => {
                let (record, number) = before.take(rules, epoch);
                (record, Outcome::Took(number))
            }
            Entry::BeginEpoch | Entry::TakeOver { .. } | Entry::EndTerm(_) | Entry::Delete => {
                return None;
            }
        };
        self.ledger.may_write(rules, term).then(|| {
            self.record = record;
            outcome
        })
    }
}

impl Table {
    /// The namespace is deleted, and created again: the key has no record, and begins above all that may have been handed out.
    fn delete(&mut self, rules: &Rules) -> Outcome {
        let base = match rules.keep(TombstoneCountsEpochs) {
            true => self.record.ceiling(rules, self.ledger.epoch),
            false => self.record.max_seq,
        };
        self.record = Record::above(base);
        Outcome::Deleted
    }
}

impl Ledger {
    fn may_write(&self, rules: &Rules, term: u8) -> bool {
        (self.writer == term || !rules.keep(WriterAlone))
            && (self.end.is_none() || !rules.keep(NoWriteAfterHandOff))
    }

    fn begin_epoch(&mut self, rules: &Rules, term: u8) -> Option<Outcome> {
        if self.writer == term {
            return None;
        }
        let kept = match self.end {
            Some(TermEnd { successor: None, .. }) => true,
            Some(TermEnd { successor: Some(_), .. }) => !rules.keep(EpochAfterHandOffCounts),
            None => false,
        };
        if !kept {
            self.epoch += 1;
        }
        self.writer = term;
        if rules.keep(EpochClearsHandOff) {
            self.end = None;
        }
        Some(Outcome::Begun(self.epoch))
    }

    fn take_over(
        &mut self, rules: &Rules, term: u8, successor: usize, digest: Memory,
    ) -> Option<Outcome> {
        let end = self.end?;
        let named = end.successor?;
        let is_named = named == successor || !rules.keep(NamedSuccessor);
        let is_whole = end.digest == digest || !rules.keep(Digest);
        if !(is_named && is_whole) {
            return None;
        }
        self.writer = term;
        if rules.keep(TakeOverClearsHandOff) {
            self.end = None;
        }
        Some(Outcome::Begun(self.epoch))
    }

    fn end_term(&mut self, rules: &Rules, term: u8, end: TermEnd) -> Option<Outcome> {
        self.may_write(rules, term).then(|| {
            self.end = Some(end);
            Outcome::TermEnded
        })
    }
}
