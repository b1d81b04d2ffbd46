//! Raft's reads of its log, also of one that lost entries.

use std::ops::Range;

use futures::FutureExt;
use openraft::EntryPayload;
use tempfile::TempDir;

use super::*;
use crate::{clock::BootClock, sequence::Command, storage::StoreOptions};

fn log_id(index: u64) -> LogId {
    LogId::new(1u64.into(), index)
}

fn write(reader: &LogReader, changes: &[Change]) {
    reader.db.write(writer::batch(&reader.db, changes).unwrap(), false).unwrap();
}

fn remove(reader: &LogReader, from: u64, to: u64) {
    write(reader, &[Change::DeleteRange(Family::Log, log_key(1, from), log_key(1, to))]);
}

fn entry(index: u64) -> Entry {
    let name = "x".repeat(READ_BYTES_MAX * 3 / 10);
    Entry::new(
        log_id(index),
        EntryPayload::Normal(Command::DeleteNamespace { name, forget: false }),
    )
}

/// A log with the entries 1 to 5. Three of them are a piece.
fn log_of_five() -> (TempDir, LogReader) {
    let dir = TempDir::new().unwrap();
    let options = StoreOptions::new(Arc::new(BootClock));
    let store = Store::open(dir.path(), "test", 1, options).unwrap();
    let reader = LogReader::new(&store, 1);
    let put = |index| {
        let record = codec::encode_record(&entry(index)).unwrap();
        Change::Put(Family::Log, log_key(1, index), record)
    };
    let entries: Vec<Change> = (1..=5).map(put).collect();
    write(&reader, &entries);
    (dir, reader)
}

/// The indexes of the entries of a range, if all are there at once.
async fn streamed(reader: &mut LogReader, range: Range<u64>) -> Result<Vec<u64>, io::Error> {
    let entries = reader.entries_stream(range).await.try_collect::<Vec<_>>();
    let entries = entries.now_or_never().expect("nothing waits")?;
    Ok(entries.iter().map(|entry| entry.log_id().index).collect())
}

#[tokio::test]
async fn entries_that_were_truncated_or_purged_are_none_and_one_that_is_lost_is_damage() {
    let (_dir, mut reader) = log_of_five();
    assert_eq!(reader.limited_get_log_entries(1, 6).await.unwrap().len(), 3);
    remove(&reader, 4, u64::MAX);
    write(&reader, &purge(1, log_id(2)).unwrap());
    let asked = [(1, 4, 0), (2, 3, 0), (3, 3, 0), (3, 9, 1), (4, 6, 0), (5, 9, 0)];
    for (start, end, found) in asked {
        let entries = reader.limited_get_log_entries(start, end).await.unwrap();
        assert_eq!(entries.len(), found, "from {start} to {end}");
    }
    let (_dir, mut reader) = log_of_five();
    remove(&reader, 2, 4);
    for (start, end) in [(2, 3), (3, 6)] {
        let lost = reader.limited_get_log_entries(start, end).await.unwrap_err();
        assert!(lost.to_string().contains("it is missing"), "{lost}");
    }
}

#[tokio::test]
async fn entries_are_streamed_piece_by_piece_and_a_hole_between_two_pieces_is_damage() {
    let (_dir, mut reader) = log_of_five();
    assert_eq!(streamed(&mut reader, 1..9).await.unwrap(), [1, 2, 3, 4, 5]);
    assert_eq!(streamed(&mut reader, 2..5).await.unwrap(), [2, 3, 4]);
    remove(&reader, 4, 5);
    for range in [1..6, 4..6] {
        let lost = streamed(&mut reader, range).await.unwrap_err();
        assert!(lost.to_string().contains("it is missing"), "{lost}");
    }
    write(&reader, &purge(1, log_id(4)).unwrap());
    assert_eq!(streamed(&mut reader, 3..6).await.unwrap(), [5]);
}

/// The indexes of the entries from `start` to `end` (exclusive), and the last entry.
fn found(reader: &LogReader, start: u64, end: u64, bytes_max: usize) -> (Vec<u64>, u64) {
    let entries = reader.read(start, end, bytes_max).unwrap();
    let last = reader.end().unwrap().map_or(0, |last| last.index);
    (entries.iter().map(|entry| entry.log_id().index).collect(), last)
}

#[test]
fn what_the_writer_has_not_written_yet_is_read_after_what_it_has() {
    let (_dir, reader) = log_of_five();
    // It is in the database already, and about to be taken out.
    for index in 5..=7 {
        reader.unwritten.add(index, READ_BYTES_MAX * 3 / 10, entry(index));
    }
    assert_eq!(found(&reader, 1, u64::MAX, usize::MAX), (Vec::from_iter(1..=7), 7));
    assert_eq!(found(&reader, 2, 7, usize::MAX).0, Vec::from_iter(2..7));
    assert_eq!(found(&reader, 6, 8, usize::MAX).0, [6, 7]);
    assert_eq!(found(&reader, 4, 8, READ_BYTES_MAX).0, [4, 5, 6], "a piece");
    assert_eq!(found(&reader, 7, 7, usize::MAX).0, Vec::<u64>::new());
    reader.unwritten.written(&(5..=6));
    assert_eq!(found(&reader, 4, 8, usize::MAX).0, [4, 5], "none after one that is not there");
    assert_eq!(found(&reader, 7, 8, usize::MAX).0, [7]);
}

#[test]
fn a_purge_holds_before_it_is_written() {
    let (_dir, reader) = log_of_five();
    reader.unwritten.add(6, 1, entry(6));
    reader.unwritten.purge(log_id(2));
    assert_eq!(reader.purged().unwrap(), Some(log_id(2)));
    assert_eq!(found(&reader, 0, u64::MAX, usize::MAX), (Vec::from_iter(3..=6), 6));
    assert_eq!(found(&reader, 0, 3, usize::MAX).0, Vec::<u64>::new());
    reader.unwritten.purge(log_id(6));
    assert_eq!(found(&reader, 0, u64::MAX, usize::MAX), (vec![], 6), "the purged one is the last");
}
