//! The writer of logs and votes, for all sets of a node: two threads, or, in a simulation, two tasks.
//!
//! The first takes all writes that wait, and writes them as one batch: readers see it then. The second brings all that was
//! written meanwhile to the disk with one fsync. So readers never wait for an fsync, however slow the disk is.
//!
//! Invariant: after a failed write or fsync nothing is written, and no fsync is called, again. A failed fsync may lose data
//! even if the next one succeeds, because the kernel marks the pages clean. So neither earlier nor later
//! writes could be called durable.

use std::{
    collections::VecDeque,
    ops::RangeInclusive,
    sync::{
        Arc, OnceLock,
        mpsc::{self as std_mpsc, RecvTimeoutError},
    },
    time::Duration,
};

use openraft::storage::IOFlushed;
use parking_lot::Mutex;
use rocksdb::WriteBatch;
use tokio::sync::{mpsc, oneshot};

use super::{
    blocking::BlockingExecutor, database::Database, error::StoreError, layout::Family,
    options::StoreOptions, raft_types::Types, unwritten::Unwritten,
};
use crate::{
    clock::Instant,
    planted_bugs::{Bug, is_planted},
};

/// The error for a write that no writer is left to take.
pub const STOPPED: &str = "the log's writer has stopped; restart the node";
/// How long the end of a writer waits for its thread. One whose disk hangs never ends.
const END_MAX: Duration = Duration::from_secs(2);
/// For how long the last write to the disk says how fast the disk is.
const LATELY: Duration = Duration::from_secs(10);
/// The largest number of writes in one batch.
const BATCH_WRITES_MAX: usize = 1_024;

/// A change of the database.
pub enum Change {
    /// Writes a record: family, key, value.
    Put(Family, Vec<u8>, Vec<u8>),
    /// Deletes a range of keys: family, first key, exclusive end.
    DeleteRange(Family, Vec<u8>, Vec<u8>),
}

/// The waiter for a write that is to be on the disk.
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
    /// Entries of the log among the changes, by their indexes, and where they are readable until they are in the database.
    pub entries: Option<(Unwritten, RangeInclusive<u64>)>,
    /// Told when the changes are on the disk.
    pub durable: DurableWaiter,
}

/// The state of the log's writer, for a watchdog.
#[derive(Debug, Default)]
pub struct DiskHealth {
    flushes: Mutex<Flushes>,
    failure: OnceLock<String>,
}

#[derive(Debug, Default)]
struct Flushes {
    /// When the writer began each batch that is not on the disk yet.
    pending: VecDeque<Instant>,
    /// How long the last one took that is, and when it got there.
    last: Option<(Duration, Instant)>,
}

impl DiskHealth {
    /// When the writer began the oldest batch that is not on the disk yet; `None` if all are.
    pub fn oldest_pending(&self) -> Option<Instant> {
        self.flushes.lock().pending.front().copied()
    }

    /// How long a batch takes to the disk at `now`: as long as the last one took, or longer if one is under way for longer.
    /// `None` if nothing was written lately.
    pub fn flush_takes(&self, now: Instant) -> Option<Duration> {
        let flushes = self.flushes.lock();
        let pending = flushes.pending.front().map(|begun| now.since(*begun));
        let last = flushes.last.filter(|(_, at)| now.since(*at) < LATELY);
        pending.max(last.map(|(took, _)| took))
    }

    fn begin(&self, at: Instant) {
        self.flushes.lock().pending.push_back(at);
    }

    /// The batch that was begun last need not be brought to the disk.
    fn withdraw(&self) {
        self.flushes.lock().pending.pop_back();
    }

    /// The `batches` that were begun first are on the disk at `now`.
    fn flushed(&self, batches: usize, now: Instant) {
        let mut flushes = self.flushes.lock();
        let count = batches.min(flushes.pending.len());
        let first = flushes.pending.drain(..count).next();
        flushes.last = first.map(|begun| (now.since(begun), now)).or(flushes.last);
    }

    /// Why nothing is written any more; `None` while the writer works.
    pub fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }
}

/// The writer's handle. Dropping it waits for the threads, which first write everything that was sent; not for long, as their
/// disk may hang. It does not wait for tasks: they end by themselves after they have written everything.
pub struct Writer {
    writes: Option<mpsc::UnboundedSender<Write>>,
    /// Disconnected once the threads have written everything and let the database go, or panicked. `None` for tasks.
    ended: Option<Mutex<std_mpsc::Receiver<()>>>,
    health: Arc<DiskHealth>,
}

