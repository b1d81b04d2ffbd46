//! What a store takes from outside.

use std::{path::Path, sync::Arc};

use futures::future::BoxFuture;

use super::blocking::BlockingExecutor;
use crate::{clock::Clock, metrics::Metrics, tasks::Tasks};

/// What a store takes from outside.
#[derive(Clone)]
pub struct StoreOptions {
    /// The clock of [`DiskHealth`].
    pub clock: Arc<dyn Clock>,
    /// Awaited before each fsync, by the writer: a test lets it count, wait or fail.
    pub before_sync: Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>,
    /// Told of each directory whose names were brought to the disk (RocksDB sees to its own): a
    /// simulated power cut loses the others.
    pub directory_synced: Arc<dyn Fn(&Path) + Send + Sync>,
    /// Where work runs that blocks.
    pub blocking: BlockingExecutor,
    /// Where that is which was not synced yet.
    pub unsynced: UnsyncedWrites,
    /// How much memory is for what is read of the database, in bytes.
    pub block_cache_bytes: usize,
    /// The tasks of the node that the store belongs to.
    pub tasks: Tasks,
    /// Where it is counted what the disk does.
    pub metrics: Arc<Metrics>,
}

impl StoreOptions {
    /// Nothing but the clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        StoreOptions {
            clock,
            before_sync: Arc::new(|| Box::pin(std::future::ready(Ok(())))),
            directory_synced: Arc::new(|_| {}),
            blocking: BlockingExecutor::default(),
            unsynced: UnsyncedWrites::default(),
            block_cache_bytes: 64 << 20,
            tasks: Tasks::default(),
            metrics: Metrics::new(),
        }
    }
}

/// Where that is which was written and not synced yet: a seam.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnsyncedWrites {
    /// With the system, which keeps it when the process dies.
    #[default]
    InPageCache,
    /// In the process's memory. For simulations: a crash loses it, as a power cut would.
    InProcess,
}
