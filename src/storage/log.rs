//! Raft's log and hard state of one set.
//!
//! Invariant: what was appended can be read when `append` returns, and is on the disk when its
//! callback says so; a vote is on the disk when `save_vote` returns. Changes take effect in the order
//! in which Raft asks for them.

use std::{
    fmt::Debug,
    io,
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use openraft::{
    LogState, OptionalSend, RaftLogReader,
    entry::RaftEntry,
    storage::{IOFlushed, RaftLogStorage},
};
use rocksdb::{Direction, IteratorMode};
use tokio::sync::oneshot;

use super::{
    applied, codec,
    database::{Database, Family},
    error::StoreError,
    raft_types::{Entry, LogId, Types, Vote},
    store::Store,
    writer::{self, Change, Durable, Write},
};
use crate::sequence::SetId;

/// A follower that lags is sent at most so many bytes of log in one message (and at least an entry).
const READ_BYTES_MAX: usize = 1 << 20;

/// The log of one set, for writing.
pub struct LogStore {
    store: Arc<Store>,
    reader: LogReader,
}

/// The log of one set, for reading.
#[derive(Clone)]
pub struct LogReader {
    db: Arc<Database>,
    set: SetId,
}

impl LogStore {
    /// The log of `set`.
    ///
    /// # Errors
    /// [`StoreError`] if its last record cannot be read.
    pub fn open(store: &Arc<Store>, set: SetId) -> Result<Self, StoreError> {
        let log = LogStore {
            reader: LogReader::of(&store.db, set),
            store: store.clone(),
        };
        log.purge_what_a_snapshot_replaced()?;
        Ok(log)
    }

    /// The index of the last entry, of one that was purged if there is no other; 0 for none.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub fn last_index(&self) -> Result<u64, StoreError> {
        Ok(self.reader.end()?.map_or(0, |last| last.index))
    }

    /// An installed snapshot is on the disk before the purge that follows it. A power cut in between
    /// leaves a log that ends before the table, perhaps with entries that were never committed.
    fn purge_what_a_snapshot_replaced(&self) -> Result<(), StoreError> {
        let LogReader { db, set } = &self.reader;
        let end = self.reader.end()?.map(|end| end.index);
        match applied::last_applied(db, *set)? {
            Some(applied) if end < Some(applied.index) => {
                let changes = purge(*set, applied)?;
                db.write(writer::batch(db, &changes)?, true)
            }
            _ => Ok(()),
        }
    }

    async fn durably(&self, changes: Vec<Change>) -> Result<(), io::Error> {
        let (done, wait) = oneshot::channel();
        self.store.writer.send(Write {
            changes,
            readable: None,
            durable: Durable::Caller(done),
        });
        written(wait).await
    }

    async fn readably(&self, changes: Vec<Change>, durable: Durable) -> Result<(), io::Error> {
        let (done, wait) = oneshot::channel();
        self.store.writer.send(Write {
            changes,
            readable: Some(done),
            durable,
        });
        written(wait).await
    }
}

async fn written(wait: oneshot::Receiver<Result<(), StoreError>>) -> Result<(), io::Error> {
    match wait.await {
        Ok(done) => Ok(done?),
        Err(_) => Err(io::Error::other("the writer of the log is gone")),
    }
}

/// Where the vote of `set` stands.
pub fn vote_key(set: SetId) -> [u8; 5] {
    hard_state_key(set, b'v')
}

/// Where the last purged place of `set` stands.
pub fn purged_key(set: SetId) -> [u8; 5] {
    hard_state_key(set, b'p')
}

fn hard_state_key(set: SetId, what: u8) -> [u8; 5] {
    let [a, b, c, d] = set.to_be_bytes();
    [a, b, c, d, what]
}

/// Where entry `index` of `set` stands.
pub fn log_key(set: SetId, index: u64) -> Vec<u8> {
    [set.to_be_bytes().as_slice(), &index.to_be_bytes()].concat()
}

/// What purges the log up to and including `upto`.
fn purge(set: SetId, upto: LogId) -> Result<Vec<Change>, StoreError> {
    Ok(vec![
        Change::Put(
            Family::HardState,
            purged_key(set).to_vec(),
            codec::seal(&upto)?,
        ),
        Change::DeleteRange(
            Family::Log,
            log_key(set, 0),
            log_key(set, upto.index.saturating_add(1)),
        ),
    ])
}

impl LogReader {
    /// A reader of the log of `set`.
    pub fn new(store: &Store, set: SetId) -> Self {
        LogReader::of(&store.db, set)
    }

