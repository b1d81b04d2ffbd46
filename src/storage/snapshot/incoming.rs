//! A snapshot that arrives from a peer, until it can be installed.
//!
//! Its records are written as a generation of their own, past RocksDB's log, and flushed at the end.

use std::{fmt, sync::Arc};

use rocksdb::WriteBatch;

use super::format::Decoder;
use crate::{
    sequence::ClusterId,
    storage::{
        blocking::BlockingExecutor,
        database::Database,
        error::StoreError,
        layout::Family,
        raft_types::SnapshotMeta,
        table::{AppliedView, Generation},
    },
};

/// Records are written in batches of this many bytes.
const WRITE_BYTES: usize = 128 << 10;
/// The free space is checked each time this many bytes have arrived.
const SPACE_CHECK_BYTES: u64 = 16 << 20;

/// A generation that is not the table yet. Its records are removed on drop, unless it was installed.
pub(in crate::storage) struct StagedGeneration {
    records: Generation,
    installed: bool,
    work: BlockingExecutor,
}

impl StagedGeneration {
    /// The generation.
    pub(in crate::storage) fn generation(&self) -> &Generation {
        &self.records
    }

    /// Keeps the records: they are the table now.
    pub(in crate::storage) fn installed(mut self) {
        self.installed = true;
    }
}

impl Drop for StagedGeneration {
    fn drop(&mut self) {
        if self.installed {
            return;
        }
        let records = self.records.clone();
        self.work.run_detached(move || {
            if let Err(error) = records.remove() {
                // They take up space until the next start, which removes them.
                tracing::warn!(%error, "cannot remove the records of a snapshot that was not installed; the next start removes them");
            }
        });
    }
}

/// A snapshot that is arriving from a peer. On drop its records are removed.
pub struct IncomingSnapshot {
    db: Arc<Database>,
    records: StagedGeneration,
    prefix: Vec<u8>,
    decoder: Decoder,
    batch: WriteBatch,
    bytes: u64,
    /// The free space is checked once `bytes` reaches this.
    next_space_check_at: u64,
}

impl IncomingSnapshot {
    /// Begins a new generation beside the table of `view`. Blocks.
    ///
    /// # Errors
    /// [`StoreError::DiskNearlyFull`], or [`StoreError::Io`] if the free space cannot be read.
    pub fn create(view: &AppliedView) -> Result<Self, StoreError> {
        let db = view.db().clone();
        db.free_space().check(0)?;
        let records = view.fresh_generation();
        Ok(IncomingSnapshot {
            db,
            prefix: records.prefix(),
            decoder: Decoder::new(records.set),
            records: StagedGeneration { records, installed: false, work: view.blocking() },
            batch: WriteBatch::default(),
            bytes: 0,
            next_space_check_at: SPACE_CHECK_BYTES,
        })
    }

    /// Takes the next part and writes its records. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the bytes are damaged; [`StoreError::DiskNearlyFull`];
    /// [`StoreError::Database`] if the disk fails.
    pub fn write(&mut self, part: &[u8]) -> Result<(), StoreError> {
        let IncomingSnapshot { db, prefix, decoder, batch, .. } = self;
        let family = db.family(Family::Applied)?;
        decoder.read(part, |key, value| {
            batch.put_cf(family, [prefix.as_slice(), key].concat(), value);
            if batch.size_in_bytes() >= WRITE_BYTES {
                db.write_unlogged(std::mem::take(batch))?;
            }
            Ok(())
        })?;
        self.bytes += part.len() as u64;
        if self.bytes >= self.next_space_check_at {
            self.next_space_check_at = self.bytes + SPACE_CHECK_BYTES;
            // RocksDB writes all of the snapshot a second time when it compacts it.
            self.db.free_space().check(self.bytes)?;
        }
        Ok(())
    }

    /// Checks that the snapshot is whole and undamaged, and brings its records to the disk. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the snapshot is not whole; [`StoreError::Database`] if the disk fails.
    /// The records are removed then.
    pub fn finish(self) -> Result<ArrivedSnapshot, StoreError> {
        let meta = self.decoder.finish()?;
        self.db.write_unlogged(self.batch)?;
        self.db.flush(Family::Applied)?;
        Ok(ArrivedSnapshot { meta, records: self.records })
    }
}

/// A snapshot that arrived whole. Its records are on the disk, beside the table.
pub struct ArrivedSnapshot {
    meta: SnapshotMeta,
    records: StagedGeneration,
}

impl fmt::Debug for ArrivedSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ArrivedSnapshot").field(&self.meta).finish()
    }
}

impl ArrivedSnapshot {
    /// The extent of the snapshot.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// The id of the cluster whose table it is; `None` if that has no id yet. Blocks.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn cluster_id(&self) -> Result<Option<ClusterId>, StoreError> {
        self.records.generation().read_cluster_id()
    }

    /// Splits it into what it covers and its records.
    pub(in crate::storage) fn into_parts(self) -> (SnapshotMeta, StagedGeneration) {
        (self.meta, self.records)
    }
}
