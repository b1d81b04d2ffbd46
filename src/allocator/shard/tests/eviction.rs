//! Keys that come and go beside a table of records, as the state machine keeps it: no number is repeated or forgotten, and
//! none of a key that has a section of its own is skipped.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::{
    allocator::{section::answers::RaisedLater, shard::own_keys::eviction::Swept},
    sequence::{CeilingRaise, SectionRecord, SectionUse},
};

/// The number of the epoch in force.
const EPOCH: u64 = 7;

/// The kinds of keys that the cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ids,
    Names,
    /// Ids that share a section with four neighbours.
    Shared,
}

/// A shard, the table of records, and what is under way between the two.
struct Cluster {
    world: World,
    records: HashMap<SectionId, SectionRecord>,
    /// The sections that are being evicted: logged, and not applied yet.
    under_way: Vec<SectionUse>,
    /// Sections that must be bumped, in the order in which they asked.
    to_bump: Vec<SectionPlace>,
    /// The last number of each key.
    last: HashMap<Vec<u8>, u64>,
    /// The keys that calls wait for, by the numbers of the calls.
    waiting: HashMap<u64, Vec<u8>>,
    /// The floors that are raised later.
    raising: Vec<(SectionId, u64, RaisedLater)>,
    /// The floors of sections.
    floors: HashMap<SectionId, u64>,
}

#[derive(Debug, Clone)]
enum Event {
    Take(u8, u64),
    /// The floor of a key's section is raised, if it shares it.
    Raise(u8, u64),
    /// The hand passes some slots.
    Evict(usize),
    /// The release under way is applied.
    Apply,
    /// The bumps that were asked for are applied.
    Bump,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0u8..12, 1u64..30).prop_map(|(key, count)| Event::Take(key, count)),
        1 => (0u8..12, 1u64..300).prop_map(|(key, floor)| Event::Raise(key, floor)),
        3 => (1usize..20).prop_map(Event::Evict),
        2 => Just(Event::Apply),
        2 => Just(Event::Bump),
    ];
    prop::collection::vec(event, 1..200)
}

fn name(key: u8) -> Vec<u8> {
    vec![b'k', b'a' + key]
}

impl Cluster {
    fn new(kind: Kind) -> Cluster {
        let config = NamespaceConfig {
            key_kind: match kind {
                Kind::Names => crate::sequence::KeyKind::Name,
                Kind::Ids | Kind::Shared => crate::sequence::KeyKind::Id,
            },
            section_size: if kind == Kind::Shared { 5 } else { 1 },
            step: 40,
            ..NamespaceConfig::new("book")
        };
        let world = World::new(config);
        let mut records = HashMap::new();
        if kind == Kind::Shared {
            // The epoch gives a chunk of the first section.
            let record = SectionRecord {
                max_seq: 100,
                floor: 100,
                epoch: EPOCH - 1,
                step: 40,
                ..SectionRecord::default()
            };
            let section = world.namespace.section_of(Key::Id(b'a'.into()));
            records.insert(section, record);
        }
        Cluster {
            world,
            records,
            under_way: Vec::new(),
            to_bump: Vec::new(),
            last: HashMap::new(),
            waiting: HashMap::new(),
            raising: Vec::new(),
            floors: HashMap::new(),
        }
    }

