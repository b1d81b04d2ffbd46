//! The one that writes logs and votes, for all sets of a node: a thread of its own, or, in a
//! simulation, a task.
//!
//! It takes all that waits, writes it as one batch, and brings it to the disk with one fsync.
//! Invariant: after a failed write or fsync it never tries again. What a disk has once failed to
//! sync may be lost even if the next fsync succeeds (the kernel marks the pages clean), so nothing
//! that was or will be written can be vouched for any more.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use openraft::storage::IOFlushed;
use rocksdb::WriteBatch;
use tokio::sync::{mpsc, oneshot};

use super::{
    blocking::BlockingExecutor, database::Database, error::StoreError, layout::Family,
    options::StoreOptions, raft_types::Types,
};
use crate::{
    clock::Instant,
    planted::{Bug, is_planted},
};

/// How many writes share a batch at most.
const BATCH_WRITES_MAX: usize = 1_024;

/// A change of the database.
pub enum Change {
    /// Put a record.
    Put(Family, Vec<u8>, Vec<u8>),
    /// Delete from a key up to, and not including, another.
    DeleteRange(Family, Vec<u8>, Vec<u8>),
}

/// Who waits for a write to be on the disk.
pub enum DurableWaiter {
    /// Nobody; it goes with the next fsync.
    Nobody,
    /// A caller.
    Caller(oneshot::Sender<Result<(), StoreError>>),
    /// Raft.
    Raft(IOFlushed<Types>),
}

/// One write.
pub struct Write {
    /// What changes, in order.
    pub changes: Vec<Change>,
    /// Told as soon as readers see it.
    pub readable: Option<oneshot::Sender<Result<(), StoreError>>>,
    /// Told when it is on the disk.
    pub durable: DurableWaiter,
}

/// How the disk does, for a watchdog.
#[derive(Debug, Default)]
pub struct DiskHealth {
    pending_since: AtomicU64,
    failure: OnceLock<String>,
}

impl DiskHealth {
    /// Since when the writer has been at one batch; `None` while it rests.
    pub fn oldest_pending(&self) -> Option<Instant> {
        match self.pending_since.load(Ordering::Acquire) {
            0 => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    /// Why nothing is written any more.
    pub fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }
}

/// The writer's handle. Dropping it waits until what was asked for is written (but for a task: that
/// goes on until then).
pub struct Writer {
    writes: Option<mpsc::UnboundedSender<Write>>,
    thread: Option<JoinHandle<()>>,
    health: Arc<DiskHealth>,
}

impl Writer {
    /// Starts the thread, or the task.
    pub fn start(db: Arc<Database>, options: StoreOptions) -> Result<Self, StoreError> {
        let (writes, waiting) = mpsc::unbounded_channel();
        let health = Arc::new(DiskHealth::default());
        let (place, tasks) = (options.blocking, options.tasks.clone());
        let work = WriterTask {
            db: db.clone(),
            options,
            health: health.clone(),
        };
        let serving = tasks.watched("writer of the log", work.serve(waiting));
        let thread = match place {
            BlockingExecutor::Threads => Some(
                std::thread::Builder::new()
                    .name("ratchet-log".to_owned())
                    .spawn(move || futures::executor::block_on(serving))
                    .map_err(StoreError::io("cannot start the writer of", db.dir()))?,
            ),
            BlockingExecutor::Inline => {
                tokio::spawn(serving);
                None
            }
        };
        Ok(Writer {
            writes: Some(writes),
            thread,
            health,
        })
    }

    /// How the disk does.
    pub fn health(&self) -> Arc<DiskHealth> {
        self.health.clone()
    }

    /// Hands a write over. The writer lives as long as this handle, so that it is always taken.
    pub fn send(&self, write: Write) {
        let refused = match &self.writes {
            Some(writes) => writes.send(write).err().map(|refused| refused.0),
            None => Some(write),
        };
        if let Some(write) = refused {
            let why = self.health.failure();
            let why = why.unwrap_or_else(|| "the writer of the log is gone".to_owned());
            refuse(write, &why);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.writes = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the writer of the log panicked");
        }
    }
}

struct WriterTask {
    db: Arc<Database>,
    options: StoreOptions,
    health: Arc<DiskHealth>,
}

impl WriterTask {
    async fn serve(self, mut waiting: mpsc::UnboundedReceiver<Write>) {
        let mut writes = Vec::new();
        while waiting.recv_many(&mut writes, BATCH_WRITES_MAX).await > 0 {
            let writes = std::mem::take(&mut writes);
            if let Some(why) = self.health.failure() {
                writes.into_iter().for_each(|write| refuse(write, &why));
                continue;
            }
            let now = self.options.clock.now().as_nanos().max(1);
            self.health.pending_since.store(now, Ordering::Release);
            self.write(writes).await;
            self.health.pending_since.store(0, Ordering::Release);
        }
    }

    async fn write(&self, mut writes: Vec<Write>) {
        let written = batch(&self.db, writes.iter().flat_map(|write| &write.changes))
            .and_then(|batch| self.db.write(batch, false));
        if let Err(error) = written {
            return self.give_up(writes, &error);
        }
        for readable in writes.iter_mut().filter_map(|write| write.readable.take()) {
            // One that stopped waiting does not need to know.
            let _ = readable.send(Ok(()));
        }
        if writes
            .iter()
            .all(|write| matches!(write.durable, DurableWaiter::Nobody))
        {
            return;
        }
        let clock = &self.options.clock;
        let started = clock.now();
        let synced = (self.options.before_sync)()
            .await
            .map_err(|message| StoreError::Database {
                dir: self.db.dir().to_owned(),
                message,
            })
            .and_then(|()| match is_planted(Bug::WriteNotSynced) {
                true => Ok(()),
                false => self.db.sync(),
            });
        let fsyncs = &self.options.metrics.fsync_seconds;
        fsyncs.observe(clock.now().since(started), 1);
        match synced {
            Ok(()) => writes.into_iter().for_each(|write| match write.durable {
                DurableWaiter::Nobody => {}
                DurableWaiter::Caller(caller) => {
                    let _ = caller.send(Ok(()));
                }
                DurableWaiter::Raft(raft) => raft.io_completed(Ok(())),
            }),
            Err(error) => self.give_up(writes, &error),
        }
    }

    fn give_up(&self, writes: Vec<Write>, error: &StoreError) {
        let why = format!("{error}. Nothing is written any more: this node must stop");
        tracing::error!("{why}");
        let why = self.health.failure.get_or_init(|| why);
        for write in writes {
            refuse(write, why);
        }
    }
}

/// One batch of many changes.
pub fn batch<'c>(
    db: &Database,
    changes: impl IntoIterator<Item = &'c Change>,
) -> Result<WriteBatch, StoreError> {
    let mut batch = WriteBatch::default();
    for change in changes {
        match change {
            Change::Put(family, key, value) => {
                batch.put_cf(db.family(*family)?, key, value);
            }
            Change::DeleteRange(family, from, to) => {
                batch.delete_range_cf(db.family(*family)?, from, to);
            }
        }
    }
    Ok(batch)
}

fn refuse(write: Write, why: &str) {
    let failed = || StoreError::Failed(why.to_owned());
    if let Some(readable) = write.readable {
        let _ = readable.send(Err(failed()));
    }
    match write.durable {
        DurableWaiter::Nobody => {}
        DurableWaiter::Caller(caller) => {
            let _ = caller.send(Err(failed()));
        }
        DurableWaiter::Raft(raft) => raft.io_completed(Err(failed().into())),
    }
}
