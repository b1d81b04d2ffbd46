//! Raft's log and hard state of one set.
//!
//! Invariant: what was appended can be read when `append` returns, and is on the disk when its
//! callback says so; a vote is on the disk when `save_vote` returns. Changes take effect in the order
//! in which Raft asks for them.

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

/// The log of one set, for writing.
pub struct LogStore {
    store: Arc<Store>,
    reader: LogReader,
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
        log.purge_log_behind_table()?;
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
    fn purge_log_behind_table(&self) -> Result<(), StoreError> {
        let LogReader { db, set } = &self.reader;
        let end = self.reader.end()?.map(|end| end.index);
        let applied = AppliedMeta::read(db, *set)?;
        match applied.and_then(|meta| meta.last_applied) {
            Some(applied) if end < Some(applied.index) => {
                let changes = purge(*set, applied)?;
                db.write(writer::batch(db, &changes)?, true)
            }
            _ => Ok(()),
        }
    }

    async fn write_durably(&self, changes: Vec<Change>) -> Result<(), io::Error> {
        let (done, wait) = oneshot::channel();
        self.store.writer.send(Write {
            changes,
            readable: None,
            durable: DurableWaiter::Caller(done),
        });
        written(wait).await
    }

    async fn write_readably(
        &self,
        changes: Vec<Change>,
        durable: DurableWaiter,
    ) -> Result<(), io::Error> {
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

/// What purges the log up to and including `upto`.
fn purge(set: SetId, upto: LogId) -> Result<Vec<Change>, StoreError> {
    Ok(vec![
        Change::Put(
            Family::HardState,
            purged_key(set).to_vec(),
            codec::encode_record(&upto)?,
        ),
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
        let sealed = codec::encode_record(vote).map_err(StoreError::from)?;
        self.write_durably(vec![Change::Put(Family::HardState, key, sealed)])
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
                Ok(Change::Put(Family::Log, key, codec::encode_record(&entry)?))
            })
            .collect();
        self.write_readably(changes?, DurableWaiter::Raft(callback))
            .await
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
        // What is purged is in the table already; should this be lost, it is purged again.
        self.write_readably(changes, DurableWaiter::Nobody).await
    }
}
