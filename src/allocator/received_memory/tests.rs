//! A memory that was sent while it was in use goes on elsewhere where it stood here.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    allocator::{
        key_table::{changed_slots::Tracking, hasher::Hasher},
        memory_reader::read_part,
        part::SectionPlace,
        section::{
            answers::{RaiseAnswer, TakeAnswer},
            pending::ServedCall,
        },
        shard::{Shard, own_keys::eviction::Swept},
    },
    clock::Instant,
    sequence::{Chunk, Key, Namespace, NamespaceConfig, NamespaceId, SectionId, SectionUse},
};

/// The ceilings, as a state machine would have them, for memories of four namespaces.
#[derive(Clone)]
struct World {
    namespaces: [Namespace; 4],
    ceilings: BTreeMap<SectionId, u64>,
}

const OWN: usize = 0;
const NAMED: usize = 1;
const SHARED: usize = 2;
const DENSE: usize = 3;

impl World {
    fn new() -> World {
        let config = |name, section_size, increment| NamespaceConfig {
            step: 20,
            step_max: Some(80),
            increment,
            start: 3,
            section_size,
            ..NamespaceConfig::new(name)
        };
        let configs = [
            config("own", 1, 1),
            config("named", 1, 7),
            config("shared", 10, 2),
            config("dense", 300, 2),
        ];
        let mut ids = (1..).map(NamespaceId);
        World {
            namespaces: configs.map(|config| Namespace::new(ids.next().expect("ids"), config)),
            ceilings: BTreeMap::new(),
        }
    }

    /// Takes numbers of a key, and bumps its section as often as it asks. Returns the first number.
    fn take(&mut self, shards: &Shards, of: usize, key: Key<'_>, count: u64) -> u64 {
        let namespace = &self.namespaces[of];
        let (hash, number) = shards.find(namespace, key);
        let mut shard = shards.lock(number);
        let taken = shard.take(hash, namespace, key, count);
        let (answer, mut bump) = taken.unwrap_or_else(|| {
            shard.insert(shards.hasher(), hash, namespace, key);
            let taken = shard.take(hash, namespace, key, count);
            taken.expect("the key is there")
        });
        let mut served = Vec::new();
        while let Some(place) = bump {
            let again = bump_section(
                &mut self.ceilings,
                (shards.hasher(), &mut shard),
                place,
                namespace,
                &mut served,
            );
            bump = again.then_some(place);
        }
        match (answer, served.pop()) {
            (TakeAnswer::Done(taken), None) => taken.expect("numbers").first,
            (TakeAnswer::Later(_), Some(ServedCall::Numbers { taken, .. })) => {
                taken.expect("numbers").first
            }
            (answer, _) => panic!("{answer:?}"),
        }
    }

    /// Raises the floor of the section of an id by so much, and bumps the section as often as it asks.
    fn raise_section(&mut self, shards: &Shards, of: usize, id: u64, by: u64) {
        let namespace = &self.namespaces[of];
        let (hash, number) = shards.find(namespace, Key::Id(id));
        let mut shard = shards.lock(number);
        let before = shard.holding(hash, namespace, Key::Id(id));
        let at_least = before.map_or(0, |held| held.last) + by;
        shard.insert_section(namespace, id);
        let hasher = shards.hasher();
        let raised = shard.raise_section(hasher, hash, namespace, id, at_least);
        let (answer, mut bump) = raised.expect("the section is there");
        let mut served = Vec::new();
        while let Some(place) = bump {
            let (ceilings, shard) = (&mut self.ceilings, (hasher, &mut *shard));
            let again = bump_section(ceilings, shard, place, namespace, &mut served);
            bump = again.then_some(place);
        }
        let raised = match (answer, served.pop()) {
            (RaiseAnswer::Done(raised), None) => raised,
            (RaiseAnswer::Later(_), Some(ServedCall::Floor { raised, .. })) => raised,
            (answer, _) => panic!("{answer:?}"),
        };
        assert!(raised.is_ok_and(|raised| raised.floor >= at_least));
        let held = shard.holding(hash, namespace, Key::Id(id));
        // The floor may lie below the first number, or between two.
        assert!(held.is_some_and(|held| held.last + 2 > at_least));
    }

    /// Moves the hand of each shard, and logs what was used of the sections that are evicted.
    fn evict(&mut self, shards: &Shards, slots: usize) {
        for mut shard in shards.each() {
            let mut swept = Swept::default();
            let progression_of = |id: NamespaceId| {
                let namespace = self.namespaces.iter().find(|known| known.id == id)?;
                Some(namespace.config.progression())
            };
            let limits = (slots, usize::MAX);
            let _ = shard.evict(shards.hasher(), limits, progression_of, &mut swept);
            for SectionUse { section, used, .. } in swept.evicted {
                assert_eq!(shard.end_eviction(&section), None);
                self.ceilings.insert(section, used);
            }
        }
    }

    fn current(&self, shards: &Shards, of: usize, key: Key<'_>) -> Option<u64> {
        let (hash, shard) = shards.find(&self.namespaces[of], key);
        let shard = shards.lock(shard);
        shard.holding(hash, &self.namespaces[of], key).map(|held| held.last)
    }
}

