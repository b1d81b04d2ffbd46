//! One section in the leader's memory. Pure: no I/O, no clock.
//!
//! Invariant: no number is taken above `ceiling`, and none at or below what was taken before.

use std::collections::{HashMap, hash_map::Entry};

use tokio::sync::oneshot;

use crate::sequence::{Chunk, Key, Lattice, NamespaceConfig, Range};

/// What asking for numbers came to.
#[derive(Debug)]
pub enum Take {
    /// Here they are.
    Range {
        /// The numbers.
        range: Range,
        /// Whether a bump must be asked for, so that the next ones are there in time.
        prefetch: bool,
    },
    /// There are not enough yet.
    Wait {
        /// Fires (or is dropped) when it is worth asking again.
        again: oneshot::Receiver<()>,
        /// Whether a bump must be asked for.
        bump: bool,
    },
    /// There are not enough under the namespace's `max`.
    Exhausted {
        /// How many are left.
        left: u64,
    },
}

/// The keys of a section and the last number that each was given; absent keys stand at the floor.
#[derive(Debug)]
enum Keys {
    One(u64),
    Many(HashMap<u64, u64>),
}

/// One section, in one term.
#[derive(Debug)]
pub struct Section {
    keys: Keys,
    /// What earlier terms may have handed out: `old` of the first chunk. `None` before that.
    floor: Option<u64>,
    ceiling: u64,
    /// A bump was asked for and has not been answered.
    bumping: bool,
    /// How many numbers the next bump asks for.
    want: u64,
    /// The `max` under which no number was left.
    exhausted_at: Option<u64>,
    waiters: Vec<oneshot::Sender<()>>,
}

/// Prefetch when less than this part of a step is left. A bump then fills up to a whole step, so
/// that a crash never skips more than one; 1/16 costs 107 bumps for a million numbers of one key
/// where 100 would do, and leaves time for 600 numbers while a bump is under way.
const PREFETCH_PART: u64 = 16;

impl Section {
    /// A section that this term has not touched.
    pub fn new(config: &NamespaceConfig) -> Self {
        Section {
            keys: if config.section_size == 1 {
                Keys::One(0)
            } else {
                Keys::Many(HashMap::new())
            },
            floor: None,
            ceiling: 0,
            bumping: false,
            want: 0,
            exhausted_at: None,
            waiters: Vec::new(),
        }
    }

    /// Takes the next `count` (at least 1) numbers of `key`, or says what is missing.
    pub fn take(&mut self, config: &NamespaceConfig, key: &Key, count: u64) -> Take {
        let lattice = config.lattice();
        let Some(floor) = self.floor else {
            if self.exhausted_at == Some(config.max) {
                return Take::Exhausted { left: 0 };
            }
            return self.wait(config.step.max(count));
        };
        let cur_seq = self.cur_seq(key, floor);
        let remaining = lattice.count_between(cur_seq, self.ceiling);
        if remaining < count {
            if self.exhausted_at == Some(config.max) {
                return Take::Exhausted { left: remaining };
            }
            return self.wait(config.step.max(count) - remaining);
        }
        let Some(range) = lattice.range_above(cur_seq, count) else {
            // Not reached: `remaining` numbers lie above `cur_seq`.
            return Take::Exhausted { left: remaining };
        };
        self.set_cur_seq(key, range.last);
        let remaining = remaining - count;
        let low = remaining < config.step / PREFETCH_PART && self.exhausted_at != Some(config.max);
        let prefetch = low && self.ask(config.step - remaining);
        Take::Range { range, prefetch }
    }

    /// The last number that this term knows to be handed out for `key`: 0 for none. `None` before
    /// the first chunk.
    pub fn current(&self, key: &Key) -> Option<u64> {
        self.floor.map(|floor| self.cur_seq(key, floor))
    }

    /// How many numbers the bump that is being put together shall ask for.
    pub fn wanted(&mut self) -> u64 {
        std::mem::take(&mut self.want).max(1)
    }

    /// Adds the chunk that this term's bump was answered with, and wakes who waits.
    pub fn grant(&mut self, chunk: Chunk) {
        // Within a term chunks are adjacent. Were one not, what lies between is somebody else's:
        // every key goes on above it.
        if self.floor.is_none() || chunk.old != self.ceiling {
            self.floor = Some(chunk.old);
        }
        self.ceiling = chunk.new;
        self.exhausted_at = None;
        self.answered();
    }

