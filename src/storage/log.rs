//! Raft's log and hard state of one set.
//!
//! Invariants: an entry is readable when `append` returns, which waits for no disk, and on the disk when its callback is
//! called; a vote is on the disk when `save_vote` returns; changes take effect in the order in which Raft asks
//! for them.

use std::{
    fmt::Debug,
    io,
    ops::{Bound, RangeBounds, RangeInclusive},
    sync::Arc,
};

use futures::{Stream, TryStreamExt, stream};
use openraft::{
    LogState, OptionalSend, RaftLogReader,
    entry::RaftEntry,
    storage::{IOFlushed, RaftLogStorage},
};
use rocksdb::{Direction, IteratorMode};
use tokio::sync::oneshot;

use super::{
    codec,
    database::Database,
    error::StoreError,
    layout::{Family, log_key, purged_key, vote_key},
    raft_types::{Entry, LogId, Types, Vote},
    store::Store,
    table::AppliedMeta,
    unwritten::Unwritten,
    writer::{self, Change, DurableWaiter, Write},
};
use crate::sequence::SetId;

/// Writes the log and the hard state of one set.
pub struct LogStore {
    store: Arc<Store>,
    reader: LogReader,
}

impl LogStore {
    /// Opens the log of `set`. Blocks.
    ///
    /// # Errors
    /// [`StoreError`] if the last entry is damaged or the database fails.
    pub fn open(store: &Arc<Store>, set: SetId) -> Result<Self, StoreError> {
        let log = LogStore { reader: LogReader::of(&store.db, set), store: store.clone() };
        log.purge_log_behind_table()?;
        Ok(log)
    }

    /// The index of the last stored entry, or of the last purged one if none is stored; 0 if the log
    /// never held an entry.
    ///
    /// # Errors
    /// [`StoreError`] if the last entry is damaged or the database fails.
    pub fn last_index(&self) -> Result<u64, StoreError> {
        Ok(self.reader.end()?.map_or(0, |last| last.index))
    }

    /// The term of the stored vote; 0 if the node never voted.
    ///
    /// # Errors
    /// [`StoreError`] if the vote is damaged or the database fails.
    pub fn vote_term(&self) -> Result<u64, StoreError> {
        let LogReader { db, set, .. } = &self.reader;
        let vote: Option<Vote> = db.get(Family::HardState, &vote_key(*set))?;
        Ok(vote.map_or(0, |vote| vote.leader_id.term))
    }

