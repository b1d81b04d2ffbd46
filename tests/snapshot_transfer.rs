//! Snapshots on their way from one table to another, whole, damaged, or cut short.

use std::path::Path;

use crate::common::{
    stores::{
        apply, arrive, assert_bumped, begin_epoch, bump, bumps, count_applied_records, create,
        log_id, open, parts_of, section,
    },
    until,
};
use openraft::storage::{RaftSnapshotBuilder, RaftStateMachine};
use ratchet::{
    consensus::StateMachine,
    storage::{IncomingSnapshot, SnapshotData},
};
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_sent_in_parts_gives_the_same_table_and_a_damaged_one_changes_nothing() {
    let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let source = open(from.path()).await.unwrap();
    let mut machine = StateMachine::open(&source, 1).unwrap();
    apply(&mut machine, [begin_epoch(0), create(1, "book"), bumps(2, 0..9_000)]).await;
    let mut builder = machine.get_snapshot_builder().await;
    // The snapshot does not hold entries that are applied after its builder was made.
    apply(&mut machine, [create(3, "late")]).await;
    let snapshot = builder.build_snapshot().await.unwrap();
    let meta = snapshot.meta.clone();
    assert_eq!(meta.last_log_id, Some(log_id(1, 2)));
    let parts = parts_of(snapshot).await.unwrap();
    assert!(parts.len() > 1);

    let target = open(to.path()).await.unwrap();
    let mut replica = StateMachine::open(&target, 1).unwrap();
    apply(&mut replica, [begin_epoch(0), create(1, "old"), bump(2, 77)]).await;
    let cut = arrive(&replica, &parts[..parts.len() - 1]).unwrap_err();
    assert!(cut.to_string().contains("ends too early"), "{cut}");
    let mut flipped = parts.clone();
    flipped[1][17] ^= 4;
    assert!(arrive(&replica, &flipped).is_err());
    let mut longer = parts.clone();
    longer.push(vec![0]);
    assert!(arrive(&replica, &longer).is_err());
    // A snapshot that is whole and never installed leaves nothing behind either.
    drop(arrive(&replica, &parts).unwrap());
    assert!(replica.view().namespaces().by_name("old").is_some());
    until("nothing is left behind", || count_applied_records(to.path()) == 6).await;

    let arrived = arrive(&replica, &parts).unwrap();
    assert_eq!(*arrived.meta(), meta);
    let arrived = SnapshotData::Arrived(arrived);
    replica.install_snapshot(&meta, arrived).await.unwrap();
    assert_bumped(&replica, 0..9_000);
    assert_eq!(replica.applied_state().await.unwrap().0, Some(log_id(1, 2)));
    drop((replica, target));
    assert_eq!(count_applied_records(to.path()), 9_005, "the old table was left");
    let target = open(to.path()).await.unwrap();
    let mut replica = StateMachine::open(&target, 1).unwrap();
    assert_bumped(&replica, 0..9_000);
    let current = replica.get_current_snapshot().await.unwrap().expect("one");
    assert_eq!(current.meta, meta);
    assert_eq!(parts_of(current).await.unwrap(), parts);
}

#[tokio::test(flavor = "multi_thread")]
async fn taking_a_snapshot_writes_nothing_to_the_disk() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path()).await.unwrap();
    let mut machine = StateMachine::open(&store, 1).unwrap();
    apply(&mut machine, [begin_epoch(0), create(1, "book"), bumps(2, 0..100)]).await;
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
    assert_eq!(built.unwrap().meta.last_log_id, Some(log_id(1, 2)));
    let current = machine.get_current_snapshot().await.unwrap().unwrap();
    assert!(!parts_of(current).await.unwrap().is_empty());
    assert_eq!(files(), before);
}

/// One snapshot has half arrived, another is whole and not installed, when the crash comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_was_not_installed_before_a_crash_is_gone_after_it() {
    let (from, to) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let source = open(from.path()).await.unwrap();
    let mut machine = StateMachine::open(&source, 1).unwrap();
    apply(&mut machine, [begin_epoch(0), create(1, "late"), bumps(2, 0..9_000)]).await;
    let snapshot = machine.get_current_snapshot().await.unwrap().unwrap();
    let meta = snapshot.meta.clone();
    let parts = parts_of(snapshot).await.unwrap();
    {
        let target = open(to.path()).await.unwrap();
        let mut replica = StateMachine::open(&target, 1).unwrap();
        apply(&mut replica, [begin_epoch(0), create(1, "book"), bumps(2, 0..50)]).await;
        let mut half = IncomingSnapshot::create(&replica.view()).unwrap();
        half.write(&parts[0]).unwrap();
        // A crash runs no destructors.
        std::mem::forget((half, arrive(&replica, &parts).unwrap()));
        std::mem::forget(replica);
        // This process still holds the lock on the directory: the copy is not locked.
        copy(to.path(), &to.path().with_extension("crashed"));
        std::mem::forget(target);
    }
    let crashed = to.path().with_extension("crashed");
    assert!(
        count_applied_records(&crashed) > 9_000,
        "the copy holds nothing of the snapshots: the test shows nothing"
    );
    let target = open(&crashed).await.unwrap();
    let mut replica = StateMachine::open(&target, 1).unwrap();
    assert_bumped(&replica, 0..50);
    let arrived = SnapshotData::Arrived(arrive(&replica, &parts).unwrap());
    replica.install_snapshot(&meta, arrived).await.unwrap();
    drop((replica, target));
    let target = open(&crashed).await.unwrap();
    let replica = StateMachine::open(&target, 1).unwrap();
    assert_eq!(replica.view().section(&section(8_999)).unwrap().max_seq, 9_000);
    drop((replica, target));
    assert_eq!(count_applied_records(&crashed), 9_005, "something was left behind");
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
