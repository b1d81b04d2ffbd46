//! Floors of whole shared sections.

use super::*;
use crate::{
    allocator::{
        floor::Raised, key_table::changed_slots::Tracking, outcome::Why,
        section::answers::RaisedLater, shard::own_keys::eviction::Swept,
    },
    sequence::SectionRecord,
};

fn world(section_size: u64) -> World {
    World::new(NamespaceConfig { section_size, step: 1_000, ..NamespaceConfig::new("uid") })
}

impl World {
    /// Raises the floor of the section of an id, as the memory does.
    fn raise_section(&mut self, id: u64, at_least: u64) -> (RaiseAnswer, Option<SectionPlace>) {
        let hash = self.hash(Key::Id(id));
        loop {
            let (hasher, namespace) = (&self.hasher, &self.namespace);
            let raised = (self.shard).raise_section(hasher, hash, namespace, id, at_least);
            match raised {
                Some(raised) => return raised,
                None => drop(self.shard.insert_section(namespace, id)),
            }
        }
    }

    /// The floor in force, whether it was lower before, and how many numbers were passed over.
    fn raise_now(&mut self, id: u64, at_least: u64) -> (u64, bool, u64) {
        match self.raise_section(id, at_least) {
            (RaiseAnswer::Done(Ok(raised)), None) => shown(raised),
            other => panic!("{other:?}"),
        }
    }

    fn raise_later(&mut self, id: u64, at_least: u64) -> RaisedLater {
        match self.raise_section(id, at_least) {
            (RaiseAnswer::Later(later), _) => later,
            other @ (RaiseAnswer::Done(_), _) => panic!("{other:?}"),
        }
    }

    fn current_of(&self, id: u64) -> Option<u64> {
        self.last_of(Key::Id(id))
    }
}

fn shown(raised: Raised) -> (u64, bool, u64) {
    (raised.floor, raised.is_higher, raised.passed)
}

#[test]
fn a_raised_section_has_no_key_at_or_below_its_floor_not_even_one_on_its_fast_path() {
    let mut world = world(100);
    world.add_chunk(Key::Id(1), 0, 1_000);
    world.add_chunk(Key::Id(100), 0, 1_000);
    assert_eq!(world.take_and_tell(Key::Id(1), 10), "1..10");
    assert_eq!(world.take_and_tell(Key::Id(2), 1), "1..1");
    assert_eq!(world.take_and_tell(Key::Id(3), 600), "1..600");
    assert_eq!(world.take_and_tell(Key::Id(100), 1), "1..1");
    let keys = world.shard.footprint().keys;
    assert_eq!(world.raise_now(50, 500), (500, true, 500));
    assert_eq!(world.shard.footprint().keys, keys, "no key was added");
    for (id, current) in [(1, 500), (2, 500), (3, 600), (50, 500), (99, 500), (100, 1)] {
        assert_eq!(world.current_of(id), Some(current), "{id}");
    }
    assert_eq!(world.raise_now(50, 500), (500, false, 0));
    assert_eq!(world.raise_now(7, 499), (500, false, 0), "never down");
    for (id, next) in [(1, 501), (2, 501), (3, 601), (50, 501), (99, 501), (100, 2)] {
        let told = world.take_and_tell(Key::Id(id), 1);
        assert_eq!(told, format!("{next}..{next}"), "{id}");
    }
}

/// Their keys are looked up, in place of a walk over all slots.
#[test]
fn small_sections_of_a_large_shard_are_raised_and_no_other_key_is() {
    let mut world = world(5);
    for section in 0..200 {
        world.add_chunk(Key::Id(section * 5), 0, 1_000);
        for id in section * 5..section * 5 + 5 {
            assert_eq!(world.take_and_tell(Key::Id(id), 2), "1..2");
        }
    }
    for section in (0..200).step_by(3) {
        assert_eq!(world.raise_now(section * 5 + 4, 100), (100, true, 100));
    }
    for id in 0..1_000 {
        let next = if id / 5 % 3 == 0 { 101 } else { 3 };
        let told = world.take_and_tell(Key::Id(id), 1);
        assert_eq!(told, format!("{next}..{next}"), "{id}");
    }
}

#[test]
fn keys_in_pages_are_raised_with_their_section() {
    let mut world = world(100_000);
    world.add_chunk(Key::Id(0), 0, 1_000);
    for id in 0..1_000 {
        assert_eq!(world.take_and_tell(Key::Id(id), 3), "1..3");
    }
    assert_eq!(world.raise_now(99_999, 700), (700, true, 700));
    for id in (0..1_000).step_by(77).chain([50_000]) {
        assert_eq!(world.current_of(id), Some(700));
        assert_eq!(world.take_and_tell(Key::Id(id), 1), "701..701");
    }
}