    /// Notes that no number was left under `max`, and wakes who waits.
    pub fn exhaust(&mut self, max: u64) {
        self.exhausted_at = Some(max);
        self.answered();
    }

    /// For a graceful end of the term: the highest number taken, where numbers are left above it,
    /// and how many numbers the other keys of the section lose by rising to it.
    pub fn close(&mut self, lattice: Lattice) -> Option<(u64, u64)> {
        let floor = self.floor?;
        self.waiters.clear();
        let (used, lost) = match &self.keys {
            Keys::One(cur_seq) => (floor.max(*cur_seq), 0),
            Keys::Many(keys) => {
                let used = keys
                    .values()
                    .fold(floor, |high, &cur_seq| high.max(cur_seq));
                let lost = keys
                    .values()
                    .map(|&cur_seq| lattice.count_between(cur_seq.max(floor), used))
                    .sum();
                (used, lost)
            }
        };
        (used < self.ceiling).then_some((used, lost))
    }

    fn wait(&mut self, numbers: u64) -> Take {
        let (waiter, again) = oneshot::channel();
        self.waiters.push(waiter);
        Take::Wait {
            again,
            bump: self.ask(numbers),
        }
    }

    /// Asks for a bump by `numbers`; true unless one is under way already.
    fn ask(&mut self, numbers: u64) -> bool {
        self.want = self.want.max(numbers);
        !std::mem::replace(&mut self.bumping, true)
    }

    fn answered(&mut self) {
        self.bumping = false;
        // Whoever still wants something asks again; a wish of before the chunk would make the next
        // bump leave more than a step unused.
        self.want = 0;
        for waiter in self.waiters.drain(..) {
            // One that gave up at its deadline no longer listens.
            let _ = waiter.send(());
        }
    }

    fn cur_seq(&self, key: &Key, floor: u64) -> u64 {
        let taken = match (&self.keys, key) {
            (Keys::One(cur_seq), _) => *cur_seq,
            (Keys::Many(keys), Key::Id(id)) => keys.get(id).copied().unwrap_or(0),
            (Keys::Many(_), Key::Name(_)) => 0,
        };
        taken.max(floor)
    }

