//! A snapshot from a peer, until it can be installed.

use std::{fmt, sync::Arc};

use rocksdb::WriteBatch;

use super::format::Reader;
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
const ROOM_CHECK_BYTES: u64 = 16 << 20;

/// Records beside the table. Dropped before they have become the table, they are removed.
pub(in crate::storage) struct Beside {
    records: Generation,
    installed: bool,
}

impl Beside {
    /// Their generation.
    pub(in crate::storage) fn generation(&self) -> &Generation {
        &self.records
    }

    /// They have become the table.
    pub(in crate::storage) fn installed(mut self) {
        self.installed = true;
    }
}

impl Drop for Beside {
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
    records: Beside,
    prefix: Vec<u8>,
    reader: Reader,
    batch: WriteBatch,
    bytes: u64,
    /// The free space is looked at once so many bytes have arrived.
    room_checked_at: u64,
}

impl IncomingSnapshot {
    /// Makes room beside the table that `view` is of. Blocks.
    ///
    /// # Errors
    /// [`StoreError::NoRoom`] if the disk is nearly full.
    pub fn create(view: &AppliedView) -> Result<Self, StoreError> {
        let db = view.db().clone();
        free_space::check(db.dir(), 0)?;
        let records = view.fresh_generation();
        Ok(IncomingSnapshot {
            db,
            prefix: records.prefix(),
            reader: Reader::new(records.set()),
            records: Beside {
                records,
                installed: false,
            },
            batch: WriteBatch::default(),
            bytes: 0,
            room_checked_at: ROOM_CHECK_BYTES,
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
            reader,
            batch,
            ..
        } = self;
        let family = db.family(Family::Applied)?;
        reader.read(part, |key, value| {
            batch.put_cf(family, [prefix.as_slice(), key].concat(), value);
            if batch.size_in_bytes() >= WRITE_BYTES {
                db.write_unlogged(std::mem::take(batch))?;
            }
            Ok(())
        })?;
        self.bytes += part.len() as u64;
        if self.bytes >= self.room_checked_at {
            self.room_checked_at = self.bytes + ROOM_CHECK_BYTES;
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
        let meta = self.reader.finish()?;
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
    records: Beside,
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
    pub(in crate::storage) fn into_parts(self) -> (SnapshotMeta, Beside) {
        (self.meta, self.records)
    }
}
