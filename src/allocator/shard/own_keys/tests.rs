//! Which sections are expanded, and for how long.

use super::*;
use crate::allocator::tests::transcript::set;

struct World {
    namespace: Namespace,
    keys: OwnKeys<u64>,
    hasher: Hasher,
}

impl World {
    fn new(fields: &str) -> World {
        let mut config = NamespaceConfig::new("book");
        set(&mut config, &fields.split_whitespace().collect::<Vec<_>>());
        World {
            namespace: Namespace::new(NamespaceId(1), config),
            keys: OwnKeys::default(),
            hasher: Hasher::new(1),
        }
    }

    fn take(&mut self, id: u64, count: u64) -> TakeAnswer {
        let hash = self.hasher.key(self.namespace.id, Key::Id(id));
        if self.keys.holding(hash, &self.namespace, &id).is_none()
            && self.keys.table.find(hash, self.namespace.id, &id).is_none()
        {
            self.keys.insert(&self.hasher, hash, &self.namespace, &id);
        }
        let taken = self.keys.take(hash, &self.namespace, &id, count);
        taken.unwrap().0
    }

    fn add_chunk(&mut self, number: u32, old: u64, new: u64) -> usize {
        let chunk = Chunk { old, new };
        let config = &self.namespace.config;
        let (now, bump_time) = (Instant::from_nanos(1), Duration::ZERO);
        self.keys.add_chunk(number, chunk, config, now, bump_time);
        let mut served = Vec::new();
        self.keys.serve(&self.hasher, number, &self.namespace, &mut served);
        served.len()
    }

    fn expanded(&self) -> usize {
        self.keys.expanded.len()
    }
}

#[test]
fn a_section_is_expanded_while_a_bump_is_pending() {
    let mut world = World::new("step=100");
    let call = world.take(7, 1);
    assert!(matches!(call, TakeAnswer::Later(_)));
    assert_eq!(world.expanded(), 1);
    assert_eq!(world.add_chunk(0, 0, 100), 1);
    assert_eq!(world.expanded(), 0);
    assert!(matches!(world.take(7, 50), TakeAnswer::Done(Ok(_))));
    assert_eq!(world.expanded(), 0);
    // Below the margin: a bump is wanted.
    assert!(matches!(world.take(7, 45), TakeAnswer::Done(Ok(_))));
    assert_eq!(world.expanded(), 1);
    world.add_chunk(0, 100, 196);
    assert_eq!(world.expanded(), 0);
}

#[test]
fn an_exhausted_section_and_one_with_a_step_of_its_own_stay_expanded() {
    let mut world = World::new("step=100 step_max=1000");
    let _call = world.take(7, 1);
    world.add_chunk(0, 0, 100);
    assert_eq!(world.expanded(), 0);
    // The second chunk comes at the same moment as the first, so that the step doubles.
    world.add_chunk(0, 100, 200);
    assert_eq!(world.expanded(), 1);
    let mut world = World::new("step=100 max=50");
    let _call = world.take(7, 1);
    world.add_chunk(0, 0, 50);
    assert_eq!(world.expanded(), 0);
    let config = &world.namespace.config;
    world.keys.with_section(0, config, |queued| queued.section.exhaust(50));
    assert_eq!(world.expanded(), 1);
    world.namespace.config.max = 1_000;
    world.add_chunk(0, 50, 150);
    assert_eq!(world.expanded(), 0);
}

#[test]
fn a_chunk_may_be_added_to_a_section_that_was_not_bumped_and_while_its_bump_is_pending() {
    let mut world = World::new("step=100");
    let hash = world.hasher.key(NamespaceId(1), Key::Id(7));
    let (number, _) = world.keys.insert(&world.hasher, hash, &world.namespace, &7);
    assert_eq!(world.add_chunk(number, 500, 600), 0);
    let TakeAnswer::Done(Ok(range)) = world.take(7, 1) else {
        panic!("the chunk was added");
    };
    assert_eq!((range.first, world.expanded()), (501, 0));
    let call = world.take(8, 1);
    assert!(matches!(call, TakeAnswer::Later(_)));
    assert_eq!(world.add_chunk(1, 900, 1_000), 1);
    assert_eq!(world.expanded(), 0);
}

#[test]
fn the_memory_of_expanded_sections_is_freed() {
    let mut world = World::new("step=100");
    let idle = {
        let _call = world.take(0, 1);
        world.add_chunk(0, 0, 100);
        world.keys.expanded.allocation_size()
    };
    let calls: Vec<TakeAnswer> = (1..10_000).map(|id| world.take(id, 1)).collect();
    assert_eq!(world.expanded(), calls.len());
    let busy = world.keys.expanded.allocation_size();
    for number in 1..10_000 {
        assert_eq!(world.add_chunk(number, 0, 100), 1);
    }
    assert_eq!(world.expanded(), 0);
    let after = world.keys.expanded.allocation_size();
    assert!(after < busy / 20 && idle <= after, "{idle}, {busy}, {after}");
}
