//! A snapshot of this node's table, to be sent.

use std::{fmt, vec};

use rocksdb::{Direction, IteratorMode, ReadOptions};
use tokio::sync::{mpsc, oneshot};

use super::format::Encoder;
use crate::{
    planted::{Bug, is_planted},
    sequence::SectionRecord,
    storage::{
        blocking::BlockingExecutor,
        error::StoreError,
        layout::{Family, is_section},
        raft_types::SnapshotMeta,
        table::Generation,
    },
};

/// How many parts are read ahead of the network.
const PARTS_AHEAD: usize = 2;

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

impl OutgoingSnapshot {
    /// Takes a snapshot of `records`, which are at `meta`; it is taken when this returns.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if `meta` is too large.
    pub(in crate::storage) async fn take(
        records: Generation,
        meta: SnapshotMeta,
        blocking: BlockingExecutor,
    ) -> Result<Self, StoreError> {
        let encoder = Encoder::new(records.set(), &meta)?;
        let parts = match blocking {
            BlockingExecutor::Threads => read_on_a_thread(records, encoder).await,
            BlockingExecutor::Inline => {
                let mut parts = Vec::new();
                let read = read(&records, &records.db().db.snapshot(), encoder, |part| {
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

async fn read_on_a_thread(records: Generation, encoder: Encoder) -> Parts {
    let (begin, begun) = oneshot::channel();
    let (taken, view_taken) = oneshot::channel();
    let (send, parts) = mpsc::channel(PARTS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let view = records.db().db.snapshot();
        // An error means that the node stops.
        let _ = taken.send(());
        if begun.blocking_recv().is_err() {
            return;
        }
        let take = |part| send.blocking_send(Ok(part)).is_ok();
        if let Err(error) = read(&records, &view, encoder, take) {
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

/// Reads `records` as they are in `view`, and hands every part to `take` until that answers false.
fn read(
    records: &Generation,
    view: &rocksdb::Snapshot<'_>,
    mut encoder: Encoder,
    mut take: impl FnMut(Vec<u8>) -> bool,
) -> Result<(), StoreError> {
    let (db, (from, to)) = (records.db(), records.range());
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound(to);
    // What is read once must not push out what is read often.
    options.fill_cache(false);
    let mode = IteratorMode::From(&from, Direction::Forward);
    let family = db.family(Family::Applied)?;
    for record in view.iterator_cf_opt(family, options, mode) {
        let (key, value) = record.map_err(|error| db.failed(&error))?;
        let name = &key[from.len()..];
        if is_section(name) {
            if is_planted(Bug::CeilingMissingFromSnapshot) {
                continue;
            }
            // A record that cannot be trusted does not spread.
            db.decode::<SectionRecord>(Family::Applied, &key, &value)?;
        }
        if let Some(part) = encoder.record(name, &value)?
            && !take(part)
        {
            return Ok(());
        }
    }
    take(encoder.finish());
    Ok(())
}
