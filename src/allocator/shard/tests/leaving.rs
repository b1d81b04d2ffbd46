//! Keys that come and go beside a table of records, as the state machine keeps it: no number is skipped, repeated or
//! forgotten.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::{
    allocator::own_keys::Swept,
    sequence::{Raise, SectionRecord, Trim},
};

/// The number of the lift in force.
const LIFT: u64 = 7;

/// A shard, the table of records, and what is under way between the two.
struct Cluster {
    world: World,
    records: HashMap<SectionId, SectionRecord>,
    /// What is leaving: logged, and not applied yet.
    under_way: Vec<Trim>,
    /// Sections that must be bumped, in the order in which they asked.
    to_bump: Vec<SectionPlace>,
    /// The last number of each key.
    last: HashMap<Vec<u8>, u64>,
    /// Who waits, by the numbers of the calls.
    waiting: HashMap<u64, Vec<u8>>,
}

#[derive(Debug, Clone)]
enum Event {
    Take(u8, u64),
    /// The hand passes some slots.
    LetGo(usize),
    /// The release under way is applied.
    Apply,
    /// The bumps that were asked for are applied.
    Bump,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0u8..12, 1u64..30).prop_map(|(key, count)| Event::Take(key, count)),
        3 => (1usize..20).prop_map(Event::LetGo),
        2 => Just(Event::Apply),
        2 => Just(Event::Bump),
    ];
    prop::collection::vec(event, 1..200)
}

fn name(key: u8) -> Vec<u8> {
    vec![b'k', b'a' + key]
}

impl Cluster {
    fn new(names: bool) -> Cluster {
        let config = NamespaceConfig {
            key_kind: match names {
                true => crate::sequence::KeyKind::Name,
                false => crate::sequence::KeyKind::Id,
            },
            step: 40,
            ..NamespaceConfig::new("book")
        };
        Cluster {
            world: World::new(config),
            records: HashMap::new(),
            under_way: Vec::new(),
            to_bump: Vec::new(),
            last: HashMap::new(),
            waiting: HashMap::new(),
        }
    }

    fn key<'a>(&self, name: &'a [u8]) -> Key<'a> {
        match self.world.namespace.config.key_kind {
            crate::sequence::KeyKind::Name => Key::Name(name),
            crate::sequence::KeyKind::Id => Key::Id(u64::from(name[name.len() - 1])),
        }
    }

    /// As `Memory::take` does it.
    fn take(&mut self, name: &[u8], count: u64) {
        let key = self.key(name);
        let (hash, namespace) = (self.world.hash(key), self.world.namespace.clone());
        let shard = &mut self.world.shard;
        let known = shard.take(hash, &namespace, key, count);
        let (answer, place) = known.unwrap_or_else(|| {
            let (place, is_new) = shard.insert(&self.world.hasher, hash, &namespace, key);
            let id = namespace.section_of(key);
            let is_leaving = is_new && shard.want_leaving(&id, place);
            let record = self.records.get(&id).copied().unwrap_or_default();
            let lifted = record.lifted(namespace.config.progression(), LIFT);
            if let Some(chunk) = lifted.filter(|_| !is_leaving) {
                let (now, bump_time) = (Instant::from_nanos(1), Duration::ZERO);
                shard.grant(place, chunk, &namespace.config, now, bump_time);
            }
            let (answer, place) = shard.take(hash, &namespace, key, count).expect("added");
            (answer, place.filter(|_| !is_leaving))
        });
        self.to_bump.extend(place);
        match answer {
            Answer::Taken(taken) => self.note(name, taken.expect("numbers")),
            Answer::Later(later) => {
                self.world.calls_made += 1;
                self.world.calls.insert(self.world.calls_made, later);
                self.waiting.insert(self.world.calls_made, name.to_vec());
            }
        }
    }

    fn note(&mut self, name: &[u8], range: crate::sequence::Range) {
        let last = self.last.entry(name.to_vec()).or_default();
        assert_eq!(range.first, *last + 1, "{}", name.escape_ascii());
        *last = range.last;
    }

    fn let_go(&mut self, slots: usize) {
        let progression = self.world.namespace.config.progression();
        let mut swept = Swept::default();
        let limits = (slots, slots);
        let hasher = self.world.hasher.clone();
        let _ = (self.world.shard).let_go(&hasher, limits, |_| Some(progression), &mut swept);
        self.under_way.extend(swept.released);
    }

    fn apply(&mut self) {
        for Trim { section, used } in std::mem::take(&mut self.under_way) {
            let record = self.records.entry(section.clone()).or_default();
            *record = record.release(LIFT, 1, used).expect("it owns what it used");
            self.to_bump.extend(self.world.shard.end_leaving(&section));
        }
    }

    fn bump(&mut self) {
        for place in std::mem::take(&mut self.to_bump) {
            let Some(id) = self.world.shard.section_id(place) else {
                continue;
            };
            let namespace = self.world.namespace.clone();
            let Some(size) = self.world.shard.propose_bump(place, &namespace) else {
                continue;
            };
            let raise = Raise {
                numbers: size.numbers,
                unused_max: size.unused_max,
                step: namespace.config.step,
                up_to: 0,
            };
            let record = self.records.entry(id).or_default();
            let bumped = record.bump(namespace.config.progression(), LIFT, raise);
            let (after, chunk) = bumped.expect("numbers are left");
            *record = after;
            let (now, bump_time) = (Instant::from_nanos(1), Duration::ZERO);
            (self.world.shard).grant(place, chunk, &namespace.config, now, bump_time);
            let mut served = Vec::new();
            if self.world.shard.serve(place, &namespace, &mut served) {
                self.to_bump.push(place);
            }
            let metrics = Metrics::new();
            served.into_iter().for_each(|one| one.tell(&metrics));
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
    }

    fn assert_nothing_is_forgotten(&self) {
        for (name, last) in &self.last {
            let key = self.key(name);
            let hash = self.world.hash(key);
            let known = self.world.shard.current(hash, &self.world.namespace, key);
            let id = self.world.namespace.section_of(key);
            let in_table = || self.records.get(&id).map(|record| record.floor_at(LIFT, 1));
            assert_eq!(
                known.or_else(in_table),
                Some(*last),
                "{}",
                name.escape_ascii()
            );
        }
    }
}

#[test]
fn what_was_looked_up_while_a_section_was_leaving_is_looked_up_again_once_it_has_left() {
    let mut cluster = Cluster::new(false);
    cluster.take(&name(0), 1);
    cluster.bump();
    let before = cluster.world.shard.let_goes();
    // The first round takes the mark off.
    cluster.let_go(10);
    cluster.let_go(10);
    let leaving = cluster.world.shard.let_goes();
    assert_ne!(before, leaving);
    cluster.apply();
    assert_ne!(cluster.world.shard.let_goes(), leaving);
}

proptest! {
    #[test]
    fn keys_that_come_and_go_have_no_gap_and_are_never_forgotten(
        events in events(), names in any::<bool>(),
    ) {
        let mut cluster = Cluster::new(names);
        for event in events {
            match event {
                Event::Take(key, count) => cluster.take(&name(key), count),
                Event::LetGo(slots) => cluster.let_go(slots),
                Event::Apply => cluster.apply(),
                Event::Bump => cluster.bump(),
            }
            cluster.assert_nothing_is_forgotten();
        }
        while !cluster.world.calls.is_empty() || !cluster.under_way.is_empty() {
            cluster.apply();
            cluster.bump();
        }
        cluster.assert_nothing_is_forgotten();
    }
}
