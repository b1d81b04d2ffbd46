//! Keys of shared sections that lie close together, in pages.

use super::*;

fn world(section_size: u64) -> World {
    World::new(NamespaceConfig { section_size, step: 1_000, ..NamespaceConfig::new("book") })
}

impl World {
    /// Takes a number of each id of a section that has a chunk already.
    fn take_each(&mut self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            let (answer, _) = self.take(Key::Id(id), 1);
            assert!(matches!(answer, TakeAnswer::Done(Ok(_))), "{id}: {answer:?}");
        }
    }

    /// How many bytes are in use for each key.
    fn bytes_for_each_of(&self, keys: usize) -> f64 {
        let footprint = self.shard.footprint();
        assert_eq!(footprint.keys, keys);
        (footprint.bytes - footprint.vacant_bytes) as f64 / keys as f64
    }

    fn vacant_slots(&self) -> usize {
        self.shard.footprint().vacant_bytes / 32
    }

    fn current(&self, id: u64) -> Option<u64> {
        self.last_of(Key::Id(id))
    }
}

#[test]
fn a_key_of_a_dense_section_takes_some_eight_bytes_and_one_of_a_sparse_section_a_slot() {
    let mut dense = world(100_000);
    dense.add_chunk(Key::Id(0), 0, 1_000);
    dense.take_each(0..100_000);
    assert!(dense.bytes_for_each_of(100_000) < 8.8);
    let mut sparse = world(100_000);
    for id in (0..10_000_000).step_by(100_000) {
        sparse.add_chunk(Key::Id(id), 0, 1_000);
    }
    sparse.take_each((0..10_000_000).step_by(100));
    assert!((32.0..60.0).contains(&sparse.bytes_for_each_of(100_000)));
}

#[test]
fn a_page_takes_in_each_key_where_it_stood_and_keys_that_come_later() {
    let mut world = world(100_000);
    world.add_chunk(Key::Id(0), 5_000, 6_000);
    // Some take more than one, and one waits, before the page is made.
    world.take_each(0..60);
    world.take_each((0..60).step_by(7));
    assert_eq!(world.take_and_tell(Key::Id(9), 1_000), "call 1 waits, bump");
    for id in 60..300 {
        // Calls stand behind the one that waits.
        assert!(world.take_and_tell(Key::Id(id), 1).contains("waits"));
    }
    assert!(world.bytes_for_each_of(300) < 32.0, "a page, and hardly a slot");
    let propose = world.propose(Key::Id(0));
    assert_eq!(propose, "bump 1, at most 1001 unused");
    let told = world.add_chunk(Key::Id(0), 6_000, 7_001);
    assert!(told.starts_with("call 1: 5002..6001, call 2: 5001..5001, "), "{told}");
    for id in 0..300 {
        let last = match id {
            9 => 6_001,
            0..60 if id % 7 == 0 => 5_002,
            _ => 5_001,
        };
        assert_eq!(world.current(id), Some(last), "{id}");
        let told = world.take_and_tell(Key::Id(id), 1);
        assert_eq!(told.trim_end_matches(", bump"), format!("{0}..{0}", last + 1), "{id}");
    }
    // In the page's range, and not asked for.
    assert_eq!(world.current(300), Some(5_000));
    assert_eq!(world.take_and_tell(Key::Id(300), 2), "5001..5002");
    assert_eq!(world.shard.footprint().keys, 301);
    let skipped = 9 * 999 + 291 * 1_000;
    assert_eq!(world.close(), format!("section 0 used 6002, skipped {skipped}, some left"));
}

#[test]
fn a_chunk_that_is_not_adjacent_raises_the_keys_of_pages_too() {
    let mut world = world(100);
    world.add_chunk(Key::Id(0), 0, 1_000);
    world.take_each(0..100);
    world.add_chunk(Key::Id(0), 2_000, 3_000);
    assert_eq!(world.take_and_tell(Key::Id(50), 1), "2001..2001");
    assert_eq!(world.current(51), Some(2_000));
}

#[test]
fn a_page_ends_where_its_section_ends_and_where_the_ids_end() {
    // 70 ids of each section are enough for a page; the next section begins within its room.
    let mut world = world(70);
    world.add_chunk(Key::Id(0), 0, 1_000);
    world.add_chunk(Key::Id(70), 100, 1_100);
    world.take_each(0..140);
    world.take_each(0..140);
    for id in 0..140 {
        let last = if id < 70 { 2 } else { 102 };
        assert_eq!(world.current(id), Some(last), "{id}");
    }
    assert!(world.vacant_slots() > 60);
    let ends = u64::MAX - u64::MAX % 70;
    world.add_chunk(Key::Id(u64::MAX), 0, 1_000);
    world.take_each(ends..=u64::MAX);
    assert_eq!(world.current(u64::MAX), Some(1));
}

#[test]
fn keys_stay_in_slots_while_changes_are_tracked_and_go_into_pages_afterwards() {
    let mut world = world(1_000);
    world.add_chunk(Key::Id(0), 0, 1_000);
    world.shard.begin_tracking(Tracking(1));
    world.take_each(0..500);
    assert_eq!(world.vacant_slots(), 0);
    world.shard.end_tracking(Tracking(1));
    world.take_each(500..1_000);
    // Those of the first 256 ids stay where they are.
    assert!(world.vacant_slots() > 200);
    for id in 0..1_000 {
        assert_eq!(world.current(id), Some(1));
    }
}

#[test]
fn keys_that_are_asked_for_in_any_order_leave_no_slots_behind() {
    let mut world = world(100_000);
    world.add_chunk(Key::Id(0), 0, 1_000);
    // 7 919 is prime, so that each id comes once.
    world.take_each((0..100_000).map(|place| place * 7_919 % 100_000));
    assert!(world.bytes_for_each_of(100_000) < 11.0);
    world.take_each(0..100_000);
    for id in 0..100_000 {
        assert_eq!(world.current(id), Some(2));
    }
}
