//! The store keeps what it acknowledged, and says so when it cannot.

#[path = "common/power.rs"]
mod power;

use std::{
    future::ready,
    path::{Path, PathBuf},
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
use power::Names;
use ratchet::{
    clock::BootClock,
    consensus::StateMachine,
    sequence::{Bump, Command, NamespaceConfig, NamespaceId, SectionId, SectionKey},
    storage::{
        ArrivedSnapshot, Entry, IncomingSnapshot, LogId, LogStore, Snapshot, SnapshotData,
        SnapshotMeta, Store, StoreError, StoreOptions, Types, UnsyncedWrites, Vote,
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
        for index in 0..3 {
            let (appended, flushed) = append(&mut log, bump(index, 10)).await;
            appended.unwrap();
            flushed.await.unwrap().unwrap();
        }
        let mut machine = StateMachine::open(&store, 1).unwrap();
        let create = Command::create_namespace(NamespaceConfig::new("book"));
        apply(&mut machine, [entry(0, create), bump(1, 10), bump(2, 5)]).await;
    }
    let store = open(dir.path()).unwrap();
    assert!(store.has_vote(1).unwrap());
    let mut log = LogStore::open(&store, 1).unwrap();
    let mut reader = log.get_log_reader().await;
    assert_eq!(reader.read_vote().await.unwrap(), Some(Vote::new(3, 1)));
    assert_eq!(
        log.get_log_state().await.unwrap().last_log_id,
        Some(log_id(1, 2))
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
    assert!(error.contains("ratchet node remove"), "{error}");
}

/// All parts of a snapshot, as they are sent.
async fn parts_of(snapshot: Snapshot) -> Result<Vec<Vec<u8>>, StoreError> {
    let SnapshotData::Outgoing(mut snapshot) = snapshot.snapshot else {
        panic!("it is this node's own");
    };
    let mut parts = Vec::new();
    while let Some(part) = snapshot.next_part().await {
        parts.push(part?);
    }
    Ok(parts)
}

/// What arrives of `parts` at a node.
fn arrive(machine: &StateMachine, parts: &[Vec<u8>]) -> Result<ArrivedSnapshot, StoreError> {
    let mut incoming = IncomingSnapshot::create(&machine.view())?;
    parts.iter().try_for_each(|part| incoming.write(part))?;
    incoming.finish()
}

/// How many records a node's table family holds in all: its table's own, and any others.
fn records_applied(dir: &Path) -> usize {
    let families = ["default", "log", "hard_state", "applied"];
    let options = rocksdb::Options::default();
    let db = rocksdb::DB::open_cf_for_read_only(&options, dir.join("db"), families, false).unwrap();
    let applied = db.cf_handle("applied").unwrap();
    db.iterator_cf(applied, rocksdb::IteratorMode::Start)
        .count()
}

fn create(at: u64, name: &str) -> Entry {
    entry(at, Command::create_namespace(NamespaceConfig::new(name)))
}

/// One bump for each of `keys`: key n by n + 1 numbers.
fn bumps(at: u64, keys: std::ops::Range<u64>) -> Entry {
    let bump = |id| Bump {
        section: section(id),
        numbers: id + 1,
        unused_max: id + 1,
    };
    entry(at, Command::Bump(keys.map(bump).collect()))
}

fn check_bumped(machine: &StateMachine, keys: std::ops::Range<u64>) {
    let namespaces = machine.view().namespaces();
    let names: Vec<_> = namespaces.iter().map(|n| n.config.name.clone()).collect();
    assert_eq!(names, ["book"]);
    for id in keys {
        let max_seq = machine.view().section(&section(id)).unwrap().max_seq;
        assert_eq!(max_seq, id + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_sent_in_parts_gives_the_same_table_and_a_damaged_one_changes_nothing() {
    let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let source = open(from.path()).unwrap();
    let mut machine = StateMachine::open(&source, 1).unwrap();
    apply(&mut machine, [create(0, "book"), bumps(1, 0..9_000)]).await;
    let mut builder = machine.get_snapshot_builder().await;
    // What comes after the builder was made is not in the snapshot.
    apply(&mut machine, [create(2, "late")]).await;
    let snapshot = builder.build_snapshot().await.unwrap();
    let meta = snapshot.meta.clone();
    assert_eq!(meta.last_log_id, Some(log_id(1, 1)));
    let parts = parts_of(snapshot).await.unwrap();
    assert!(parts.len() > 1);

    let target = open(to.path()).unwrap();
    let mut replica = StateMachine::open(&target, 1).unwrap();
    apply(&mut replica, [create(0, "old"), bump(1, 77)]).await;
    let cut = arrive(&replica, &parts[..parts.len() - 1]).unwrap_err();
    assert!(cut.to_string().contains("ends too early"), "{cut}");
    let mut flipped = parts.clone();
    flipped[1][17] ^= 4;
    assert!(arrive(&replica, &flipped).is_err());
    let mut longer = parts.clone();
    longer.push(vec![0]);
    assert!(arrive(&replica, &longer).is_err());
    // Whole, and not wanted after all.
    drop(arrive(&replica, &parts).unwrap());
    assert!(replica.view().namespaces().by_name("old").is_some());
    assert_eq!(records_applied(to.path()), 3, "something was left behind");

    let arrived = arrive(&replica, &parts).unwrap();
    assert_eq!(*arrived.meta(), meta);
    let arrived = SnapshotData::Arrived(arrived);
    replica.install_snapshot(&meta, arrived).await.unwrap();
    check_bumped(&replica, 0..9_000);
    assert_eq!(replica.applied_state().await.unwrap().0, Some(log_id(1, 1)));
    drop((replica, target));
    assert_eq!(records_applied(to.path()), 9_002, "the old table was left");
    let target = open(to.path()).unwrap();
    let mut replica = StateMachine::open(&target, 1).unwrap();
    check_bumped(&replica, 0..9_000);
    let current = replica.get_current_snapshot().await.unwrap().expect("one");
    assert_eq!(current.meta, meta);
    assert_eq!(parts_of(current).await.unwrap(), parts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_taken_without_a_word_to_the_disk() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path()).unwrap();
    let mut machine = StateMachine::open(&store, 1).unwrap();
    apply(&mut machine, [create(0, "book"), bumps(1, 0..100)]).await;
    let files = || {
        let mut files = Vec::new();
        let mut dirs = vec![dir.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                match entry.file_type().unwrap().is_dir() {
                    true => dirs.push(entry.path()),
                    false => files.push((entry.path(), entry.metadata().unwrap().len())),
                }
            }
        }
        files.sort();
        files
    };
    let before = files();
    let built = machine.get_snapshot_builder().await.build_snapshot().await;
    assert_eq!(built.unwrap().meta.last_log_id, Some(log_id(1, 1)));
    let current = machine.get_current_snapshot().await.unwrap().unwrap();
    assert!(!parts_of(current).await.unwrap().is_empty());
    assert_eq!(files(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_files_of_an_earlier_release_do_not_keep_a_node_from_starting_damaged_or_not() {
    let dir = TempDir::new().unwrap();
    {
        let store = open(dir.path()).unwrap();
        let mut machine = StateMachine::open(&store, 1).unwrap();
        apply(&mut machine, [create(0, "book"), bumps(1, 0..9)]).await;
    }
    let snapshots = dir.path().join("snapshots");
    std::fs::create_dir(&snapshots).unwrap();
    std::fs::write(
        snapshots.join("1-1-900.snap"),
        b"RATCHSNP, and then nothing",
    )
    .unwrap();
    let store = open(dir.path()).unwrap();
    check_bumped(&StateMachine::open(&store, 1).unwrap(), 0..9);
    assert!(!snapshots.exists(), "they only take up space");
}

/// A crash may come while a snapshot arrives, or after it arrived and before it was installed.
#[tokio::test(flavor = "multi_thread")]
async fn what_arrived_of_a_snapshot_before_a_crash_is_gone_after_it() {
    let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let source = open(from.path()).unwrap();
    let mut machine = StateMachine::open(&source, 1).unwrap();
    apply(&mut machine, [create(0, "late"), bumps(1, 0..9_000)]).await;
    let snapshot = machine.get_current_snapshot().await.unwrap().unwrap();
    let meta = snapshot.meta.clone();
    let parts = parts_of(snapshot).await.unwrap();
    {
        let target = open(to.path()).unwrap();
        let mut replica = StateMachine::open(&target, 1).unwrap();
        apply(&mut replica, [create(0, "book"), bumps(1, 0..50)]).await;
        let mut half = IncomingSnapshot::create(&replica.view()).unwrap();
        half.write(&parts[0]).unwrap();
        // Nobody tidies up after a crash.
        std::mem::forget((half, arrive(&replica, &parts).unwrap()));
        std::mem::forget(replica);
        // The lock on the directory goes with the process: here, the directory is copied.
        copy(to.path(), &to.path().with_extension("crashed"));
        std::mem::forget(target);
    }
    let crashed = to.path().with_extension("crashed");
    assert!(records_applied(&crashed) > 9_000, "this shows nothing");
    let target = open(&crashed).unwrap();
    let mut replica = StateMachine::open(&target, 1).unwrap();
    check_bumped(&replica, 0..50);
    let arrived = SnapshotData::Arrived(arrive(&replica, &parts).unwrap());
    replica.install_snapshot(&meta, arrived).await.unwrap();
    drop((replica, target));
    let target = open(&crashed).unwrap();
    let replica = StateMachine::open(&target, 1).unwrap();
    assert_eq!(
        replica.view().section(&section(8_999)).unwrap().max_seq,
        9_000
    );
    drop((replica, target));
    assert_eq!(
        records_applied(&crashed),
        9_002,
        "something was left behind"
    );
    std::fs::remove_dir_all(crashed).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// The table's blocks on the disk rot: whoever reads them is told, and nothing of it is sent on.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_table_is_not_sent_and_does_not_stop_the_node() {
    let dir = TempDir::new().unwrap();
    {
        let store = open(dir.path()).unwrap();
        let mut machine = StateMachine::open(&store, 1).unwrap();
        apply(&mut machine, [create(0, "book"), bumps(1, 0..100)]).await;
    }
    {
        let families = ["default", "log", "hard_state", "applied"];
        let path = dir.path().join("db");
        let db = rocksdb::DB::open_cf(&rocksdb::Options::default(), path, families).unwrap();
        let applied = db.cf_handle("applied").unwrap();
        let last = db.iterator_cf(applied, rocksdb::IteratorMode::End).next();
        let (key, mut value) = last.unwrap().unwrap();
        let end = value.len() - 1;
        value[end] ^= 1;
        db.put_cf(applied, key, value).unwrap();
    }
    let store = open(dir.path()).unwrap();
    let mut machine = StateMachine::open(&store, 1).unwrap();
    let snapshot = machine.get_current_snapshot().await.unwrap().unwrap();
    let damaged = parts_of(snapshot).await.unwrap_err().to_string();
    assert!(damaged.contains("checksum"), "{damaged}");
    // To Raft nothing happened: the log can be purged, entries can be applied.
    machine
        .get_snapshot_builder()
        .await
        .build_snapshot()
        .await
        .unwrap();
    apply(&mut machine, [bump(2, 5)]).await;
}

const NEWER: &str = "99.1.0";

/// As if a newer release had opened the directory.
fn newer_release_was_here(dir: &Path) {
    let marker = dir.join("NODE");
    let text = std::fs::read_to_string(&marker).unwrap();
    let this = concat!("\"release\": \"", env!("CARGO_PKG_VERSION"), "\"");
    assert!(text.contains(this), "{text}");
    let newer = text.replace(this, &format!("\"release\": \"{NEWER}\""));
    std::fs::write(&marker, newer).unwrap();
}

fn assert_newer(error: &str) {
    for part in ["newer release", &format!("{NEWER} or later"), "not damaged"] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    assert!(!error.contains("empty the directory"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_a_newer_release_is_not_called_damaged_and_the_release_is_named() {
    let dir = TempDir::new().unwrap();
    {
        let store = open(dir.path()).unwrap();
        let mut log = LogStore::open(&store, 1).unwrap();
        let (appended, flushed) = append(&mut log, bump(0, 10)).await;
        appended.unwrap();
        flushed.await.unwrap().unwrap();
    }
    {
        let families = ["default", "log", "hard_state", "applied"];
        let path = dir.path().join("db");
        let db = rocksdb::DB::open_cf(&rocksdb::Options::default(), &path, families).unwrap();
        let log = db.cf_handle("log").unwrap();
        let mut records = db.iterator_cf(log, rocksdb::IteratorMode::Start);
        let (key, mut value) = records.next().unwrap().unwrap();
        value[0] += 1;
        db.put_cf(log, key, value).unwrap();
    }
    let why = || {
        let store = open(dir.path()).unwrap();
        LogStore::open(&store, 1)
            .err()
            .expect("unreadable")
            .to_string()
    };
    let damaged = why();
    assert!(
        damaged.contains("is damaged"),
        "nobody newer was here: {damaged}"
    );
    newer_release_was_here(dir.path());
    assert_newer(&why());
    // To have been opened by an older one does not make it forget.
    assert_newer(&why());
}

#[test]
fn a_directory_of_another_format_names_the_release_that_reads_it() {
    let dir = TempDir::new().unwrap();
    drop(open(dir.path()).unwrap());
    let marker = dir.path().join("NODE");
    let written = std::fs::read_to_string(&marker).unwrap();
    newer_release_was_here(dir.path());
    let newer = std::fs::read_to_string(&marker).unwrap();
    let newer = newer.replace("\"format_version\": 3", "\"format_version\": 4");
    // Nothing else is known of it.
    std::fs::write(&marker, newer.replace("\"incarnation\"", "\"embodiment\"")).unwrap();
    assert_newer(&open(dir.path()).err().expect("unreadable").to_string());

    let mut earlier: serde_json::Value = serde_json::from_str(&written).unwrap();
    earlier["format_version"] = 2.into();
    earlier.as_object_mut().unwrap().remove("release");
    std::fs::write(&marker, earlier.to_string()).unwrap();
    let error = open(dir.path()).err().expect("unreadable").to_string();
    assert!(error.contains("before release 0.1.0"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_namespaces_are_created_one_by_one_and_then_no_more() {
    const LIMIT: u64 = 10_000;
    let dir = TempDir::new().unwrap();
    let store = open(dir.path()).unwrap();
    let mut machine = StateMachine::open(&store, 1).unwrap();
    let create = |at| {
        let config = NamespaceConfig::new(format!("namespace-{at}"));
        entry(at, Command::create_namespace(config))
    };
    let started = std::time::Instant::now();
    for at in 1..=LIMIT {
        apply(&mut machine, [create(at)]).await;
    }
    println!("{LIMIT} namespaces in {:?}", started.elapsed());
    apply(&mut machine, [create(LIMIT + 1)]).await;
    let check = |machine: &StateMachine| {
        let namespaces = machine.view().namespaces();
        assert_eq!(namespaces.count() as u64, LIMIT);
        assert!(namespaces.by_name("namespace-1").is_some());
        assert!(namespaces.by_name("namespace-10000").is_some());
        assert!(namespaces.by_name("namespace-10001").is_none());
    };
    check(&machine);
    drop((machine, store));
    check(&StateMachine::open(&open(dir.path()).unwrap(), 1).unwrap());
}

/// A machine that can lose its power, with a store in a directory in a directory of its own.
struct Machine {
    dir: TempDir,
    names: Arc<Names>,
    cuts: usize,
}

impl Machine {
    fn new() -> Machine {
        let dir = TempDir::new().unwrap();
        Machine {
            names: Arc::new(Names::new(dir.path().join("kept"))),
            dir,
            cuts: 0,
        }
    }

    fn place(&self) -> PathBuf {
        self.dir.path().join(self.cuts.to_string())
    }

    fn open(&self) -> Arc<Store> {
        let names = self.names.clone();
        let forgetful = StoreOptions {
            unsynced: UnsyncedWrites::InProcess,
            directory_synced: Arc::new(move |dir| names.synced(dir)),
            ..options()
        };
        Store::open(&self.place().join("data"), "test", 1, forgetful).unwrap()
    }

    /// What is opened next is what is on the disk now.
    fn cut_power(&mut self) {
        let before = self.place();
        self.cuts += 1;
        self.names.cut_power(&before, &self.place());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_found_after_a_power_cut() {
    let mut machine = Machine::new();
    let store = machine.open();
    let incarnation = store.identity().incarnation;
    let mut log = LogStore::open(&store, 1).unwrap();
    log.save_vote(&Vote::new(3, 1)).await.unwrap();
    let (appended, flushed) = append(&mut log, bump(0, 10)).await;
    appended.unwrap();
    flushed.await.unwrap().unwrap();
    machine.cut_power();
    drop((log, store));
    let store = machine.open();
    assert_eq!(
        store.identity().incarnation,
        incarnation,
        "another directory"
    );
    let mut log = LogStore::open(&store, 1).unwrap();
    let mut reader = log.get_log_reader().await;
    assert_eq!(reader.read_vote().await.unwrap(), Some(Vote::new(3, 1)));
    let state = log.get_log_state().await.unwrap();
    assert_eq!(state.last_log_id, Some(log_id(1, 0)));
}

/// A snapshot of a table that entry (2, 100) was the last to change.
async fn snapshot_at_100(machine: &mut StateMachine) -> (SnapshotMeta, Vec<Vec<u8>>) {
    let create = Command::create_namespace(NamespaceConfig::new("book"));
    let create = openraft::EntryPayload::Normal(create);
    let entry = openraft::entry::RaftEntry::new(log_id(2, 100), create);
    apply(machine, [entry]).await;
    let mut builder = machine.get_snapshot_builder().await;
    let snapshot = builder.build_snapshot().await.unwrap();
    (snapshot.meta.clone(), parts_of(snapshot).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_was_installed_is_found_after_a_power_cut() {
    let (writer, mut reader) = (Machine::new(), Machine::new());
    let (source, target) = (writer.open(), reader.open());
    let mut original = StateMachine::open(&source, 1).unwrap();
    let mut replica = StateMachine::open(&target, 1).unwrap();
    let (meta, parts) = snapshot_at_100(&mut original).await;
    let arrived = SnapshotData::Arrived(arrive(&replica, &parts).unwrap());
    replica.install_snapshot(&meta, arrived).await.unwrap();
    reader.cut_power();
    drop((original, replica, source, target));
    let store = reader.open();
    let mut machine = StateMachine::open(&store, 1).unwrap();
    let current = machine.get_current_snapshot().await.unwrap();
    assert_eq!(current.expect("a snapshot").meta, meta);
    assert!(machine.view().namespaces().by_name("book").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installed_snapshot_takes_the_place_of_the_log_although_the_purge_was_lost() {
    let mut machine = Machine::new();
    let (source, target) = (Machine::new(), machine.open());
    let source = source.open();
    let mut original = StateMachine::open(&source, 1).unwrap();
    let (meta, parts) = snapshot_at_100(&mut original).await;

    // The last entry is of a later term than the snapshot's, and was never committed.
    let mut log = LogStore::open(&target, 1).unwrap();
    for (term, index) in [(1, 0), (1, 1), (3, 2)] {
        let blank = openraft::EntryPayload::Blank;
        let entry = openraft::entry::RaftEntry::new(log_id(term, index), blank);
        let (appended, flushed) = append(&mut log, entry).await;
        appended.unwrap();
        flushed.await.unwrap().unwrap();
    }
    let mut replica = StateMachine::open(&target, 1).unwrap();
    let arrived = SnapshotData::Arrived(arrive(&replica, &parts).unwrap());
    replica.install_snapshot(&meta, arrived).await.unwrap();
    log.purge(log_id(2, 100)).await.unwrap();
    machine.cut_power();
    drop((log, replica, target));

    let target = machine.open();
    let mut replica = StateMachine::open(&target, 1).unwrap();
    assert_eq!(
        replica.applied_state().await.unwrap().0,
        Some(log_id(2, 100))
    );
    for _ in 0..2 {
        let mut log = LogStore::open(&target, 1).unwrap();
        let state = log.get_log_state().await.unwrap();
        assert_eq!(state.last_log_id, Some(log_id(2, 100)));
        assert_eq!(state.last_purged_log_id, Some(log_id(2, 100)));
        let mut reader = log.get_log_reader().await;
        assert!(reader.try_get_log_entries(..).await.unwrap().is_empty());
    }
}
