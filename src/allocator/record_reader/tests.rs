//! The record reader's use of records, and of a table that cannot be read.

use tempfile::TempDir;

use super::*;
use crate::{
    allocator::{
        floor::FloorOf,
        memory::{Need, shards::Shards},
        section::answers::TakeAnswer,
        stage::TermStage,
    },
    clock::BootClock,
    consensus::{LeaseClock, Quorums, StateMachine},
    metrics::{FirstTouch, Metrics},
    sequence::{Bump, CeilingRaise, Command, Key, Namespace, NamespaceConfig},
    storage::{BlockingExecutor, Store, StoreOptions},
};

const STEP: u64 = 100;

/// A term, and the reader of its records, which are all on the disk.
struct Reading {
    memory: Arc<Memory>,
    lease: Arc<TermLease>,
    book: Namespace,
    reader: mpsc::UnboundedSender<MemoryPlace>,
    bumps: mpsc::UnboundedReceiver<Request>,
    _dir: TempDir,
}

impl Reading {
    /// A term whose epoch gives the second step of each of the `books`. The term before had the first one.
    async fn of(books: u64) -> Reading {
        let dir = TempDir::new().expect("a directory");
        let options =
            StoreOptions { recent_records_bytes: 0, ..StoreOptions::new(Arc::new(BootClock)) };
        let open = || Store::open(dir.path(), "test", 1, options.clone());
        let store = open().expect("a store");
        let mut machine = StateMachine::open(&store, 1).expect("a table");
        let view = machine.view();
        let create = Command::create_namespace(NamespaceConfig {
            step: STEP,
            ..NamespaceConfig::new("book")
        });
        machine.apply_now(1, [create, Command::BeginEpoch]).await;
        let book = view.namespaces().by_name("book").cloned().expect("books");
        let raise = CeilingRaise { numbers: STEP, unused_max: STEP, step: STEP, up_to: 0 };
        let bump = |id| Bump { section: book.section_of(Key::Id(id)), raise };
        for first in (0..books).step_by(8_192) {
            let some = first..books.min(first + 8_192);
            let bumps =
                Command::Bump { bumps: some.map(bump).collect(), skipped: vec![], now_ms: 0 };
            machine.apply_now(1, [bumps]).await;
        }
        machine.apply_now(2, [Command::BeginEpoch]).await;
        // Nothing of the table is in a cache afterwards.
        drop((machine, view, store));
        let store = loop {
            match open() {
                // Its writer is still letting go of the directory.
                Err(error) if error.to_string().contains("in use") => {
                    tokio::task::yield_now().await
                }
                opened => break opened.expect("a store"),
            }
        };
        let view = StateMachine::open(&store, 1).expect("a table").view();
        let epoch = view.ledger().expect("a ledger").epoch;
        let (clock, metrics) = (Arc::new(BootClock), Metrics::new());
        let work = BlockingExecutor::Threads;
        let shards = Shards::default();
        let (own_clock, bytes_max) = (clock.clone(), usize::MAX);
        let memory = Memory::new((2, epoch), shards, view, own_clock, metrics, work, bytes_max);
        let memory = Arc::new(memory);
        let lasts = std::time::Duration::from_secs(60);
        let lease = LeaseClock::new(clock, 1, lasts).begin(2, Quorums::new(0, [[1].into()]));
        let (reader, places) = mpsc::unbounded_channel();
        let (bumper, bumps) = mpsc::unbounded_channel();
        tokio::spawn(run(memory.clone(), lease.clone(), places, bumper));
        Reading { memory, lease, book, reader, bumps, _dir: dir }
    }

    /// Asks for a number of a book for the first time.
    fn ask(&self, id: u64) -> TakeAnswer {
        let (answer, need) = self.memory.take(&self.book, Key::Id(id), 1);
        let (place, need) = need.expect("its record is not in memory");
        assert_eq!(need, Need::Read);
        self.reader.send(place).expect("a reader");
        answer
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sections_that_are_touched_at_once_all_get_what_the_epoch_gave_them() {
    const BOOKS: u64 = 3 * (READS_MAX * READ_SECTIONS_MAX) as u64;
    let mut reading = Reading::of(BOOKS).await;
    let answers: Vec<_> = (0..=BOOKS).map(|id| reading.ask(id)).collect();
    let mut answers = answers.into_iter();
    for answer in answers.by_ref().take(BOOKS as usize) {
        let TakeAnswer::Later(later) = answer else {
            panic!("it waits for the disk");
        };
        let range = later.await.expect("an answer").accept().expect("a number");
        assert_eq!(range.first, STEP + 1);
    }
    assert_eq!(reading.memory.set_metrics().first_touches.get(FirstTouch::disk), BOOKS);
    // The last one has no record.
    assert!(matches!(reading.bumps.recv().await, Some(Request::Bump(_))));
    assert!(reading.bumps.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_read_ends_the_term() {
    let reading = Reading::of(2).await;
    let unread = reading.book.section_of(Key::Id(1));
    reading.memory.view().damage(&unread);
    let TakeAnswer::Later(read) = reading.ask(0) else {
        panic!("it waits for the disk");
    };
    assert!(read.await.is_ok());
    assert!(!reading.lease.is_void());
    let TakeAnswer::Later(unread) = reading.ask(1) else {
        panic!("it waits for the disk");
    };
    assert!(unread.await.is_err(), "nobody serves it any more");
    assert!(reading.lease.is_void());
    assert_eq!(reading.memory.gate().stage(), TermStage::Abandoned);
    assert!(reading.reader.is_closed(), "nobody listens any more");
}

/// The bumper has ended, because the term was closed, and a call that was given up before still has its record read.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_read_after_the_bumper_has_ended_loses_no_memory() {
    let mut reading = Reading::of(1).await;
    let (memory, new) = (reading.memory.clone(), Key::Id(1));
    let (answer, need) = memory.raise(&reading.book, (FloorOf::Key, new), 1_000);
    let (place, _) = need.expect("its record is not in memory");
    drop(answer);
    memory.gate().advance(TermStage::Closing);
    reading.bumps.close();
    let read = read(&memory, vec![place]).await.expect("a record");
    let (bumper, ended) = mpsc::unbounded_channel();
    drop(ended);
    assert_eq!(take_in(&memory, read, &bumper), []);
    assert!(!memory.has_ended(), "a handover tells what was used");
}

/// The database is opened again, so that nothing is in its cache.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures: cargo test --release --lib records_are_read -- --ignored --nocapture"]
async fn how_fast_records_are_read() {
    const BOOKS: u64 = 1_000_000;
    let reading = Reading::of(BOOKS).await;
    let started = std::time::Instant::now();
    // In an order that jumps from block to block. The two numbers have no common divisor.
    let answers: Vec<_> = (0..BOOKS).map(|step| reading.ask(step * 618_031 % BOOKS)).collect();
    for answer in answers {
        if let TakeAnswer::Later(later) = answer {
            later.await.expect("an answer").accept().expect("a number");
        }
    }
    let per_second = BOOKS as f64 / started.elapsed().as_secs_f64();
    println!("{per_second:.0} sections a second");
}
