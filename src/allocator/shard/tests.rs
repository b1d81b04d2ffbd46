//! A shard as the memory uses it: calls that wait, the bumps that they ask for, and how they are served.

mod dense;
mod eviction;
mod floors;
mod shared_eviction;
mod size;

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::*;
use crate::{
    allocator::{
        held_numbers::Delivery,
        outcome::Why,
        tests::transcript::{check, number, set, show},
    },
    metrics::Metrics,
    sequence::SectionKey,
};

/// A namespace, and the one shard that all of its keys are in.
struct World {
    namespace: Namespace,
    hasher: Hasher,
    shard: Shard,
    /// The calls that wait, by their number.
    calls: BTreeMap<u64, oneshot::Receiver<Delivery>>,
    calls_made: u64,
}

impl World {
    fn new(config: NamespaceConfig) -> World {
        World {
            namespace: Namespace::new(NamespaceId(1), config),
            hasher: Hasher::new(1),
            shard: Shard::default(),
            calls: BTreeMap::new(),
            calls_made: 0,
        }
    }

    fn hash(&self, key: Key<'_>) -> u64 {
        self.hasher.key(self.namespace.id, key)
    }

    /// The last number of a key, as `Memory::current` says it.
    fn last_of(&self, key: Key<'_>) -> Option<u64> {
        let held = self.shard.holding(self.hash(key), &self.namespace, key);
        held.map(|held| held.last)
    }

    fn take(&mut self, key: Key<'_>, count: u64) -> (TakeAnswer, Option<SectionPlace>) {
        let hash = self.hash(key);
        loop {
            if let Some(taken) = self.shard.take(hash, &self.namespace, key, count) {
                return taken;
            }
            self.shard.insert(&self.hasher, hash, &self.namespace, key);
        }
    }

    fn take_and_tell(&mut self, key: Key<'_>, count: u64) -> String {
        let (answer, bump) = self.take(key, count);
        let told = match answer {
            TakeAnswer::Done(taken) => show_taken(taken),
            TakeAnswer::Later(later) => {
                self.calls_made += 1;
                self.calls.insert(self.calls_made, later);
                format!("call {} waits", self.calls_made)
            }
        };
        match bump {
            None => told,
            Some(place) => {
                assert_eq!(place, self.place(key));
                told + ", bump"
            }
        }
    }

    /// The place of a key's section. The key is added if no key of the section is known.
    fn place(&mut self, key: Key<'_>) -> SectionPlace {
        let at = match key {
            Key::Id(_) if self.namespace.config.shares_sections() => SectionPlace::Shared,
            Key::Id(_) => SectionPlace::Id,
            Key::Name(_) => SectionPlace::Name,
        };
        let section = self.namespace.section_of(key);
        let known = (0..)
            .map(at)
            .map_while(|place| Some((place, self.shard.section_id(place)?)))
            .find(|(_, id)| *id == section);
        known.map_or_else(
            || {
                let hash = self.hash(key);
                let inserted = self.shard.insert(&self.hasher, hash, &self.namespace, key);
                inserted.0
            },
            |(place, _)| place,
        )
    }

    fn propose(&mut self, key: Key<'_>) -> String {
        let place = self.place(key);
        match self.shard.next_bump(place, &self.namespace) {
            Some(size) => format!("bump {}, at most {} unused", size.numbers, size.unused_max),
            None => "nobody wants it".into(),
        }
    }

    fn add_chunk(&mut self, key: Key<'_>, old: u64, new: u64) -> String {
        let place = self.place(key);
        let chunk = Chunk { old, new };
        let config = &self.namespace.config;
        let (now, bump_time) = (Instant::from_nanos(1), Duration::ZERO);
        // All chunks come at the same moment, so that steps with bounds of their own would grow.
        let change = self.shard.add_chunk(place, chunk, config, now, bump_time);
        assert!(change.is_none());
        self.serve(place)
    }

