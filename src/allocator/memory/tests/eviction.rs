//! A shared section that is evicted: what calls, records and bumps that come meanwhile get.

use super::*;
use crate::{
    allocator::{
        floor::{Floor, FloorOf},
        outcome::Why,
        section::answers::{AboveAnswer, RaiseAnswer},
    },
    sequence::Chunk,
};

struct World {
    machine: StateMachine,
    memory: Memory,
    users: Namespace,
    _dir: TempDir,
}

/// The place of the only section.
fn place_of(memory: &Memory, users: &Namespace) -> MemoryPlace {
    let (_, shard) = memory.shards.find(users, Key::Id(7));
    let section = SectionPlace::Shared(0);
    MemoryPlace { shard, section }
}

impl World {
    /// A term whose epoch gives (100, 200] of the section of users 0 to 99. Of two of them it took numbers.
    async fn new() -> World {
        let dir = TempDir::new().expect("a directory");
        let (machine, memory, users) = in_its_second_epoch(&dir, 100).await;
        let (answer, _) = memory.take(&users, Key::Id(7), 5);
        assert_eq!(first_of(&answer), Some(101));
        let (answer, _) = memory.take(&users, Key::Id(8), 1);
        assert_eq!(first_of(&answer), Some(101));
        World { machine, memory, users, _dir: dir }
    }

    /// The first round clears the reference bits.
    fn evict(&self) -> Vec<SectionUse> {
        let all = usize::MAX / 2;
        assert_eq!(self.memory.evict(all, all).0.evicted, []);
        let released = self.memory.evict(all, all).0.evicted;
        let (section, used, skipped) = (self.users.section_of(Key::Id(7)), 105, 4);
        let expected = SectionUse { section, used, skipped };
        assert_eq!(released, [expected]);
        released
    }

    /// The release is committed and applied.
    async fn apply(&mut self, released: Vec<SectionUse>) -> Vec<MemoryPlace> {
        let release = Command::Release { sections: released.clone(), now_ms: 2 };
        self.machine.apply_now(2, [release]).await;
        self.memory.end_eviction(&released)
    }

    fn next_bump(&self, place: MemoryPlace) -> Option<Bump> {
        let namespaces = self.memory.view.namespaces();
        self.memory.next_bump(place, &namespaces)
    }
}

#[tokio::test]
async fn calls_for_a_section_that_is_evicted_wait_until_the_log_says_what_was_used_of_it() {
    let mut world = World::new().await;
    let released = world.evict();
    let (memory, users) = (&world.memory, &world.users);
    let place = place_of(memory, users);
    assert_eq!(memory.current(users, Key::Id(8)), Some(105));
    let (answer, need) = memory.take(users, Key::Id(8), 1);
    let TakeAnswer::Later(mut taken) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(need, None, "its record is not to be read");
    let (answer, need) = memory.raise(users, (FloorOf::Key, Key::Id(9)), 300);
    let RaiseAnswer::Later(mut raised) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(need, None);
    // A call that asks all the same gets nothing.
    assert_eq!(memory.begin_read(place), None);
    assert_eq!(world.next_bump(place), None);
    let wanted = world.apply(released).await;
    assert_eq!(wanted, [place]);
    let bump = world.next_bump(place).expect("a bump");
    assert_eq!(bump.raise.up_to, 300);
    let chunk = Bumped::Chunk(Chunk { old: 105, new: 400 });
    let memory = &world.memory;
    assert!(!memory.bump_answered(place, &bump.section, chunk, &world.users));
    let taken = taken.try_recv().expect("an answer").accept();
    assert_eq!(taken.expect("a number").first, 106);
    let raised = raised.try_recv().expect("an answer");
    assert_eq!(raised.expect("raised").floor, 300);
}

