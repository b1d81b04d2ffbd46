//! One section in the leader's memory: its ceiling, when to raise it, by how much, and who waits. Pure:
//! no I/O, and time is an argument.
//!
//! Invariant: no number is taken above `ceiling`, none at or below what was taken before, and no more
//! numbers wait to be used than one step and what the calls that wait have asked for.
//!
//! **When** (prefetch). A bump is asked for while numbers are left, so that nobody waits for it: as
//! soon as fewer are left than are used up in two bumps' time, as measured, and at least 1/16 and at
//! most 1/11 of the step. It then fills up to one step and no further, so that a crash never skips
//! more than one; this is why the bounds are narrow: Leaf starts at 10 % *used* and holds almost two
//! steps. 1/16 costs 107 bumps for a million numbers of one key where 100 would do, 1/11 costs 110.
//! Whoever uses up 1/11 of a step within one bump's time is better served by a greater step:
//!
//! **By how much** (the step). A chunk that lasted less than [`CHUNK_LASTS_MIN`] doubles the section's
//! step, one that lasted more than [`CHUNK_LASTS_MAX`] halves it, within the namespace's bounds (the
//! rule is Leaf's, with the times of a log entry in place of a database's). A section is therefore
//! bumped some four times a second at most, until its step has reached `step_max`.
//!
//! **Who waits** ([`Queue`]). Calls that need more numbers than are left wait in the order of their
//! arrival, and whoever has to ask the section while one waits stands behind it. A bump is for all who
//! wait when it is proposed; its chunk is shared out to them before anybody else takes from it.

use std::{collections::VecDeque, time::Duration};

use tokio::sync::oneshot;

use super::{cursor::Cursor, held::Handed};
use crate::{
    clock::Instant,
    sequence::{Chunk, Key, NUMBER_MAX, NamespaceConfig, Progression, Range, SectionId},
};

/// A chunk that was used up sooner makes the step grow.
pub const CHUNK_LASTS_MIN: Duration = Duration::from_millis(250);
/// A chunk that was used up later makes the step shrink.
pub const CHUNK_LASTS_MAX: Duration = Duration::from_secs(2);
/// The bounds of prefetching: the smallest and the greatest part of a step that is left by then.
const PREFETCH_PARTS: (u64, u64) = (16, 11);

/// What asking for numbers came to. `bump`: a bump must be asked for.
#[derive(Debug)]
pub enum Take {
    /// Here they are.
    Range {
        /// The numbers.
        range: Range,
        /// So that the next ones are there in time.
        bump: bool,
    },
    /// There are not enough yet, or others wait: stand in the queue ([`Section::wait`]).
    Wait,
    /// There are not enough under the namespace's `max`.
    Exhausted {
        /// How many are left.
        left: u64,
    },
}

/// A call that waits for numbers.
#[derive(Debug)]
pub struct Waiter {
    /// The hash of its key.
    pub hash: u64,
    /// Its key.
    pub key: OwnedKey,
    /// How many numbers it wants; at least 1.
    pub count: u64,
    /// Who is told. Dropped: the term is lost.
    pub reply: oneshot::Sender<Handed>,
}

/// A key that outlives its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnedKey {
    /// An unsigned 64-bit integer.
    Id(u64),
    /// A byte string.
    Name(Box<[u8]>),
}

impl OwnedKey {
    /// The key, borrowed.
    pub fn as_key(&self) -> Key<'_> {
        match self {
            OwnedKey::Id(id) => Key::Id(*id),
            OwnedKey::Name(name) => Key::Name(name),
        }
    }
}

impl From<Key<'_>> for OwnedKey {
    fn from(key: Key<'_>) -> Self {
        match key {
            Key::Id(id) => OwnedKey::Id(id),
            Key::Name(name) => OwnedKey::Name(name.into()),
        }
    }
}

/// Those who wait, in the order of their arrival.
pub type Queue = VecDeque<Waiter>;

/// By how much a bump raises a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    /// By so many numbers.
    pub numbers: u64,
    /// So many are unused at most once it is in force.
    pub unused_max: u64,
}

impl Wish {
    /// Fills the `left` numbers that are unused up to `unused`, and brings one at least.
    pub fn fill(unused: u64, left: u64) -> Wish {
        let numbers = unused.saturating_sub(left).max(1);
        Wish {
            numbers,
            unused_max: left.saturating_add(numbers),
        }
    }

