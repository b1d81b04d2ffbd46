//! First touches of a memory, and its answers once it was closed or abandoned.

mod ceilings;
mod eviction;
mod floors;
mod full;
mod rounds;

use tempfile::TempDir;
use tokio::sync::oneshot;

use super::*;
use crate::{
    allocator::section::answers::TakeAnswer,
    clock::BootClock,
    consensus::{LeaseClock, Quorums, StateMachine},
    sequence::{CeilingRaise, Command, NamespaceConfig, SectionRecord},
    storage::{Store, StoreOptions},
};

/// A table and a term whose epoch gives (100, 200] of the section of key 7. The term before had (0, 100]. Sections have
/// `section_size` ids.
async fn in_its_second_epoch(
    dir: &TempDir, section_size: u64,
) -> (StateMachine, Memory, Namespace) {
    let options = StoreOptions::new(Arc::new(BootClock));
    let store = Store::open(dir.path(), "test", 1, options).expect("a store");
    let mut machine = StateMachine::open(&store, 1).expect("a table");
    let view = machine.view();
    let create = Command::create_namespace(NamespaceConfig {
        step: 100,
        section_size,
        ..NamespaceConfig::new("book")
    });
    machine.apply_now(1, [create, Command::BeginEpoch]).await;
    let book = view.namespaces().by_name("book").cloned().expect("books");
    for entry in bumps_of(&book, &[7]) {
        machine.apply_now(1, [entry]).await;
    }
    machine.apply_now(2, [Command::BeginEpoch]).await;
    let epoch = view.ledger().expect("a ledger").epoch;
    assert_eq!(epoch, 2);
    let memory = memory_of(epoch, view);
    (machine, memory, book)
}

/// Entries that bump the sections of these ids by a step.
fn bumps_of(namespace: &Namespace, ids: &[u64]) -> impl Iterator<Item = Command> {
    let step = namespace.config.step;
    let raise = CeilingRaise { numbers: step, unused_max: step, step, up_to: 0 };
    let bump = move |id: &u64| Bump { section: namespace.section_of(Key::Id(*id)), raise };
    ids.chunks(8_192).map(move |some| Command::Bump {
        bumps: some.iter().map(bump).collect(),
        skipped: Vec::new(),
        now_ms: 1_795_000_000_000,
    })
}

/// An empty memory of a term whose epoch has the term's number.
fn memory_of(term: u64, view: AppliedView) -> Memory {
    let (clock, metrics) = (Arc::new(BootClock), Metrics::new());
    let (shards, work) = (Shards::default(), BlockingExecutor::Inline);
    Memory::new((term, term), shards, view, clock, metrics, work, usize::MAX)
}

/// A lease of `term` that a sole voter holds.
fn lease_of(term: u64) -> Arc<TermLease> {
    let clock = LeaseClock::new(Arc::new(BootClock), 1, Duration::from_secs(60));
    clock.begin(term, Quorums::new(0, [[1].into()]))
}

/// Closes the gate of a memory, as a handover does once nobody is inside.
fn close_gate(memory: &Memory) {
    assert!(memory.gate().advance(TermStage::Closing) && memory.gate().is_empty());
    assert!(memory.gate().advance(TermStage::Closed));
}

/// A term whose epoch gives (100, 200] of book 7. The term before had (0, 100].
async fn second_term(dir: &TempDir) -> (Memory, Namespace) {
    let (_, memory, book) = in_its_second_epoch(dir, 1).await;
    (memory, book)
}

fn first_of(answer: &TakeAnswer) -> Option<u64> {
    match answer {
        TakeAnswer::Done(Ok(range)) => Some(range.first),
        TakeAnswer::Done(Err(_)) | TakeAnswer::Later(_) => None,
    }
}

#[tokio::test]
async fn the_first_touch_of_a_live_section_takes_from_the_epochs_chunk_at_once() {
    let dir = TempDir::new().expect("a directory");
    let (memory, book) = second_term(&dir).await;
    let (answer, need) = memory.take(&book, Key::Id(7), 1);
    assert_eq!((first_of(&answer), need), (Some(101), None));
    let (answer, need) = memory.take(&book, Key::Id(8), 1);
    assert_eq!(first_of(&answer), None, "its record is not in memory");
    assert_eq!(need.map(|(_, need)| need), Some(Need::Read));
}

