//! A section's record, and the arithmetic of its ceiling `max_seq`: bump, epoch, checkpoint, trim, release, raise.
//!
//! An *epoch* gives the term that began it a chunk of every live section, without naming any. It writes no
//! section's record. Its effect on a section follows from how many epochs there were since the record was written:
//!
//! ```text
//! epochs since   the last epoch's chunk             the section's ceiling now
//! 0             none                              max_seq
//! d, up to 8    (max_seq + (d-1) w, .. + d w]     max_seq + d w         w = step x increment
//! more          none: the section is not live     max_seq + 8 w
//! ```
//!
//! None of this is limited by the namespace's `max`, which may be lowered and raised again. `max` limits which
//! numbers of a chunk can be taken.
//!
//! # Accounts
//!
//! A record also accounts for the numbers. For a section with one key, after `epoch` epochs ([`SectionAccounts`]):
//!
//! ```text
//! handed out + skipped + left = all numbers up to the ceiling
//! ```
//!
//! - *left*: numbers of the epoch that goes on. Only its leader knows how many of them were handed out since.
//! - *skipped*: how many numbers at or below the floor at most were handed out to nobody, because an epoch ended without
//!   a trim. No entry tells how much such an epoch used of its last chunk.
//! - *handed out*: how many numbers at least were taken from memory. Burnt ones are among them: the leader counts
//!   these.
//!
//! The sum holds by arithmetic, whatever `max` is and was. If keys share the section, it holds for the one that took the
//! greatest numbers; the others rise to the ceiling.
//!
//! Invariant: `floor <= max_seq`, and `max_seq` falls only by a trim or a release of the epoch that owns
//! what lies above the floor.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::progression::{NUMBER_MAX, Progression, Range};
use crate::planted_bugs::{Bug, is_planted};

/// For how many epochs after its record was written a section is live, and an epoch gives a chunk of it. With few of them,
/// leaders that are lost one after the other, before their checkpointers are through, leave sections in use that are not live.
/// With many, a section that nobody uses any more skips much: as many steps, and what was left of its last chunk, however
/// many leader changes there are. The log's entries mean something else with another value: a change of it is a change of
/// format.
pub const EPOCHS_LIVE: u64 = 8;

/// A section's record in the replicated table. The default one stands for a section without a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct SectionRecord {
    /// The ceiling when the record was written. No number above it was handed out, but for those of later epochs.
    pub max_seq: u64,
    /// Numbers up to here may belong to earlier epochs.
    pub floor: u64,
    /// How many epochs had begun when the record was written; one less if a trim wrote it.
    pub epoch: u64,
    /// How many numbers an epoch gives. 0 without a record: such a section is not live.
    pub step: u64,
    /// How many numbers were unused at most when the record was written. If no epoch came since, a crash skips as many
    /// at most.
    pub unused_max: u64,
    /// How many numbers at or below the floor were skipped at most, by epochs that ended without a trim.
    pub skipped: u64,
    /// When the record was written, by the clock of the leader: milliseconds since 1970. 0 if that is not known. Nothing but
    /// `ratchet recover` computes anything from it.
    pub written_ms: u64,
}

/// The accounts of the numbers of a section with one key, up to its ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SectionAccounts {
    /// How many were handed out, at least.
    pub handed_out: u64,
    /// How many were skipped, at most.
    pub skipped: u64,
    /// How many belong to the epoch that goes on.
    pub left: u64,
}

/// The numbers above `old`, up to and including `new`. They belong to the epoch of the term that got them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// The ceiling before.
    pub old: u64,
    /// The ceiling after.
    pub new: u64,
}

/// By how much a bump raises a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CeilingRaise {
    /// By how many numbers. 0, for floors alone, counts as 1.
    pub numbers: u64,
    /// How many numbers of the section are unused at most once the bump is in force: one step, and what
    /// calls that wait have asked for beyond it.
    pub unused_max: u64,
    /// How many numbers an epoch gives from now on: the section's step. 0 leaves it as it is: the bump is for floors
    /// alone, and a key that is raised and not used has nothing that an epoch could skip.
    pub step: u64,
    /// The ceiling reaches this number at least, or the namespace's last one. 0 where no floor is raised.
    pub up_to: u64,
}

/// No number is left under the namespace's `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exhausted;

impl Serialize for SectionRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SectionRecord::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for SectionRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let record = SectionRecord::deserialize(deserializer)?;
        match record.is_sound() {
            true => Ok(record),
            false => Err(D::Error::custom(format!("a floor above its ceiling: {record:?}"))),
        }
    }
}

impl SectionRecord {
    /// The invariant of a record.
    fn is_sound(&self) -> bool {
        self.floor <= self.max_seq && self.max_seq <= NUMBER_MAX
    }

    /// True unless it stands for a section without a record.
    pub fn exists(&self) -> bool {
        self.step > 0 || self.max_seq > 0
    }

