//! The store keeps what it acknowledged, and says so when it cannot.

use std::{
    future::ready,
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use openraft::{
    RaftLogReader, StorageError,
    storage::{IOFlushed, RaftLogStorage, RaftSnapshotBuilder, RaftStateMachine},
    testing::log::{StoreBuilder, Suite},
    type_config::TypeConfigExt,
    vote::RaftLeaderId,
};
use ratchet::{
    clock::BootClock,
    consensus::StateMachine,
    sequence::{Bump, Command, NamespaceConfig, NamespaceId, SectionId, SectionKey},
    storage::{
        Entry, IncomingSnapshot, LogId, LogStore, Store, StoreError, StoreOptions, Types, Vote,
    },
};
use tempfile::TempDir;

fn options() -> StoreOptions {
    StoreOptions::new(Arc::new(BootClock))
}

fn open(dir: &Path) -> Result<Arc<Store>, StoreError> {
    Store::open(dir, "test", 1, options())
}

struct Builder;

impl StoreBuilder<Types, LogStore, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<Types>> {
        let dir = TempDir::new().unwrap();
        let store = open(dir.path()).unwrap();
        let log = LogStore::open(&store, 1).unwrap();
        let machine = StateMachine::open(&store, 1).unwrap();
        Ok((dir, log, machine))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openrafts_own_suite_passes_on_the_real_store() {
    Suite::test_all(Builder).await.unwrap();
}

fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(Vote::new(term, 1).leader_id.to_committed(), index)
}

fn entry(index: u64, command: Command) -> Entry {
    use openraft::entry::RaftEntry;
    Entry::new(log_id(1, index), openraft::EntryPayload::Normal(command))
}

fn bump(index: u64, numbers: u64) -> Entry {
    let section = section(7);
    let bump = Bump {
        section,
        numbers,
        unused_max: numbers,
    };
    entry(index, Command::Bump(vec![bump]))
}

fn section(id: u64) -> SectionId {
    SectionId {
        namespace: NamespaceId(1),
        key: SectionKey::Id(id),
    }
}

/// A disk whose fsyncs wait until they are let through.
#[derive(Default)]
struct Disk {
    open: Mutex<bool>,
    changed: Condvar,
    syncs: AtomicUsize,
}

impl Disk {
    fn set_open(&self, open: bool) {
        *self.open.lock().unwrap() = open;
        self.changed.notify_all();
    }
}

fn waiting(disk: &Arc<Disk>) -> StoreOptions {
    let disk = disk.clone();
    StoreOptions {
        before_sync: Arc::new(move || {
            let mut open = disk.open.lock().unwrap();
            while !*open {
                open = disk.changed.wait(open).unwrap();
            }
            disk.syncs.fetch_add(1, Ordering::SeqCst);
            Box::pin(ready(Ok(())))
        }),
        ..options()
    }
}

type Flushed = tokio::sync::oneshot::Receiver<Result<(), std::io::Error>>;

async fn append(log: &mut LogStore, entry: Entry) -> (Result<(), std::io::Error>, Flushed) {
    let (done, flushed) = Types::oneshot();
    let appended = log.append([entry], IOFlushed::signal(done)).await;
    (appended, flushed)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_appended_can_be_read_at_once_and_one_fsync_serves_all_that_wait() {
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Disk::default());
    disk.set_open(true);
    let store = Store::open(dir.path(), "test", 1, waiting(&disk)).unwrap();
    let mut log = LogStore::open(&store, 1).unwrap();
    let mut reader = log.get_log_reader().await;
    disk.set_open(false);
    let before = disk.syncs.load(Ordering::SeqCst);
    let (appended, mut first) = append(&mut log, bump(0, 10)).await;
    appended.unwrap();
    assert_eq!(reader.try_get_log_entries(0..9).await.unwrap().len(), 1);
    assert!(first.try_recv().is_err(), "not on the disk yet");
    assert!(store.health().oldest_pending().is_some());
    // While the disk is at the first, others queue up behind it.
    let mut behind = Vec::new();
    for index in 1..=50 {
        let (done, flushed) = Types::oneshot();
        let mut log = LogStore::open(&store, 1).unwrap();
        let appending =
            tokio::spawn(
                async move { log.append([bump(index, 10)], IOFlushed::signal(done)).await },
            );
        behind.push((appending, flushed));
    }
    disk.set_open(true);
    first.await.unwrap().unwrap();
    for (appending, flushed) in behind {
        appending.await.unwrap().unwrap();
        flushed.await.unwrap().unwrap();
    }
    let syncs = disk.syncs.load(Ordering::SeqCst) - before;
    assert!((2..=20).contains(&syncs), "51 appends cost {syncs} fsyncs");
    assert_eq!(reader.try_get_log_entries(..).await.unwrap().len(), 51);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_fsync_is_told_with_what_to_do_and_never_tried_again() {
    let dir = TempDir::new().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let failing = StoreOptions {
        before_sync: Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            Box::pin(ready(Err(
                "IO error: While fdatasync: 000004.log: Input/output error".to_owned(),
            )))
        }),
        ..options()
    };
    let store = Store::open(dir.path(), "test", 1, failing).unwrap();
    let mut log = LogStore::open(&store, 1).unwrap();
    let error = log
        .save_vote(&Vote::new(1, 1))
        .await
        .unwrap_err()
        .to_string();
    for part in [
        "000004.log",
        dir.path().to_str().unwrap(),
        "must stop",
        "check the disk",
    ] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    let (appended, flushed) = append(&mut log, bump(0, 10)).await;
    assert!(appended.is_err());
    assert!(flushed.await.unwrap().is_err());
    assert_eq!(calls.load(Ordering::SeqCst), 1, "it tried again");
    assert!(store.health().failure().unwrap().contains("000004.log"));
}

