//! Snapshots: the applied table as of one log entry, on its way from node to node.
//!
//! The table is on the disk already, so taking a snapshot writes nothing. A snapshot is read from a
//! view of the sender's table while it is sent, and written beside the receiver's table while it
//! arrives. Invariant: an arrived snapshot can be installed only once it is checked whole and is on
//! the disk.

mod format;

pub use format::PART_BYTES_MAX as SNAPSHOT_PART_BYTES_MAX;

use std::{fmt, sync::Arc, vec};

use openraft::type_config::alias;
use rocksdb::{Direction, IteratorMode, ReadOptions, WriteBatch};
use tokio::sync::{mpsc, oneshot};

use self::format::{Decoder, Encoder};
use super::{
    database::Database,
    error::StoreError,
    layout::Family,
    options::BlockingExecutor,
    raft_types::{SnapshotMeta, Types},
    table::{AppliedView, Generation},
};
use crate::planted_bugs::{Bug, is_planted};

/// A snapshot as Raft passes it along.
#[derive(Debug)]
pub enum SnapshotData {
    /// A snapshot of this node's table, to be sent.
    Outgoing(OutgoingSnapshot),
    /// A snapshot from a peer, to be installed.
    Arrived(ArrivedSnapshot),
}

/// A snapshot and what it covers.
pub type Snapshot = alias::SnapshotOf<Types, SnapshotData>;

// A snapshot that arrives from a peer, until it can be installed.
//
// Its records are written as a generation of their own, past RocksDB's log, and flushed at the end.

/// Records are written in batches of this many bytes.
const WRITE_BYTES: usize = 128 << 10;
/// The free space is checked each time this many bytes have arrived.
const SPACE_CHECK_BYTES: u64 = 16 << 20;

/// A generation that is not the table yet. Its records are removed on drop, unless it was installed.
pub(super) struct StagedGeneration {
    records: Generation,
    installed: bool,
    work: BlockingExecutor,
}

impl StagedGeneration {
    /// The generation.
    pub(super) fn generation(&self) -> &Generation {
        &self.records
    }

    /// Keeps the records: they are the table now.
    pub(super) fn installed(mut self) {
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
    /// What the snapshot covers.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// Splits it into what it covers and its records.
    pub(super) fn into_parts(self) -> (SnapshotMeta, StagedGeneration) {
        (self.meta, self.records)
    }
}

// A snapshot of this node's table, to be sent to a peer.

/// How many parts are read before the network takes them.
const PARTS_AHEAD: usize = 2;

/// A snapshot of this node's table. It holds the table as it was when the snapshot was taken. The table
/// is read only when the first part is asked for.
pub struct OutgoingSnapshot {
    meta: SnapshotMeta,
    parts: Parts,
}

type Part = Result<Vec<u8>, StoreError>;

enum Parts {
    /// A thread holds the view, because RocksDB's views borrow the database. It reads as fast as the
    /// parts are taken, and ends when the receiver is dropped.
    Read { begin: Option<oneshot::Sender<()>>, parts: mpsc::Receiver<Part> },
    /// Without threads, everything is read when the snapshot is taken.
    Ready(vec::IntoIter<Part>),
}

impl fmt::Debug for OutgoingSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutgoingSnapshot").field(&self.meta).finish()
    }
}

impl OutgoingSnapshot {
    /// Takes a snapshot of `records`, which cover `meta`. Changes after this returned are not in it.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if `meta` is too large.
    pub(super) async fn take(
        records: Generation, meta: SnapshotMeta, blocking: BlockingExecutor,
    ) -> Result<Self, StoreError> {
        let encoder = Encoder::new(records.set, &meta)?;
        let parts = match blocking {
            BlockingExecutor::Threads => read_on_a_thread(records, encoder).await,
            BlockingExecutor::Inline => {
                let mut parts = Vec::new();
                let read = read(&records, &records.db.db.snapshot(), encoder, |part| {
                    parts.push(Ok(part));
                    true
                });
                parts.extend(read.err().map(Err));
                Parts::Ready(parts.into_iter())
            }
        };
        Ok(OutgoingSnapshot { meta, parts })
    }

    /// What the snapshot covers.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// The next part; `None` after the last. No part follows an error.
    pub async fn next_part(&mut self) -> Option<Result<Vec<u8>, StoreError>> {
        match &mut self.parts {
            Parts::Read { begin, parts } => {
                if let Some(begin) = begin.take() {
                    // On an error the thread is gone: then the receiver below ends early, and the
                    // receiving node notices that the end is missing.
                    let _ = begin.send(());
                }
                parts.recv().await
            }
            Parts::Ready(parts) => parts.next(),
        }
    }
}

async fn read_on_a_thread(records: Generation, encoder: Encoder) -> Parts {
    let (begin, begun) = oneshot::channel();
    let (taken, view_taken) = oneshot::channel();
    let (send, parts) = mpsc::channel(PARTS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let view = records.db.db.snapshot();
        // On an error nobody waits for the snapshot any more: the next receive ends the thread.
        let _ = taken.send(());
        if begun.blocking_recv().is_err() {
            return;
        }
        let take = |part| send.blocking_send(Ok(part)).is_ok();
        if let Err(error) = read(&records, &view, encoder, take) {
            // On an error nobody wants the snapshot any more.
            let _ = send.blocking_send(Err(error));
        }
    });
    // On an error the thread is gone: then the parts end early, and the receiving node notices.
    let _ = view_taken.await;
    Parts::Read { begin: Some(begin), parts }
}

/// Reads `records` as they are in `view` and gives every part to `take`, until that returns false.
fn read(
    records: &Generation, view: &rocksdb::Snapshot<'_>, mut encoder: Encoder,
    mut take: impl FnMut(Vec<u8>) -> bool,
) -> Result<(), StoreError> {
    let (db, (from, to)) = (&records.db, records.range());
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound(to);
    // Blocks that are read once must not evict blocks that are read often.
    options.fill_cache(false);
    let mode = IteratorMode::From(&from, Direction::Forward);
    let family = db.family(Family::Applied)?;
    for record in view.iterator_cf_opt(family, options, mode) {
        let (key, value) = record.map_err(|error| db.failed(&error))?;
        let name = &key[from.len()..];
        if name.starts_with(b"s") && is_planted(Bug::CeilingMissingFromSnapshot) {
            continue;
        }
        // A damaged record must not spread to other nodes.
        db.check(Family::Applied, &key, &value)?;
        if let Some(part) = encoder.record(name, &value)?
            && !take(part)
        {
            return Ok(());
        }
    }
    take(encoder.finish());
    Ok(())
}