/// Bumps a section as the bumper does. The load seems high, so that steps grow, and some sections do not fit their
/// slots.
fn bump_section(
    ceilings: &mut BTreeMap<SectionId, u64>, (hasher, shard): (&Hasher, &mut Shard),
    place: SectionPlace, namespace: &Namespace, served: &mut Vec<ServedCall>,
) -> bool {
    let id = shard.section_id(place).expect("a section");
    let Some(size) = shard.next_bump(place, namespace) else {
        return false;
    };
    let progression = namespace.config.progression();
    let up_to = progression.last_at_or_below(size.up_to);
    let increment = progression.increment;
    let ceiling = ceilings.entry(id).or_insert(1);
    let chunk =
        Chunk { old: *ceiling, new: (*ceiling + size.numbers.max(1) * increment).max(up_to) };
    *ceiling = chunk.new;
    let now = Instant::from_nanos(1);
    let _ = shard.add_chunk(place, chunk, &namespace.config, now, Duration::ZERO);
    shard.serve(hasher, place, namespace, served)
}

/// An event: numbers are taken, or a part is sent.
#[derive(Debug, Clone)]
enum Event {
    Take {
        of: usize,
        key: u64,
        count: u64,
    },
    /// One number of each of so many ids of the dense namespace.
    TakeEach {
        from: u64,
        count: u64,
    },
    /// The floor of the section of an id is raised.
    RaiseSection {
        of: usize,
        key: u64,
        by: u64,
    },
    /// The hand passes so many slots of each shard. The sections that it evicts are logged at once. Nothing happens while the
    /// memory is sent.
    Evict(usize),
    Send,
    /// The reader is given up while a read of it is under way, and another one begins.
    SendAnew,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let take = (0..4usize, 0..40u64, 1..30u64);
    let take_each = (0..600u64, 1..200u64);
    let raise = (SHARED..=DENSE, 0..40u64, 0..60u64);
    let event = prop_oneof![
        16 => take.prop_map(|(of, key, count)| Event::Take { of, key: spread(of, key), count }),
        1 => take_each.prop_map(|(from, count)| Event::TakeEach { from, count }),
        2 => raise.prop_map(|(of, key, by)| Event::RaiseSection { of, key: spread(of, key), by }),
        4 => (1..6usize).prop_map(Event::Evict),
        4 => Just(Event::Send),
        1 => Just(Event::SendAnew),
    ];
    prop::collection::vec(event, 0..200)
}

/// The ids of the dense namespace are those of some sections.
fn spread(of: usize, key: u64) -> u64 {
    if of == DENSE { key * 20 } else { key }
}

fn with_key<R>(of: usize, key: u64, act: impl FnOnce(Key<'_>) -> R) -> R {
    match of {
        NAMED => act(Key::Name(format!("key {key}").as_bytes())),
        _ => act(Key::Id(key)),
    }
}

/// A memory on its way.
struct Sending<'a> {
    from: &'a Shards,
    tracking: Tracking,
    /// The shard that the delta has come to.
    at: u32,
    digest: Digest,
    to: ReceivedMemory,
}

impl<'a> Sending<'a> {
    fn begin(from: &'a Shards) -> Self {
        Sending {
            from,
            tracking: from.begin_tracking(),
            at: 0,
            digest: Digest::new(&header(from)),
            to: receiver(from),
        }
    }

    /// Sends the next part. False at the end of a delta.
    fn send(&mut self) -> bool {
        let Some(part) = next_part(self.from, self.tracking, &mut self.at) else {
            return false;
        };
        self.digest.add(&part);
        self.to.take_part(&part).expect("taken in");
        true
    }
}

fn next_part(from: &Shards, tracking: Tracking, at: &mut u32) -> Option<Vec<u8>> {
    let (part, next, changes) = read_part(from, tracking, *at).expect("a part");
    *at = if changes == 0 { 0 } else { next };
    (changes > 0).then_some(part)
}

fn header(shards: &Shards) -> MemoryHeader {
    MemoryHeader { term: 1, seed: shards.seed(), format: MEMORY_FORMAT }
}

fn receiver(shards: &Shards) -> ReceivedMemory {
    let begun = ReceivedMemory::begin(&header(shards), 1 << 30, BlockingExecutor::Inline);
    begun.expect("the same release")
}