    /// Serves the calls that wait, and tells what each of them got.
    fn serve(&mut self, place: SectionPlace) -> String {
        let mut served = Vec::new();
        let again = self.shard.serve(&self.hasher, place, &self.namespace, &mut served);
        let counts = Metrics::new().namespaces().others().shared();
        served.into_iter().for_each(|one| one.tell(&counts));
        let mut told = Vec::new();
        self.calls.retain(|call, later| match later.try_recv() {
            Ok(delivery) => {
                told.push(format!("call {call}: {}", show_taken(delivery.accept())));
                false
            }
            Err(_) => true,
        });
        if again {
            told.push("bump again".into());
        }
        told.join(", ")
    }

    fn close(&mut self) -> String {
        let progression = self.namespace.config.progression();
        show_used(self.shard.close(|_| Some(progression)))
    }

    fn run(&mut self, words: &[&str]) -> String {
        match words {
            ["namespace", fields @ ..] if fields.first() != Some(&"of") => {
                let mut config = NamespaceConfig::new("book");
                set(&mut config, fields);
                *self = World::new(config);
                String::new()
            }
            ["change", fields @ ..] => {
                set(&mut self.namespace.config, fields);
                String::new()
            }
            ["go", "to", "namespace", id] => {
                self.namespace.id = NamespaceId(number(id) as u32);
                String::new()
            }
            ["take", key, count] => self.take_and_tell(parse_key(key), number(count)),
            ["hang", "up", call] => {
                let later = self.calls.remove(&number(call));
                drop(later.expect("the call waits"));
                String::new()
            }
            ["propose", key] => self.propose(parse_key(key)),
            ["chunk", key, old, new] => self.add_chunk(parse_key(key), number(old), number(new)),
            ["exhaust", key, max] => {
                let place = self.place(parse_key(key));
                let (max, config) = (number(max), &self.namespace.config);
                self.shard.with_section(place, config, |queued| queued.section.exhaust(max));
                self.serve(place)
            }
            ["keys-max", key, keys_max] => {
                let place = self.place(parse_key(key));
                let (keys_max, config) = (number(keys_max), &self.namespace.config);
                let note = |queued: &mut QueuedSection| queued.section.exceed_keys_max(keys_max);
                self.shard.with_section(place, config, note);
                self.serve(place)
            }
            ["namespace", "of", key, "is", "gone"] => {
                let place = self.place(parse_key(key));
                self.shard.with_waiters(place, QueuedSection::drop_waiters);
                let mut dropped = Vec::new();
                self.calls.retain(|call, later| match later.try_recv() {
                    Err(TryRecvError::Closed) => {
                        dropped.push(format!("call {call} is dropped"));
                        false
                    }
                    _ => true,
                });
                dropped.join(", ")
            }
            ["current", key] => format!("{:?}", self.last_of(parse_key(key))),
            ["close"] => self.close(),
            ["close", "without", "namespaces"] => show_used(self.shard.close(|_| None)),
            other => panic!("unknown command {other:?}"),
        }
    }
}

fn step_100() -> NamespaceConfig {
    NamespaceConfig { step: 100, ..NamespaceConfig::new("book") }
}

/// Digits are an id, anything else is a name.
fn parse_key(word: &str) -> Key<'_> {
    word.parse().map_or(Key::Name(word.as_bytes()), Key::Id)
}

fn show_taken(taken: Result<Range, Why>) -> String {
    match taken {
        Ok(range) => show(range),
        Err(Why::Exhausted { left }) => format!("exhausted, {left} left"),
        Err(Why::OverKeysMax { keys_max }) => format!("beyond a keys_max of {keys_max}"),
        Err(other) => other.to_string(),
    }
}

