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

use super::held::Handed;
use crate::{
    clock::Instant,
    sequence::{Chunk, Key, Lattice, NUMBER_MAX, NamespaceConfig, Range, SectionId},
};

/// A chunk that was used up sooner makes the step grow.
pub const CHUNK_LASTS_MIN: Duration = Duration::from_millis(250);
/// A chunk that was used up later makes the step shrink.
pub const CHUNK_LASTS_MAX: Duration = Duration::from_secs(2);
/// The bounds of prefetching: the smallest and the greatest part of a step that is left by then.
const PREFETCH_PARTS: (u64, u64) = (16, 11);

/// Where a key stands; the part of the memory that every number touches.
#[derive(Debug, Clone, Copy)]
pub struct Cursor {
    /// The next number, if the section has that many.
    next: u64,
    /// Up to here numbers are handed out without asking the section.
    soft: u64,
    /// Whose section this is.
    pub namespace: u32,
    /// Its place in the shard.
    pub section: u32,
}

impl Cursor {
    /// A key that was not asked for in this term.
    pub fn new(namespace: u32, section: u32) -> Self {
        Cursor {
            // Above `soft`: the first number is the section's to give.
            next: 1,
            soft: 0,
            namespace,
            section,
        }
    }

    /// Takes the next `count` (at least 1) numbers, unless the section must be asked.
    #[inline]
    pub fn take(&mut self, config: &NamespaceConfig, count: u64) -> Option<Range> {
        let span = (count - 1).checked_mul(config.increment)?;
        let last = self.next.checked_add(span)?;
        if last > self.soft || last > config.max {
            return None;
        }
        Some(self.advance(last, config.increment))
    }

    /// The last number handed out, where the first one would have been `lowest`.
    pub fn last(&self, lowest: u64, increment: u64) -> Option<u64> {
        (self.next > lowest).then(|| self.next - increment)
    }

    /// Sends the next taker to the section.
    pub fn consult(&mut self) {
        self.soft = 0;
    }