proptest! {
    #[test]
    fn a_memory_that_was_sent_in_use_goes_on_where_the_other_one_stood(
        before in events(), during in events(),
    ) {
        let (mut world, shards) = (World::new(), Shards::default());
        let mut used = Vec::new();
        let mut take = |world: &mut World, event: &Event| {
            let (of, keys, count) = match *event {
                Event::Take { of, key, count } => (of, key..key + 1, count),
                Event::TakeEach { from, count } => (DENSE, from..from + count, 1),
                Event::RaiseSection { of, key, by } => {
                    world.raise_section(&shards, of, key, by);
                    used.push((of, key));
                    return;
                }
                _ => return,
            };
            for key in keys {
                with_key(of, key, |key| world.take(&shards, of, key, count));
                used.push((of, key));
            }
        };
        for event in &before {
            match event {
                Event::Evict(slots) => world.evict(&shards, *slots),
                event => take(&mut world, event),
            }
        }
        let mut sending = Sending::begin(&shards);
        for event in during {
            match event {
                Event::Take { .. } | Event::TakeEach { .. } | Event::RaiseSection { .. } => {
                    take(&mut world, &event);
                }
                Event::Evict(slots) => world.evict(&shards, slots),
                Event::Send => drop(sending.send()),
                Event::SendAnew => {
                    let given_up = std::mem::replace(&mut sending, Sending::begin(&shards));
                    let late = read_part(&shards, given_up.tracking, given_up.at).expect("a part");
                    prop_assert_eq!(late.2, 0, "its changes are the other reader's");
                    shards.end_tracking(given_up.tracking);
                }
            }
        }
        // The rest of this delta, and one more.
        for _ in 0..2 {
            while sending.send() {}
        }
        prop_assert!(!sending.send(), "nothing changes any more");
        prop_assert_eq!(sending.to.digest().expect("whole"), sending.digest.value());
        let successor = sending.to.into_shards();
        let (here, there) = (shards.footprint(), successor.footprint());
        prop_assert_eq!((here.keys, here.sections), (there.keys, there.sections));
        for &(of, key) in &used {
            let here = with_key(of, key, |key| world.current(&shards, of, key));
            prop_assert_eq!(here, with_key(of, key, |key| world.current(&successor, of, key)));
        }
        // As many numbers are left, too.
        let mut other = world.clone();
        for &(of, key) in &used {
            let here = with_key(of, key, |key| world.take(&shards, of, key, 3));
            let there = with_key(of, key, |key| other.take(&successor, of, key, 3));
            prop_assert_eq!(here, there);
        }
    }
}

#[test]
fn a_section_that_is_used_up_while_its_bump_is_under_way_is_taken_in() {
    for of in [OWN, NAMED, SHARED, DENSE] {
        let (mut world, shards) = (World::new(), Shards::default());
        // Too small for a margin: the bump is asked for when nothing is left.
        world.namespaces[of].config.step = 10;
        let last = with_key(of, 7, |key| {
            let mut last = world.take(&shards, of, key, 1);
            let namespace = &world.namespaces[of];
            let (hash, shard) = shards.find(namespace, key);
            // The bump that is asked for brings nothing yet.
            while let Some((TakeAnswer::Done(taken), _)) =
                shards.lock(shard).take(hash, namespace, key, 1)
            {
                last = taken.expect("numbers").last;
            }
            last
        });
        let mut sending = Sending::begin(&shards);
        while sending.send() {}
        assert_eq!(sending.to.digest().expect("whole"), sending.digest.value());
        let successor = sending.to.into_shards();
        let current = with_key(of, 7, |key| world.current(&successor, of, key));
        assert_eq!(current, Some(last));
    }
}

#[test]
fn a_memory_that_is_too_large_or_damaged_is_refused() {
    let (mut world, shards) = (World::new(), Shards::default());
    let mut take_of_each = || {
        for (of, key) in
            [OWN, SHARED, DENSE].into_iter().flat_map(|of| (0..1_000).map(move |k| (of, k)))
        {
            world.take(&shards, of, Key::Id(key), 1);
        }
    };
    take_of_each();
    let (tracking, mut at) = (shards.begin_tracking(), 0);
    let part = next_part(&shards, tracking, &mut at).expect("a part");
    let mut small = ReceivedMemory::begin(&header(&shards), 1_000, BlockingExecutor::Inline)
        .expect("the same release");
    let refused = small.take_part(&part);
    assert!(matches!(refused, Err(NotReceived::TooLarge)), "{refused:?}");
    let refused = receiver(&shards).take_part(&part[..part.len() - 1]);
    assert!(matches!(refused, Err(NotReceived::Codec(_))), "{refused:?}");
    let other = MemoryHeader { format: MEMORY_FORMAT + 1, ..header(&shards) };
    let refused = ReceivedMemory::begin(&other, 1_000, BlockingExecutor::Inline);
    assert!(matches!(refused.err(), Some(NotReceived::Format(_))));
    // As a release with another hash function would spread the keys.
    let mut moved: MemoryPart = codec::decode(&part).expect("a part");
    moved[0].0 += 1;
    let moved = codec::encode(&moved).expect("a part");
    let refused = receiver(&shards).take_part(&moved);
    assert!(matches!(refused, Err(NotReceived::Damaged(_))), "{refused:?}");
    // The changes of a second delta, without the first one.
    while next_part(&shards, tracking, &mut at).is_some() {}
    take_of_each();
    let part = next_part(&shards, tracking, &mut at).expect("a part");
    let refused = receiver(&shards).take_part(&part);
    assert!(matches!(refused, Err(NotReceived::Damaged(_))), "{refused:?}");
}
