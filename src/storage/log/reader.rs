//! Raft's log and hard state of one set, for reading.

use std::{
    fmt::Debug,
    io,
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use openraft::{OptionalSend, RaftLogReader, entry::RaftEntry};
use rocksdb::{Direction, IteratorMode};

use crate::{
    sequence::SetId,
    storage::{
        database::Database,
        error::StoreError,
        layout::{Family, log_key, purged_key, vote_key},
        raft_types::{Entry, LogId, Types, Vote},
        store::Store,
    },
};

/// The largest amount of log that one message to a lagging follower carries, in bytes; one entry may be
/// larger.
const READ_BYTES_MAX: usize = 1 << 20;

/// Reads the log of one set.
#[derive(Clone)]
pub struct LogReader {
    pub(super) db: Arc<Database>,
    pub(super) set: SetId,
}

impl LogReader {
    /// A reader of the log of `set`.
    pub fn new(store: &Store, set: SetId) -> Self {
        LogReader::of(&store.db, set)
    }

    /// A reader of the log of `set` in `db`.
    pub(in crate::storage) fn of(db: &Arc<Database>, set: SetId) -> Self {
        LogReader { db: db.clone(), set }
    }

    /// Calls `each` with the index and the size in bytes of every stored entry from `first` to `last`,
    /// both included. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    pub fn sizes(
        &self, first: u64, last: u64, mut each: impl FnMut(u64, u64),
    ) -> Result<(), StoreError> {
        let (from, until) = (log_key(self.set, first), log_key(self.set, last));
        let mode = IteratorMode::From(&from, Direction::Forward);
        for record in self.db.records(Family::Log, mode)? {
            let (key, value) = record?;
            if *key > *until {
                break;
            }
            if let Some(index) = key.last_chunk() {
                each(u64::from_be_bytes(*index), (key.len() + value.len()) as u64);
            }
        }
        Ok(())
    }

    /// The last purged entry.
    pub(super) fn purged(&self) -> Result<Option<LogId>, StoreError> {
        self.db.get(Family::HardState, &purged_key(self.set))
    }

    /// The last stored entry. `None` if the log is empty, also if entries were purged.
    pub(in crate::storage) fn last(&self) -> Result<Option<LogId>, StoreError> {
        let from = log_key(self.set, u64::MAX);
        let mode = IteratorMode::From(&from, Direction::Reverse);
        let Some(record) = self.db.records(Family::Log, mode)?.next() else {
            return Ok(None);
        };
        let (key, value) = record?;
        if !key.starts_with(&self.set.to_be_bytes()) {
            return Ok(None);
        }
        Ok(Some(self.entry(&key, &value)?.log_id()))
    }

    /// The end of the log: the last stored entry, or the last purged one if none is stored.
    pub(super) fn end(&self) -> Result<Option<LogId>, StoreError> {
        Ok(self.last()?.or(self.purged()?))
    }

    /// Decodes the entry under `key`, and checks that it belongs there.
    fn entry(&self, key: &[u8], value: &[u8]) -> Result<Entry, StoreError> {
        let entry: Entry = self.db.decode(Family::Log, key, value)?;
        if key != log_key(self.set, entry.log_id().index) {
            let why =
                format!("it holds the entry {}, which belongs under another key", entry.log_id());
            return Err(self.db.damaged(Family::Log, key, why));
        }
        Ok(entry)
    }

    /// Reads the stored entries from `start` to `end` (exclusive), as many as fit in `bytes_max` and at
    /// least one.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if an entry is damaged or one between two others is missing;
    /// [`StoreError::Database`] if the database fails.
    pub(in crate::storage) fn read(
        &self, start: u64, end: u64, bytes_max: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let (from, until) = (log_key(self.set, start), log_key(self.set, end));
        let mode = IteratorMode::From(&from, Direction::Forward);
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        for record in self.db.records(Family::Log, mode)? {
            let (key, value) = record?;
            if *key >= *until {
                break;
            }
            bytes += value.len();
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            let entry = self.entry(&key, &value)?;
            if let Some(before) = entries.last()
                && entry.log_id().index != before.log_id().index + 1
            {
                let why = format!("the entry after {} is missing", before.log_id());
                return Err(self.db.damaged(Family::Log, &key, why));
            }
            entries.push(entry);
        }
        Ok(entries)
    }
}

impl RaftLogReader<Types> for LogReader {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self, range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => u64::MAX,
        };
        Ok(self.read(start, end, usize::MAX)?)
    }

    async fn limited_get_log_entries(
        &mut self, start: u64, end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        let entries = self.read(start, end, READ_BYTES_MAX)?;
        match entries.first() {
            Some(first) if first.log_id().index == start => Ok(entries),
            None if start >= end => Ok(entries),
            Some(_) | None => {
                let key = log_key(self.set, start);
                Err(self.db.damaged(Family::Log, &key, "it is missing").into())
            }
        }
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.db.get(Family::HardState, &vote_key(self.set))?)
    }
}