async fn apply(machine: &mut StateMachine, entries: impl IntoIterator<Item = Entry>) {
    let entries: Vec<_> = entries.into_iter().map(|entry| Ok((entry, None))).collect();
    machine.apply(futures::stream::iter(entries)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn vote_log_and_table_are_there_again_after_a_restart() {
    let dir = TempDir::new().unwrap();
    {
        let store = open(dir.path()).unwrap();
        assert!(!store.has_vote(1).unwrap());
        let mut log = LogStore::open(&store, 1).unwrap();
        log.save_vote(&Vote::new(3, 1)).await.unwrap();
        let (appended, flushed) = append(&mut log, bump(0, 10)).await;
        appended.unwrap();
        flushed.await.unwrap().unwrap();
        let mut machine = StateMachine::open(&store, 1).unwrap();
        let create = Command::CreateNamespace(NamespaceConfig::new("book"));
        apply(&mut machine, [entry(0, create), bump(1, 10), bump(2, 5)]).await;
    }
    let store = open(dir.path()).unwrap();
    assert!(store.has_vote(1).unwrap());
    let mut log = LogStore::open(&store, 1).unwrap();
    let mut reader = log.get_log_reader().await;
    assert_eq!(reader.read_vote().await.unwrap(), Some(Vote::new(3, 1)));
    assert_eq!(
        log.get_log_state().await.unwrap().last_log_id,
        Some(log_id(1, 0))
    );
    let mut machine = StateMachine::open(&store, 1).unwrap();
    assert_eq!(machine.applied_state().await.unwrap().0, Some(log_id(1, 2)));
    assert_eq!(machine.view().section(&section(7)).unwrap().max_seq, 15);
    assert!(machine.view().namespaces().by_name("book").is_some());
}

/// Every stored byte is covered: wherever one flips, it is noticed when read, and named.
#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_byte_of_a_record_is_noticed_and_names_the_directory() {
    let dir = TempDir::new().unwrap();
    {
        let store = open(dir.path()).unwrap();
        let mut log = LogStore::open(&store, 1).unwrap();
        let (appended, flushed) = append(&mut log, bump(0, 10)).await;
        appended.unwrap();
        flushed.await.unwrap().unwrap();
    }
    let path = dir.path().join("db");
    {
        let families = ["default", "log", "hard_state", "applied"];
        let db = rocksdb::DB::open_cf(&rocksdb::Options::default(), &path, families).unwrap();
        let log = db.cf_handle("log").unwrap();
        let (key, mut value) = db
            .iterator_cf(log, rocksdb::IteratorMode::Start)
            .next()
            .unwrap()
            .unwrap();
        let last = value.len() - 1;
        value[last] ^= 1;
        db.put_cf(log, key, value).unwrap();
    }
    let store = open(dir.path()).unwrap();
    let error = LogStore::open(&store, 1)
        .err()
        .expect("noticed")
        .to_string();
    assert!(error.contains("checksum"), "{error}");
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    assert!(error.contains("remove it from the cluster"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_sent_in_parts_gives_the_same_table_and_a_damaged_one_changes_nothing() {
    let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let source = open(from.path()).unwrap();
    let mut machine = StateMachine::open(&source, 1).unwrap();
    let create = |at, name: &str| entry(at, Command::CreateNamespace(NamespaceConfig::new(name)));
    let bumps = (0..3_000)
        .map(|id| Bump {
            section: section(id),
            numbers: id + 1,
            unused_max: id + 1,
        })
        .collect();
    apply(
        &mut machine,
        [create(0, "book"), entry(1, Command::Bump(bumps))],
    )
    .await;
    let mut builder = machine.get_snapshot_builder().await;
    // What comes after the builder was made is not in the snapshot.
    apply(&mut machine, [create(2, "late")]).await;
    let snapshot = builder.build_snapshot().await.unwrap();
    assert_eq!(snapshot.meta.last_log_id, Some(log_id(1, 1)));

    let target = open(to.path()).unwrap();
    let mut replica = StateMachine::open(&target, 1).unwrap();
    apply(&mut replica, [create(0, "old"), bump(1, 77)]).await;
    let mut parts: Vec<Vec<u8>> = Vec::new();
    loop {
        let part = snapshot
            .snapshot
            .read_part(parts.concat().len() as u64, 10_000)
            .unwrap();
        if part.is_empty() {
            break;
        }
        parts.push(part);
    }
    let arrive = |parts: &[Vec<u8>]| {
        let mut incoming = IncomingSnapshot::create(&target, 1).unwrap();
        parts.iter().for_each(|part| incoming.write(part).unwrap());
        incoming.finish()
    };
    let cut = arrive(&parts[..parts.len() - 1]).unwrap_err().to_string();
    assert!(cut.contains("ends too early"), "{cut}");
    let mut flipped = parts.clone();
    flipped[3][17] ^= 4;
    assert!(arrive(&flipped).is_err());
    let mut longer = parts.clone();
    longer.push(vec![0]);
    assert!(arrive(&longer).is_err());
    assert!(replica.view().namespaces().by_name("old").is_some());
    let left: Vec<_> = std::fs::read_dir(to.path().join("snapshots"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");

    let arrived = arrive(&parts).unwrap();
    replica
        .install_snapshot(&snapshot.meta, arrived)
        .await
        .unwrap();
    let check = |machine: &StateMachine| {
        let namespaces = machine.view().namespaces();
        let names: Vec<_> = namespaces.iter().map(|n| n.config.name.clone()).collect();
        assert_eq!(names, ["book"]);
        for id in 0..3_000 {
            assert_eq!(
                machine.view().section(&section(id)).unwrap().max_seq,
                id + 1
            );
        }
    };
    check(&replica);
    assert_eq!(replica.applied_state().await.unwrap().0, Some(log_id(1, 1)));
    drop((replica, target));
    let target = open(to.path()).unwrap();
    let mut replica = StateMachine::open(&target, 1).unwrap();
    check(&replica);
    let current = replica.get_current_snapshot().await.unwrap().expect("kept");
    assert_eq!(current.meta, snapshot.meta);
}
