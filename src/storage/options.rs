//! The options of a store: settings, and seams for tests and simulations.

use std::{path::Path, sync::Arc};

use futures::future::BoxFuture;

use super::{
    blocking::BlockingExecutor,
    free_space::{MeasureDisk, measure_disk},
};
use crate::{clock::Clock, metrics::Metrics, tasks::Tasks};

/// A future that is awaited before each write to the table.
pub type BeforeApply = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// The options of a store.
#[derive(Clone)]
pub struct StoreOptions {
    /// The clock that times fsyncs and [`DiskHealth`](super::DiskHealth).
    pub clock: Arc<dyn Clock>,
    /// The writer awaits this before each fsync. A test counts the fsyncs, delays them or lets them fail.
    pub before_sync: Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>,
    /// The state machine awaits this before each write to the table. A test holds the writes up.
    pub before_apply: BeforeApply,
    /// Called before records of sections are read for calls, on the thread that reads them. A test holds the reads up.
    pub before_read: Arc<dyn Fn() + Send + Sync>,
    /// Called after each sync of a directory, but for the database's own, which RocksDB syncs. A
    /// simulated power cut loses the names in directories that were not synced.
    pub directory_synced: Arc<dyn Fn(&Path) + Send + Sync>,
    /// Measures the disk. A test fills it, and makes room.
    pub measure_disk: MeasureDisk,
    /// How much of the disk stays free, in bytes; on a small disk a twentieth of it, and no less than 64 MB.
    pub disk_reserve_bytes: u64,
    /// Where blocking work runs.
    pub blocking: BlockingExecutor,
    /// Where writes are kept until they are synced.
    pub unsynced: UnsyncedWrites,
    /// The size of the cache for blocks read from the database, in bytes. Data that is not in the database's files yet counts
    /// within it.
    pub block_cache_bytes: usize,
    /// How much memory the records of sections take that a new leader needs, in bytes, for the table of each set.
    pub recent_records_bytes: usize,
    /// The node founds a cluster of one by itself. A directory is opened only as it was created: with this, or without.
    pub dev: bool,
    /// The directory is opened only if a volume is mounted there.
    pub require_volume: bool,
    /// The tasks of the node that the store belongs to.
    pub tasks: Tasks,
    /// The metrics of the node that the store belongs to.
    pub metrics: Arc<Metrics>,
}

impl StoreOptions {
    /// The defaults, with this clock and no seam used.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        StoreOptions {
            clock,
            before_sync: Arc::new(|| Box::pin(std::future::ready(Ok(())))),
            before_apply: Arc::new(|| Box::pin(std::future::ready(()))),
            before_read: Arc::new(|| {}),
            directory_synced: Arc::new(|_| {}),
            measure_disk: measure_disk(),
            disk_reserve_bytes: 0,
            blocking: BlockingExecutor::default(),
            unsynced: UnsyncedWrites::default(),
            block_cache_bytes: 64 << 20,
            recent_records_bytes: 64 << 20,
            dev: false,
            require_volume: false,
            tasks: Tasks::default(),
            metrics: Metrics::new(),
        }
    }
}

/// Where writes are kept until they are synced: a seam.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnsyncedWrites {
    /// In the system's page cache. They survive the end of the process, and not a power cut.
    #[default]
    InPageCache,
    /// In the process's memory. For simulations: the end of the process loses them, as a power cut
    /// would.
    InProcess,
}
