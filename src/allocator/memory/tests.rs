//! What a memory gives at first touches, and what it says once it was closed or abandoned.

use tempfile::TempDir;
use tokio::sync::oneshot;

use super::*;
use crate::{
    clock::BootClock,
    consensus::StateMachine,
    sequence::{Command, NamespaceConfig},
    storage::{Store, StoreOptions},
};

/// A term whose lift gives (100, 200] of book 7. The term before had (0, 100].
async fn second_term(dir: &TempDir) -> (Memory, Namespace) {
    let options = StoreOptions::new(Arc::new(BootClock));
    let store = Store::open(dir.path(), "test", 1, options).expect("a store");
    let mut machine = StateMachine::open(&store, 1).expect("a table");
    let view = machine.view();
    let create = Command::create_namespace(NamespaceConfig {
        step: 100,
        ..NamespaceConfig::new("book")
    });
    machine.apply_now(1, [create, Command::Lift]).await;
    let book = view.namespaces().by_name("book").cloned().expect("books");
    let raise = Raise {
        numbers: 100,
        unused_max: 100,
        step: 100,
        up_to: 0,
    };
    let section = book.section_of(Key::Id(7));
    let bump = Command::Bump(vec![Bump { section, raise }]);
    machine.apply_now(1, [bump]).await;
    machine.apply_now(2, [Command::Lift]).await;
    let lift = view.ledger().expect("a ledger").lift;
    assert_eq!(lift, 2);
    let (clock, metrics) = (Arc::new(BootClock), Metrics::new());
    let memory = Memory::new(
        2,
        lift,
        Shards::default(),
        view,
        clock,
        metrics,
        BlockingExecutor::Inline,
    );
    (memory, book)
}

fn first_of(answer: &Answer) -> Option<u64> {
    match answer {
        Answer::Taken(Ok(range)) => Some(range.first),
        Answer::Taken(Err(_)) | Answer::Later(_) => None,
    }
}

#[tokio::test]
async fn the_first_touch_of_a_live_section_takes_from_the_lifts_chunk_at_once() {
    let dir = TempDir::new().expect("a directory");
    let (memory, book) = second_term(&dir).await;
    let (answer, need) = memory.take(&book, Key::Id(7), 1);
    assert_eq!((first_of(&answer), need), (Some(101), None));
    let (answer, need) = memory.take(&book, Key::Id(8), 1);
    assert_eq!(first_of(&answer), None, "its record is not in memory");
    assert_eq!(need.map(|(_, need)| need), Some(Need::Read));
    assert_eq!((memory.unsettled(), memory.take_unsettled(9).len()), (1, 1));
    assert_eq!(memory.unsettled(), 0);
}

#[tokio::test]
async fn a_closed_memory_says_what_was_used_also_of_chunks_that_were_used_up() {
    let dir = TempDir::new().expect("a directory");
    let (memory, book) = second_term(&dir).await;
    let (answer, _) = memory.take(&book, Key::Id(7), 100);
    assert_eq!(first_of(&answer), Some(101));
    memory.gate().close();
    let section = book.section_of(Key::Id(7));
    let used = 200;
    assert_eq!(memory.close(), Some(vec![Trim { section, used }]));
}

/// In the term before, the only call for the section was given up before the record was read.
#[tokio::test]
async fn a_section_that_was_inherited_untouched_is_not_bumped_before_a_look_at_its_record() {
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
    assert_eq!(
        need.map(|(_, need)| need),
        Some(Need::Read),
        "of a key that is new"
    );
}

/// Its lift's chunk of the section may be used up to anywhere.
#[tokio::test]
async fn an_abandoned_memory_gives_no_chunk_a_second_time_and_does_not_say_what_was_used() {
    let dir = TempDir::new().expect("a directory");
    let (memory, book) = second_term(&dir).await;
    let (answer, _) = memory.take(&book, Key::Id(7), 5);
    assert_eq!(first_of(&answer), Some(101));
    // A call inside the gate goes on after the memory was abandoned.
    memory.abandon();
    let (answer, need) = memory.take(&book, Key::Id(7), 1);
    assert_eq!(first_of(&answer), None);
    let (place, _) = need.expect("a request that nobody serves");
    let id = memory.section_id(place).expect("a section");
    let record = memory.view().section(&id).expect("a record");
    memory.record_read(place, &id, record, &book);
    assert_eq!(memory.current(&book, Key::Id(7)), None);
    // Nor does it bump anything: that chunk would be skipped, too. The call ends.
    assert!(
        memory
            .propose_bump(place, &memory.view().namespaces())
            .is_none()
    );
    let Answer::Later(mut later) = answer else {
        panic!("{answer:?}");
    };
    assert!(
        later
            .try_recv()
            .is_err_and(|error| error == oneshot::error::TryRecvError::Closed)
    );
    assert_eq!(memory.close(), None);
}
