//! The store as Raft's log, hard state and state machine: its promises to Raft.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::ready,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::common::{
    stores::{
        append, append_durably, apply, arrive, begin_epoch, bump, bumps, create, log_id, open,
        options, parts_of, section,
    },
    until,
};
use openraft::{
    EntryPayload, RaftLogReader, StorageError,
    entry::RaftEntry,
    storage::{IOFlushed, RaftLogStorage, RaftStateMachine},
    testing::log::{StoreBuilder, Suite},
    type_config::TypeConfigExt,
};
use ratchet::{
    consensus::StateMachine,
    storage::{
        Entry, LogStore, Member, Membership, SnapshotData, Store, StoreOptions, Types, Vote,
    },
};
use tempfile::TempDir;

struct Builder;

impl StoreBuilder<Types, LogStore, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<Types>> {
        let dir = TempDir::new().unwrap();
        let store = Store::open(dir.path(), "test", 1, options()).unwrap();
        let log = LogStore::open(&store, 1).unwrap();
        let machine = StateMachine::open(&store, 1).unwrap();
        Ok((dir, log, machine))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_passes_openrafts_own_storage_suite() {
    Suite::test_all(Builder).await.unwrap();
}

/// A disk whose fsyncs wait while it is shut. Each is counted when it begins.
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

fn options_that_wait_for(disk: &Arc<Disk>) -> StoreOptions {
    let disk = disk.clone();
    StoreOptions {
        before_sync: Arc::new(move || {
            disk.syncs.fetch_add(1, Ordering::SeqCst);
            let mut open = disk.open.lock().unwrap();
            while !*open {
                open = disk.changed.wait(open).unwrap();
            }
            Box::pin(ready(Ok(())))
        }),
        ..options()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_appended_entry_is_readable_before_its_fsync_and_one_fsync_serves_all_waiting_appends() {
    let dir = TempDir::new().unwrap();
    let disk = Arc::new(Disk::default());
    disk.set_open(true);
    let store = Store::open(dir.path(), "test", 1, options_that_wait_for(&disk)).unwrap();
    let mut log = LogStore::open(&store, 1).unwrap();
    let mut reader = log.get_log_reader().await;
    disk.set_open(false);
    let before = disk.syncs.load(Ordering::SeqCst);
    let (appended, mut first) = append(&mut log, bump(0, 10)).await;
    appended.unwrap();
    assert_eq!(reader.try_get_log_entries(0..9).await.unwrap().len(), 1);
    assert!(first.try_recv().is_err(), "not on the disk yet");
    // The first append is written before its fsync begins. Until then the fsync may take others with it.
    until("the first fsync has begun", || disk.syncs.load(Ordering::SeqCst) == before + 1).await;
    // These queue up while the disk is busy with the first.
    let mut behind = Vec::new();
    for index in 1..=50 {
        let (done, flushed) = Types::oneshot();
        let mut log = LogStore::open(&store, 1).unwrap();
        log.append([bump(index, 10)], IOFlushed::signal(done)).await.unwrap();
        behind.push(flushed);
    }
    disk.set_open(true);
    first.await.unwrap().unwrap();
    for flushed in behind {
        flushed.await.unwrap().unwrap();
    }
    let syncs = disk.syncs.load(Ordering::SeqCst) - before;
    assert!((2..=20).contains(&syncs), "51 appends cost {syncs} fsyncs");
    assert_eq!(reader.try_get_log_entries(..).await.unwrap().len(), 51);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_fsync_that_fails_is_reported_with_what_to_do_and_is_never_retried() {
    let dir = TempDir::new().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let failing = StoreOptions {
        before_sync: Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            Box::pin(ready(Err(
                "IO error: While fdatasync: 000004.log: Input/output error".to_owned()
            )))
        }),
        ..options()
    };
    let store = Store::open(dir.path(), "test", 1, failing).unwrap();
    let mut log = LogStore::open(&store, 1).unwrap();
    let error = log.save_vote(&Vote::new(1, 1)).await.unwrap_err().to_string();
    for part in ["000004.log", dir.path().to_str().unwrap(), "must stop", "check the disk"] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    let (appended, flushed) = append(&mut log, bump(0, 10)).await;
    assert!(appended.is_err());
    assert!(flushed.await.unwrap().is_err());
    assert_eq!(calls.load(Ordering::SeqCst), 1, "it tried again");
    assert!(store.health().failure().unwrap().contains("000004.log"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_store_still_holds_vote_log_and_table() {
    let dir = TempDir::new().unwrap();
    {
        let store = open(dir.path()).await.unwrap();
        assert!(!store.has_raft_state().unwrap());
        let mut log = LogStore::open(&store, 1).unwrap();
        log.save_vote(&Vote::new(3, 1)).await.unwrap();
        for index in 0..3 {
            append_durably(&mut log, bump(index, 10)).await;
        }
        let mut machine = StateMachine::open(&store, 1).unwrap();
        apply(&mut machine, [begin_epoch(0), create(1, "book"), bump(2, 15)]).await;
    }
    let store = open(dir.path()).await.unwrap();
    assert!(store.has_raft_state().unwrap());
    let mut log = LogStore::open(&store, 1).unwrap();
    let mut reader = log.get_log_reader().await;
    assert_eq!(reader.read_vote().await.unwrap(), Some(Vote::new(3, 1)));
    assert_eq!(log.get_log_state().await.unwrap().last_log_id, Some(log_id(1, 2)));
    let mut machine = StateMachine::open(&store, 1).unwrap();
    assert_eq!(machine.applied_state().await.unwrap().0, Some(log_id(1, 2)));
    assert_eq!(machine.view().section(&section(7)).unwrap().max_seq, 15);
    assert!(machine.view().namespaces().by_name("book").is_some());
}

/// An entry after which the members are these.
fn members(index: u64, ids: &[u64]) -> Entry {
    let nodes: BTreeMap<_, _> = ids.iter().map(|id| (*id, Member::default())).collect();
    let membership = Membership::new(vec![ids.iter().copied().collect()], nodes).unwrap();
    Entry::new(log_id(1, index), EntryPayload::Membership(membership))
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_removed_is_known_after_a_restart_and_to_a_node_that_takes_a_snapshot() {
    let dirs = [(); 2].map(|()| TempDir::new().unwrap());
    let [store, other] = [open(dirs[0].path()).await.unwrap(), open(dirs[1].path()).await.unwrap()];
    let former = |machine: &StateMachine| BTreeSet::clone(&machine.view().former_members());
    let mut machine = StateMachine::open(&store, 1).unwrap();
    apply(&mut machine, [members(0, &[1, 2, 3, 4]), begin_epoch(1), members(2, &[1, 2, 3])]).await;
    assert_eq!(former(&machine), BTreeSet::from([4]));
    // Node 4 is added again. That it was removed once stays known.
    apply(&mut machine, [members(3, &[1, 2, 3, 4]), members(4, &[1, 3, 4])]).await;
    assert_eq!(former(&machine), BTreeSet::from([2, 4]));
    drop((machine, store));
    let mut machine = StateMachine::open(&open(dirs[0].path()).await.unwrap(), 1).unwrap();
    assert_eq!(former(&machine), BTreeSet::from([2, 4]));

    let mut replica = StateMachine::open(&other, 1).unwrap();
    apply(&mut replica, [members(0, &[1, 2, 3, 4])]).await;
    let snapshot = machine.get_current_snapshot().await.unwrap().unwrap();
    let meta = snapshot.meta.clone();
    let parts = parts_of(snapshot).await.unwrap();
    let arrived = SnapshotData::Arrived(arrive(&replica, &parts).unwrap());
    replica.install_snapshot(&meta, arrived).await.unwrap();
    assert_eq!(former(&replica), BTreeSet::from([2, 4]));
    drop((replica, other));
    let replica = StateMachine::open(&open(dirs[1].path()).await.unwrap(), 1).unwrap();
    assert_eq!(former(&replica), BTreeSet::from([2, 4]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_takes_ten_thousand_namespaces_and_refuses_the_next() {
    const LIMIT: u64 = 10_000;
    let dir = TempDir::new().unwrap();
    let store = open(dir.path()).await.unwrap();
    let mut machine = StateMachine::open(&store, 1).unwrap();
    let create = |at| create(at, &format!("namespace-{at}"));
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
    check(&StateMachine::open(&open(dir.path()).await.unwrap(), 1).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_many_sections_goes_on_from_the_record_of_each() {
    for recent_records_bytes in [0, 64 << 20] {
        let dir = TempDir::new().unwrap();
        let options = StoreOptions { recent_records_bytes, ..options() };
        let store = Store::open(dir.path(), "test", 1, options).unwrap();
        let mut machine = StateMachine::open(&store, 1).unwrap();
        let first = [create(1, "book"), begin_epoch(2), bumps(3, 0..100)];
        apply(&mut machine, first).await;
        // Together: of the second one's sections some were written before, some by the first one, and some never.
        apply(&mut machine, [bumps(4, 50..60), bumps(5, 40..150)]).await;
        for id in 0..150 {
            let times = match id {
                40..50 | 60..100 => 2,
                50..60 => 3,
                _ => 1,
            };
            let max_seq = machine.view().section(&section(id)).unwrap().max_seq;
            assert_eq!(max_seq, times * (id + 1), "section {id}");
        }
    }
}
