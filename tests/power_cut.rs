//! A power cut leaves all acknowledged entries in a data directory.

use std::{path::PathBuf, sync::Arc};

use crate::common::cluster::once_free;
use crate::common::power::Names;
use crate::common::stores::{append_durably, apply, arrive, bump, log_id, options, parts_of};
use openraft::{
    EntryPayload, RaftLogReader,
    entry::RaftEntry,
    storage::{RaftLogStorage, RaftSnapshotBuilder, RaftStateMachine},
};
use ratchet::{
    consensus::StateMachine,
    sequence::{Command, NamespaceConfig},
    storage::{
        Entry, LogStore, SnapshotData, SnapshotMeta, Store, StoreOptions, UnsyncedWrites, Vote,
    },
};
use tempfile::TempDir;

/// A machine that can lose its power. Its store lies in a directory inside a temporary one.
struct Machine {
    dir: TempDir,
    names: Arc<Names>,
    cuts: usize,
}

impl Machine {
    fn new() -> Machine {
        let dir = TempDir::new().unwrap();
        Machine { names: Arc::new(Names::new(dir.path().join("kept"))), dir, cuts: 0 }
    }

    fn place(&self) -> PathBuf {
        self.dir.path().join(self.cuts.to_string())
    }

    async fn open(&self) -> Arc<Store> {
        let names = self.names.clone();
        let forgetful = || StoreOptions {
            unsynced: UnsyncedWrites::InProcess,
            directory_synced: Arc::new({
                let names = names.clone();
                move |dir| names.synced(dir)
            }),
            ..options()
        };
        once_free(|| Store::open(&self.place().join("data"), "test", 1, forgetful())).await.unwrap()
    }

    /// The next [`Machine::open`] finds the content of the disk now.
    fn cut_power(&mut self) {
        let before = self.place();
        self.cuts += 1;
        self.names.cut_power(&before, &self.place());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_vote_and_entry_are_found_after_a_power_cut() {
    let mut machine = Machine::new();
    let store = machine.open().await;
    let incarnation = store.incarnation();
    let mut log = LogStore::open(&store, 1).unwrap();
    log.save_vote(&Vote::new(3, 1)).await.unwrap();
    append_durably(&mut log, bump(0, 10)).await;
    machine.cut_power();
    drop((log, store));
    let store = machine.open().await;
    assert_eq!(store.incarnation(), incarnation, "another directory");
    let mut log = LogStore::open(&store, 1).unwrap();
    let mut reader = log.get_log_reader().await;
    assert_eq!(reader.read_vote().await.unwrap(), Some(Vote::new(3, 1)));
    let state = log.get_log_state().await.unwrap();
    assert_eq!(state.last_log_id, Some(log_id(1, 0)));
}

/// A snapshot of a table whose last applied entry is number 100, of term 2.
async fn snapshot_at_100(machine: &mut StateMachine) -> (SnapshotMeta, Vec<Vec<u8>>) {
    let create = Command::create_namespace(NamespaceConfig::new("book"));
    let create = EntryPayload::Normal(create);
    let entry = Entry::new(log_id(2, 100), create);
    apply(machine, [entry]).await;
    let mut builder = machine.get_snapshot_builder().await;
    let snapshot = builder.build_snapshot().await.unwrap();
    (snapshot.meta.clone(), parts_of(snapshot).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installed_snapshot_is_found_after_a_power_cut() {
    let (writer, mut reader) = (Machine::new(), Machine::new());
    let (source, target) = (writer.open().await, reader.open().await);
    let mut original = StateMachine::open(&source, 1).unwrap();
    let mut replica = StateMachine::open(&target, 1).unwrap();
    let (meta, parts) = snapshot_at_100(&mut original).await;
    let arrived = SnapshotData::Arrived(arrive(&replica, &parts).unwrap());
    replica.install_snapshot(&meta, arrived).await.unwrap();
    reader.cut_power();
    drop((original, replica, source, target));
    let store = reader.open().await;
    let mut machine = StateMachine::open(&store, 1).unwrap();
    let current = machine.get_current_snapshot().await.unwrap();
    assert_eq!(current.expect("a snapshot").meta, meta);
    assert!(machine.view().namespaces().by_name("book").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installed_snapshot_replaces_the_log_when_a_power_cut_lost_the_purge() {
    let mut machine = Machine::new();
    let (source, target) = (Machine::new(), machine.open().await);
    let source = source.open().await;
    let mut original = StateMachine::open(&source, 1).unwrap();
    let (meta, parts) = snapshot_at_100(&mut original).await;

    // The last entry is of a later term than the snapshot's, and was never committed.
    let mut log = LogStore::open(&target, 1).unwrap();
    for (term, index) in [(1, 0), (1, 1), (3, 2)] {
        let blank = EntryPayload::Blank;
        let entry = Entry::new(log_id(term, index), blank);
        append_durably(&mut log, entry).await;
    }
    let mut replica = StateMachine::open(&target, 1).unwrap();
    let arrived = SnapshotData::Arrived(arrive(&replica, &parts).unwrap());
    replica.install_snapshot(&meta, arrived).await.unwrap();
    log.purge(log_id(2, 100)).await.unwrap();
    machine.cut_power();
    drop((log, replica, target));

    let target = machine.open().await;
    let mut replica = StateMachine::open(&target, 1).unwrap();
    assert_eq!(replica.applied_state().await.unwrap().0, Some(log_id(2, 100)));
    for _ in 0..2 {
        let mut log = LogStore::open(&target, 1).unwrap();
        let state = log.get_log_state().await.unwrap();
        assert_eq!(state.last_log_id, Some(log_id(2, 100)));
        assert_eq!(state.last_purged_log_id, Some(log_id(2, 100)));
        let mut reader = log.get_log_reader().await;
        assert!(reader.try_get_log_entries(..).await.unwrap().is_empty());
    }
}
