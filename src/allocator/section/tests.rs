//! A section as its shard uses it.

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
        self.section
            .wish(config, |section, _| section.left(cursor, config))
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
        let progression = self.config.progression();
        self.section.current(Some(&self.cursor), progression)
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