    fn advance(&mut self, last: u64, increment: u64) -> Range {
        let first = self.next;
        // Both are at most 2^63 - 1.
        self.next = last + increment;
        Range {
            first,
            last,
            increment,
        }
    }
}

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
        let lattice = config.lattice();
        let Some(lowest) = self.lowest(lattice).filter(|_| self.ceiling > 0) else {
            return 0;
        };
        cursor.next = cursor.next.max(lowest);
        count_from(cursor.next, self.ceiling.min(config.max), lattice)
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
    pub fn current(&self, cursor: Option<&Cursor>, lattice: Lattice) -> Option<u64> {
        if self.ceiling == 0 {
            return None;
        }
        let lowest = self.lowest(lattice);
        let last = lowest.and_then(|lowest| cursor?.last(lowest, lattice.increment));
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
        let lattice = config.lattice();
        self.ceiling = chunk.new;
        self.alert = chunk
            .new
            .saturating_sub(lead.saturating_mul(lattice.increment));
        self.chunk = lattice.count_between(chunk.old, chunk.new);
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
    pub fn lowest(&self, lattice: Lattice) -> Option<u64> {
        let max = NUMBER_MAX;
        Lattice { max, ..lattice }.next_above(self.floor)
    }

    /// Whether numbers are left above `used`, the greatest that was taken.
    pub fn has_left(&self, used: u64) -> bool {
        used < self.ceiling
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
fn count_from(next: u64, high: u64, lattice: Lattice) -> u64 {
    high.checked_sub(next)
        .map_or(0, |span| span / lattice.increment + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::{NamespaceId, SectionKey};

    type Later = oneshot::Receiver<Handed>;

    const SECOND: Duration = Duration::from_secs(1);

    fn book(step: u64) -> NamespaceConfig {
        NamespaceConfig {
            step,
            ..NamespaceConfig::new("book")
        }
    }

    /// A key, its section, and the time.
    struct One {
        config: NamespaceConfig,
        section: Section,
        cursor: Cursor,
        now: Instant,
    }

    impl One {
        fn new(config: NamespaceConfig) -> One {
            let id = SectionId {
                namespace: NamespaceId(1),
                key: SectionKey::Id(7),
            };
            One {
                section: Section::new(id, &config),
                cursor: Cursor::new(1, 0),
                now: Instant::from_nanos(1),
                config,
            }
        }

        fn take(&mut self, count: u64) -> Take {
            match self.cursor.take(&self.config, count) {
                Some(range) => Take::Range { range, bump: false },
                None => self.section.take(&mut self.cursor, &self.config, count),
            }
        }

        fn took(&mut self, count: u64) -> (u64, u64) {
            match self.take(count) {
                Take::Range { range, .. } => (range.first, range.last),
                other => panic!("expected numbers, got {other:?}"),
            }
        }

        /// Whether taking, or waiting, asked for a bump.
        fn bumps(&mut self, count: u64) -> bool {
            match self.take(count) {
                Take::Range { bump, .. } => bump,
                Take::Wait => self.wait(count).1,
                other => panic!("expected numbers, got {other:?}"),
            }
        }

        /// Waits for numbers; and whether a bump must be asked for.
        fn wait(&mut self, count: u64) -> (Later, bool) {
            let (reply, later) = oneshot::channel();
            let waiter = Waiter {
                hash: 0,
                key: OwnedKey::Id(7),
                count,
                reply,
            };
            (later, self.section.wait(waiter))
        }

        fn wish(&mut self) -> Option<Wish> {
            let (config, cursor) = (&self.config, &mut self.cursor);
            let wish = self
                .section
                .wish(config, |section, _| section.left(cursor, config));
            wish
        }

        /// How many numbers a bump would bring.
        fn wanted(&mut self) -> u64 {
            self.wish().expect("a bump is wanted").numbers
        }

        fn grant(&mut self, old: u64, new: u64) {
            let chunk = Chunk { old, new, left: 0 };
            if self
                .section
                .grant(chunk, &self.config, self.now, SECOND / 1_000)
            {
                self.cursor.consult();
            }
            drop(self.section.served());
        }

        /// Uses up a chunk, and has the next one granted `later`.
        fn next_chunk(&mut self, later: Duration) {
            while !self.bumps(1) {}
            self.now = self.now.after(later);
            let (old, wanted) = (self.section.ceiling, self.wanted());
            self.grant(old, old + wanted * self.config.increment);
        }

        fn current(&self) -> Option<u64> {
            let lattice = self.config.lattice();
            self.section.current(Some(&self.cursor), lattice)
        }
    }

    #[test]
    fn the_first_touch_bumps_once_and_whoever_comes_meanwhile_waits_for_the_same() {
        let mut one = One::new(book(100));
        assert!(matches!(one.take(1), Take::Wait));
        let (first, bump) = one.wait(1);
        assert!(bump);
        assert!(matches!(one.take(250), Take::Wait));
        let (_second, bump) = one.wait(250);
        assert!(!bump);
        let wish = one.wish().unwrap();
        assert_eq!(
            (wish.numbers, wish.unused_max),
            (251, 251),
            "enough for both"
        );
        assert_eq!(one.current(), None);
        drop(first);
        assert_eq!(one.wanted(), 250, "for those who are still there");
        one.grant(1_000, 1_250);
        assert_eq!(one.current(), Some(1_000));
        assert_eq!(one.took(3), (1_001, 1_003));
        assert_eq!(one.took(1), (1_004, 1_004));
        assert_eq!(one.current(), Some(1_004));
    }

    #[test]
    fn a_bump_that_nobody_waits_for_any_more_is_not_made() {
        let mut one = One::new(book(100));
        let (gone, bump) = one.wait(1_000_000);
        assert!(bump);
        drop(gone);
        assert_eq!(one.wish(), None);
        assert!(one.bumps(1), "the next one asks again");
    }

    #[test]
    fn whoever_has_to_ask_stands_behind_those_who_wait() {
        let mut one = One::new(book(100));
        let _ = one.take(1);
        one.grant(0, 100);
        let (_later, bump) = one.wait(200);
        assert!(bump);
        one.cursor.consult();
        assert!(matches!(one.take(1), Take::Wait), "although 100 are left");
        assert_eq!(one.wanted(), 100);
    }

    #[test]
    fn keys_that_share_a_section_each_have_the_whole_chunk() {
        let mut one = One::new(NamespaceConfig {
            section_size: 100_000,
            ..book(100)
        });
        let waiting: Vec<_> = [30, 250, 40].map(|count| one.wait(count)).into();
        let wish = one.wish().unwrap();
        assert_eq!((wish.numbers, wish.unused_max), (250, 250));
        drop(waiting);
    }

    #[test]
    fn a_chunk_that_runs_low_is_refilled_to_one_step_and_a_range_may_cross_the_seam() {
        let mut one = One::new(book(160));
        one.grant(0, 160);
        assert!(!one.bumps(150));
        assert!(one.bumps(1), "fewer than 1/16 are left");
        assert!(!one.bumps(1), "asked for already");
        assert_eq!(one.wanted(), 151, "with the 9 that were left, one step");
        one.grant(160, 311);
        assert_eq!(one.took(20), (153, 172));
    }

    #[test]
    fn what_was_wanted_while_a_bump_was_under_way_does_not_swell_the_next_one() {
        let mut one = One::new(book(160));
        one.grant(0, 160);
        assert!(one.bumps(155));
        assert_eq!(one.wanted(), 155);
        assert!(!one.bumps(4), "under way");
        one.grant(160, 315);
        assert!(one.bumps(155));
        assert_eq!(one.wanted(), 159, "with the one that is left, one step");
    }

    #[test]
    fn the_faster_numbers_go_the_earlier_a_bump_is_asked_for_within_bounds() {
        let lead = |later| {
            let mut one = One::new(book(10_000));
            let _ = one.take(1);
            one.grant(0, 10_000);
            one.next_chunk(later);
            one.section.ceiling - one.section.alert
        };
        assert_eq!(lead(SECOND * 3_600), 625, "1/16 of the step");
        // 10 000 numbers in 28 ms; a bump takes 1 ms.
        assert!((700..730).contains(&lead(SECOND * 28 / 1_000)));
        assert_eq!(lead(SECOND / 1_000), 909, "1/11 of the step");
    }

    #[test]
    fn no_more_than_a_step_ever_waits_to_be_used() {
        let mut one = One::new(NamespaceConfig {
            step_min: Some(50),
            step_max: Some(10_000),
            ..book(100)
        });
        let _ = one.take(1);
        one.grant(0, 100);
        for round in 0..40 {
            let step = one.section.step;
            one.next_chunk(if round < 20 {
                SECOND / 100
            } else {
                SECOND * 60
            });
            let left = one.section.ceiling - one.current().unwrap();
            assert_eq!(left, step, "round {round}");
        }
    }

    #[test]
    fn the_step_of_a_hot_section_grows_and_shrinks_again_within_the_bounds() {
        let mut one = One::new(NamespaceConfig {
            step_min: Some(60),
            step_max: Some(1_000),
            ..book(100)
        });
        let _ = one.take(1);
        one.grant(0, 100);
        let mut steps = |later| {
            let mut after = || {
                one.next_chunk(later);
                one.section.step
            };
            [after(), after(), after(), after(), after(), after()]
        };
        assert_eq!(steps(SECOND / 10), [200, 400, 800, 1_000, 1_000, 1_000]);
        assert_eq!(steps(SECOND), [1_000; 6], "neither hot nor cold");
        assert_eq!(steps(SECOND * 10), [500, 250, 125, 62, 60, 60]);
    }

    #[test]
    fn a_step_without_bounds_stays() {
        let mut one = One::new(book(100));
        let _ = one.take(1);
        one.grant(0, 100);
        one.next_chunk(SECOND / 1_000);
        one.next_chunk(SECOND * 3_600);
        assert_eq!(one.section.step, 100);
    }

    #[test]
    fn a_chunk_that_is_not_adjacent_lifts_every_key_above_the_hole() {
        let mut one = One::new(book(10));
        one.grant(0, 10);
        assert_eq!(one.took(4), (1, 4));
        one.grant(20, 30);
        assert_eq!(one.took(1), (21, 21));
    }

    #[test]
    fn numbers_lie_on_the_lattice_and_start_at_its_start() {
        let mut one = One::new(NamespaceConfig {
            start: 5,
            increment: 100,
            ..book(10)
        });
        one.grant(0, 905);
        assert_eq!(one.current(), Some(0));
        assert_eq!(one.took(1), (5, 5));
        assert_eq!(one.took(2), (105, 205));
        assert_eq!(one.current(), Some(205));
        assert!(matches!(one.take(u64::MAX), Take::Wait));
    }

    #[test]
    fn the_end_of_the_number_space_is_told_with_what_is_left_and_no_bump_is_asked_for_again() {
        let mut one = One::new(NamespaceConfig { max: 5, ..book(10) });
        let _ = one.take(1);
        one.grant(0, 5);
        assert_eq!(one.took(3), (1, 3));
        one.section.exhaust(5);
        assert!(matches!(one.take(3), Take::Exhausted { left: 2 }));
        assert!(!one.bumps(2));
        assert!(matches!(one.take(1), Take::Exhausted { left: 0 }));
        one.config.max = 9;
        assert!(matches!(one.take(1), Take::Wait));
    }

    #[test]
    fn a_maximum_that_was_lowered_holds_at_once() {
        let mut one = One::new(book(100));
        one.grant(0, 100);
        assert_eq!(one.took(4), (1, 4));
        one.config.max = 5;
        assert_eq!(one.took(1), (5, 5));
        assert!(matches!(one.take(1), Take::Wait));
    }

    #[test]
    fn a_section_exhausted_before_its_first_chunk_hands_out_nothing() {
        let mut one = One::new(NamespaceConfig { max: 5, ..book(10) });
        one.section.exhaust(5);
        assert!(matches!(one.take(1), Take::Exhausted { left: 0 }));
        assert_eq!(one.current(), None);
    }
}