    /// True if nobody owned numbers of the section once the record was written: a trim, a release or a recovery wrote it.
    pub fn was_evicted(&self) -> bool {
        self.floor == self.max_seq && self.unused_max == 0
    }

    /// The section's ceiling after `epoch` epochs: no number above it was handed out.
    pub fn ceiling_at(&self, epoch: u64, increment: u64) -> u64 {
        self.raised_by_epochs(self.epochs_since(epoch), increment)
    }

    /// The section's ceiling when `epoch` began: numbers up to here may belong to earlier
    /// epochs. Those above it, up to [`SectionRecord::ceiling_at`], belong to this one.
    pub fn floor_at(&self, epoch: u64, increment: u64) -> u64 {
        match self.epochs_since(epoch) {
            0 => self.floor,
            epochs => self.raised_by_epochs(epochs - 1, increment),
        }
    }

    /// The chunk that `epoch` gives of this section. `None` if the record was written in this epoch, or
    /// the section is not live: then a bump brings its first chunk.
    pub fn epoch_chunk(&self, progression: Progression, epoch: u64) -> Option<Chunk> {
        let old = self.floor_at(epoch, progression.increment);
        let new = self.ceiling_at(epoch, progression.increment);
        (self.epochs_since(epoch) > 0 && old < new).then_some(Chunk { old, new })
    }

    /// True if the epoch that follows may give a chunk of this section, when `epoch` epochs have begun. It has that
    /// number again if the last one is returned.
    pub fn is_live_next(&self, epoch: u64) -> bool {
        self.epochs_since(epoch) <= EPOCHS_LIVE
    }

    /// Raises the ceiling in `epoch`.
    ///
    /// # Errors
    /// [`Exhausted`] if not one number is left.
    pub fn bump(
        self, progression: Progression, epoch: u64, raise: CeilingRaise,
    ) -> Result<(Self, Chunk), Exhausted> {
        let old = self.ceiling_at(epoch, progression.increment);
        let first = progression.first_above(old).ok_or(Exhausted)?;
        let new = progression
            .range_above(old, raise.numbers.max(1))
            .map_or(progression.last_at_or_below(progression.max), |range| range.last)
            .max(first)
            .max(progression.last_at_or_below(raise.up_to));
        let floor = self.floor_at(epoch, progression.increment);
        let unused_max = raise.unused_max.min(progression.count_between(floor, new));
        let record = SectionRecord {
            max_seq: new,
            floor,
            epoch,
            step: match raise.step {
                0 => self.step,
                step => step,
            },
            // In the epoch of the record, no more are unused than were when it was written, and the new ones.
            unused_max: match self.epochs_since(epoch) {
                0 => unused_max.min(self.unused_max.saturating_add(numbers(progression, old, new))),
                _ => unused_max,
            },
            skipped: self.skipped_at(progression, epoch),
            written_ms: self.written_ms,
        };
        // The term that gets the chunk asserts that it is not empty and not below the ceiling (`add_chunk`), and that no number
        // it takes is above `max` (`take`). To assert that here would end every replica. What is asserted here is that the
        // table is not damaged: no entry writes a record whose floor is above its ceiling.
        assert!(record.floor <= old, "the table is damaged: a floor above its ceiling: {self:?}");
        Ok((record, Chunk { old, new }))
    }

    /// Writes down what `epoch` gave of the section, so that the section is live for the next epochs. Costs no number.
    /// `None` if it gave nothing, or the record was written since.
    pub fn checkpoint(self, progression: Progression, epoch: u64) -> Option<Self> {
        let floor = self.floor_at(epoch, progression.increment);
        let max_seq = self.ceiling_at(epoch, progression.increment);
        (self.epochs_since(epoch) > 0 && floor < max_seq).then_some(SectionRecord {
            max_seq,
            floor,
            epoch,
            step: self.step,
            unused_max: numbers(progression, floor, max_seq),
            skipped: self.skipped_at(progression, epoch),
            written_ms: self.written_ms,
        })
    }

    /// Lowers the ceiling to `used`, the greatest number that `epoch` took, answered or not, so that the
    /// rest of its chunks can be handed out later. Never goes below the floor: earlier epochs may have used what
    /// lies there. `None`, and no change, if the epoch owns nothing of the section, or less than `used`.
    ///
    /// The record is written as of the epoch before. If the epoch is returned, the next one gives the
    /// numbers right above `used`. If it does not, the next epoch gives those of one step further up.
    pub fn trim(self, progression: Progression, epoch: u64, used: u64) -> Option<Self> {
        let increment = progression.increment;
        let (floor, ceiling) = (self.floor_at(epoch, increment), self.ceiling_at(epoch, increment));
        let owns_nothing = self.epochs_since(epoch) > 0 && floor == ceiling;
        if owns_nothing || used > ceiling {
            return None;
        }
        let max_seq = used.max(floor);
        Some(SectionRecord {
            max_seq,
            // A second trim of the same epoch cannot take back what this one said was used.
            floor: max_seq,
            epoch: epoch.saturating_sub(1),
            step: self.step,
            unused_max: 0,
            skipped: self.skipped_at(progression, epoch),
            written_ms: self.written_ms,
        })
    }

