//! One section in the leader's memory: which numbers this term owns, and what is left of them. Pure: no
//! I/O, and time is an argument.
//!
//! `cursor.rs` is where one of its keys stands, and `owned.rs` what the term owns of it. `own_slot.rs` holds both for a key
//! with a section of its own. `refill.rs` says when a section is bumped, and by how much. `queued_section.rs` adds the calls
//! that wait for the bump (`pending.rs`, counted by `first_waiters.rs`), and `answers.rs` says what calls get. `floors.rs`
//! raises floors. `holding.rs` is what people see.
//!
//! Invariant: no number is taken above the ceiling, and none at or below a number taken before.

pub(super) mod answers;
pub(super) mod cursor;
pub(super) mod first_waiters;
mod floors;
pub(super) mod holding;
pub(super) mod own_slot;
pub(super) mod owned;
pub(super) mod pending;
pub(super) mod queued_section;
pub(super) mod refill;

use std::time::Duration;

use self::{
    cursor::Cursor,
    owned::{ChunkTime, Owned},
    refill::BumpSize,
};
use super::outcome::Why;
use crate::{
    clock::Instant,
    planted_bugs::{Bug, is_planted},
    sequence::{Chunk, NamespaceConfig, Range},
};

/// The result of asking a section for numbers.
#[derive(Debug)]
pub enum SectionAnswer {
    /// The numbers.
    Range {
        /// The numbers.
        range: Range,
        /// The bump that the section wants now, so that the next numbers are there in time.
        refill: Option<BumpSize>,
    },
    /// Too few numbers are left; a bump may bring more.
    TooFew,
    /// A bump brings no more.
    Refused(Why),
}

/// The effects of a chunk that was added.
#[derive(Debug)]
#[must_use]
pub struct AddedChunk {
    /// True if every key of the section must ask it before it takes another number.
    pub keys_must_ask: bool,
    /// How the step changed, if it did.
    pub step_change: Option<StepChange>,
}

/// A section's step changed.
#[derive(Debug)]
pub struct StepChange {
    /// The step before.
    pub was: u64,
    /// The step now.
    pub step: u64,
    /// How long the chunk before lasted, which is the reason.
    pub lasted: Duration,
}

/// One section, in one term.
#[derive(Debug)]
pub struct Section {
    /// How many numbers a bump fills the section up to.
    step: u64,
    supply: Supply,
}

/// The numbers of the section in this term: its chunk, and whether a bump can bring more.
#[derive(Debug)]
enum Supply {
    /// This term has no chunk of it.
    Untouched,
    /// This term has chunks, and a bump can bring more.
    Open(Owned),
    /// A bump found no number under `max`. While that is the namespace's `max`, no further bump is asked
    /// for; under another one the section counts as open.
    Exhausted { max: u64, owned: Option<Owned> },
    /// A bump found that the section is new and the namespace has `keys_max` keys. While its `keys_max` is the same,
    /// no further bump is asked for.
    OverKeysMax { keys_max: u64 },
}

impl Section {
    /// A section with the step of its namespace, of which this term owns `owned`: `None` if the term has
    /// not touched it.
    pub fn new(config: &NamespaceConfig, owned: Option<Owned>) -> Self {
        Section { step: config.step, supply: owned.map_or(Supply::Untouched, Supply::Open) }
    }

    /// A section with a step of its own, as it was in a term of another node.
    pub fn received(step: u64, owned: Option<Owned>) -> Self {
        Section { step, supply: owned.map_or(Supply::Untouched, Supply::Open) }
    }

    /// How many numbers a bump fills the section up to.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Takes the next `count` (at least 1) numbers of the key at `cursor`, or says what is missing.
    pub fn take(&self, cursor: &mut Cursor, config: &NamespaceConfig, count: u64) -> SectionAnswer {
        let left = self.left(cursor, config);
        let Some(owned) = self.owned().filter(|_| left >= count) else {
            return self.without_numbers(config, left);
        };
        let last = cursor.next() + (count - 1) * config.increment;
        assert!(last > owned.floor && last <= owned.ceiling.min(config.max), "{last} of {owned:?}");
        let range = cursor.advance(last, config.increment);
        let is_low = last > owned.refill_at;
        cursor.set_fast_limit(match is_low {
            false => owned.refill_at,
            true => owned.ceiling,
        });
        // Ids of keys come with a floor, which reaches further; other formats do without a refill.
        let wants_bump = is_low && config.format.is_none() && !self.is_exhausted(config.max);
        let refill = wants_bump.then(|| BumpSize::fill(self.step, left - count));
        SectionAnswer::Range { range, refill }
    }

    /// What the section answers that has only `left` numbers, and these are too few.
    fn without_numbers(&self, config: &NamespaceConfig, left: u64) -> SectionAnswer {
        if self.is_exhausted(config.max) {
            return SectionAnswer::Refused(Why::Exhausted { left });
        }
        match self.over_keys_max_of(config) {
            Some(keys_max) => SectionAnswer::Refused(Why::OverKeysMax { keys_max }),
            None => SectionAnswer::TooFew,
        }
    }