#[test]
fn a_section_that_lacks_the_numbers_waits_for_a_bump_behind_the_calls_before() {
    let mut world = world(100);
    world.add_chunk(Key::Id(1), 0, 10);
    assert_eq!(world.take_and_tell(Key::Id(1), 8), "1..8, bump");
    assert_eq!(world.take_and_tell(Key::Id(1), 5), "call 1 waits");
    let mut later = world.raise_later(2, 5_000);
    assert_eq!(world.take_and_tell(Key::Id(2), 1), "call 2 waits");
    let place = world.place(Key::Id(1));
    let size = world.shard.next_bump(place, &world.namespace);
    let size = size.expect("a bump");
    assert_eq!(size.up_to, 5_000);
    let told = world.add_chunk(Key::Id(1), 10, 5_000);
    assert_eq!(told, "call 1: 9..13, bump again");
    let raised = later.try_recv().expect("an answer");
    assert_eq!(raised.map(shown), Ok((5_000, true, 5_000)));
    // The keys that were served before must ask.
    assert_eq!(world.take_and_tell(Key::Id(1), 1), "call 3 waits");
    assert_eq!(world.current_of(1), Some(5_000));
    let told = world.add_chunk(Key::Id(1), 5_000, 6_000);
    assert_eq!(told, "call 2: 5001..5001, call 3: 5001..5001");
}

#[test]
fn a_bump_for_the_floor_of_a_section_that_nobody_uses_leaves_next_to_nothing_unused() {
    let mut world = world(100);
    let mut later = world.raise_later(7, 5_000);
    let place = world.place(Key::Id(7));
    let size = world.shard.next_bump(place, &world.namespace);
    let size = size.expect("a bump");
    assert_eq!((size.numbers, size.unused_max, size.up_to), (0, 1, 5_000));
    world.add_chunk(Key::Id(7), 300, 5_000);
    let raised = later.try_recv().expect("an answer");
    assert_eq!(raised.map(shown), Ok((5_000, true, 4_700)));
    assert_eq!(world.shard.footprint().keys, 0);
    assert_eq!(world.close(), "section 0 used 5000, skipped 0, none left");
}

/// Otherwise its record would be that of no section once nothing of it was used, and the key would count again.
#[test]
fn a_bump_that_asks_where_a_new_key_stands_names_a_step() {
    let mut world = world(100);
    let _later = world.raise_later(7, 0);
    let place = world.place(Key::Id(7));
    let size = world.shard.next_bump(place, &world.namespace).expect("a bump");
    assert_eq!((size.numbers, size.up_to), (0, 0));
    assert_eq!(size.step, world.namespace.config.step);
    let (record, chunk) =
        SectionRecord::default().bump(world.namespace.config.progression(), 1, size).unwrap();
    assert_eq!((chunk.old, chunk.new), (0, 1));
    let trimmed = record.trim(world.namespace.config.progression(), 1, 0).expect("it is lowered");
    assert!(trimmed.exists());
}

#[test]
fn a_floor_that_the_ceiling_has_reached_says_nothing_of_what_stays_unused() {
    let mut world = world(100);
    world.add_chunk(Key::Id(1), 0, 10_000);
    assert_eq!(world.take_and_tell(Key::Id(1), 1_000), "1..1000");
    assert_eq!(world.take_and_tell(Key::Id(1), 9_500), "call 1 waits, bump");
    let mut later = world.raise_later(2, 1_001);
    // The call that lacked numbers has left.
    world.calls.clear();
    let place = world.place(Key::Id(1));
    let size = world.shard.next_bump(place, &world.namespace).expect("a bump");
    assert_eq!((size.numbers, size.unused_max, size.up_to), (0, u64::MAX, 1_001));
    world.add_chunk(Key::Id(1), 10_000, 10_001);
    assert_eq!(later.try_recv().expect("an answer").map(shown), Ok((1_001, true, 1_001)));
    assert_eq!(world.take_and_tell(Key::Id(1), 1), "1002..1002");
}

#[test]
fn no_bump_is_made_for_a_floor_above_a_max_that_was_lowered_meanwhile() {
    let mut world = world(100);
    world.add_chunk(Key::Id(1), 0, 1_000);
    let mut later = world.raise_later(2, 5_000);
    world.namespace.config.max = 4_999;
    let place = world.place(Key::Id(1));
    assert_eq!(world.shard.next_bump(place, &world.namespace), None);
    assert!(later.try_recv().is_err(), "it is asked for again, and refused then");
}