    fn set_cur_seq(&mut self, key: &Key, last: u64) {
        match (&mut self.keys, key) {
            (Keys::Many(keys), Key::Id(id)) => match keys.entry(*id) {
                Entry::Occupied(mut cur_seq) => *cur_seq.get_mut() = last,
                Entry::Vacant(cur_seq) => {
                    cur_seq.insert(last);
                }
            },
            (keys, _) => *keys = Keys::One(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(old: u64, new: u64) -> Chunk {
        Chunk { old, new, left: 0 }
    }

    fn book(step: u64) -> NamespaceConfig {
        NamespaceConfig {
            step,
            ..NamespaceConfig::new("book")
        }
    }

    fn took(take: Take) -> (u64, u64) {
        match take {
            Take::Range { range, .. } => (range.first, range.last),
            other => panic!("expected numbers, got {other:?}"),
        }
    }

    const KEY: Key = Key::Id(7);

    #[test]
    fn the_first_touch_bumps_once_and_whoever_comes_meanwhile_waits_for_the_same() {
        let config = book(100);
        let mut section = Section::new(&config);
        let Take::Wait { mut again, bump } = section.take(&config, &KEY, 1) else {
            panic!("took from nothing");
        };
        assert!(bump);
        assert!(matches!(
            section.take(&config, &KEY, 250),
            Take::Wait { bump: false, .. }
        ));
        assert_eq!(section.current(&KEY), None);
        assert_eq!(section.wanted(), 250);
        section.grant(chunk(1_000, 1_250));
        assert_eq!(again.try_recv(), Ok(()));
        assert_eq!(section.current(&KEY), Some(1_000));
        assert_eq!(took(section.take(&config, &KEY, 3)), (1_001, 1_003));
        assert_eq!(took(section.take(&config, &KEY, 1)), (1_004, 1_004));
        assert_eq!(section.current(&KEY), Some(1_004));
    }

    #[test]
    fn a_chunk_that_runs_low_is_refilled_to_one_step_and_a_range_may_cross_the_seam() {
        let config = book(160);
        let mut section = Section::new(&config);
        let _ = section.take(&config, &KEY, 1);
        section.wanted();
        section.grant(chunk(0, 160));
        assert!(matches!(
            section.take(&config, &KEY, 150),
            Take::Range {
                prefetch: false,
                ..
            }
        ));
        assert!(matches!(
            section.take(&config, &KEY, 1),
            Take::Range { prefetch: true, .. }
        ));
        assert!(matches!(
            section.take(&config, &KEY, 1),
            Take::Range {
                prefetch: false,
                ..
            }
        ));
        assert_eq!(
            section.wanted(),
            152,
            "with the 8 that are left by now, one step"
        );
        section.grant(chunk(160, 312));
        assert_eq!(took(section.take(&config, &KEY, 20)), (153, 172));
    }

    #[test]
    fn what_was_wanted_while_a_bump_was_under_way_does_not_swell_the_next_one() {
        let config = book(160);
        let mut section = Section::new(&config);
        let _ = section.take(&config, &KEY, 1);
        section.wanted();
        let _ = section.take(&config, &KEY, 160);
        section.grant(chunk(0, 160));
        let _ = section.take(&config, &KEY, 155);
        assert_eq!(section.wanted(), 155, "with the 5 that are left, one step");
    }

    #[test]
    fn keys_of_a_shared_section_stand_at_the_floor_and_grow_apart() {
        let config = NamespaceConfig {
            section_size: 100,
            ..book(50)
        };
        let mut section = Section::new(&config);
        let _ = section.take(&config, &Key::Id(1), 1);
        section.wanted();
        section.grant(chunk(500, 550));
        assert_eq!(took(section.take(&config, &Key::Id(1), 10)), (501, 510));
        assert_eq!(took(section.take(&config, &Key::Id(2), 2)), (501, 502));
        assert_eq!(section.current(&Key::Id(3)), Some(500));
        assert_eq!(section.close(config.lattice()), Some((510, 8)));
    }

    #[test]
    fn a_chunk_that_is_not_adjacent_lifts_every_key_above_the_hole() {
        let config = book(10);
        let mut section = Section::new(&config);
        section.grant(chunk(0, 10));
        assert_eq!(took(section.take(&config, &KEY, 4)), (1, 4));
        section.grant(chunk(20, 30));
        assert_eq!(took(section.take(&config, &KEY, 1)), (21, 21));
    }

    #[test]
    fn the_end_of_the_number_space_is_told_with_what_is_left_and_no_bump_is_asked_for_again() {
        let config = NamespaceConfig { max: 5, ..book(10) };
        let mut section = Section::new(&config);
        let _ = section.take(&config, &KEY, 1);
        section.grant(chunk(0, 5));
        assert_eq!(took(section.take(&config, &KEY, 3)), (1, 3));
        section.exhaust(5);
        assert!(matches!(
            section.take(&config, &KEY, 3),
            Take::Exhausted { left: 2 }
        ));
        assert!(matches!(
            section.take(&config, &KEY, 2),
            Take::Range {
                prefetch: false,
                ..
            }
        ));
        assert!(matches!(
            section.take(&config, &KEY, 1),
            Take::Exhausted { left: 0 }
        ));
        let raised = NamespaceConfig { max: 9, ..config };
        assert!(matches!(
            section.take(&raised, &KEY, 1),
            Take::Wait { bump: true, .. }
        ));
    }

    #[test]
    fn a_section_exhausted_before_its_first_chunk_hands_out_nothing() {
        let config = NamespaceConfig { max: 5, ..book(10) };
        let mut section = Section::new(&config);
        section.exhaust(5);
        assert!(matches!(
            section.take(&config, &KEY, 1),
            Take::Exhausted { left: 0 }
        ));
        assert_eq!(section.current(&KEY), None);
        assert_eq!(section.close(config.lattice()), None);
    }

    #[test]
    fn closing_an_untouched_or_used_up_section_trims_nothing() {
        let config = book(10);
        assert_eq!(Section::new(&config).close(config.lattice()), None);
        let mut section = Section::new(&config);
        section.grant(chunk(0, 10));
        let _ = section.take(&config, &KEY, 10);
        assert_eq!(section.close(config.lattice()), None);
    }
}