fn show_used(mut used: Vec<(bool, SectionUse)>) -> String {
    used.sort_by(|(_, a), (_, b)| a.section.cmp(&b.section));
    let told = used.into_iter().map(|(is_used_up, SectionUse { section, used, skipped })| {
        let section = match section.key {
            SectionKey::Id(id) => id.to_string(),
            SectionKey::Name(name) => name.escape_ascii().to_string(),
        };
        let left = if is_used_up { "none" } else { "some" };
        format!("section {section} used {used}, skipped {skipped}, {left} left")
    });
    match told.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "nothing".into(),
        told => told,
    }
}

fn transcript(expected: Expect) {
    let mut world = World::new(NamespaceConfig::new("book"));
    check(expected, |words| world.run(words));
}

#[test]
fn the_first_touch_bumps_once_and_calls_that_come_meanwhile_wait_for_the_same_bump() {
    transcript(expect![[r#"
        namespace step=100
        take 7 1 -> call 1 waits, bump
        take 7 250 -> call 2 waits
        # Enough for both.
        propose 7 -> bump 251, at most 251 unused
        current 7 -> None
        hang up 1
        # For the one that still waits.
        propose 7 -> bump 250, at most 250 unused
        chunk 7 1000 1250 -> call 2: 1001..1250, bump again
        current 7 -> Some(1250)
        take 7 1 -> call 3 waits
    "#]]);
}

#[test]
fn a_bump_that_nobody_waits_for_any_more_is_not_made_and_the_next_call_asks_again() {
    transcript(expect![[r#"
        namespace step=100
        take 7 1000000 -> call 1 waits, bump
        hang up 1
        propose 7 -> nobody wants it
        propose 7 -> nobody wants it
        take 7 1 -> call 2 waits, bump
    "#]]);
}

#[test]
fn a_call_that_is_gone_takes_nothing() {
    transcript(expect![[r#"
        namespace step=100
        take 7 60 -> call 1 waits, bump
        hang up 1
        take 7 5 -> call 2 waits
        chunk 7 0 100 -> call 2: 1..5
    "#]]);
}

#[test]
fn a_call_stands_behind_those_that_wait_although_enough_is_left_for_it() {
    transcript(expect![[r#"
        namespace step=100
        chunk 7 0 100
        take 7 200 -> call 1 waits, bump
        take 7 1 -> call 2 waits
        propose 7 -> bump 101, at most 201 unused
    "#]]);
}

#[test]
fn calls_that_wait_are_served_in_the_order_of_their_arrival_and_small_ones_do_not_overtake() {
    transcript(expect![[r#"
        namespace step=100
        chunk 7 0 100
        take 7 1000 -> call 1 waits, bump
        take 7 1 -> call 2 waits
        take 7 1 -> call 3 waits
        take 7 1 -> call 4 waits
        # Enough for all of them: 1003, of which 100 are left.
        propose 7 -> bump 903, at most 1003 unused
        # Nothing is left for the next call, so that a further bump is needed.
        chunk 7 100 1003 -> call 1: 1..1000, call 2: 1001..1001, call 3: 1002..1002, call 4: 1003..1003, bump again
    "#]]);
}

#[test]
fn a_call_that_came_while_the_bump_was_under_way_is_not_overtaken_either() {
    transcript(expect![[r#"
        namespace step=100
        take 7 1 -> call 1 waits, bump
        propose 7 -> bump 100, at most 100 unused
        take 7 500 -> call 2 waits
        chunk 7 0 100 -> call 1: 1..1, bump again
        # 99 are left, and the large call comes first.
        take 7 1 -> call 3 waits
        propose 7 -> bump 402, at most 501 unused
        chunk 7 100 502 -> call 2: 2..501, call 3: 502..502, bump again
    "#]]);
}

#[test]
fn a_refill_is_asked_for_once_and_fills_up_to_one_step() {
    transcript(expect![[r#"
        namespace step=160
        chunk 7 0 160
        take 7 150 -> 1..150
        take 7 1 -> 151..151, bump
        # Asked for already.
        take 7 1 -> 152..152
        # With the 9 that were left when it was asked for: one step.
        propose 7 -> bump 151, at most 160 unused
        chunk 7 160 311
        # Across the seam.
        take 7 20 -> 153..172
        # Nobody waits, and enough is left.
        propose 7 -> nobody wants it
    "#]]);
}

#[test]
fn a_wish_made_while_a_bump_is_under_way_does_not_swell_the_next_bump() {
    transcript(expect![[r#"
        namespace step=160
        chunk 7 0 160
        take 7 155 -> 1..155, bump
        propose 7 -> bump 155, at most 160 unused
        take 7 4 -> 156..159
        chunk 7 160 315
        take 7 155 -> 160..314, bump
        # With the one that is left: one step.
        propose 7 -> bump 159, at most 160 unused
        # Another key of the section asks it while the bump is under way.
        namespace step=160 section_size=100
        chunk 7 0 160
        take 7 155 -> 1..155, bump
        propose 7 -> bump 155, at most 160 unused
        take 8 159 -> 1..159
        chunk 7 160 315
        take 7 150 -> 156..305
        take 7 5 -> 306..310, bump
        # 155, not the 159 of key 8.
        propose 7 -> bump 155, at most 160 unused
    "#]]);
}

#[test]
fn several_wishes_before_a_bump_is_proposed_become_the_largest() {
    transcript(expect![[r#"
        namespace step=160
        chunk 7 0 160
        take 7 151 -> 1..151, bump
        take 7 4 -> 152..155
        take 7 200 -> call 1 waits
        propose 7 -> bump 195, at most 200 unused
    "#]]);
}

#[test]
fn a_step_whose_bounds_were_changed_holds_for_the_next_call_that_waits() {
    transcript(expect![[r#"
        namespace step=100
        take 7 1 -> call 1 waits, bump
        change step=300
        propose 7 -> bump 300, at most 300 unused
    "#]]);
}

#[test]
fn calls_for_one_key_use_up_the_same_numbers_and_keys_that_share_a_section_do_not() {
    transcript(expect![[r#"
        namespace step=100 section_size=1
        take 7 30 -> call 1 waits, bump
        take 7 250 -> call 2 waits
        take 7 40 -> call 3 waits
        propose 7 -> bump 320, at most 320 unused
        namespace step=100 section_size=100000
        take 7 30 -> call 1 waits, bump
        take 8 250 -> call 2 waits
        take 9 40 -> call 3 waits
        propose 7 -> bump 250, at most 250 unused
    "#]]);
}

#[test]
fn calls_that_wait_at_the_end_of_the_numbers_get_what_is_left_in_their_order() {
    transcript(expect![[r#"
        namespace step=100 max=3
        take 7 1 -> call 1 waits, bump
        take 7 1 -> call 2 waits
        take 7 1 -> call 3 waits
        take 7 1 -> call 4 waits
        take 7 1 -> call 5 waits
        propose 7 -> bump 100, at most 100 unused
        # Two go on waiting.
        chunk 7 0 3 -> call 1: 1..1, call 2: 2..2, call 3: 3..3, bump again
        exhaust 7 3 -> call 4: exhausted, 0 left, call 5: exhausted, 0 left
    "#]]);
}

#[test]
fn a_key_beyond_keys_max_is_told_so_and_asks_again_once_it_is_another() {
    transcript(expect![[r#"
        namespace step=100 keys_max=2
        take 7 1 -> call 1 waits, bump
        take 7 5 -> call 2 waits
        propose 7 -> bump 100, at most 100 unused
        keys-max 7 2 -> call 1: beyond a keys_max of 2, call 2: beyond a keys_max of 2
        take 7 1 -> beyond a keys_max of 2
        current 7 -> None
        change keys_max=3
        take 7 1 -> call 3 waits, bump
        # It was raised while the bump was under way.
        keys-max 7 2 -> bump again
        chunk 7 0 100 -> call 3: 1..1
        take 7 1 -> 2..2
        change keys_max=1
        take 7 1 -> 3..3
    "#]]);
    transcript(expect![[r#"
        namespace step=100 keys_max=10 section_size=10
        take 7 1 -> call 1 waits, bump
        take 8 1 -> call 2 waits
        keys-max 7 10 -> call 1: beyond a keys_max of 10, call 2: beyond a keys_max of 10
        take 9 1 -> beyond a keys_max of 10
        change keys_max=0
        take 9 1 -> call 3 waits, bump
        chunk 7 0 100 -> call 3: 1..1
    "#]]);
}

#[test]
fn calls_that_wait_for_a_section_whose_namespace_is_gone_are_dropped_and_later_ones_ask_anew() {
    transcript(expect![[r#"
        namespace step=100
        take 7 1 -> call 1 waits, bump
        take 8 1 -> call 2 waits, bump
        namespace of 7 is gone -> call 1 is dropped
        propose 7 -> nobody wants it
        take 7 1 -> call 3 waits, bump
        namespace of 7 is gone -> call 3 is dropped
        chunk 8 0 100 -> call 2: 1..1
        take 8 100 -> call 4 waits, bump
        namespace of 8 is gone -> call 4 is dropped
        take 8 1 -> 2..2
    "#]]);
}

#[test]
fn a_max_that_was_raised_while_a_call_waited_at_the_old_one_serves_it() {
    transcript(expect![[r#"
        namespace step=100 max=50
        chunk 7 0 50
        take 7 50 -> 1..50, bump
        take 7 1 -> call 1 waits
        # The bump was decided under 50; the maximum is raised before its answer is there.
        change max=1000
        exhaust 7 50 -> bump again
        propose 7 -> bump 100, at most 100 unused
        chunk 7 50 150 -> call 1: 51..51
        take 7 1 -> 52..52
    "#]]);
}

#[test]
fn a_max_that_was_lowered_while_a_call_waited_is_told_without_a_further_bump() {
    transcript(expect![[r#"
        namespace step=100
        chunk 7 0 100
        take 7 100 -> 1..100, bump
        take 7 1 -> call 1 waits
        change max=60
        exhaust 7 60 -> call 1: exhausted, 0 left
    "#]]);
}

#[test]
fn keys_of_a_shared_section_stand_at_the_floor_and_grow_apart() {
    transcript(expect![[r#"
        namespace section_size=100
        chunk 1 500 550
        take 1 10 -> 501..510, bump
        take 2 2 -> 501..502
        current 3 -> Some(500)
        # Another section.
        current 100 -> None
        close -> section 0 used 510, skipped 8, some left
    "#]]);
}

#[test]
fn a_chunk_that_is_not_adjacent_raises_every_key_of_its_section_and_of_no_other() {
    transcript(expect![[r#"
        namespace section_size=100
        chunk 1 0 10
        chunk 100 0 10
        take 1 2 -> 1..2, bump
        take 2 1 -> 1..1
        take 100 1 -> 1..1, bump
        chunk 3 20 30
        take 1 1 -> 21..21, bump
        take 2 1 -> 21..21
        take 100 1 -> 2..2
    "#]]);
}

#[test]
fn what_was_used_above_a_max_that_was_lowered_is_not_forgotten() {
    transcript(expect![[r#"
        chunk 7 50 100
        take 7 10 -> 51..60, bump
        change max=40
        current 7 -> Some(60)
        close -> section 7 used 60, skipped 0, some left
    "#]]);
}

#[test]
fn closing_tells_what_was_used_of_every_section_that_got_a_chunk() {
    transcript(expect![[r#"
        take 7 1 -> call 1 waits, bump
        close -> nothing
        # Used up.
        chunk 7 0 10
        take 7 10 -> 1..10, bump
        close -> section 7 used 10, skipped 0, none left
        # Not used.
        chunk 7 0 10
        close -> section 7 used 0, skipped 0, some left
        # Several, one of them without a chunk.
        chunk 7 0 10
        chunk 8 20 30
        take 8 3 -> 21..23, bump
        take 9 1 -> call 2 waits, bump
        close -> section 7 used 0, skipped 0, some left, section 8 used 23, skipped 0, some left
        close -> nothing
    "#]]);
}

#[test]
fn closing_counts_what_each_key_of_a_shared_section_skips() {
    transcript(expect![[r#"
        namespace section_size=100 increment=10 start=5
        chunk 1 1000 2005
        take 1 3 -> 1005..1025, bump
        take 2 1 -> 1005..1005
        take 3 5 -> 1005..1045
        # Known, and nothing taken.
        take 4 1000 -> call 1 waits
        close -> section 0 used 1045, skipped 11, some left
    "#]]);
}

#[test]
fn what_was_used_in_a_namespace_that_is_not_known_is_not_told() {
    transcript(expect![[r#"
        chunk 7 0 10
        take 7 2 -> 1..2, bump
        close without namespaces -> nothing
    "#]]);
}

#[test]
fn names_and_ids_of_one_namespace_and_the_same_key_of_two_stay_apart() {
    transcript(expect![[r#"
        chunk seven 0 100
        take seven 3 -> 1..3, bump
        take 7 1 -> call 1 waits, bump
        go to namespace 2
        take seven 1 -> call 2 waits, bump
        take 7 1 -> call 3 waits, bump
        go to namespace 1
        take seven 1 -> 4..4
    "#]]);
    // A name with the bytes of an id.
    let mut world = World::new(step_100());
    let bytes = 7u64.to_le_bytes();
    world.add_chunk(Key::Name(&bytes), 0, 100);
    assert_eq!(world.take_and_tell(Key::Name(&bytes), 3), "1..3");
    assert_eq!(world.take_and_tell(Key::Id(7), 1), "call 1 waits, bump");
    world.namespace.id = NamespaceId(2);
    let told = world.take_and_tell(Key::Name(&bytes), 1);
    assert_eq!(told, "call 2 waits, bump");
}

#[test]
fn many_keys_stay_apart_while_the_tables_grow() {
    let mut world = World::new(step_100());
    for id in 0..5_000 {
        world.add_chunk(Key::Id(id), id, id + 100);
    }
    for id in 0..5_000 {
        let first = id + 1;
        let told = world.take_and_tell(Key::Id(id), 1);
        assert_eq!(told, format!("{first}..{first}"));
    }
}

#[test]
fn the_footprint_is_known_without_a_look_at_the_keys() {
    let mut world = World::new(NamespaceConfig::new("book"));
    assert_eq!(world.shard.footprint().keys, 0);
    for id in 0..1_000 {
        let _ = world.take(Key::Id(id), 1);
    }
    let ids = world.shard.footprint();
    assert_eq!((ids.keys, ids.sections), (1_000, 1_000));
    // Each of the keys has a slot of 40 bytes, and waits.
    assert!((40_000..400_000).contains(&ids.bytes), "{ids:?}");
    let name = [b'n'; 256];
    let _ = world.take(Key::Name(&name), 1);
    let all = world.shard.footprint();
    assert_eq!((all.keys, all.sections), (1_001, 1_001));
    assert!(all.bytes >= ids.bytes + name.len(), "{ids:?} {all:?}");
    let _ = world.close();
    let none = world.shard.footprint();
    assert!(none.keys == 0 && none.bytes < 1_000, "{none:?}");
}

#[test]
fn keys_that_share_a_section_are_counted_beside_it() {
    let mut world =
        World::new(NamespaceConfig { section_size: 100, ..NamespaceConfig::new("book") });
    for id in 0..250 {
        let _ = world.take(Key::Id(id), 1);
    }
    let footprint = world.shard.footprint();
    assert_eq!((footprint.keys, footprint.sections), (250, 3));
}
