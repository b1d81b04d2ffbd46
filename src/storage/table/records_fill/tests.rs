//! The records that a fill brings into memory, and those that it does not.

use std::{
    sync::{Arc, Barrier},
    thread,
};

use tempfile::TempDir;

use super::*;
use crate::{
    clock::BootClock,
    sequence::{Ledger, NamespaceId, SectionId, SectionKey, Table},
    storage::{AppliedTable, IncomingSnapshot, LogId, Store, StoreOptions},
};

const TERM: u64 = 3;

fn id(key: u64) -> SectionId {
    SectionId {
        namespace: NamespaceId(1 + (key % 2) as u32),
        key: match key % 3 {
            0 => SectionKey::Name(key.to_string().into_bytes().into()),
            _ => SectionKey::Id(key),
        },
    }
}

fn record(max_seq: u64, epoch: u64) -> SectionRecord {
    SectionRecord {
        max_seq,
        floor: max_seq,
        epoch,
        step: 10,
        unused_max: 5,
        skipped: 3,
        written_ms: 0,
    }
}

/// A table in `dir`, which holds what its last run left. `recent_records_bytes` keep records in memory.
fn open(dir: &TempDir, recent_records_bytes: usize) -> AppliedTable {
    let options = StoreOptions { recent_records_bytes, ..StoreOptions::new(Arc::new(BootClock)) };
    let store = Store::open(dir.path(), "test", 1, options).expect("a store");
    AppliedTable::open(&store, 1).expect("a table")
}

/// Writes what the next entry changes.
fn write(
    table: &mut AppliedTable, term: u64, epoch: Option<u64>,
    records: impl IntoIterator<Item = (u64, SectionRecord)>,
) {
    let mut change = table.change();
    if let Some(epoch) = epoch {
        change.put_ledger(Ledger { epoch, ..Ledger::default() });
    }
    for (key, record) in records {
        change.put_section(&id(key), record);
    }
    let mut meta = table.meta().clone();
    let index = meta.last_applied.map_or(0, |last| last.index + 1);
    meta.last_applied = Some(LogId::new(term.into(), index));
    table.write(change, meta).expect("written");
}

/// Fills the memory of `view`, and returns how many batches it took.
async fn fill(view: &AppliedView) -> usize {
    let (mut fill, mut batches) = (RecordsFill::new(view.clone()), 1);
    while fill.next_batch().await.expect("read") {
        batches += 1;
    }
    batches
}

fn found(view: &AppliedView, key: u64) -> Option<SectionRecord> {
    view.recent_records().find(&id(key), u64::MAX)
}

#[tokio::test]
async fn a_restarted_node_has_the_records_of_all_live_sections_in_memory_after_a_fill() {
    const KEYS: u64 = 3 * BATCH_RECORDS as u64;
    let dir = TempDir::new().expect("a directory");
    let epoch_of = |key: u64| [1, 2, 9, 10][key as usize % 4];
    let all = |key| (key, record(key + 1, epoch_of(key)));
    write(&mut open(&dir, 0), TERM, Some(10), (0..KEYS).map(all));
    let view = open(&dir, 1 << 20).view();
    assert_eq!(view.recent_records().len(), 0);
    assert_eq!(fill(&view).await, 3);
    for key in 0..KEYS {
        // The epoch that follows has number 11, or again number 10: what was written in epoch 1 is not live then.
        let live = epoch_of(key) > 1;
        let expected = live.then_some(record(key + 1, epoch_of(key)));
        assert_eq!(found(&view, key), expected, "{key}");
    }
}

#[tokio::test]
async fn a_fill_ends_where_there_is_no_room_and_reads_nothing_without_memory() {
    let dir = TempDir::new().expect("a directory");
    let many = (0..20 * BATCH_RECORDS as u64).map(|key| (key, record(1, 1)));
    write(&mut open(&dir, 0), TERM, Some(1), many);
    let batches = fill(&open(&dir, 100_000).view()).await;
    assert!((2..10).contains(&batches), "{batches}");
    let view = open(&dir, 0).view();
    assert_eq!((fill(&view).await, view.recent_records().len()), (1, 0));
}

#[tokio::test]
async fn a_damaged_record_ends_a_fill() {
    let dir = TempDir::new().expect("a directory");
    let mut table = open(&dir, 1 << 20);
    write(&mut table, TERM, Some(1), [(1, record(1, 1))]);
    let view = table.view();
    view.damage(&id(1));
    let failed = RecordsFill::new(view.clone()).next_batch().await;
    assert!(matches!(failed, Err(StoreError::Damaged { .. })));
}

/// The parts of a snapshot of a table with `records`.
async fn snapshot(records: impl IntoIterator<Item = (u64, SectionRecord)>) -> Vec<Vec<u8>> {
    let dir = TempDir::new().expect("a directory");
    let mut table = open(&dir, 0);
    write(&mut table, TERM, Some(1), records);
    let mut snapshot = table.snapshot().await.expect("a snapshot");
    let mut parts = Vec::new();
    while let Some(part) = snapshot.next_part().await {
        parts.push(part.expect("a part"));
    }
    parts
}

fn install(table: &mut AppliedTable, parts: &[Vec<u8>]) {
    let mut incoming = IncomingSnapshot::create(&table.view()).expect("begun");
    let mut parts = parts.iter();
    parts.try_for_each(|part| incoming.write(part)).expect("written");
    let arrived = incoming.finish().expect("whole");
    table.install(arrived).expect("installed");
}

/// A thread applies the entries of a term, of this node's own or of another one's, and installs a snapshot now and
/// then. The memory is filled meanwhile.
#[tokio::test]
async fn no_record_in_memory_is_older_than_the_tables_whatever_is_written_during_a_fill() {
    const KEYS: u64 = 100;
    const ROUNDS: u64 = 300;
    let snapshot = snapshot((0..KEYS).map(|key| (key, record(7, 1)))).await;
    let dir = TempDir::new().expect("a directory");
    let mut table = open(&dir, 1 << 20);
    let view = table.view();
    let mut in_memory = 0;
    for round in 1..=ROUNDS {
        let (term, is_own) = (TERM + round, round % 4 != 0);
        view.recent_records().clear();
        view.recent_records().leading(if is_own { term } else { 0 });
        let start = Barrier::new(2);
        thread::scope(|threads| {
            let writer = threads.spawn(|| {
                start.wait();
                for step in 0..KEYS {
                    if round % 6 == 0 && step == KEYS / 2 {
                        install(&mut table, &snapshot);
                    }
                    // 37 and the number of keys have no common divisor.
                    let written = (step * 37 % KEYS, record(round * KEYS + step, 1));
                    write(&mut table, term, Some(1), [written]);
                }
            });
            start.wait();
            while !writer.is_finished() {
                let (mut from, _) = kind_range(&[], b's');
                while let Some(next) = batch(&view, &from).expect("read") {
                    from = next;
                }
            }
        });
        for key in 0..KEYS {
            if let Some(found) = found(&view, key) {
                in_memory += 1;
                let in_table = view.section(&id(key)).expect("read");
                assert_eq!(found, in_table, "key {key} in round {round}");
            }
        }
    }
    // The writes of other terms' entries, in every fourth round, add as many at most. The fill has added the others; how many
    // depends on how the threads take turns.
    assert!(in_memory > ROUNDS / 4 * KEYS, "{in_memory}");
}