    /// Lowers the ceiling to `used`, as [`SectionRecord::trim`] does, while the epoch goes on. The epoch owns nothing of
    /// the section any more: its next chunk comes from a bump. The next epoch gives the numbers right above `used`. If
    /// this one is returned, the next has the same number, and a bump brings them.
    pub fn release(self, progression: Progression, epoch: u64, used: u64) -> Option<Self> {
        let trimmed = self.trim(progression, epoch, used)?;
        Some(SectionRecord { epoch, ..trimmed })
    }

    /// Raises the ceiling by `distance`, and to `at_least`, because nobody knows any more which of the numbers below were
    /// handed out, nor how many epochs there were. No term can lower it again. `progression` may begin further up than the
    /// one under which the record was written.
    pub fn raised(
        self, progression: Progression, epoch: u64, distance: u64, at_least: u64,
    ) -> Self {
        let ceiling = self.raised_by_epochs(EPOCHS_LIVE, progression.increment);
        let max_seq = (ceiling.saturating_add(distance).max(at_least)).min(NUMBER_MAX);
        // Of the unused numbers, those below the new start are no numbers any more.
        let unused = self.skipped.saturating_add(self.unused_max);
        let unused = unused.min(numbers(progression, 0, self.max_seq));
        SectionRecord {
            max_seq,
            floor: max_seq,
            epoch,
            step: self.step,
            unused_max: 0,
            skipped: unused.saturating_add(numbers(progression, self.max_seq, max_seq)),
            written_ms: self.written_ms,
        }
    }

    /// The same record, if nobody knows which numbers above `used` were handed out: they count as skipped.
    #[must_use]
    pub fn unknown_above(self, progression: Progression, used: u64) -> Self {
        SectionRecord {
            skipped: self.skipped.saturating_add(numbers(progression, used, self.max_seq)),
            ..self
        }
    }

    /// How many numbers were handed out at least when the record was written.
    pub fn handed_out(&self, progression: Progression) -> u64 {
        let rest = self.skipped.saturating_add(self.unused_max);
        numbers(progression, 0, self.max_seq).saturating_sub(rest)
    }

    /// The accounts of the numbers up to the ceiling after `epoch` epochs.
    pub fn accounts_at(&self, progression: Progression, epoch: u64) -> SectionAccounts {
        let all = numbers(progression, 0, self.ceiling_at(epoch, progression.increment));
        let skipped = self.skipped_at(progression, epoch);
        let left = match self.epochs_since(epoch) {
            0 => self.unused_max,
            _ => {
                let floor = self.floor_at(epoch, progression.increment);
                all - numbers(progression, 0, floor)
            }
        };
        SectionAccounts {
            handed_out: all.saturating_sub(skipped.saturating_add(left)),
            skipped,
            left,
        }
    }

    /// How many numbers at or below the floor were skipped at most, when `epoch` goes on.
    pub(super) fn skipped_at(&self, progression: Progression, epoch: u64) -> u64 {
        if self.epochs_since(epoch) == 0 || is_planted(Bug::SkipsNotAccounted) {
            return self.skipped;
        }
        let floor = self.floor_at(epoch, progression.increment);
        let since = numbers(progression, self.max_seq, floor);
        self.skipped.saturating_add(self.unused_max).saturating_add(since)
    }

    /// Takes the next `count` numbers of a gapless key.
    ///
    /// # Errors
    /// How many numbers are left, if those are too few.
    pub fn take(
        self, progression: Progression, epoch: u64, count: u64,
    ) -> Result<(Self, Range), u64> {
        let last = self.ceiling_at(epoch, progression.increment);
        let left = progression.count_between(last, progression.max);
        let range = progression.range_above(last, count.max(1)).ok_or(left)?;
        let record = SectionRecord {
            max_seq: range.last,
            floor: range.last,
            epoch,
            step: 0,
            unused_max: 0,
            skipped: self.skipped_at(progression, epoch),
            written_ms: self.written_ms,
        };
        Ok((record, range))
    }

    /// How many epochs there were since the record was written. 0 also for a leader whose epoch is older than the
    /// record: it leads no more.
    fn epochs_since(&self, epoch: u64) -> u64 {
        epoch.saturating_sub(self.epoch)
    }

    fn raised_by_epochs(&self, epochs: u64, increment: u64) -> u64 {
        let width = self.step.saturating_mul(increment);
        let raised = width.saturating_mul(epochs.min(EPOCHS_LIVE));
        self.max_seq.saturating_add(raised).min(NUMBER_MAX)
    }
}

/// How many numbers lie above `low` and at or below `high`, whatever the namespace's `max` is now.
fn numbers(progression: Progression, low: u64, high: u64) -> u64 {
    progression.unbounded().count_between(low, high)
}

#[cfg(test)]
mod tests;
