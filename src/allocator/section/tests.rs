//! A section and its keys, without the calls that wait.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};

use super::*;
use crate::allocator::{
    floor::Raised,
    outcome::Why,
    tests::transcript::{check, number, set, show, time},
};

const BUMP_TIME: Duration = Duration::from_millis(1);

/// A section, its keys, and the time.
struct World {
    config: NamespaceConfig,
    section: Section,
    cursors: BTreeMap<String, Cursor>,
    now: Instant,
}

impl World {
    fn new(config: NamespaceConfig) -> World {
        World {
            section: Section::new(&config, None),
            cursors: BTreeMap::new(),
            now: Instant::from_nanos(1),
            config,
        }
    }

    fn cursor(&mut self, key: &str) -> &mut Cursor {
        let entry = self.cursors.entry(key.to_owned());
        entry.or_insert_with(Cursor::new)
    }

    /// Takes numbers, or tells what is missing. ` fast`: the section was not asked.
    fn take(&mut self, key: &str, count: u64) -> String {
        let config = self.config.clone();
        if let Some(range) = self.cursor(key).take(&config, count) {
            return show(range) + " fast";
        }
        let mut cursor = *self.cursor(key);
        let take = self.section.take(&mut cursor, &config, count);
        *self.cursor(key) = cursor;
        match take {
            SectionAnswer::Range { range, refill: None } => show(range),
            SectionAnswer::Range { range, refill: Some(size) } => {
                format!("{}, bump {}", show(range), size.numbers)
            }
            SectionAnswer::TooFew => "too few".into(),
            SectionAnswer::Refused(Why::Exhausted { left }) => format!("exhausted, {left} left"),
            SectionAnswer::Refused(Why::OverKeysMax { keys_max }) => {
                format!("beyond a keys_max of {keys_max}")
            }
            SectionAnswer::Refused(other) => other.to_string(),
        }
    }

    /// Takes numbers one by one until the section wants a bump, and answers its size.
    fn use_up(&mut self, key: &str) -> u64 {
        loop {
            if let Some((_, size)) = self.take(key, 1).split_once(", bump ") {
                return number(size);
            }
        }
    }

    fn add_chunk(&mut self, old: u64, new: u64) -> String {
        let chunk = Chunk { old, new };
        let added = self.section.add_chunk(chunk, &self.config, self.now, BUMP_TIME);
        let refill_at = self.section.owned().unwrap().refill_at;
        let mut told = format!("refill above {refill_at}");
        if let Some(StepChange { was, step, .. }) = added.step_change {
            told += &format!(", step {was} to {step}");
        }
        if added.keys_must_ask {
            told += ", keys must ask";
            self.cursors.values_mut().for_each(Cursor::stop_fast_path);
        }
        told
    }

    /// Uses up a chunk, and adds the next one `later`.
    fn next_chunk(&mut self, later: Duration) -> String {
        let size = self.use_up("a");
        self.now = self.now.after(later);
        let ceiling = self.section.owned().unwrap().ceiling;
        self.add_chunk(ceiling, ceiling + size * self.config.increment)
    }

    fn run(&mut self, words: &[&str]) -> String {
        match words {
            ["namespace", fields @ ..] => {
                let mut config = NamespaceConfig::new("book");
                set(&mut config, fields);
                *self = World::new(config);
                String::new()
            }
            ["change", fields @ ..] => {
                set(&mut self.config, fields);
                String::new()
            }
            ["take", key, count] => self.take(key, number(count)),
            ["use", "up", key] => format!("bump {}", self.use_up(key)),
            ["chunk", old, new] => self.add_chunk(number(old), number(new)),
            ["chunk", old, new, "after", later] => {
                self.now = self.now.after(time(later));
                self.add_chunk(number(old), number(new))
            }
            ["next", "chunk", "after", later] => self.next_chunk(time(later)),
            ["exhaust", max] => {
                self.section.exhaust(number(max));
                String::new()
            }
            ["current", key] => {
                let cursor = self.cursors.get(*key);
                let progression = self.config.progression();
                let owned = self.section.owned();
                format!("{:?}", owned.map(|owned| owned.current(cursor, progression)))
            }
            other => panic!("unknown command {other:?}"),
        }
    }
}

