//! Frees the space of deleted namespaces, in the background.
//!
//! A deletion writes a range that hides the sections. They lie on the disk until RocksDB compacts them, which it does
//! when it likes. So each range is compacted here, one after the other, on a thread for blocking work. Readers and
//! snapshots under way keep what they see; RocksDB drops what they held once they are gone.
//!
//! What is still to be done is written with the deletion, so that a node that restarts before goes on with it.

use std::sync::Arc;

use parking_lot::Mutex;
use rocksdb::{CompactOptions, Direction, IteratorMode, WriteBatch};

use super::{
    blocking::BlockingExecutor,
    database::Database,
    error::StoreError,
    layout::{Family, reclaimed_range, reclaims_prefix},
};
use crate::sequence::SetId;

/// Frees the space of the deleted namespaces of a set.
#[derive(Clone)]
pub struct Reclaimer {
    db: Arc<Database>,
    set: SetId,
    work: BlockingExecutor,
    state: Arc<Mutex<State>>,
}

/// Whether a thread is at work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Working,
    /// Something was added since the thread looked.
    WorkingAndAsked,
}

impl Reclaimer {
    /// Frees what deleted namespaces of `set` take up.
    pub fn new(db: Arc<Database>, set: SetId, work: BlockingExecutor) -> Self {
        Reclaimer { db, set, work, state: Arc::new(Mutex::new(State::Idle)) }
    }

    /// As [`Reclaimer::wake`], if something is to be freed. Blocks for a look at the table.
    ///
    /// # Errors
    /// [`StoreError`] if the table cannot be read.
    pub fn wake_if_needed(&self) -> Result<(), StoreError> {
        if !self.markers()?.is_empty() {
            self.wake();
        }
        Ok(())
    }

    /// Begins to free what is to be freed, unless that is under way. Call it after a deletion was written.
    pub fn wake(&self) {
        if self.work == BlockingExecutor::Inline {
            // A simulation would wait for it. RocksDB compacts such small tables by itself.
            return;
        }
        let before = std::mem::replace(&mut *self.state.lock(), State::WorkingAndAsked);
        if before != State::Idle {
            return;
        }
        let reclaimer = self.clone();
        self.work.run_detached(move || {
            while reclaimer.goes_on() {
                if let Err(error) = reclaimer.free_all() {
                    tracing::warn!(%error, "the space of a deleted namespace is not free yet; the next start tries again");
                }
            }
        });
    }

    /// True if something was added since the last call.
    fn goes_on(&self) -> bool {
        let mut state = self.state.lock();
        let asked = *state == State::WorkingAndAsked;
        *state = match asked {
            true => State::Working,
            false => State::Idle,
        };
        asked
    }

    /// The records that say what is to be freed.
    fn markers(&self) -> Result<Vec<Box<[u8]>>, StoreError> {
        let prefix = reclaims_prefix(self.set);
        let mode = IteratorMode::From(&prefix, Direction::Forward);
        let mut keys = Vec::new();
        for record in self.db.records(Family::Applied, mode)? {
            let (key, _) = record?;
            if !key.starts_with(&prefix) {
                break;
            }
            keys.push(key);
        }
        Ok(keys)
    }

    /// Compacts the sections of all deleted namespaces.
    fn free_all(&self) -> Result<(), StoreError> {
        // The reading is over: it would keep the files that are compacted.
        self.markers()?.iter().try_for_each(|key| self.free(key))
    }

    /// Compacts the sections that a record stands for, and removes the record.
    fn free(&self, key: &[u8]) -> Result<(), StoreError> {
        let applied = self.db.family(Family::Applied)?;
        let no_range = || (self.db).damaged(Family::Applied, key, "its key names no namespace");
        let (from, to) = reclaimed_range(key).ok_or_else(no_range)?;
        let mut options = CompactOptions::default();
        // Otherwise RocksDB's own compactions would wait for this one.
        options.set_exclusive_manual_compaction(false);
        self.db.db.compact_range_cf_opt(applied, Some(from), Some(to), &options);
        let mut batch = WriteBatch::default();
        batch.delete_cf(applied, key);
        self.db.write(batch, false)
    }
}