#[tokio::test]
async fn a_section_that_could_not_be_checkpointed_is_checkpointed_later() {
    let dir = TempDir::new().expect("a directory");
    let (memory, book) = second_term(&dir).await;
    assert_eq!(first_of(&memory.take(&book, Key::Id(7), 1).0), Some(101));
    for _ in 0..2 {
        assert_eq!(memory.uncheckpointed(), 1);
        let (sections, places): (Vec<_>, Vec<_>) =
            memory.take_uncheckpointed(9).into_iter().unzip();
        assert_eq!((sections, memory.uncheckpointed()), (vec![book.section_of(Key::Id(7))], 0));
        memory.put_uncheckpointed_back(places);
    }
}

#[tokio::test]
async fn a_closed_memory_says_what_was_used_also_of_chunks_that_were_used_up() {
    let dir = TempDir::new().expect("a directory");
    let (memory, book) = second_term(&dir).await;
    let (answer, _) = memory.take(&book, Key::Id(7), 100);
    assert_eq!(first_of(&answer), Some(101));
    close_gate(&memory);
    let section = book.section_of(Key::Id(7));
    let used = 200;
    assert_eq!(memory.close(), Some(vec![SectionUse { section, used, skipped: 0 }]));
}

/// In the term before, the only call for the section was given up before the record was read.
#[tokio::test]
async fn a_section_that_was_taken_over_untouched_is_not_bumped_before_a_look_at_its_record() {
    let dir = TempDir::new().expect("a directory");
    let (memory, mut users) = second_term(&dir).await;
    users.config.section_size = 100;
    let (hash, number) = memory.shards.find(&users, Key::Id(7));
    let hasher = memory.shards.hasher();
    (memory.shards.lock(number)).insert(hasher, hash, &users, Key::Id(7));
    for key in [7, 8] {
        let (answer, need) = memory.take(&users, Key::Id(key), 1);
        assert_eq!(first_of(&answer), None);
        let need = need.map(|(_, need)| need);
        let wanted = (key == 7).then_some(Need::Read);
        assert_eq!(need, wanted, "the second call waits for the same record");
    }
    let (hash, number) = memory.shards.find(&users, Key::Id(107));
    let hasher = memory.shards.hasher();
    (memory.shards.lock(number)).insert(hasher, hash, &users, Key::Id(107));
    let (_, need) = memory.take(&users, Key::Id(108), 1);
    assert_eq!(need.map(|(_, need)| need), Some(Need::Read), "of a key that is new");
}

/// Its epoch's chunk of the section may be used up to anywhere.
#[tokio::test]
async fn an_abandoned_memory_gives_no_chunk_a_second_time_and_does_not_say_what_was_used() {
    let dir = TempDir::new().expect("a directory");
    let (memory, book) = second_term(&dir).await;
    let (answer, _) = memory.take(&book, Key::Id(7), 5);
    assert_eq!(first_of(&answer), Some(101));
    // A call inside the gate goes on after the memory was abandoned.
    let _inside = memory.gate().enter();
    let lease = lease_of(memory.term());
    lease.void();
    memory.abandon(&lease);
    let (answer, need) = memory.take(&book, Key::Id(7), 1);
    assert_eq!(first_of(&answer), None);
    let (place, _) = need.expect("a request that nobody serves");
    let noted = memory.begin_read(place).expect("a section");
    let record = memory.view().section(&noted.0).expect("a record");
    let _ = memory.record_read(place, &noted, record, &book);
    assert_eq!(memory.current(&book, Key::Id(7)), None);
    // Nor does it bump anything: that chunk would be skipped, too. The call ends.
    assert!(memory.next_bump(place, &memory.view().namespaces()).is_none());
    let TakeAnswer::Later(mut later) = answer else {
        panic!("{answer:?}");
    };
    assert!(later.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
    assert_eq!(memory.close(), None);
}

#[tokio::test]
#[should_panic(expected = "calls of a term go on without its memory")]
async fn no_memory_is_dropped_while_its_lease_is_held_and_a_call_is_inside() {
    let dir = TempDir::new().expect("a directory");
    let (memory, _) = second_term(&dir).await;
    let _inside = memory.gate().enter();
    memory.abandon(&lease_of(memory.term()));
}

#[tokio::test]
#[should_panic(expected = "a term that is Closing may take numbers meanwhile")]
async fn what_a_term_used_is_not_told_while_calls_are_waited_for() {
    let dir = TempDir::new().expect("a directory");
    let (memory, _) = second_term(&dir).await;
    memory.gate().advance(TermStage::Closing);
    let _ = memory.close();
}
