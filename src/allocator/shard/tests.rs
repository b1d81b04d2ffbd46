//! A shard as the memory uses it.

use std::time::Duration;

use super::*;
use crate::{
    clock::Instant,
    sequence::{Chunk, KeyKind, NamespaceConfig, NamespaceId},
};

/// A namespace and the one shard that all of its keys are in.
struct One {
    namespace: Namespace,
    hasher: Hasher,
    shard: Shard,
}

impl One {
    fn new(change: impl FnOnce(&mut NamespaceConfig)) -> One {
        let mut config = NamespaceConfig::new("book");
        change(&mut config);
        One {
            namespace: Namespace {
                id: NamespaceId(1),
                config,
            },
            hasher: Hasher::default(),
            shard: Shard::default(),
        }
    }

    fn take(&mut self, key: Key<'_>, count: u64) -> (Answer, Option<u32>) {
        let hash = self.hasher.key(self.namespace.id, key);
        self.shard
            .take(&self.hasher, hash, &self.namespace, key, count)
    }

    fn took(&mut self, key: Key<'_>, count: u64) -> (u64, u64) {
        match self.take(key, count).0 {
            Answer::Taken(Ok(range)) => (range.first, range.last),
            other => panic!("expected numbers, got {other:?}"),
        }
    }

    fn current(&mut self, key: Key<'_>) -> Option<u64> {
        let hash = self.hasher.key(self.namespace.id, key);
        self.shard.current(hash, &self.namespace, key)
    }

    /// A call that waits.
    fn wait(&mut self, key: Key<'_>, count: u64) -> oneshot::Receiver<Handed> {
        match self.take(key, count).0 {
            Answer::Later(later) => later,
            other => panic!("expected to wait, got {other:?}"),
        }
    }

    /// The place of a key's section.
    fn place(&mut self, key: Key<'_>) -> u32 {
        let hash = self.hasher.key(self.namespace.id, key);
        if self
            .shard
            .cursors
            .find(hash, self.namespace.id, key)
            .is_none()
        {
            self.shard.insert(&self.hasher, hash, &self.namespace, key);
        }
        let cursor = self.shard.cursors.find(hash, self.namespace.id, key);
        cursor.unwrap().section
    }

    /// The chunk of a key's section, and whether a further bump is needed.
    fn grant(&mut self, key: Key<'_>, old: u64, new: u64) -> bool {
        let place = self.place(key);
        let chunk = Chunk { old, new, left: 0 };
        let section = self.shard.section(place).unwrap();
        let now = Instant::from_nanos(1);
        if section.grant(chunk, &self.namespace.config, now, Duration::ZERO) {
            self.shard.consult(place);
        }
        self.serve(key)
    }

    fn serve(&mut self, key: Key<'_>) -> bool {
        let place = self.place(key);
        let mut served = Vec::new();
        let again = self.shard.serve(place, &self.namespace, &mut served);
        let metrics = Metrics::new();
        served.into_iter().for_each(|one| one.tell(&metrics));
        again
    }

    fn wish(&mut self, key: Key<'_>) -> (u64, u64) {
        let place = self.place(key);
        let wish = self.shard.wish(place, &self.namespace).unwrap();
        (wish.numbers, wish.unused_max)
    }

    fn close(&mut self) -> Vec<(SectionId, u64, u64)> {
        let progression = self.namespace.config.progression();
        let used = self.shard.close(|_| Some(progression));
        used.into_iter()
            .map(|used| (used.section, used.last, used.lost))
            .collect()
    }
}

const KEY: Key<'static> = Key::Id(7);

fn handed(mut later: oneshot::Receiver<Handed>) -> Result<(u64, u64), u64> {
    let taken = later.try_recv().expect("served").accept();
    taken.map(|range| (range.first, range.last))
}