/// Otherwise the request could reach the key that has the slot next, before a look at that key's record.
#[tokio::test]
async fn a_call_that_is_refused_while_its_section_is_evicted_asks_for_no_bump() {
    let dir = TempDir::new().expect("a directory");
    let (mut machine, memory, mut book) = in_its_second_epoch(&dir, 1).await;
    assert_eq!(first_of(&memory.take(&book, Key::Id(7), 1).0), Some(101));
    let all = usize::MAX / 2;
    let releases = [(); 2].map(|()| memory.evict(all, all).0.evicted);
    let [_, released] = releases;
    assert_eq!(released.len(), 1);
    // The max was lowered meanwhile.
    book.config.max = 500;
    let (answer, need) = memory.take_above(&book, Key::Id(7), Floor::from(1_000), |_| 1);
    let above = AboveAnswer::Refused(Why::AboveMax { max: 500 });
    assert_eq!((format!("{answer:?}"), need), (format!("{above:?}"), None));
    // The slot is evicted again, and another key has it.
    for _ in 0..2 {
        memory.evict(all, all);
    }
    assert_eq!(memory.shards().footprint().keys, 0);
    let release = Command::Release { sections: released.clone(), now_ms: 2 };
    machine.apply_now(2, [release]).await;
    assert_eq!(memory.end_eviction(&released), []);
}

#[tokio::test]
async fn a_record_that_was_read_before_its_section_was_evicted_gives_no_chunk_again() {
    let mut world = World::new().await;
    let place = place_of(&world.memory, &world.users);
    let noted = world.memory.begin_read(place).expect("a section");
    let record = world.memory.view.section(&noted.0).expect("a record");
    let released = world.evict();
    // Nobody waits for it: nothing is bumped once it has left.
    assert_eq!(world.apply(released).await, []);
    let (memory, users) = (&world.memory, &world.users);
    let (answer, need) = memory.take(users, Key::Id(7), 1);
    assert_eq!(first_of(&answer), None);
    assert!(need.is_some());
    let need = memory.record_read(place, &noted, record, users);
    assert_eq!(need, Some(Need::Read), "the record is old");
    let noted = memory.begin_read(place).expect("a section");
    let record = memory.view.section(&noted.0).expect("a record");
    let need = memory.record_read(place, &noted, record, users);
    assert_eq!(need, Some(Need::Bump), "the epoch's chunk was used");
    assert_eq!(memory.current(users, Key::Id(7)), None);
}

#[tokio::test]
async fn what_is_closed_or_sent_while_a_section_is_evicted_has_nothing_of_it() {
    let world = World::new().await;
    let (memory, users) = (&world.memory, &world.users);
    let released = world.evict();
    let (answer, _) = memory.take(users, Key::Id(8), 1);
    assert_eq!(first_of(&answer), None);
    let tracking = memory.shards.begin_tracking();
    let all = usize::MAX / 2;
    assert_eq!(memory.evict(all, all).0.evicted, []);
    let place = place_of(memory, users);
    let mut shard = memory.shards.lock(place.shard);
    let changes = shard.take_changes(tracking, 100).expect("changes");
    assert_eq!(changes.sections.len(), 1);
    assert_eq!(changes.sections[0].section.owned, None);
    drop(shard);
    assert_eq!(memory.end_eviction(&released), [place]);
    close_gate(memory);
    assert_eq!(memory.close(), Some(vec![]));
}

#[tokio::test]
async fn what_a_closed_memory_returns_counts_as_skipped_only_once_the_log_says_so() {
    let world = World::new().await;
    let (memory, section) = (&world.memory, world.users.section_of(Key::Id(7)));
    close_gate(memory);
    assert_eq!(memory.close(), Some(vec![SectionUse { section, used: 105, skipped: 4 }]));
    assert_eq!(memory.metrics.skipped(SkipCause::shared_section), 0);
}

/// A message of many keys has others served between its parts: its namespace may be gone by then.
#[tokio::test]
async fn a_section_of_a_deleted_namespace_that_was_evicted_gives_nothing_again() {
    let dir = TempDir::new().expect("a directory");
    let (mut machine, memory, book) = in_its_second_epoch(&dir, 1).await;
    assert_eq!(first_of(&memory.take(&book, Key::Id(7), 1).0), Some(101));
    let delete = Command::DeleteNamespace { name: "book".into(), forget: false };
    machine.apply_now(2, [delete]).await;
    let all = usize::MAX / 2;
    for _ in 0..3 {
        assert_eq!(memory.evict(all, all).0.evicted, []);
    }
    assert_eq!(memory.shards().footprint().keys, 0, "it was evicted");
    let ask = |_: usize| (Key::Id(7), 1);
    let asked = KeyBatch { namespace: &book, ask };
    let mut firsts = Vec::new();
    memory.take_many(&asked, 0..16, |_, _, answer| firsts.push(first_of(&answer)));
    assert_eq!(firsts, [None; 16]);
}