    /// What fulfils both.
    pub fn or(self, other: Wish) -> Wish {
        Wish {
            numbers: self.numbers.max(other.numbers),
            unused_max: self.unused_max.max(other.unused_max),
        }
    }
}

/// A bump that was asked for and has not been answered.
#[derive(Debug, Default)]
struct Bumping {
    /// What was wished for while numbers were left.
    prefetch: Wish,
    queue: Queue,
}

/// One section, in one term.
#[derive(Debug)]
pub struct Section {
    /// Which.
    pub id: SectionId,
    /// What earlier terms may have handed out: `old` of the first chunk.
    floor: u64,
    /// 0 before the first chunk.
    ceiling: u64,
    /// Above this a bump is asked for.
    alert: u64,
    step: u64,
    /// How many numbers the last chunk had, and when it came.
    chunk: u64,
    granted: Instant,
    /// The `max` under which no number was left; 0 for none.
    exhausted_at: u64,
    bumping: Option<Box<Bumping>>,
}

impl Section {
    /// A section that this term has not touched.
    pub fn new(id: SectionId, config: &NamespaceConfig) -> Self {
        Section {
            id,
            floor: 0,
            ceiling: 0,
            alert: 0,
            step: config.step,
            chunk: 0,
            granted: Instant::default(),
            exhausted_at: 0,
            bumping: None,
        }
    }

    /// Takes the next `count` (at least 1) numbers of the key at `cursor`, or says what is missing.
    pub fn take(&mut self, cursor: &mut Cursor, config: &NamespaceConfig, count: u64) -> Take {
        if self.bumping.as_ref().is_some_and(|b| !b.queue.is_empty()) {
            return Take::Wait;
        }
        self.take_now(cursor, config, count)
    }

    /// As [`Section::take`], for the one whose turn it is.
    pub fn take_now(&mut self, cursor: &mut Cursor, config: &NamespaceConfig, count: u64) -> Take {
        let exhausted = self.exhausted_at == config.max;
        let left = self.left(cursor, config);
        if left < count {
            return match exhausted {
                true => Take::Exhausted { left },
                false => Take::Wait,
            };
        }
        let increment = config.increment;
        let last = cursor.next + (count - 1) * increment;
        let range = cursor.advance(last, increment);
        let low = last > self.alert && !exhausted;
        let bump = low && self.prefetch(left - count);
        cursor.soft = if last <= self.alert {
            self.alert
        } else {
            self.ceiling
        };
        Take::Range { range, bump }
    }

    /// How many numbers are left for the key at `cursor`, which is moved above the section's floor.
    pub fn left(&self, cursor: &mut Cursor, config: &NamespaceConfig) -> u64 {
        let progression = config.progression();
        let Some(lowest) = self.lowest(progression).filter(|_| self.ceiling > 0) else {
            return 0;
        };
        cursor.next = cursor.next.max(lowest);
        count_from(cursor.next, self.ceiling.min(config.max), progression)
    }

    /// Has a call wait; true where a bump must be asked for.
    pub fn wait(&mut self, waiter: Waiter) -> bool {
        let first = self.bumping.is_none();
        let bumping = self.bumping.get_or_insert_default();
        bumping.queue.push_back(waiter);
        first
    }

    /// The last number that this term knows to be handed out for the key at `cursor`: 0 for none.
    /// `None` before the first chunk.
    pub fn current(&self, cursor: Option<&Cursor>, progression: Progression) -> Option<u64> {
        if self.ceiling == 0 {
            return None;
        }
        let lowest = self.lowest(progression);
        let last = lowest.and_then(|lowest| cursor?.last(lowest, progression.increment));
        Some(last.unwrap_or(self.floor))
    }

    /// What the bump that is being put together shall bring: what was wished for ahead, and enough for
    /// all who wait, of whose keys `left` says how many numbers are left. `None` where nothing is
    /// wished for any more.
    pub fn wish(
        &mut self,
        config: &NamespaceConfig,
        mut left: impl FnMut(&Section, &Waiter) -> u64,
    ) -> Option<Wish> {
        let mut bumping = self.bumping.take()?;
        let mut wish = std::mem::take(&mut bumping.prefetch);
        bumping.queue.retain(|waiter| !waiter.reply.is_closed());
        if !bumping.queue.is_empty() {
            let (step_min, step_max) = config.step_bounds();
            self.step = self.step.clamp(step_min, step_max);
        }
        // One key: all who wait use the same numbers up. Several: each key has the whole chunk.
        let one_key = config.section_size == 1;
        let mut counts = 0u64;
        for waiter in &bumping.queue {
            counts = match one_key {
                true => counts.saturating_add(waiter.count),
                false => waiter.count,
            };
            wish = wish.or(Wish::fill(self.step.max(counts), left(self, waiter)));
        }
        let wished = wish != Wish::default();
        if wished {
            self.bumping = Some(bumping);
        }
        wished.then_some(wish)
    }