#[test]
fn calls_that_wait_are_served_in_the_order_of_their_arrival_and_small_ones_do_not_overtake() {
    let mut one = One::new(|config| config.step = 100);
    one.grant(KEY, 0, 100);
    let large = one.wait(KEY, 1_000);
    // Numbers are left for them; they come after all the same.
    let small: Vec<_> = (0..50).map(|_| one.wait(KEY, 1)).collect();
    assert_eq!(one.wish(KEY), (950, 1_050), "enough for all of them");
    assert!(
        one.grant(KEY, 100, 1_050),
        "nothing is left for the next one"
    );
    assert_eq!(handed(large), Ok((1, 1_000)));
    for (n, later) in (1_001..).zip(small) {
        assert_eq!(handed(later), Ok((n, n)));
    }
}

#[test]
fn a_call_that_came_while_the_bump_was_under_way_is_not_overtaken_either() {
    let mut one = One::new(|config| config.step = 100);
    let first = one.wait(KEY, 1);
    assert_eq!(one.wish(KEY), (100, 100));
    let large = one.wait(KEY, 500);
    assert!(one.grant(KEY, 0, 100), "a further bump is needed");
    assert_eq!(handed(first), Ok((1, 1)));
    let small = one.wait(KEY, 1);
    assert_eq!(one.wish(KEY), (402, 501));
    one.grant(KEY, 100, 502);
    assert_eq!(handed(large), Ok((2, 501)));
    assert_eq!(handed(small), Ok((502, 502)));
}

#[test]
fn a_call_that_is_gone_takes_nothing() {
    let mut one = One::new(|config| config.step = 100);
    drop(one.wait(KEY, 60));
    let second = one.wait(KEY, 5);
    one.grant(KEY, 0, 100);
    assert_eq!(handed(second), Ok((1, 5)));
}

#[test]
fn those_who_wait_at_the_end_of_the_number_space_get_what_is_left_in_their_order() {
    let mut one = One::new(|config| (config.step, config.max) = (100, 50));
    let waiting: Vec<_> = (0..60).map(|_| one.wait(KEY, 1)).collect();
    assert!(one.grant(KEY, 0, 50), "ten go on waiting");
    let place = one.place(KEY);
    one.shard.section(place).unwrap().exhaust(50);
    assert!(!one.serve(KEY));
    let got: Vec<_> = waiting.into_iter().map(handed).collect();
    for (n, got) in got.iter().enumerate() {
        let number = n as u64 + 1;
        let expected = if n < 50 { Ok((number, number)) } else { Err(0) };
        assert_eq!(*got, expected);
    }
}

#[test]
fn a_maximum_raised_while_a_call_waits_at_the_old_one_serves_it() {
    let mut one = One::new(|config| (config.step, config.max) = (100, 50));
    one.grant(KEY, 0, 50);
    assert_eq!(one.took(KEY, 50), (1, 50));
    let later = one.wait(KEY, 1);
    // The bump was decided under 50, and by its answer the maximum has been raised.
    one.namespace.config.max = 1_000;
    let place = one.place(KEY);
    one.shard.section(place).unwrap().exhaust(50);
    assert!(one.serve(KEY), "asks again, under the new maximum");
    assert_eq!(one.wish(KEY), (100, 100));
    one.grant(KEY, 50, 150);
    assert_eq!(handed(later), Ok((51, 51)));
    assert_eq!(one.took(KEY, 1), (52, 52));
}

#[test]
fn a_maximum_lowered_while_a_call_waits_is_told_at_once() {
    let mut one = One::new(|config| config.step = 100);
    one.grant(KEY, 0, 100);
    assert_eq!(one.took(KEY, 100), (1, 100));
    let later = one.wait(KEY, 1);
    one.namespace.config.max = 60;
    let place = one.place(KEY);
    one.shard.section(place).unwrap().exhaust(60);
    assert!(!one.serve(KEY), "no further entry");
    assert_eq!(handed(later), Err(0));
}

#[test]
fn keys_of_a_shared_section_stand_at_the_floor_and_grow_apart() {
    let mut one = One::new(|config| config.section_size = 100);
    one.grant(Key::Id(1), 500, 550);
    assert_eq!(one.took(Key::Id(1), 10), (501, 510));
    assert_eq!(one.took(Key::Id(2), 2), (501, 502));
    assert_eq!(one.current(Key::Id(3)), Some(500));
    assert_eq!(one.current(Key::Id(100)), None, "another section");
    let section = one.namespace.section_of(Key::Id(1));
    assert_eq!(one.close(), [(section, 510, 8)]);
}

