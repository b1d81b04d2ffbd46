//! Shared sections that are evicted.

use super::*;
use crate::{allocator::shard::own_keys::eviction::Swept, sequence::SectionUse};

fn world() -> World {
    let mut world = World::new(NamespaceConfig {
        section_size: 100,
        step: 1_000,
        ..NamespaceConfig::new("uid")
    });
    // A section whose ids lie close together, and one with ids far apart.
    world.add_chunk(Key::Id(0), 0, 1_000);
    world.add_chunk(Key::Id(100), 5_000, 6_000);
    for id in (0..100).chain((100..200).step_by(10)) {
        assert!(world.take_and_tell(Key::Id(id), 1).contains(".."));
    }
    world
}

impl World {
    /// Moves the hand once around. Returns what was released, and how many keys went.
    fn evict(&mut self) -> (Vec<SectionUse>, usize) {
        let mut swept = Swept::default();
        while !self.move_hand(usize::MAX / 2, &mut swept) {}
        (swept.evicted, swept.keys)
    }

    fn move_hand(&mut self, slots: usize, swept: &mut Swept) -> bool {
        let progression = self.namespace.config.progression();
        let limits = (slots, usize::MAX / 2);
        (self.shard).evict(&self.hasher, limits, |_| Some(progression), swept)
    }

    fn released(&mut self, released: &[SectionUse]) {
        for SectionUse { section, .. } in released {
            assert_eq!(self.shard.end_eviction(section), None);
        }
    }

    fn counts(&self) -> (usize, usize) {
        let footprint = self.shard.footprint();
        (footprint.keys, footprint.sections)
    }
}

fn section_use(world: &World, key: u64, used: u64, skipped: u64) -> SectionUse {
    let section = world.namespace.section_of(Key::Id(key));
    SectionUse { section, used, skipped }
}

#[test]
fn sections_that_nobody_asked_for_go_with_all_their_keys_and_their_numbers_are_given_again() {
    let mut world = world();
    assert_eq!(world.take_and_tell(Key::Id(7), 10), "2..11");
    assert_eq!(world.take_and_tell(Key::Id(110), 5), "5002..5006");
    // The first round clears the reference bits.
    assert_eq!(world.evict(), (vec![], 0));
    assert_eq!(world.counts(), (110, 2));
    let gone = vec![section_use(&world, 0, 11, 99 * 10), section_use(&world, 100, 5_006, 9 * 5)];
    assert_eq!(world.evict(), (gone.clone(), 110));
    assert_eq!(world.counts(), (0, 2));
    for (id, used) in [(8, 11), (150, 5_006), (151, 5_006)] {
        assert_eq!(world.last_of(Key::Id(id)), Some(used), "while it is being evicted");
    }
    world.released(&gone);
    assert_eq!(world.evict(), (vec![], 0));
    assert_eq!(world.counts(), (0, 0));
    // Other sections.
    world.add_chunk(Key::Id(200), 0, 1_000);
    world.add_chunk(Key::Id(300), 0, 1_000);
    assert!(
        world.place(Key::Id(200)) == SectionPlace::Shared(0)
            || world.place(Key::Id(300)) == SectionPlace::Shared(0)
    );
    assert_eq!(world.take_and_tell(Key::Id(200), 1), "1..1");
    assert_eq!(world.take_and_tell(Key::Id(8), 1), "call 1 waits, bump");
    assert_eq!(world.add_chunk(Key::Id(8), 11, 1_011), "call 1: 12..12");
}

#[test]
fn a_section_of_which_any_key_was_asked_for_stays_with_all_its_keys() {
    let mut world = world();
    for round in 0..5 {
        // A key of a slot does not ask its section.
        assert!(world.take_and_tell(Key::Id(110), 1).contains(".."));
        assert!(world.take_and_tell(Key::Id(7), 1).contains(".."));
        assert_eq!(world.evict(), (vec![], 0), "{round}");
    }
    assert_eq!(world.counts(), (110, 2));
}

#[test]
fn a_section_that_waits_for_a_bump_stays_and_so_do_all_while_changes_are_tracked() {
    let mut world = world();
    assert_eq!(world.take_and_tell(Key::Id(7), 2_000), "call 1 waits, bump");
    assert_eq!(world.take_and_tell(Key::Id(110), 990), "5002..5991, bump");
    for _ in 0..3 {
        assert_eq!(world.evict(), (vec![], 0));
        assert!(world.propose(Key::Id(7)).starts_with("bump "));
    }
    world.add_chunk(Key::Id(7), 1_000, 3_000);
    world.add_chunk(Key::Id(110), 6_000, 7_000);
    world.shard.begin_tracking(Tracking(1));
    for _ in 0..3 {
        assert_eq!(world.evict(), (vec![], 0));
    }
    assert_eq!(world.counts(), (110, 2));
    world.shard.end_tracking(Tracking(1));
    assert_eq!(world.evict().1, 110);
}

#[test]
fn a_key_whose_slot_is_still_there_takes_nothing_of_what_its_section_had() {
    let mut world = world();
    world.evict();
    let mut swept = Swept::default();
    // The sections are gone, and one slot is.
    while swept.keys < 101 {
        world.move_hand(1, &mut swept);
    }
    assert_eq!(world.counts(), (9, 2));
    world.released(&swept.evicted);
    for id in (110..200).step_by(10) {
        let told = world.take_and_tell(Key::Id(id), 1);
        assert!(told.contains("waits"), "{id}: {told}");
    }
    // It is asked for again: the rest of its slots stays.
    assert_eq!(world.evict(), (vec![], 0));
    let told = world.add_chunk(Key::Id(110), 5_001, 6_001);
    assert!(told.starts_with("call 1: 5002..5002, call 2: 5002..5002"));
    assert_eq!(world.take_and_tell(Key::Id(190), 1), "5003..5003");
}

#[test]
fn a_place_that_is_to_be_checkpointed_is_forgotten_with_its_section() {
    let mut world = world();
    let [_, stays] = [0, 100].map(|key| {
        let place = world.place(Key::Id(key));
        world.shard.note_uncheckpointed(place);
        place
    });
    assert_eq!(world.take_and_tell(Key::Id(110), 1), "5002..5002");
    world.evict();
    assert_eq!(world.take_and_tell(Key::Id(110), 1), "5003..5003");
    let gone = vec![section_use(&world, 0, 1, 0)];
    assert_eq!(world.evict(), (gone, 100));
    let uncheckpointed = world.shard.take_uncheckpointed(9);
    assert_eq!(uncheckpointed, [(world.namespace.section_of(Key::Id(110)), stays)]);
}

#[test]
fn sections_of_a_namespace_that_is_gone_are_evicted_without_a_word() {
    let mut world = world();
    for _ in 0..2 {
        let mut swept = Swept::default();
        let limits = (usize::MAX / 2, usize::MAX / 2);
        while !(world.shard).evict(&world.hasher, limits, |_| None, &mut swept) {}
        assert_eq!(swept.evicted, []);
    }
    assert_eq!(world.counts().0, 0);
}
