//! The store of one node: its directory, its database, its writer.

use std::{path::Path, sync::Arc};

use rustix::fs::statvfs;

use super::{
    blocking::BlockingExecutor,
    data_dir,
    database::Database,
    directories::Directories,
    error::StoreError,
    identity::{self, Identity},
    layout::{Family, vote_key},
    options::StoreOptions,
    raft_types::Vote,
    recovery_record,
    table::AppliedMeta,
    writer::{DiskHealth, Writer},
};
use crate::{
    metrics::Metrics,
    sequence::{NodeId, SetId},
};

/// What a store takes, and what is left on its disk.
#[derive(Debug, Clone, Copy)]
pub struct DiskUsage {
    /// The Raft logs, in files and in memory.
    pub log_bytes: u64,
    /// The tables, in files and in memory.
    pub table_bytes: u64,
    /// What is left on the disk for this process.
    pub disk_free_bytes: u64,
    /// The disk.
    pub disk_size_bytes: u64,
}

/// The store of one node.
pub struct Store {
    identity: Identity,
    pub(super) db: Arc<Database>,
    blocking: BlockingExecutor,
    metrics: Arc<Metrics>,
    pub(super) writer: Writer,
}

impl Store {
    /// Opens the data directory of a node, or makes a fresh one. Blocks.
    ///
    /// # Errors
    /// [`StoreError`]: the directory is in use by another process, belongs to another node or
    /// cluster, lost a part, holds something else, or cannot be read.
    pub fn open(
        dir: &Path,
        cluster: &str,
        node: NodeId,
        options: StoreOptions,
    ) -> Result<Arc<Store>, StoreError> {
        Directories::new(options.directory_synced.clone()).create(dir)?;
        data_dir::check_contents(dir)?;
        let lock = data_dir::lock(dir)?;
        let marker = identity::read_marker(dir)?;
        if let Some(marker) = &marker {
            identity::check_owner(dir, &marker.identity, cluster, node)?;
            if !Database::path(dir).join("CURRENT").exists() {
                return Err(identity::part_missing(dir, "the database"));
            }
        }
        data_dir::remove_old_snapshots(dir);
        let newest = identity::newest_release(marker.as_ref());
        let db = Arc::new(Database::open(dir, lock, newest, &options)?);
        recovery_record::check_complete(&db)?;
        let identity = identity::reconcile(&db, marker, cluster, node)?;
        let (blocking, metrics) = (options.blocking, options.metrics.clone());
        let writer = Writer::start(db.clone(), options)?;
        Ok(Arc::new(Store {
            identity,
            db,
            blocking,
            metrics,
            writer,
        }))
    }

    /// Whose it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        self.db.dir()
    }

    /// Where work runs that blocks.
    pub fn blocking(&self) -> BlockingExecutor {
        self.blocking
    }

    /// Where it is counted what the node does.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// What the store takes, and what is left. Blocks.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn disk_usage(&self) -> Result<DiskUsage, StoreError> {
        let dir = self.dir();
        let disk = statvfs(dir).map_err(|e| StoreError::io("cannot measure", dir)(e.into()))?;
        Ok(DiskUsage {
            log_bytes: self.db.family_bytes(Family::Log)?,
            table_bytes: self.db.family_bytes(Family::Applied)?,
            disk_free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
            disk_size_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
        })
    }

    /// How the disk does.
    pub fn health(&self) -> Arc<DiskHealth> {
        self.writer.health()
    }

    /// Whether the node has voted, or followed a leader, in `set`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn has_vote(&self, set: SetId) -> Result<bool, StoreError> {
        let vote: Option<Vote> = self.db.get(Family::HardState, &vote_key(set))?;
        Ok(vote.is_some() || AppliedMeta::read(&self.db, set)?.is_some())
    }
}