#[test]
fn a_chunk_that_is_not_adjacent_lifts_every_key_of_its_section() {
    let mut one = One::new(|config| config.section_size = 100);
    one.grant(Key::Id(1), 0, 10);
    assert_eq!(one.took(Key::Id(1), 2), (1, 2));
    assert_eq!(one.took(Key::Id(2), 1), (1, 1));
    one.grant(Key::Id(3), 20, 30);
    assert_eq!(one.took(Key::Id(1), 1), (21, 21));
    assert_eq!(one.took(Key::Id(2), 1), (21, 21));
}

#[test]
fn what_was_used_above_a_maximum_that_was_lowered_is_not_forgotten() {
    let mut one = One::new(|_| ());
    one.grant(KEY, 50, 100);
    assert_eq!(one.took(KEY, 10), (51, 60));
    one.namespace.config.max = 40;
    assert_eq!(one.current(KEY), Some(60));
    let section = one.namespace.section_of(KEY);
    assert_eq!(one.close(), [(section, 60, 0)]);
}

#[test]
fn names_and_ids_of_one_namespace_and_the_same_key_of_two_do_not_meet() {
    let mut one = One::new(|config| config.key_kind = KeyKind::Name);
    let name = 7u64.to_le_bytes();
    one.grant(Key::Name(&name), 0, 100);
    assert_eq!(one.took(Key::Name(&name), 3), (1, 3));
    one.namespace.id = NamespaceId(2);
    drop(one.wait(Key::Name(&name), 1));
    drop(one.wait(KEY, 1));
}

#[test]
fn many_keys_stay_apart_while_the_tables_grow() {
    let mut one = One::new(|_| ());
    for id in 0..5_000 {
        one.grant(Key::Id(id), id, id + 100);
    }
    for id in 0..5_000 {
        assert_eq!(one.took(Key::Id(id), 1).0, id + 1);
    }
}

#[test]
fn closing_says_what_was_used_of_every_section_that_got_a_chunk() {
    let mut one = One::new(|_| ());
    let _ = one.take(KEY, 1);
    assert_eq!(one.close(), []);
    one.grant(KEY, 0, 10);
    let _ = one.take(KEY, 10);
    let section = one.namespace.section_of(KEY);
    assert_eq!(one.close(), [(section.clone(), 10, 0)], "used up");
    one.grant(KEY, 0, 10);
    assert_eq!(one.close(), [(section, 0, 0)]);
}

#[test]
fn what_was_used_in_a_namespace_that_is_not_known_is_not_told() {
    let mut one = One::new(|_| ());
    one.grant(KEY, 0, 10);
    assert_eq!(one.took(KEY, 2), (1, 2));
    assert_eq!(one.shard.close(|_| None), []);
}

#[test]
fn what_a_shard_holds_is_known_without_a_look_at_its_keys() {
    let mut one = One::new(|_| ());
    assert_eq!(one.shard.footprint().keys, 0);
    for id in 0..1_000 {
        let _ = one.take(Key::Id(id), 1);
    }
    let ids = one.shard.footprint();
    assert_eq!((ids.keys, ids.sections), (1_000, 1_000));
    let least = 1_000 * (size_of::<Cursor>() + size_of::<Section>());
    assert!((least..4 * least).contains(&ids.bytes), "{ids:?}");
    one.namespace.config.key_kind = KeyKind::Name;
    let name = [b'n'; 256];
    let _ = one.take(Key::Name(&name), 1);
    let all = one.shard.footprint();
    assert_eq!((all.keys, all.sections), (1_001, 1_001));
    assert!(all.bytes >= ids.bytes + 2 * name.len(), "{ids:?} {all:?}");
    let _ = one.close();
    let none = one.shard.footprint();
    assert!(none.keys == 0 && none.bytes < 1_000, "{none:?}");
}

#[test]
fn keys_that_share_a_section_are_counted_beside_it() {
    let mut one = One::new(|config| config.section_size = 100);
    for id in 0..250 {
        let _ = one.take(Key::Id(id), 1);
    }
    let footprint = one.shard.footprint();
    assert_eq!((footprint.keys, footprint.sections), (250, 3));
}