fn transcript(expected: Expect) {
    let mut world = World::new(NamespaceConfig::new("book"));
    check(expected, |words| world.run(words));
}

#[test]
fn a_section_without_a_chunk_hands_out_nothing_and_knows_nothing() {
    transcript(expect![[r#"
        namespace step=100
        take a 1 -> too few
        current a -> None
        current b -> None
        chunk 1000 1250 -> refill above 1244
        current a -> Some(1000)
        current b -> Some(1000)
        take a 3 -> 1001..1003
        take a 1 -> 1004..1004 fast
        current a -> Some(1004)
        current b -> Some(1000)
    "#]]);
}

#[test]
fn a_key_asks_its_section_twice_in_a_step() {
    transcript(expect![[r#"
        namespace step=160
        chunk 0 160 -> refill above 150
        take a 1 -> 1..1
        take a 149 -> 2..150 fast
        take a 1 -> 151..151, bump 151
        take a 8 -> 152..159 fast
        take a 1 -> 160..160 fast
        take a 1 -> too few
    "#]]);
}

#[test]
fn a_chunk_that_runs_low_is_refilled_to_one_step_and_a_range_may_cross_the_seam() {
    transcript(expect![[r#"
        namespace step=160
        chunk 0 160 -> refill above 150
        take a 150 -> 1..150
        take a 1 -> 151..151, bump 151
        take a 1 -> 152..152 fast
        # Of the 160 there are 8 left; the bump was asked for when there were 9.
        chunk 160 311 -> refill above 297
        take a 20 -> 153..172
    "#]]);
}

#[test]
fn a_bump_is_asked_for_the_earlier_the_faster_numbers_go_within_bounds() {
    transcript(expect![[r#"
        namespace step=10000
        chunk 0 10000 -> refill above 9375
        use up a -> bump 9376
        # 1/16 of a step below the ceiling.
        chunk 10000 19376 after 3600s -> refill above 18751
        # 10 000 numbers in 28 ms, with a bump of 1 ms.
        namespace step=10000
        chunk 0 10000 -> refill above 9375
        use up a -> bump 9376
        chunk 10000 19376 after 28ms -> refill above 18662
        # 1/11 of a step below the ceiling.
        namespace step=10000
        chunk 0 10000 -> refill above 9375
        use up a -> bump 9376
        chunk 10000 19376 after 1ms -> refill above 18467
    "#]]);
}

#[test]
fn the_step_of_a_hot_section_grows_and_shrinks_again_within_the_bounds() {
    transcript(expect![[r#"
        namespace step=100 step_min=60 step_max=1000
        chunk 0 100 -> refill above 94
        next chunk after 100ms -> refill above 183, step 100 to 200
        next chunk after 100ms -> refill above 359, step 200 to 400
        next chunk after 100ms -> refill above 710, step 400 to 800
        next chunk after 100ms -> refill above 1449, step 800 to 1000
        next chunk after 100ms -> refill above 2388
        next chunk after 100ms -> refill above 3327
        # Neither hot nor cold.
        next chunk after 1s -> refill above 4266
        next chunk after 1s -> refill above 5205
        # Cold.
        next chunk after 10s -> refill above 6175, step 1000 to 500
        next chunk after 10s -> refill above 6661, step 500 to 250
        next chunk after 10s -> refill above 6905, step 250 to 125
        next chunk after 10s -> refill above 7028, step 125 to 62
        next chunk after 10s -> refill above 7088, step 62 to 60
        next chunk after 10s -> refill above 7146
        # Without bounds of its own the step stays.
        namespace step=100
        chunk 0 100 -> refill above 94
        next chunk after 1ms -> refill above 186
        next chunk after 3600s -> refill above 281
    "#]]);
}

#[test]
fn no_more_than_a_step_is_ever_unused_after_a_bump() {
    let mut world = World::new(NamespaceConfig {
        step: 100,
        step_min: Some(50),
        step_max: Some(10_000),
        ..NamespaceConfig::new("book")
    });
    world.add_chunk(0, 100);
    for round in 0..40 {
        let step = world.section.step;
        let later = if round < 20 { "10ms" } else { "60s" };
        world.next_chunk(time(later));
        let progression = world.config.progression();
        let owned = world.section.owned().unwrap();
        let left = owned.ceiling - owned.current(world.cursors.get("a"), progression);
        assert_eq!(left, step, "round {round}");
    }
}

#[test]
fn a_chunk_that_is_not_adjacent_raises_every_key_above_the_hole() {
    transcript(expect![[r#"
        namespace step=10
        chunk 0 10 -> refill above 10
        take a 4 -> 1..4
        take b 1 -> 1..1
        chunk 20 30 -> refill above 30, keys must ask
        take a 1 -> 21..21
        take b 1 -> 21..21
        current c -> Some(20)
    "#]]);
}

#[test]
fn numbers_begin_at_start_and_keep_the_increment() {
    transcript(expect![[r#"
        namespace step=10 start=5 increment=100
        chunk 0 905 -> refill above 905
        current a -> Some(0)
        take a 1 -> 5..5
        take a 2 -> 105..205 fast
        current a -> Some(205)
        take a 18446744073709551615 -> too few
    "#]]);
}

#[test]
fn the_end_of_the_numbers_is_told_with_what_is_left_and_no_bump_is_asked_for_again() {
    transcript(expect![[r#"
        namespace step=10 max=5
        take a 1 -> too few
        chunk 0 5 -> refill above 5
        take a 3 -> 1..3
        exhaust 5
        take a 3 -> exhausted, 2 left
        take a 2 -> 4..5 fast
        take a 1 -> exhausted, 0 left
        # A greater max opens the section again.
        change max=9
        take a 1 -> too few
        chunk 5 9 -> refill above 9
        take a 5 -> too few
        take a 4 -> 6..9
    "#]]);
}

#[test]
fn a_max_that_was_lowered_holds_at_once() {
    transcript(expect![[r#"
        namespace step=100
        chunk 0 100 -> refill above 94
        take a 4 -> 1..4
        change max=5
        take a 1 -> 5..5 fast
        take a 1 -> too few
        exhaust 5
        take a 1 -> exhausted, 0 left
        # What was taken above the max stays known.
        change max=3
        current a -> Some(5)
        take a 1 -> too few
    "#]]);
}

#[test]
fn a_section_exhausted_before_its_first_chunk_hands_out_nothing_and_knows_nothing() {
    transcript(expect![[r#"
        namespace step=10 max=5
        exhaust 5
        take a 1 -> exhausted, 0 left
        current a -> None
        change max=9
        take a 1 -> too few
        chunk 5 9 -> refill above 9
        take a 1 -> 6..6
    "#]]);
}

#[test]
fn the_end_of_the_number_space_does_not_overflow() {
    transcript(expect![[r#"
        namespace step=10 increment=9223372036854775807
        chunk 0 1 -> refill above 1
        take a 1 -> 1..1
        take a 1 -> too few
        exhaust 9223372036854775807
        take a 1 -> exhausted, 0 left
        namespace step=10
        chunk 9223372036854775797 9223372036854775807 -> refill above 9223372036854775807
        take a 11 -> too few
        take a 10 -> 9223372036854775798..9223372036854775807
        current a -> Some(9223372036854775807)
        exhaust 9223372036854775807
        take a 1 -> exhausted, 0 left
    "#]]);
}

#[test]
#[should_panic(expected = "a chunk begins at the ceiling or above")]
fn a_chunk_below_the_ceiling_is_a_bug() {
    let mut world = World::new(NamespaceConfig::new("book"));
    world.add_chunk(0, 100);
    world.add_chunk(50, 150);
}

/// Raises the floor of key "a", and tells what came of it.
fn raise(world: &mut World, at_least: u64) -> Option<Result<Raised, Why>> {
    let mut cursor = *world.cursor("a");
    let raised = world.section.raise(&mut cursor, &world.config, at_least);
    *world.cursor("a") = cursor;
    raised
}

#[test]
fn a_raised_floor_passes_over_numbers_and_is_never_lowered() {
    let mut world = World::new(NamespaceConfig::new("book"));
    assert_eq!(raise(&mut world, 50), None, "a bump must bring the numbers");
    world.add_chunk(0, 100);
    let done = |floor, is_higher, passed| Some(Ok(Raised { floor, is_higher, passed }));
    assert_eq!(raise(&mut world, 50), done(50, true, 50));
    assert_eq!(raise(&mut world, 50), done(50, false, 0));
    assert_eq!(raise(&mut world, 7), done(50, false, 0));
    assert!(world.take("a", 1).starts_with("51"), "{}", world.take("a", 1));
    assert!(world.take("b", 1).starts_with('1'), "a neighbour stays");
    assert_eq!(raise(&mut world, 101), None);
    world.config.max = 99;
    assert_eq!(raise(&mut world, 100), Some(Err(Why::AboveMax { max: 99 })));
    assert_eq!(raise(&mut world, 99), done(99, true, 48));
    world.section.exhaust(99);
    assert_eq!(raise(&mut world, 99), done(99, false, 0));
}

#[test]
fn the_floor_of_a_whole_section_is_that_of_keys_that_were_not_asked_for() {
    let mut world = World::new(NamespaceConfig {
        increment: 100,
        start: 100,
        section_size: 10,
        ..NamespaceConfig::new("uid")
    });
    assert_eq!(world.section.raise_section(&world.config, 50), None);
    world.add_chunk(0, 1_000);
    assert!(world.take("a", 6).starts_with("100"));
    let mut raise = |at_least| {
        let raised = world.section.raise_section(&world.config, at_least);
        raised.map(|raised| raised.map(|one| (one.floor, one.is_higher, one.passed)))
    };
    // Below the first number.
    assert_eq!(raise(50), Some(Ok((50, true, 0))));
    assert_eq!(raise(350), Some(Ok((350, true, 3))));
    assert_eq!(raise(300), Some(Ok((300, false, 0))));
    assert_eq!(raise(1_100), None);
    assert!(matches!(raise(u64::MAX), Some(Err(Why::AboveMax { .. }))));
    assert!(world.take("b", 1).starts_with("400"));
    assert!(world.take("a", 1).starts_with("700"));
}

#[test]
fn a_floor_between_two_numbers_passes_over_those_at_or_below_it() {
    let mut world =
        World::new(NamespaceConfig { increment: 100, start: 100, ..NamespaceConfig::new("book") });
    world.add_chunk(0, 1_000);
    let raised = raise(&mut world, 250).unwrap().unwrap();
    assert_eq!((raised.floor, raised.passed), (250, 2));
    assert!(world.take("a", 1).starts_with("300"));
    let raised = raise(&mut world, 99).unwrap().unwrap();
    assert_eq!((raised.floor, raised.is_higher), (300, false));
}

#[test]
fn a_key_whose_numbers_are_used_up_has_the_namespaces_max_as_its_floor() {
    let mut world = World::new(NamespaceConfig { max: 20, ..NamespaceConfig::new("book") });
    world.section.exhaust(20);
    let raised = raise(&mut world, 10).unwrap().unwrap();
    assert_eq!((raised.floor, raised.is_higher), (20, false));
}
