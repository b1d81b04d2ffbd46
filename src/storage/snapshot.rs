//! Snapshots: the applied table as of one log entry, on its way from node to node.
//!
//! The table is on the disk, so that nothing is written to take a snapshot of it: one is read from a
//! view of the table while it is sent, and written beside the receiver's table while it arrives.
//! Invariant: what arrives can be installed only when it proved whole and is on the disk.

use std::{fmt, sync::Arc, vec};

use rocksdb::{Direction, IteratorMode, ReadOptions, WriteBatch};
use tokio::sync::{mpsc, oneshot};

use super::{
    applied::{self, AppliedView},
    database::{Database, Family},
    error::StoreError,
    raft_types::SnapshotMeta,
    room,
    snapshot_format::{Reader, Writer},
    work::Work,
};
use crate::{
    planted::{Bug, is_planted},
    sequence::{SectionRecord, SetId},
};

/// How many bytes of an arriving snapshot are written at once.
const WRITE_BYTES: usize = 128 << 10;
/// After how many bytes of an arriving snapshot the free space is looked at again.
const ROOM_CHECK_BYTES: u64 = 16 << 20;
/// How many parts are read ahead of the network.
const PARTS_AHEAD: usize = 2;

/// A snapshot as Raft passes it along.
#[derive(Debug)]
pub enum SnapshotData {
    /// Of this node's table, to be sent.
    Outgoing(OutgoingSnapshot),
    /// From a peer, to be installed.
    Arrived(ArrivedSnapshot),
}

/// A snapshot of this node's table. It reads the table as it was when it was taken, and no earlier
/// than its parts are asked for.
pub struct OutgoingSnapshot {
    meta: SnapshotMeta,
    parts: Parts,
}

type Part = Result<Vec<u8>, StoreError>;

enum Parts {
    /// RocksDB's views borrow the database: a thread holds the view, reads as fast as parts are
    /// taken, and ends when nobody takes them any more.
    Read {
        begin: Option<oneshot::Sender<()>>,
        parts: mpsc::Receiver<Part>,
    },
    /// Without threads, all is read at once.
    Ready(vec::IntoIter<Part>),
}

impl fmt::Debug for OutgoingSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutgoingSnapshot").field(&self.meta).finish()
    }
}

/// The records of one generation of a table.
pub(super) struct Records {
    pub(super) db: Arc<Database>,
    pub(super) set: SetId,
    pub(super) generation: u32,
}

impl Records {
    /// Reads them as they are in `view`, and hands every part to `take` until that answers false.
    fn read(
        &self,
        view: &rocksdb::Snapshot<'_>,
        mut writer: Writer,
        mut take: impl FnMut(Vec<u8>) -> bool,
    ) -> Result<(), StoreError> {
        let (from, to) = applied::generation_range(self.set, self.generation);
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(to);
        // What is read once must not push out what is read often.
        options.fill_cache(false);
        let mode = IteratorMode::From(&from, Direction::Forward);
        let family = self.db.family(Family::Applied)?;
        for record in view.iterator_cf_opt(family, options, mode) {
            let (key, value) = record.map_err(|error| self.db.failed(&error))?;
            let name = &key[from.len()..];
            if name.starts_with(b"s") {
                if is_planted(Bug::CeilingMissingFromSnapshot) {
                    continue;
                }
                // A record that cannot be trusted does not spread.
                self.db
                    .unseal::<SectionRecord>(Family::Applied, &key, &value)?;
            }
            if let Some(part) = writer.record(name, &value)?
                && !take(part)
            {
                return Ok(());
            }
        }
        take(writer.finish());
        Ok(())
    }
}

impl OutgoingSnapshot {
    /// Takes a snapshot of `records`, which are at `meta`; it is taken when this returns.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if `meta` is too large.
    pub(super) async fn take(
        records: Records,
        meta: SnapshotMeta,
        work: Work,
    ) -> Result<Self, StoreError> {
        let writer = Writer::new(records.set, &meta)?;
        let parts = match work {
            Work::Threads => read_on_a_thread(records, writer).await,
            Work::Inline => {
                let mut parts = Vec::new();
                let read = records.read(&records.db.db.snapshot(), writer, |part| {
                    parts.push(Ok(part));
                    true
                });
                parts.extend(read.err().map(Err));
                Parts::Ready(parts.into_iter())
            }
        };
        Ok(OutgoingSnapshot { meta, parts })
    }

    /// What it covers.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// The next part; `None` after the last. A part that is an error is the last.
    pub async fn next_part(&mut self) -> Option<Result<Vec<u8>, StoreError>> {
        match &mut self.parts {
            Parts::Read { begin, parts } => {
                if let Some(begin) = begin.take() {
                    // An error means that the thread is gone, and shows as a missing part.
                    let _ = begin.send(());
                }
                parts.recv().await
            }
            Parts::Ready(parts) => parts.next(),
        }
    }
}

async fn read_on_a_thread(records: Records, writer: Writer) -> Parts {
    let (begin, begun) = oneshot::channel();
    let (taken, view_taken) = oneshot::channel();
    let (send, parts) = mpsc::channel(PARTS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let view = records.db.db.snapshot();
        // An error means that the node stops.
        let _ = taken.send(());
        if begun.blocking_recv().is_err() {
            return;
        }
        let take = |part| send.blocking_send(Ok(part)).is_ok();
        if let Err(error) = records.read(&view, writer, take) {
            // An error means that nobody wants the snapshot any more.
            let _ = send.blocking_send(Err(error));
        }
    });
    // An error means that the thread is gone, which shows as missing parts.
    let _ = view_taken.await;
    Parts::Read {
        begin: Some(begin),
        parts,
    }
}

/// Records beside the table. Dropped before they have become the table, they are removed.
pub(super) struct Beside {
    records: Records,
    installed: bool,
}

impl Beside {
    /// Their generation.
    pub(super) fn generation(&self) -> u32 {
        self.records.generation
    }

    /// They have become the table.
    pub(super) fn installed(mut self) {
        self.installed = true;
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let Records {
            db,
            set,
            generation,
        } = &self.records;
        if !self.installed
            && let Err(error) = applied::remove_generation(db, *set, *generation)
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
        let (db, set) = (view.db().clone(), view.set());
        room::check(db.dir(), 0)?;
        let records = Records {
            db: db.clone(),
            set,
            generation: view.fresh_generation(),
        };
        Ok(IncomingSnapshot {
            db,
            prefix: applied::prefix(set, records.generation),
            reader: Reader::new(set),
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
            room::check(self.db.dir(), self.bytes)?;
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
    pub(super) fn into_parts(self) -> (SnapshotMeta, Beside) {
        (self.meta, self.records)
    }
}