impl Writer {
    /// Starts the threads or the tasks.
    ///
    /// # Errors
    /// [`StoreError::Io`] if a thread cannot be started.
    pub fn start(db: Arc<Database>, options: StoreOptions) -> Result<Self, StoreError> {
        let (writes, waiting) = mpsc::unbounded_channel();
        let (unsynced, written) = mpsc::unbounded_channel();
        let health = Arc::new(DiskHealth::default());
        let (place, tasks) = (options.blocking, options.tasks.clone());
        let disk = LogDisk { db: db.clone(), options, health: health.clone() };
        let writing = tasks.watched("writer of the log", disk.clone().write_all(waiting, unsynced));
        let syncing = tasks.watched("syncer of the log", disk.sync_all(written));
        let ended = match place {
            BlockingExecutor::Threads => {
                let (ending, ended) = std_mpsc::channel();
                on_thread("ratchet-log", &db, ending.clone(), writing)?;
                on_thread("ratchet-fsync", &db, ending, syncing)?;
                Some(Mutex::new(ended))
            }
            BlockingExecutor::Inline => {
                tokio::spawn(writing);
                tokio::spawn(syncing);
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
        // A panic ends the node: the threads are watched.
        if let Some(ended) = self.ended.take()
            && ended.into_inner().recv_timeout(END_MAX) == Err(RecvTimeoutError::Timeout)
        {
            tracing::error!(
                "the threads that write the log do not end within {} s: their disk may hang; they are left alone",
                END_MAX.as_secs()
            );
        }
    }
}

/// Runs `work` on a thread of its own, and drops `ending` with it.
fn on_thread(
    name: &str, db: &Database, ending: std_mpsc::Sender<()>,
    work: impl Future<Output = ()> + Send + 'static,
) -> Result<(), StoreError> {
    let working = move || {
        let _ending = ending;
        futures::executor::block_on(work);
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(working);
    let failed = StoreError::io("cannot start the thread that writes the log in", db.dir());
    thread.map(drop).map_err(failed)
}

/// The state that the threads or tasks share.
#[derive(Clone)]
struct LogDisk {
    db: Arc<Database>,
    options: StoreOptions,
    health: Arc<DiskHealth>,
}

impl LogDisk {
    fn now(&self) -> Instant {
        self.options.clock.now()
    }

    /// Writes what is sent, and hands on who waits until it is on the disk, batch by batch.
    async fn write_all(
        self, mut waiting: mpsc::UnboundedReceiver<Write>,
        unsynced: mpsc::UnboundedSender<Vec<Write>>,
    ) {
        let mut writes = Vec::new();
        while waiting.recv_many(&mut writes, BATCH_WRITES_MAX).await > 0 {
            let mut writes = std::mem::take(&mut writes);
            if let Some(why) = self.health.failure() {
                writes.into_iter().for_each(|write| refuse(write, &why));
                continue;
            }
            self.health.begin(self.now());
            let written = batch(&self.db, writes.iter().flat_map(|write| &write.changes))
                .and_then(|batch| self.db.write(batch, false));
            if let Err(error) = written {
                self.give_up(writes, &error);
                continue;
            }
            for write in &mut writes {
                write.changes = Vec::new();
                if let Some((unwritten, indexes)) = write.entries.take() {
                    unwritten.written(&indexes);
                }
            }
            if writes.iter().all(|write| matches!(write.durable, DurableWaiter::Nobody)) {
                self.health.withdraw();
            } else if let Err(refused) = unsynced.send(writes) {
                // The syncer panicked, which ends the node.
                refused.0.into_iter().for_each(|write| refuse(write, STOPPED));
            }
        }
    }

    /// Brings to the disk what was written, and tells those who wait.
    async fn sync_all(self, mut written: mpsc::UnboundedReceiver<Vec<Write>>) {
        let mut batches = Vec::new();
        while written.recv_many(&mut batches, BATCH_WRITES_MAX).await > 0 {
            let count = batches.len();
            let writes: Vec<Write> = batches.drain(..).flatten().collect();
            if let Some(why) = self.health.failure() {
                writes.into_iter().for_each(|write| refuse(write, &why));
                continue;
            }
            match self.sync().await {
                Ok(()) => {
                    self.health.flushed(count, self.now());
                    writes.into_iter().for_each(tell);
                }
                Err(error) => self.give_up(writes, &error),
            }
        }
    }

    async fn sync(&self) -> Result<(), StoreError> {
        let started = self.now();
        let synced = (self.options.before_sync)()
            .await
            .map_err(|message| StoreError::Database { dir: self.db.dir().to_owned(), message })
            .and_then(|()| match is_planted(Bug::WriteNotSynced) {
                true => Ok(()),
                false => self.db.sync(),
            });
        let fsyncs = &self.options.metrics.fsync_seconds;
        fsyncs.observe(self.now().since(started), 1);
        synced
    }

    /// Ends all writing for good: records why, and tells those who wait.
    fn give_up(&self, writes: Vec<Write>, error: &StoreError) {
        let why = format!("{error}. Nothing is written any more: this node must stop");
        let why = self.health.failure.get_or_init(|| why);
        for write in writes {
            refuse(write, why);
        }
        // Last: logging may wait for the reader of the log.
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

/// Tells the task that waits until `write` is on the disk that it is.
fn tell(write: Write) {
    match write.durable {
        DurableWaiter::Nobody => {}
        DurableWaiter::Caller(caller) => {
            // An error means that the caller stopped waiting.
            let _ = caller.send(Ok(()));
        }
        DurableWaiter::Raft(raft) => raft.io_completed(Ok(())),
    }
}

/// Tells those who wait for `write` that it failed.
fn refuse(write: Write, why: &str) {
    let failed = || StoreError::Failed(why.to_owned());
    match write.durable {
        DurableWaiter::Nobody => {}
        DurableWaiter::Caller(caller) => {
            let _ = caller.send(Err(failed()));
        }
        DurableWaiter::Raft(raft) => raft.io_completed(Err(failed().into())),
    }
}
