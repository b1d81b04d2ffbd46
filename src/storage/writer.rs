//! The writer of logs and votes, for all sets of a node: one thread, or, in a simulation, one task.
//!
//! It takes all writes that wait, writes them as one batch, and brings the batch to the disk with one
//! fsync. Invariant: after a failed write or fsync it never writes again. A failed fsync may lose data
//! even if the next one succeeds, because the kernel marks the pages clean. So neither earlier nor later
//! writes could be called durable.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{self as std_mpsc, RecvTimeoutError},
    },
    time::Duration,
};

use openraft::storage::IOFlushed;
use parking_lot::Mutex;
use rocksdb::WriteBatch;
use tokio::sync::{mpsc, oneshot};

use super::{
    database::Database,
    error::StoreError,
    layout::Family,
    options::{BlockingExecutor, StoreOptions},
    raft_types::Types,
};
use crate::{
    clock::Instant,
    planted_bugs::{Bug, is_planted},
};

/// The error for a write that no writer is left to take.
pub const STOPPED: &str = "the log's writer has stopped; restart the node";
/// How long the end of a writer waits for its thread. One whose disk hangs never ends.
const END_MAX: Duration = Duration::from_secs(2);
/// Stands in [`DiskHealth`] for no time.
const IDLE: u64 = 0;
/// The largest number of writes in one batch.
const BATCH_WRITES_MAX: usize = 1_024;

/// A change of the database.
pub enum Change {
    /// Writes a record: family, key, value.
    Put(Family, Vec<u8>, Vec<u8>),
    /// Deletes a range of keys: family, first key, exclusive end.
    DeleteRange(Family, Vec<u8>, Vec<u8>),
}

/// Who waits until a write is on the disk.
pub enum DurableWaiter {
    /// Nobody: the write reaches the disk with a later fsync.
    Nobody,
    /// A caller, who awaits the other end of the channel.
    Caller(oneshot::Sender<Result<(), StoreError>>),
    /// Raft, by its callback.
    Raft(IOFlushed<Types>),
}

/// Changes to be written together.
pub struct Write {
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// Told when readers see the changes.
    pub readable: Option<oneshot::Sender<Result<(), StoreError>>>,
    /// Told when the changes are on the disk.
    pub durable: DurableWaiter,
}

/// The state of the log's writer, for a watchdog.
#[derive(Debug, Default)]
pub struct DiskHealth {
    /// Nanoseconds on the store's clock; [`IDLE`] while nothing is being written.
    pending_since: AtomicU64,
    failure: OnceLock<String>,
}

impl DiskHealth {
    /// When the writer began the batch that it is writing; `None` while it writes nothing.
    pub fn oldest_pending(&self) -> Option<Instant> {
        match self.pending_since.load(Ordering::Acquire) {
            IDLE => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    /// Why nothing is written any more; `None` while the writer works.
    pub fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }
}

/// The writer's handle. Dropping it waits for the thread, which first writes everything that was sent; not for long, as its
/// disk may hang. A task is not waited for: it ends by itself after it has written everything.
pub struct Writer {
    writes: Option<mpsc::UnboundedSender<Write>>,
    /// Disconnected once the thread has written everything and let the database go, or panicked. `None` for a task.
    ended: Option<Mutex<std_mpsc::Receiver<()>>>,
    health: Arc<DiskHealth>,
}

impl Writer {
    /// Starts the thread or the task.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the thread cannot be started.
    pub fn start(db: Arc<Database>, options: StoreOptions) -> Result<Self, StoreError> {
        let (writes, waiting) = mpsc::unbounded_channel();
        let health = Arc::new(DiskHealth::default());
        let (place, tasks) = (options.blocking, options.tasks.clone());
        let task = WriterTask { db: db.clone(), options, health: health.clone() };
        let serving = tasks.watched("writer of the log", task.serve(waiting));
        let ended = match place {
            BlockingExecutor::Threads => {
                let (ending, ended) = std_mpsc::channel();
                let writing = move || {
                    let _ending: std_mpsc::Sender<()> = ending;
                    futures::executor::block_on(serving);
                };
                let thread = std::thread::Builder::new().name("ratchet-log".to_owned());
                thread.spawn(writing).map_err(StoreError::io(
                    "cannot start the thread that writes the log in",
                    db.dir(),
                ))?;
                Some(Mutex::new(ended))
            }
            BlockingExecutor::Inline => {
                tokio::spawn(serving);
                None
            }
        };
        Ok(Writer { writes: Some(writes), ended, health })
    }

    /// The writer's state.
    pub fn health(&self) -> Arc<DiskHealth> {
        self.health.clone()
    }

    /// Sends a write. If the writer is gone, those who wait for the write are told that it failed.
    pub fn send(&self, write: Write) {
        let refused = match &self.writes {
            Some(writes) => writes.send(write).err().map(|refused| refused.0),
            None => Some(write),
        };
        if let Some(write) = refused {
            let why = self.health.failure();
            let why = why.unwrap_or_else(|| STOPPED.to_owned());
            refuse(write, &why);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.writes = None;
        // A panic ends the node: the thread is watched.
        if let Some(ended) = self.ended.take()
            && ended.into_inner().recv_timeout(END_MAX) == Err(RecvTimeoutError::Timeout)
        {
            tracing::error!(
                "the thread that writes the log does not end within {} s: its disk may hang; it is left alone",
                END_MAX.as_secs()
            );
        }
    }
}

/// What the thread or the task runs.
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
            let now = self.options.clock.now().as_nanos().max(IDLE + 1);
            self.health.pending_since.store(now, Ordering::Release);
            self.write(writes).await;
            self.health.pending_since.store(IDLE, Ordering::Release);
        }
    }

    /// Writes and syncs one batch, and tells those who wait.
    async fn write(&self, mut writes: Vec<Write>) {
        let written = batch(&self.db, writes.iter().flat_map(|write| &write.changes))
            .and_then(|batch| self.db.write(batch, false));
        if let Err(error) = written {
            return self.give_up(writes, &error);
        }
        for readable in writes.iter_mut().filter_map(|write| write.readable.take()) {
            // An error means that the caller stopped waiting.
            let _ = readable.send(Ok(()));
        }
        if writes.iter().all(|write| matches!(write.durable, DurableWaiter::Nobody)) {
            return;
        }
        let clock = &self.options.clock;
        let started = clock.now();
        let synced = (self.options.before_sync)()
            .await
            .map_err(|message| StoreError::Database { dir: self.db.dir().to_owned(), message })
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

    /// Ends all writing for good: records why, and tells those who wait.
    fn give_up(&self, writes: Vec<Write>, error: &StoreError) {
        let why = format!("{error}. Nothing is written any more: this node must stop");
        let why = self.health.failure.get_or_init(|| why);
        for write in writes {
            refuse(write, why);
        }
        // Last: logging may wait for whoever reads the log.
        tracing::error!("{why}");
    }
}

/// Makes one batch of many changes.
///
/// # Errors
/// [`StoreError::Damaged`] if a column family is missing.
pub fn batch<'c>(
    db: &Database, changes: impl IntoIterator<Item = &'c Change>,
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

/// Tells those who wait for `write` that it failed.
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
