//! Data that cannot be read: damage is noticed and named, and the work of a newer release is told from it.

use std::path::Path;

use crate::common::stores::{
    append_durably, apply, begin_epoch, bump, bumps, create, open, parts_of, raw_database,
};
use openraft::storage::{RaftSnapshotBuilder, RaftStateMachine};
use ratchet::{consensus::StateMachine, storage::LogStore};
use tempfile::TempDir;

/// A checksum covers every byte of a record: a changed byte shows when the record is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_with_a_flipped_byte_is_refused_and_the_error_names_the_directory() {
    let dir = TempDir::new().unwrap();
    {
        let store = open(dir.path()).await.unwrap();
        let mut log = LogStore::open(&store, 1).unwrap();
        append_durably(&mut log, bump(0, 10)).await;
    }
    let path = dir.path().join("db");
    {
        let db = raw_database(dir.path());
        let log = db.cf_handle("log").unwrap();
        let (key, mut value) =
            db.iterator_cf(log, rocksdb::IteratorMode::Start).next().unwrap().unwrap();
        let last = value.len() - 1;
        value[last] ^= 1;
        db.put_cf(log, key, value).unwrap();
    }
    let store = open(dir.path()).await.unwrap();
    let error = LogStore::open(&store, 1).err().expect("noticed").to_string();
    assert!(error.contains("checksum"), "{error}");
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    assert!(error.contains("ratchet node remove"), "{error}");
}

/// A record of the table has changed on the disk: a snapshot ends with an error instead of spreading it.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_a_damaged_record_is_not_sent_and_the_node_goes_on() {
    // The last section, and the id of the next namespace. Without some others nothing could be applied either.
    for kind in [b's', b'c'] {
        let dir = TempDir::new().unwrap();
        {
            let store = open(dir.path()).await.unwrap();
            let mut machine = StateMachine::open(&store, 1).unwrap();
            apply(&mut machine, [begin_epoch(0), create(1, "book"), bumps(2, 0..100)]).await;
        }
        {
            let db = raw_database(dir.path());
            let applied = db.cf_handle("applied").unwrap();
            let records = db.iterator_cf(applied, rocksdb::IteratorMode::End);
            let mut of_kind = records.filter(|record| record.as_ref().unwrap().0[9] == kind);
            let (key, mut value) = of_kind.next().unwrap().unwrap();
            let end = value.len() - 1;
            value[end] ^= 1;
            db.put_cf(applied, key, value).unwrap();
        }
        let store = open(dir.path()).await.unwrap();
        let mut machine = StateMachine::open(&store, 1).unwrap();
        let snapshot = machine.get_current_snapshot().await.unwrap().unwrap();
        let damaged = parts_of(snapshot).await.unwrap_err().to_string();
        assert!(damaged.contains("checksum"), "{damaged}");
        // Raft notices nothing: it can purge the log and apply entries.
        machine.get_snapshot_builder().await.build_snapshot().await.unwrap();
        apply(&mut machine, [bump(3, 5)]).await;
    }
}

const NEWER: &str = "99.1.0";

/// Changes the marker as if a newer release had opened the directory.
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
async fn a_record_of_a_newer_release_is_refused_with_that_release_and_not_as_damaged() {
    let dir = TempDir::new().unwrap();
    {
        let store = open(dir.path()).await.unwrap();
        let mut log = LogStore::open(&store, 1).unwrap();
        append_durably(&mut log, bump(0, 10)).await;
    }
    {
        let db = raw_database(dir.path());
        let log = db.cf_handle("log").unwrap();
        let mut records = db.iterator_cf(log, rocksdb::IteratorMode::Start);
        let (key, mut value) = records.next().unwrap().unwrap();
        value[0] += 1;
        db.put_cf(log, key, value).unwrap();
    }
    let why = async || {
        let store = open(dir.path()).await.unwrap();
        LogStore::open(&store, 1).err().expect("unreadable").to_string()
    };
    let damaged = why().await;
    assert!(damaged.contains("is damaged"), "nobody newer was here: {damaged}");
    newer_release_was_here(dir.path());
    assert_newer(&why().await);
    // That this release opened the directory since does not lower the release in the marker.
    assert_newer(&why().await);
}

#[tokio::test]
async fn a_directory_of_another_format_is_refused_with_the_release_that_reads_it() {
    let dir = TempDir::new().unwrap();
    drop(open(dir.path()).await.unwrap());
    let marker = dir.path().join("NODE");
    let written = std::fs::read_to_string(&marker).unwrap();
    let mut earlier: serde_json::Value = serde_json::from_str(&written).unwrap();
    let version = earlier["format_version"].as_u64().unwrap();
    newer_release_was_here(dir.path());
    let newer = std::fs::read_to_string(&marker).unwrap();
    let field = |version: u64| format!("\"format_version\": {version}");
    let newer = newer.replace(&field(version), &field(version + 1));
    // A newer format may have other fields.
    std::fs::write(&marker, newer.replace("\"incarnation\"", "\"embodiment\"")).unwrap();
    assert_newer(&open(dir.path()).await.err().expect("unreadable").to_string());

    earlier["format_version"] = (version - 1).into();
    earlier.as_object_mut().unwrap().remove("release");
    std::fs::write(&marker, earlier.to_string()).unwrap();
    let error = open(dir.path()).await.err().expect("unreadable").to_string();
    assert!(error.contains("before release 0.1.0"), "{error}");
}