    /// How many numbers are left for the key at `cursor`, which is moved above the section's floor.
    pub fn left(&self, cursor: &mut Cursor, config: &NamespaceConfig) -> u64 {
        self.owned().map_or(0, |owned| owned.left(cursor, config))
    }

    /// Adds a chunk that this term was given at `now`, by a bump or otherwise. `bump_time` is how long a
    /// bump takes.
    pub fn add_chunk(
        &mut self, chunk: Chunk, config: &NamespaceConfig, now: Instant, bump_time: Duration,
    ) -> AddedChunk {
        assert!(chunk.old < chunk.new, "a chunk is not empty: {chunk:?}");
        let before = self.owned().copied();
        // Chunks of one term are adjacent. If one were not, the numbers between would be somebody
        // else's, and every key would have to go on above them.
        let is_apart = before.is_some_and(|before| before.ceiling != chunk.old);
        // In a release build, too: with a table that lacks what was logged, this node would hand out numbers again.
        assert!(
            before.is_none_or(|before| before.ceiling <= chunk.old)
                || is_planted(Bug::ChunkFromLocalRead),
            "a chunk begins at the ceiling or above: {chunk:?} after {before:?}"
        );
        let lasted = before.and_then(|before| before.came_at.lasted_at(now));
        let (step_change, margin) = match lasted {
            None => (None, refill::first_margin(self.step)),
            Some(lasted) => {
                let change = self.adapt_step(config, lasted);
                let margin = refill::margin(self.step, lasted, bump_time);
                (change, margin)
            }
        };
        let margin = margin.saturating_mul(config.increment);
        self.supply = Supply::Open(Owned {
            floor: match before {
                Some(before) if !is_apart => before.floor,
                Some(_) | None => chunk.old,
            },
            ceiling: chunk.new,
            refill_at: chunk.new.saturating_sub(margin),
            came_at: ChunkTime::at(now),
        });
        AddedChunk { keys_must_ask: is_apart, step_change }
    }

    /// Notes that a bump found no number under `max`.
    pub fn exhaust(&mut self, max: u64) {
        let owned = self.owned().copied();
        self.supply = Supply::Exhausted { max, owned };
    }

    /// Notes that a bump found that the namespace has `keys_max` keys, and the section is new.
    pub fn exceed_keys_max(&mut self, keys_max: u64) {
        assert!(self.owned().is_none(), "a section with numbers has a record");
        self.supply = Supply::OverKeysMax { keys_max };
    }

    /// Forgets what the term owns: it is to be logged what was used of it.
    pub fn forget(&mut self) {
        self.supply = Supply::Untouched;
    }

    /// How many numbers a bump fills the section up to, within the namespace's bounds as they are now.
    pub fn step_within_bounds(&mut self, config: &NamespaceConfig) -> u64 {
        let (step_min, step_max) = config.step_bounds();
        self.step = self.step.clamp(step_min, step_max);
        self.step
    }

    /// True if [`Section::new`] makes the same section out of what the term owns: it is not exhausted, and
    /// its step is the namespace's.
    pub fn is_plain(&self, config: &NamespaceConfig) -> bool {
        match self.supply {
            Supply::Untouched | Supply::Open(_) => self.step == config.step,
            Supply::Exhausted { .. } | Supply::OverKeysMax { .. } => false,
        }
    }

    /// The numbers that this term owns. `None` before the first chunk.
    pub fn owned(&self) -> Option<&Owned> {
        match &self.supply {
            Supply::Untouched | Supply::OverKeysMax { .. } => None,
            Supply::Open(owned) => Some(owned),
            Supply::Exhausted { owned, .. } => owned.as_ref(),
        }
    }

    fn is_exhausted(&self, namespace_max: u64) -> bool {
        match self.supply {
            Supply::Untouched | Supply::Open(_) | Supply::OverKeysMax { .. } => false,
            Supply::Exhausted { max, .. } => max == namespace_max,
        }
    }

    /// The namespace's `keys_max`, if it is still the one that a bump found reached.
    fn over_keys_max_of(&self, config: &NamespaceConfig) -> Option<u64> {
        match self.supply {
            Supply::OverKeysMax { keys_max } => config.keys_max.filter(|now| *now == keys_max),
            Supply::Untouched | Supply::Open(_) | Supply::Exhausted { .. } => None,
        }
    }

    fn adapt_step(&mut self, config: &NamespaceConfig, lasted: Duration) -> Option<StepChange> {
        let was = self.step;
        self.step = refill::next_step(was, config.step_bounds(), lasted);
        (self.step != was).then_some(StepChange { was, step: self.step, lasted })
    }
}

#[cfg(test)]
mod tests;