    /// Ends the bump that was under way. Who waits for it is to be served by the caller, who puts
    /// those back that come to nothing yet ([`Section::wait_on`]).
    pub fn served(&mut self) -> Queue {
        self.bumping.take().map(|b| b.queue).unwrap_or_default()
    }

    /// Has `queue` wait for a further bump, which is to be asked for.
    pub fn wait_on(&mut self, queue: Queue) {
        self.bumping.get_or_insert_default().queue = queue;
    }

    /// Adds the chunk that this term's bump was answered with at `now`. A bump takes `bump_time` of late.
    /// True where the keys of the section must ask it before they go on.
    #[must_use]
    pub fn grant(
        &mut self,
        chunk: Chunk,
        config: &NamespaceConfig,
        now: Instant,
        bump_time: Duration,
    ) -> bool {
        let first = self.ceiling == 0;
        // Within a term chunks are adjacent. Were one not, what lies between is somebody else's:
        // every key goes on above it.
        let apart = !first && chunk.old != self.ceiling;
        if first || apart {
            self.floor = chunk.old;
        }
        let lead = if first {
            self.step / PREFETCH_PARTS.0
        } else {
            let lasted = now.since(self.granted);
            self.adapt_step(config, lasted);
            self.lead(lasted, bump_time)
        };
        let progression = config.progression();
        self.ceiling = chunk.new;
        self.alert = chunk
            .new
            .saturating_sub(lead.saturating_mul(progression.increment));
        self.chunk = progression.count_between(chunk.old, chunk.new);
        self.granted = now;
        self.exhausted_at = 0;
        apart
    }

    /// Notes that no number was left under `max`.
    pub fn exhaust(&mut self, max: u64) {
        self.exhausted_at = max;
    }

    /// What no key of the section is at or below; 0 before the first chunk.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The first number above the floor, whatever the namespace's `max` is by now; `None` at the end of
    /// the number space.
    pub fn lowest(&self, progression: Progression) -> Option<u64> {
        let max = NUMBER_MAX;
        Progression { max, ..progression }.first_above(self.floor)
    }

    /// Whether numbers are left above `used`, the greatest that was taken.
    pub fn has_left(&self, used: u64) -> bool {
        used < self.ceiling
    }

    /// Whether it got a chunk in this term.
    pub fn has_chunk(&self) -> bool {
        self.ceiling > 0
    }

    /// Asks for a bump while `left` numbers are left; true unless one is under way already.
    fn prefetch(&mut self, left: u64) -> bool {
        let first = self.bumping.is_none();
        let bumping = self.bumping.get_or_insert_default();
        bumping.prefetch = bumping.prefetch.or(Wish::fill(self.step, left));
        first
    }

    fn adapt_step(&mut self, config: &NamespaceConfig, lasted: Duration) {
        let was = self.step;
        let wanted = if lasted < CHUNK_LASTS_MIN {
            was.saturating_mul(2)
        } else if lasted > CHUNK_LASTS_MAX {
            was / 2
        } else {
            was
        };
        let (step_min, step_max) = config.step_bounds();
        self.step = wanted.clamp(step_min, step_max);
        if self.step != was {
            let (section, step) = (&self.id, self.step);
            tracing::debug!(
                ?section,
                step,
                was,
                ?lasted,
                "the step of a section changes"
            );
        }
    }

    /// How many numbers are to be left when a bump is asked for.
    fn lead(&self, lasted: Duration, bump_time: Duration) -> u64 {
        let used_meanwhile = u128::from(self.chunk) * 2 * bump_time.as_nanos();
        let wanted = used_meanwhile / lasted.as_nanos().max(1);
        u64::try_from(wanted)
            .unwrap_or(u64::MAX)
            .clamp(self.step / PREFETCH_PARTS.0, self.step / PREFETCH_PARTS.1)
    }
}

/// How many numbers there are from `next`, which is one, up to `high`.
fn count_from(next: u64, high: u64, progression: Progression) -> u64 {
    high.checked_sub(next)
        .map_or(0, |span| span / progression.increment + 1)
}

#[cfg(test)]
mod tests;
