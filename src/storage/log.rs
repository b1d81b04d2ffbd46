//! Raft's log and hard state of one set.
//!
//! Invariants: an entry is readable when `append` returns, and on the disk when its callback is called;
//! a vote is on the disk when `save_vote` returns; changes take effect in the order in which Raft asks
//! for them.

mod reader;

use std::{io, sync::Arc};

use openraft::{
    LogState, OptionalSend,
    entry::RaftEntry,
    storage::{IOFlushed, RaftLogStorage},
};
use tokio::sync::oneshot;

use super::{
    codec,
    error::StoreError,
    layout::{Family, log_key, purged_key, vote_key},
    raft_types::{Entry, LogId, Types, Vote},
    store::Store,
    table::AppliedMeta,
    writer::{self, Change, DurableWaiter, Write},
};
use crate::sequence::SetId;

pub use reader::LogReader;

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

    /// Purges the log if it ends before the table.
    ///
    /// The purge that follows the install of a snapshot is not synced. A power cut that loses it leaves
    /// the old log, which ends before the table and may hold entries that were never committed.
    fn purge_log_behind_table(&self) -> Result<(), StoreError> {
        let LogReader { db, set } = &self.reader;
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
            readable: None,
            durable: DurableWaiter::Caller(done),
        });
        written(wait).await
    }

    /// Writes `changes`; returns when readers see them. `durable` is told when they are on the disk.
    async fn write_readably(
        &self, changes: Vec<Change>, durable: DurableWaiter,
    ) -> Result<(), io::Error> {
        let (done, wait) = oneshot::channel();
        self.store.writer.send(Write { changes, readable: Some(done), durable });
        written(wait).await
    }
}

/// Waits for the writer's answer.
async fn written(wait: oneshot::Receiver<Result<(), StoreError>>) -> Result<(), io::Error> {
    match wait.await {
        Ok(done) => Ok(done?),
        Err(_) => Err(io::Error::other(writer::STOPPED)),
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
        let set = self.reader.set;
        let mut previous = None;
        let changes: Result<Vec<Change>, StoreError> = entries
            .into_iter()
            .map(|entry| {
                let index = entry.log_id().index;
                debug_assert!(
                    previous.is_none_or(|previous| index == previous + 1),
                    "log indexes are consecutive: {index} after {previous:?}"
                );
                previous = Some(index);
                let key = log_key(set, index);
                Ok(Change::Put(Family::Log, key, codec::encode_record(&entry)?))
            })
            .collect();
        self.write_readably(changes?, DurableWaiter::Raft(callback)).await
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
        let changes = purge(self.reader.set, log_id)?;
        // The purge need not be durable: the table holds the purged entries, and if a power cut loses
        // the purge, it is done again.
        self.write_readably(changes, DurableWaiter::Nobody).await
    }
}
