//! A snapshot from a peer, until it can be installed.

use std::{fmt, sync::Arc};

use rocksdb::WriteBatch;

use super::format::Decoder;
use crate::storage::{
    database::Database,
    error::StoreError,
    free_space,
    layout::Family,
    raft_types::SnapshotMeta,
    table::{AppliedView, Generation},
};

/// How many bytes of an arriving snapshot are written at once.
const WRITE_BYTES: usize = 128 << 10;
/// After how many bytes of an arriving snapshot the free space is looked at again.
const SPACE_CHECK_BYTES: u64 = 16 << 20;

/// Records beside the table. Dropped before they have become the table, they are removed.
pub(in crate::storage) struct StagedGeneration {
    records: Generation,
    installed: bool,
}

impl StagedGeneration {
    /// Their generation.
    pub(in crate::storage) fn generation(&self) -> &Generation {
        &self.records
    }

    /// They have become the table.
    pub(in crate::storage) fn installed(mut self) {
        self.installed = true;
    }
}

impl Drop for StagedGeneration {
    fn drop(&mut self) {
        if !self.installed
            && let Err(error) = self.records.remove()
        {
            // They are removed at the next start.
            tracing::warn!(%error, "what arrived of a snapshot was not removed");
        }
    }
}

/// A snapshot that is arriving from a peer. Dropped before it is whole, it leaves nothing behind.
pub struct IncomingSnapshot {
    db: Arc<Database>,
    records: StagedGeneration,
    prefix: Vec<u8>,
    decoder: Decoder,
    batch: WriteBatch,
    bytes: u64,
    /// The free space is looked at once so many bytes have arrived.
    next_space_check_at: u64,
}

impl IncomingSnapshot {
    /// Makes room beside the table that `view` is of. Blocks.
    ///
    /// # Errors
    /// [`StoreError::DiskNearlyFull`] if the disk is nearly full.
    pub fn create(view: &AppliedView) -> Result<Self, StoreError> {
        let db = view.db().clone();
        free_space::check(db.dir(), 0)?;
        let records = view.fresh_generation();
        Ok(IncomingSnapshot {
            db,
            prefix: records.prefix(),
            decoder: Decoder::new(records.set()),
            records: StagedGeneration {
                records,
                installed: false,
            },
            batch: WriteBatch::default(),
            bytes: 0,
            next_space_check_at: SPACE_CHECK_BYTES,
        })
    }

    /// Adds the next bytes. Blocks.
    ///
    /// # Errors
    /// [`StoreError`]: they are damaged, the disk fails, or it is nearly full.
    pub fn write(&mut self, part: &[u8]) -> Result<(), StoreError> {
        let IncomingSnapshot {
            db,
            prefix,
            decoder,
            batch,
            ..
        } = self;
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
            // RocksDB writes all of it once more when it sorts it in.
            free_space::check(self.db.dir(), self.bytes)?;
        }
        Ok(())
    }

    /// Checks that all of it has arrived unharmed, and brings it to the disk. Blocks.
    ///
    /// # Errors
    /// [`StoreError`]; nothing of it is kept then.
    pub fn finish(self) -> Result<ArrivedSnapshot, StoreError> {
        let meta = self.decoder.finish()?;
        self.db.write_unlogged(self.batch)?;
        self.db.flush(Family::Applied)?;
        Ok(ArrivedSnapshot {
            meta,
            records: self.records,
        })
    }
}

/// A snapshot that has arrived whole and is on the disk, beside the table.
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
    /// What it covers.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// What it covers, and its records.
    pub(in crate::storage) fn into_parts(self) -> (SnapshotMeta, StagedGeneration) {
        (self.meta, self.records)
    }
}