    /// Purges the log if it ends before the table.
    ///
    /// The purge that follows the install of a snapshot is not synced. A power cut that loses it leaves
    /// the old log, which ends before the table and may hold entries that were never committed.
    fn purge_log_behind_table(&self) -> Result<(), StoreError> {
        let LogReader { db, set, .. } = &self.reader;
        let end = self.reader.end()?.map(|end| end.index);
        let applied = AppliedMeta::read(db, *set)?;
        match applied.and_then(|meta| meta.last_applied) {
            Some(applied) if end < Some(applied.index) => {
                let changes = purge(*set, applied)?;
                db.write(writer::batch(db, &changes)?, true)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Writes `changes`; returns when they are on the disk.
    async fn write_durably(&self, changes: Vec<Change>) -> Result<(), io::Error> {
        let (done, wait) = oneshot::channel();
        self.store.writer.send(Write {
            changes,
            entries: None,
            durable: DurableWaiter::Caller(done),
        });
        match wait.await {
            Ok(done) => Ok(done?),
            Err(_) => Err(io::Error::other(writer::STOPPED)),
        }
    }

    /// Refuses what cannot be written any more.
    fn check_writable(&self) -> Result<(), StoreError> {
        match self.store.health().failure() {
            None => Ok(()),
            Some(why) => Err(StoreError::Failed(why)),
        }
    }
}

/// The changes that purge the log up to and including `upto`.
fn purge(set: SetId, upto: LogId) -> Result<Vec<Change>, StoreError> {
    Ok(vec![
        Change::Put(Family::HardState, purged_key(set).to_vec(), codec::encode_record(&upto)?),
        Change::DeleteRange(
            Family::Log,
            log_key(set, 0),
            log_key(set, upto.index.saturating_add(1)),
        ),
    ])
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        Ok(LogState { last_purged_log_id: self.reader.purged()?, last_log_id: self.reader.end()? })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        self.reader.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let key = vote_key(self.reader.set).to_vec();
        let sealed = codec::encode_record(vote).map_err(StoreError::from)?;
        self.write_durably(vec![Change::Put(Family::HardState, key, sealed)]).await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        if let Err(failed) = self.check_writable() {
            callback.io_completed(Err(io::Error::other(failed.to_string())));
            return Err(failed.into());
        }
        let LogReader { set, unwritten, .. } = &self.reader;
        let mut changes = Vec::new();
        let mut indexes: Option<RangeInclusive<u64>> = None;
        for entry in entries {
            let index = entry.log_id().index;
            // They come from this node's Raft, or from a peer whose append was looked at (`check_entries` in consensus).
            assert!(
                indexes.as_ref().is_none_or(|before| index == before.end() + 1),
                "log indexes are consecutive: {index} after {indexes:?}"
            );
            indexes = Some(indexes.map_or(index, |before| *before.start())..=index);
            let record = codec::encode_record(&entry).map_err(StoreError::from)?;
            unwritten.add(index, record.len(), entry);
            changes.push(Change::Put(Family::Log, log_key(*set, index), record));
        }
        let entries = indexes.map(|indexes| (unwritten.clone(), indexes));
        self.store.writer.send(Write { changes, entries, durable: DurableWaiter::Raft(callback) });
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let from = last_log_id.map_or(0, |last| last.index + 1);
        let set = self.reader.set;
        self.write_durably(vec![Change::DeleteRange(
            Family::Log,
            log_key(set, from),
            log_key(set, u64::MAX),
        )])
        .await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        self.check_writable()?;
        let changes = purge(self.reader.set, log_id)?;
        self.reader.unwritten.purge(log_id);
        // The purge need not be durable: the table holds the purged entries, and if a power cut loses
        // the purge, it is done again.
        self.store.writer.send(Write { changes, entries: None, durable: DurableWaiter::Nobody });
        Ok(())
    }
}

/// The largest amount of log that is read at once to be sent or applied, in bytes; one entry may be larger.
const READ_BYTES_MAX: usize = 1 << 20;

/// Reads the log of one set.
#[derive(Clone)]
pub struct LogReader {
    db: Arc<Database>,
    set: SetId,
    /// The entries that Raft has appended, and that are not in the database yet.
    unwritten: Unwritten,
}

impl LogReader {
    /// A reader of what is stored of the log of `set`.
    pub fn new(store: &Store, set: SetId) -> Self {
        LogReader::of(&store.db, set)
    }

    /// A reader of the log of `set` in `db`.
    pub(super) fn of(db: &Arc<Database>, set: SetId) -> Self {
        LogReader { db: db.clone(), set, unwritten: Unwritten::default() }
    }

    /// Calls `each` with the index and the size in bytes of every stored entry from `first` to `last`,
    /// both included. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    pub fn sizes(
        &self, first: u64, last: u64, mut each: impl FnMut(u64, u64),
    ) -> Result<(), StoreError> {
        let (from, to) = (log_key(self.set, first), log_key(self.set, last.saturating_add(1)));
        for record in self.db.records_between(Family::Log, &from, to)? {
            let (key, value) = record?;
            if let Some(index) = key.last_chunk() {
                each(u64::from_be_bytes(*index), (key.len() + value.len()) as u64);
            }
        }
        Ok(())
    }

    /// The last purged entry.
    fn purged(&self) -> Result<Option<LogId>, StoreError> {
        match self.unwritten.purged() {
            Some(purged) => Ok(Some(purged)),
            None => self.db.get(Family::HardState, &purged_key(self.set)),
        }
    }

    /// The last stored entry. `None` if the log is empty, also if entries were purged.
    pub(super) fn last(&self) -> Result<Option<LogId>, StoreError> {
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
    fn end(&self) -> Result<Option<LogId>, StoreError> {
        // First, as in `read`.
        let unwritten = self.unwritten.last();
        let (last, purged) = (self.last()?.max(unwritten), self.purged()?);
        Ok(last.filter(|last| Some(last.index) > purged.map(|purged| purged.index)).or(purged))
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

    /// Reads the entries from `start` to `end` (exclusive), as many as fit in `bytes_max` and at
    /// least one.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if an entry is damaged or one between two others is missing;
    /// [`StoreError::Database`] if the database fails.
    pub(super) fn read(
        &self, start: u64, end: u64, bytes_max: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let purged = self.unwritten.purged().map_or(0, |purged| purged.index + 1);
        let start = start.max(purged);
        // First: what is written meanwhile is in the database by the time that it is looked for there.
        let unwritten = self.unwritten.between(start, end);
        let (from, to) = (log_key(self.set, start), log_key(self.set, end));
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        for record in self.db.records_between(Family::Log, &from, to)? {
            let (key, value) = record?;
            bytes += value.len();
            if bytes > bytes_max && !entries.is_empty() {
                return Ok(entries);
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
        for (record_bytes, entry) in unwritten {
            let (index, last) =
                (entry.log_id().index, entries.last().map(|last| last.log_id().index));
            if last.is_some_and(|last| index <= last) {
                continue;
            }
            bytes += record_bytes;
            // The log may have been truncated in between: then the database has entries of a later term, and these are gone.
            let is_gone = entries.last().is_some_and(|last| last.log_id() > entry.log_id());
            let follows = last.is_none_or(|last| index == last + 1) && !is_gone;
            if !follows || bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Reads entries to be sent or applied, from `start` on. The first one is a later one only if `start` is purged.
    ///
    /// # Errors
    /// As [`LogReader::read`]; also if `start` is lost.
    fn read_piece(&self, start: u64, end: u64) -> Result<Vec<Entry>, StoreError> {
        if start >= end {
            return Ok(Vec::new());
        }
        let entries = self.read(start, end, READ_BYTES_MAX)?;
        if !begins_at(&entries, start) && self.has_lost(start)? {
            let key = log_key(self.set, start);
            return Err(self.db.damaged(Family::Log, &key, "it is missing"));
        }
        Ok(entries)
    }

    /// True if an entry is missing that is not purged, although a later one is there. One that is truncated meanwhile
    /// is not lost: a read sees the log as it was at one moment.
    fn has_lost(&self, index: u64) -> Result<bool, StoreError> {
        let found = self.read(index, u64::MAX, 0)?;
        let is_purged = self.purged()?.is_some_and(|purged| purged.index >= index);
        Ok(!found.is_empty() && !begins_at(&found, index) && !is_purged)
    }
}

/// True if the first of `entries` is the one with this index.
fn begins_at(entries: &[Entry], index: u64) -> bool {
    entries.first().is_some_and(|first| first.log_id().index == index)
}

/// The first index of a range, and its exclusive end.
fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
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
    (start, end)
}

impl RaftLogReader<Types> for LogReader {
    async fn entries_stream<RB>(
        &mut self, range: RB,
    ) -> impl Stream<Item = Result<Entry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = bounds(&range);
        // Piece by piece: what is still to be applied may not fit in memory.
        let pieces = stream::try_unfold((self.clone(), start), move |(reader, next)| async move {
            let entries = reader.read_piece(next, end)?;
            let Some(last) = entries.last() else {
                return Ok::<_, io::Error>(None);
            };
            let after = last.log_id().index + 1;
            let piece = stream::iter(entries.into_iter().map(Ok::<_, io::Error>));
            Ok(Some((piece, (reader, after))))
        });
        pieces.try_flatten()
    }

    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self, range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let (start, end) = bounds(&range);
        Ok(self.read(start, end, usize::MAX)?)
    }

    async fn limited_get_log_entries(
        &mut self, start: u64, end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        let mut entries = self.read_piece(start, end)?;
        if !begins_at(&entries, start) {
            // The task of a leader that ended may ask for what is truncated or purged by now. It learns of its end
            // after the read.
            entries.clear();
        }
        Ok(entries)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.db.get(Family::HardState, &vote_key(self.set))?)
    }
}

#[cfg(test)]
mod tests;
