//! What Raft reads of its log, also of one that lost entries.

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

/// A log with the entries 1 to 5. Three of them are a piece.
fn log_of_five() -> (TempDir, LogReader) {
    let dir = TempDir::new().unwrap();
    let options = StoreOptions::new(Arc::new(BootClock));
    let store = Store::open(dir.path(), "test", 1, options).unwrap();
    let reader = LogReader::new(&store, 1);
    let put = |index| {
        let name = "x".repeat(READ_BYTES_MAX * 3 / 10);
        let payload = EntryPayload::Normal(Command::DeleteNamespace { name, forget: false });
        let entry = codec::encode_record(&Entry::new(log_id(index), payload)).unwrap();
        Change::Put(Family::Log, log_key(1, index), entry)
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