    fn key<'a>(&self, name: &'a [u8]) -> Key<'a> {
        match self.world.namespace.config.key_kind {
            crate::sequence::KeyKind::Name => Key::Name(name),
            crate::sequence::KeyKind::Id => Key::Id(u64::from(name[name.len() - 1])),
        }
    }

    /// Gives a section that was added what the epoch gave of it, if it may.
    fn touch(&mut self, id: &SectionId, (place, has_nothing): (SectionPlace, bool)) {
        let config = &self.world.namespace.config;
        let record = self.records.get(id).copied().unwrap_or_default();
        let epoch_chunk = record.epoch_chunk(config.progression(), EPOCH);
        let shard = &mut self.world.shard;
        if let Some(chunk) = epoch_chunk.filter(|_| has_nothing && !shard.is_being_evicted(id)) {
            let (now, bump_time) = (Instant::from_nanos(1), Duration::ZERO);
            shard.add_chunk(place, chunk, config, now, bump_time);
        }
    }

    /// As `Memory::raise` does it.
    fn raise(&mut self, name: &[u8], at_least: u64) {
        let key = self.key(name);
        let (hash, namespace) = (self.world.hash(key), self.world.namespace.clone());
        let Key::Id(number) = key else { return };
        let (hasher, id) = (self.world.hasher.clone(), namespace.section_of(key));
        let known = (self.world.shard).raise_section(&hasher, hash, &namespace, number, at_least);
        let (answer, place) = known.unwrap_or_else(|| {
            let added = self.world.shard.insert_section(&namespace, number);
            self.touch(&id, added);
            let shard = &mut self.world.shard;
            let raised = shard.raise_section(&hasher, hash, &namespace, number, at_least);
            raised.expect("added")
        });
        let shard = &mut self.world.shard;
        if let Some(place) = place
            && (shard.has_chunk(place, &namespace.config) || !shard.want_evicted(&id, place))
        {
            self.to_bump.push(place);
        }
        match answer {
            RaiseAnswer::Done(raised) => {
                raised.expect("it is raised");
                self.note_floor(&id, at_least);
            }
            RaiseAnswer::Later(later) => self.raising.push((id, at_least, later)),
        }
    }

    fn note_floor(&mut self, id: &SectionId, at_least: u64) {
        let floor = self.floors.entry(id.clone()).or_default();
        *floor = (*floor).max(at_least);
    }

    /// As `Memory::take` does it.
    fn take(&mut self, name: &[u8], count: u64) {
        let key = self.key(name);
        let (hash, namespace) = (self.world.hash(key), self.world.namespace.clone());
        let (hasher, id) = (self.world.hasher.clone(), namespace.section_of(key));
        let known = self.world.shard.take(hash, &namespace, key, count);
        let (answer, place) = known.unwrap_or_else(|| {
            let added = (self.world.shard).insert(&hasher, hash, &namespace, key);
            self.touch(&id, added);
            let taken = self.world.shard.take(hash, &namespace, key, count);
            taken.expect("added")
        });
        let shard = &mut self.world.shard;
        if let Some(place) = place
            && (shard.has_chunk(place, &namespace.config) || !shard.want_evicted(&id, place))
        {
            self.to_bump.push(place);
        }
        match answer {
            TakeAnswer::Done(taken) => self.note(name, taken.expect("numbers")),
            TakeAnswer::Later(later) => {
                self.world.calls_made += 1;
                self.world.calls.insert(self.world.calls_made, later);
                self.waiting.insert(self.world.calls_made, name.to_vec());
            }
        }
    }

    fn note(&mut self, name: &[u8], range: crate::sequence::Range) {
        let section = self.world.namespace.section_of(self.key(name));
        let floor = self.floors.get(&section).copied().unwrap_or_default();
        assert!(range.first > floor, "{}", name.escape_ascii());
        let last = self.last.entry(name.to_vec()).or_default();
        match self.world.namespace.config.section_size {
            1 => assert_eq!(range.first, *last + 1, "{}", name.escape_ascii()),
            _ => assert!(range.first > *last, "{}", name.escape_ascii()),
        }
        *last = range.last;
    }

    fn evict(&mut self, slots: usize) {
        let progression = self.world.namespace.config.progression();
        let mut swept = Swept::default();
        let limits = (slots, slots);
        let hasher = self.world.hasher.clone();
        let _ = (self.world.shard).evict(&hasher, limits, |_| Some(progression), &mut swept);
        self.under_way.extend(swept.evicted);
    }

    fn apply(&mut self) {
        for SectionUse { section, used, .. } in std::mem::take(&mut self.under_way) {
            let progression = self.world.namespace.config.progression();
            let record = self.records.entry(section.clone()).or_default();
            let released = record.release(progression, EPOCH, used);
            *record = released.expect("it owns what it used");
            self.to_bump.extend(self.world.shard.end_eviction(&section));
        }
    }

    fn bump(&mut self) {
        let mut raised_now = Vec::new();
        for place in std::mem::take(&mut self.to_bump) {
            let Some(id) = self.world.shard.section_id(place) else {
                continue;
            };
            let namespace = self.world.namespace.clone();
            let Some(size) = self.world.shard.next_bump(place, &namespace) else {
                continue;
            };
            let raise = CeilingRaise {
                numbers: size.numbers,
                unused_max: size.unused_max,
                step: namespace.config.step,
                up_to: size.up_to,
            };
            let record = self.records.entry(id).or_default();
            let has_chunk = self.world.shard.has_chunk(place, &namespace.config);
            // As the record reader does it.
            let epoch_chunk = record.epoch_chunk(namespace.config.progression(), EPOCH);
            let chunk = epoch_chunk.filter(|_| !has_chunk).unwrap_or_else(|| {
                let bumped = record.bump(namespace.config.progression(), EPOCH, raise);
                let (after, chunk) = bumped.expect("numbers are left");
                *record = after;
                chunk
            });
            let (now, bump_time) = (Instant::from_nanos(1), Duration::ZERO);
            (self.world.shard).add_chunk(place, chunk, &namespace.config, now, bump_time);
            let mut served = Vec::new();
            if self.world.shard.serve(&self.world.hasher, place, &namespace, &mut served) {
                self.to_bump.push(place);
            }
            let counts = Metrics::new().namespaces().others().shared();
            served.into_iter().for_each(|one| one.tell(&counts));
        }
        for (id, at_least, mut later) in std::mem::take(&mut self.raising) {
            match later.try_recv() {
                Ok(raised) => {
                    raised.expect("it is raised");
                    raised_now.push((id, at_least));
                }
                Err(_) => self.raising.push((id, at_least, later)),
            }
        }
        // In the order in which they called.
        for (call, mut later) in std::mem::take(&mut self.world.calls) {
            match later.try_recv() {
                Ok(delivery) => {
                    let name = self.waiting.remove(&call).expect("a call that waits");
                    self.note(&name, delivery.accept().expect("numbers"));
                }
                Err(_) => {
                    self.world.calls.insert(call, later);
                }
            }
        }
        // Calls that came before may have got numbers below.
        for (id, at_least) in raised_now {
            self.note_floor(&id, at_least);
        }
    }

    fn assert_nothing_is_forgotten(&self) {
        for (name, last) in &self.last {
            let key = self.key(name);
            let known = self.world.last_of(key);
            let id = self.world.namespace.section_of(key);
            let in_table = || self.records.get(&id).map(|record| record.floor_at(EPOCH, 1));
            let current = known.or_else(in_table).expect("a number");
            // A key of a shared section rises to the highest number of the section.
            let is_shared = self.world.namespace.config.shares_sections();
            let is_known = current == *last || (is_shared && current > *last);
            assert!(is_known, "{}: {current} {last}", name.escape_ascii());
        }
        for (section, floor) in &self.floors {
            let SectionKey::Id(number) = section.key else {
                continue;
            };
            // One that nobody may have asked for.
            let id = Key::Id(number * self.world.namespace.config.section_size);
            let known = self.world.last_of(id);
            let in_table = || (self.records.get(section)).map(|record| record.floor_at(EPOCH, 1));
            let current = known.or_else(in_table).expect("a number");
            assert!(current >= *floor, "{section:?}: {current} {floor}");
        }
    }
}

