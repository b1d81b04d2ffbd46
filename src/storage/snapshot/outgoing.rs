//! A snapshot of this node's table, to be sent to a peer. It is a view of the table at one moment, and no copy. With threads,
//! its parts are read while the peer takes them.

use std::{fmt, vec};

use rocksdb::{Direction, IteratorMode, ReadOptions};
use tokio::sync::{mpsc, oneshot};

use super::format::Encoder;
use crate::{
    planted_bugs::{Bug, is_planted},
    storage::{
        blocking::BlockingExecutor, error::StoreError, layout::Family, raft_types::SnapshotMeta,
        table::Generation,
    },
};

/// How many parts are read before the network takes them.
const PARTS_AHEAD: usize = 2;

/// A snapshot of this node's table. It holds the table as it was when the snapshot was taken. The table
/// is read only when the first part is asked for.
pub struct OutgoingSnapshot {
    meta: SnapshotMeta,
    parts: Parts,
}

type PartRead = Result<Vec<u8>, StoreError>;

enum Parts {
    /// A thread holds the view, because RocksDB's views borrow the database. It reads as fast as the
    /// parts are taken, and ends when the receiver is dropped.
    Read { begin: Option<oneshot::Sender<()>>, parts: mpsc::Receiver<PartRead> },
    /// Without threads, everything is read when the snapshot is taken.
    Ready(vec::IntoIter<PartRead>),
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
    pub(in crate::storage) async fn take(
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

    /// The extent of the snapshot.
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
