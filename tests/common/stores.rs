//! Stores in temporary directories, entries to write to them, and snapshots from one to another.

use std::{
    ops::Range,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use openraft::{
    EntryPayload,
    entry::RaftEntry,
    storage::{IOFlushed, RaftLogStorage, RaftStateMachine},
    type_config::TypeConfigExt,
    vote::RaftLeaderId,
};
use ratchet::{
    clock::BootClock,
    consensus::StateMachine,
    sequence::{Bump, CeilingRaise, Command, NamespaceConfig, NamespaceId, SectionId, SectionKey},
    storage::{
        ArrivedSnapshot, Entry, IncomingSnapshot, LogId, LogStore, Snapshot, SnapshotData, Store,
        StoreError, StoreOptions, Types, Vote,
    },
};

use super::{PATIENCE, cluster::once_free};

/// The options of a store on a real disk.
pub fn options() -> StoreOptions {
    StoreOptions::new(Arc::new(BootClock))
}

/// Opens the store of node 1.
pub async fn open(dir: &Path) -> Result<Arc<Store>, StoreError> {
    once_free(|| Store::open(dir, "test", 1, options())).await
}

pub fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(Vote::new(term, 1).leader_id.to_committed(), index)
}

/// An entry of term 1.
pub fn entry(index: u64, command: Command) -> Entry {
    Entry::new(log_id(1, index), EntryPayload::Normal(command))
}

pub fn section(id: u64) -> SectionId {
    SectionId { namespace: NamespaceId(1), key: SectionKey::Id(id) }
}

/// An entry that creates a namespace.
pub fn create(index: u64, name: &str) -> Entry {
    entry(index, Command::create_namespace(NamespaceConfig::new(name)))
}

/// The entry with which a term begins: it may write sections then.
pub fn begin_epoch(index: u64) -> Entry {
    entry(index, Command::BeginEpoch)
}

fn raise(numbers: u64) -> CeilingRaise {
    CeilingRaise { numbers, unused_max: numbers, step: numbers, up_to: 0 }
}

/// An entry that raises section 7 by `numbers`.
pub fn bump(index: u64, numbers: u64) -> Entry {
    let bump = Bump { section: section(7), raise: raise(numbers) };
    entry(index, Command::Bump { bumps: vec![bump], skipped: vec![], now_ms: 0 })
}

/// An entry that raises each of the sections `ids`: section n by n + 1.
pub fn bumps(index: u64, ids: Range<u64>) -> Entry {
    let bump = |id| Bump { section: section(id), raise: raise(id + 1) };
    entry(index, Command::Bump { bumps: ids.map(bump).collect(), skipped: vec![], now_ms: 0 })
}

/// Fails unless the table holds the namespace "book" alone, and the result of [`bumps`] for `ids`.
pub fn assert_bumped(machine: &StateMachine, ids: Range<u64>) {
    let namespaces = machine.view().namespaces();
    let names: Vec<_> = namespaces.iter().map(|n| n.config.name.clone()).collect();
    assert_eq!(names, ["book"]);
    for id in ids {
        let max_seq = machine.view().section(&section(id)).unwrap().max_seq;
        assert_eq!(max_seq, id + 1);
    }
}

/// Resolves when an appended entry is on the disk, or cannot be brought there.
pub type Flushed = tokio::sync::oneshot::Receiver<Result<(), std::io::Error>>;

/// Appends `entry`. Does not wait for the disk.
pub async fn append(log: &mut LogStore, entry: Entry) -> (Result<(), std::io::Error>, Flushed) {
    let (done, flushed) = Types::oneshot();
    let appended = log.append([entry], IOFlushed::signal(done)).await;
    (appended, flushed)
}

/// Appends `entry`, and waits until it is on the disk.
pub async fn append_durably(log: &mut LogStore, entry: Entry) {
    let (appended, flushed) = append(log, entry).await;
    appended.unwrap();
    flushed.await.unwrap().unwrap();
}

pub async fn apply(machine: &mut StateMachine, entries: impl IntoIterator<Item = Entry>) {
    let entries: Vec<_> = entries.into_iter().map(|entry| Ok((entry, None))).collect();
    machine.apply(futures::stream::iter(entries)).await.unwrap();
}

/// All parts of a snapshot, as they are sent.
pub async fn parts_of(snapshot: Snapshot) -> Result<Vec<Vec<u8>>, StoreError> {
    let SnapshotData::Outgoing(mut snapshot) = snapshot.snapshot else {
        panic!("it is this node's own");
    };
    let mut parts = Vec::new();
    while let Some(part) = snapshot.next_part().await {
        parts.push(part?);
    }
    Ok(parts)
}

/// Hands `parts` to a node as they would arrive from a peer.
pub fn arrive(machine: &StateMachine, parts: &[Vec<u8>]) -> Result<ArrivedSnapshot, StoreError> {
    let mut incoming = IncomingSnapshot::create(&machine.view())?;
    parts.iter().try_for_each(|part| incoming.write(part))?;
    incoming.finish()
}

/// The database of a data directory, opened past the store. A thread of the store that was dropped may hold it for a moment
/// longer, and tells nobody when it lets it go.
pub fn raw_database(dir: &Path) -> rocksdb::DB {
    let began = Instant::now();
    loop {
        let options = rocksdb::Options::default();
        match rocksdb::DB::open_cf(&options, dir.join("db"), COLUMN_FAMILIES) {
            Err(error)
                if error.as_ref().contains("lock hold by current process")
                    && began.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// How many records the column family "applied" holds: records of the table in use, and any others.
pub fn count_applied_records(dir: &Path) -> usize {
    let options = rocksdb::Options::default();
    let path = dir.join("db");
    let db = rocksdb::DB::open_cf_for_read_only(&options, path, COLUMN_FAMILIES, false).unwrap();
    let applied = db.cf_handle("applied").unwrap();
    db.iterator_cf(applied, rocksdb::IteratorMode::Start).count()
}

const COLUMN_FAMILIES: [&str; 4] = ["default", "log", "hard_state", "applied"];