#[test]
fn a_term_that_closes_says_that_the_numbers_up_to_the_floor_were_used() {
    let mut world = world(100);
    world.add_chunk(Key::Id(1), 0, 1_000);
    assert_eq!(world.take_and_tell(Key::Id(1), 10), "1..10");
    assert_eq!(world.raise_now(2, 400), (400, true, 400));
    assert_eq!(world.take_and_tell(Key::Id(3), 5), "401..405");
    // Key 1 stands at the floor, as if it had taken what lies below.
    assert_eq!(world.close(), "section 0 used 405, skipped 5, some left");
}

#[test]
fn a_section_that_is_evicted_after_its_floor_was_raised_goes_on_above_it() {
    let mut world = world(100);
    world.add_chunk(Key::Id(1), 0, 1_000);
    assert_eq!(world.take_and_tell(Key::Id(1), 10), "1..10");
    assert_eq!(world.raise_now(2, 400), (400, true, 400));
    let mut swept = Swept::default();
    let progression = world.namespace.config.progression();
    let limits = (usize::MAX / 2, usize::MAX / 2);
    while swept.evicted.is_empty() {
        (world.shard).evict(&world.hasher, limits, |_| Some(progression), &mut swept);
    }
    assert_eq!((swept.evicted[0].used, swept.evicted[0].skipped), (400, 0));
    assert_eq!(world.current_of(77), Some(400), "while it is being evicted");
    let mut later = world.raise_later(2, 300);
    assert_eq!(world.shard.end_eviction(&swept.evicted[0].section), None);
    world.add_chunk(Key::Id(1), 400, 1_400);
    let raised = later.try_recv().expect("an answer");
    assert_eq!(raised.map(shown), Ok((400, false, 0)));
    assert_eq!(world.take_and_tell(Key::Id(1), 1), "401..401");
}

#[test]
fn a_floor_that_is_raised_while_changes_are_tracked_is_a_change() {
    let mut world = world(100);
    world.add_chunk(Key::Id(1), 0, 1_000);
    world.shard.begin_tracking(Tracking(1));
    let changes = |shard: &mut Shard| shard.shared.take_section_changes(10).len();
    assert_eq!(changes(&mut world.shard), 1);
    assert_eq!(changes(&mut world.shard), 0);
    world.shard.shared.rewind_changes();
    assert_eq!(world.raise_now(2, 400), (400, true, 400));
    assert_eq!(changes(&mut world.shard), 1);
}

/// The term that gets the memory has every key ask its section first.
#[test]
fn keys_that_must_ask_again_are_no_changes() {
    for (section_size, sections) in [(5, 200), (100_000, 1)] {
        let mut world = world(section_size);
        for section in 0..sections {
            world.add_chunk(Key::Id(section * section_size), 0, 1_000);
        }
        for id in (0..200).map(|id| id * 5) {
            assert_eq!(world.take_and_tell(Key::Id(id), 1), "1..1");
        }
        world.shard.begin_tracking(Tracking(1));
        let keys = |shard: &mut Shard| shard.shared.take_key_changes(1_000).len();
        let all = keys(&mut world.shard);
        world.shard.shared.rewind_changes();
        assert_eq!(world.raise_now(0, 400), (400, true, 400));
        assert_eq!((all, keys(&mut world.shard)), (200, 0), "{section_size}");
        assert_eq!(world.take_and_tell(Key::Id(0), 1), "401..401");
    }
}

#[test]
fn a_floor_above_max_or_of_a_section_beyond_keys_max_is_refused() {
    let mut world = world(100);
    world.namespace.config.max = 500;
    world.add_chunk(Key::Id(1), 0, 500);
    let raised = world.raise_section(1, 501).0;
    assert!(matches!(raised, RaiseAnswer::Done(Err(Why::AboveMax { max: 500 }))));
    assert_eq!(world.raise_now(1, 500), (500, true, 500));
    world.namespace.config.keys_max = Some(100);
    let mut later = world.raise_later(100, 7);
    let place = world.place(Key::Id(100));
    let config = world.namespace.config.clone();
    world.shard.with_section(place, &config, |queued| queued.section.exceed_keys_max(100));
    world.serve(place);
    let refused = Err(Why::OverKeysMax { keys_max: 100 });
    assert_eq!(later.try_recv().expect("an answer"), refused);
}
