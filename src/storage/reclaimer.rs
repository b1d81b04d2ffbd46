//! Frees the space of deleted namespaces, in the background.
//!
//! A deletion writes a range that hides the sections. They lie on the disk until RocksDB compacts them, which it does
//! when it likes. So each range is compacted here, one after the other, on a thread for blocking work. Readers and
//! snapshots under way keep what they see; RocksDB drops what they held once they are gone.
//!
//! The work that is still to be done is written with the deletion, so that a node that restarts before goes on with it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use rocksdb::{CompactOptions, WriteBatch};

use super::{
    blocking::BlockingExecutor,
    database::Database,
    error::StoreError,
    layout::{Family, reclaimed_range, reclaims_range},
};
use crate::sequence::SetId;

/// Frees the space of the deleted namespaces of a set.
#[derive(Clone)]
pub struct Reclaimer {
    db: Arc<Database>,
    set: SetId,
    work: BlockingExecutor,
    /// How often it was asked to free something since a thread began to; 0 while none is at work.
    asked: Arc<AtomicU64>,
}

impl Reclaimer {
    /// Frees what deleted namespaces of `set` take up.
    pub fn new(db: Arc<Database>, set: SetId, work: BlockingExecutor) -> Self {
        Reclaimer { db, set, work, asked: Arc::default() }
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
        if self.asked.fetch_add(1, SeqCst) > 0 {
            return;
        }
        let reclaimer = self.clone();
        self.work.run_detached(move || {
            loop {
                let asked = reclaimer.asked.load(SeqCst);
                if let Err(error) = reclaimer.free_all() {
                    tracing::warn!(%error, "the space of a deleted namespace is not free yet; the next start tries again");
                }
                // Unless something was added since the look.
                if reclaimer.asked.compare_exchange(asked, 0, SeqCst, SeqCst).is_ok() {
                    return;
                }
            }
        });
    }

    /// The records that say what is to be freed.
    fn markers(&self) -> Result<Vec<Box<[u8]>>, StoreError> {
        let (from, to) = reclaims_range(self.set);
        let records = self.db.records_between(Family::Applied, &from, to)?;
        records.map(|record| record.map(|(key, _)| key)).collect()
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