    /// The log of `set`.
    pub(super) fn of(db: &Arc<Database>, set: SetId) -> Self {
        LogReader {
            db: db.clone(),
            set,
        }
    }

    /// Calls `each` with the index and the bytes of every entry from `first` to `last` that is there.
    /// Blocks.
    ///
    /// # Errors
    /// [`StoreError`] if the log cannot be read.
    pub fn sizes(
        &self,
        first: u64,
        last: u64,
        mut each: impl FnMut(u64, u64),
    ) -> Result<(), StoreError> {
        let (from, until) = (log_key(self.set, first), log_key(self.set, last));
        let mode = IteratorMode::From(&from, Direction::Forward);
        for record in self.db.db.iterator_cf(self.db.family(Family::Log)?, mode) {
            let (key, value) = record.map_err(|error| self.db.failed(&error))?;
            if *key > *until {
                break;
            }
            if let Some(index) = key.last_chunk() {
                each(u64::from_be_bytes(*index), (key.len() + value.len()) as u64);
            }
        }
        Ok(())
    }

    fn purged(&self) -> Result<Option<LogId>, StoreError> {
        self.db.get(Family::HardState, &purged_key(self.set))
    }

    /// The last entry's place.
    pub(super) fn last(&self) -> Result<Option<LogId>, StoreError> {
        let from = log_key(self.set, u64::MAX);
        let mode = IteratorMode::From(&from, Direction::Reverse);
        let mut records = self.db.db.iterator_cf(self.db.family(Family::Log)?, mode);
        let Some(record) = records.next() else {
            return Ok(None);
        };
        let (key, value) = record.map_err(|error| self.db.failed(&error))?;
        if !key.starts_with(&self.set.to_be_bytes()) {
            return Ok(None);
        }
        Ok(Some(self.entry(&key, &value)?.log_id()))
    }

    /// Up to where the log goes: its last entry's place, or what was purged where none is left.
    fn end(&self) -> Result<Option<LogId>, StoreError> {
        Ok(self.last()?.or(self.purged()?))
    }

    fn entry(&self, key: &[u8], value: &[u8]) -> Result<Entry, StoreError> {
        let entry: Entry = self.db.unseal(Family::Log, key, value)?;
        if key != log_key(self.set, entry.log_id().index) {
            let why = format!("it holds entry {}", entry.log_id());
            return Err(self.db.damaged(Family::Log, key, why));
        }
        Ok(entry)
    }

    /// The entries from `start` up to and not including `end`, as many as fit `bytes_max` (at least
    /// one).
    pub(super) fn read(
        &self,
        start: u64,
        end: u64,
        bytes_max: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let (from, until) = (log_key(self.set, start), log_key(self.set, end));
        let mode = IteratorMode::From(&from, Direction::Forward);
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        for record in self.db.db.iterator_cf(self.db.family(Family::Log)?, mode) {
            let (key, value) = record.map_err(|error| self.db.failed(&error))?;
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
        &mut self,
        range: RB,
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
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        let entries = self.read(start, end, READ_BYTES_MAX)?;
        match entries.first() {
            Some(first) if first.log_id().index == start => Ok(entries),
            None if start >= end => Ok(entries),
            _ => {
                let key = log_key(self.set, start);
                Err(self.db.damaged(Family::Log, &key, "it is missing").into())
            }
        }
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.db.get(Family::HardState, &vote_key(self.set))?)
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        Ok(LogState {
            last_purged_log_id: self.reader.purged()?,
            last_log_id: self.reader.end()?,
        })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        self.reader.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let key = vote_key(self.reader.set).to_vec();
        let sealed = codec::seal(vote).map_err(StoreError::from)?;
        self.durably(vec![Change::Put(Family::HardState, key, sealed)])
            .await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let set = self.reader.set;
        let changes: Result<Vec<Change>, StoreError> = entries
            .into_iter()
            .map(|entry| {
                let key = log_key(set, entry.log_id().index);
                Ok(Change::Put(Family::Log, key, codec::seal(&entry)?))
            })
            .collect();
        self.readably(changes?, Durable::Raft(callback)).await
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let from = last_log_id.map_or(0, |last| last.index + 1);
        let set = self.reader.set;
        self.durably(vec![Change::DeleteRange(
            Family::Log,
            log_key(set, from),
            log_key(set, u64::MAX),
        )])
        .await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let changes = purge(self.reader.set, log_id)?;
        // What is purged is in the table already; should this be lost, it is purged again.
        self.readably(changes, Durable::Nobody).await
    }
}