#[test]
fn what_was_looked_up_while_a_section_was_being_evicted_is_looked_up_again_once_it_has_left() {
    let mut cluster = Cluster::new(Kind::Ids);
    cluster.take(&name(0), 1);
    cluster.bump();
    let before = cluster.world.shard.evictions();
    // The first round clears the reference bit.
    cluster.evict(10);
    cluster.evict(10);
    let evicting = cluster.world.shard.evictions();
    assert_ne!(before, evicting);
    cluster.apply();
    assert_ne!(cluster.world.shard.evictions(), evicting);
}

proptest! {
    #[test]
    fn keys_that_come_and_go_have_no_gap_and_are_never_forgotten(
        events in events(),
        kind in prop_oneof![Just(Kind::Ids), Just(Kind::Names), Just(Kind::Shared)],
    ) {
        let mut cluster = Cluster::new(kind);
        for event in events {
            match event {
                Event::Take(key, count) => cluster.take(&name(key), count),
                Event::Raise(key, floor) if kind == Kind::Shared => cluster.raise(&name(key), floor),
                Event::Raise(..) => {}
                Event::Evict(slots) => cluster.evict(slots),
                Event::Apply => cluster.apply(),
                Event::Bump => cluster.bump(),
            }
            cluster.assert_nothing_is_forgotten();
        }
        let is_under_way = |cluster: &Cluster| {
            !(cluster.world.calls.is_empty() && cluster.raising.is_empty() && cluster.under_way.is_empty())
        };
        while is_under_way(&cluster) {
            cluster.apply();
            cluster.bump();
        }
        cluster.assert_nothing_is_forgotten();
    }
}
