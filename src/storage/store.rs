//! The store of one node: its directory, its database, its writer.

use std::{
    fs::{self, File},
    io,
    path::Path,
    sync::Arc,
};

use futures::future::BoxFuture;
use rustix::fs::{FlockOperation, flock, statvfs};

use super::{
    applied,
    database::{Database, Family, Unsynced},
    directories::Directories,
    error::StoreError,
    identity::{self, Identity},
    log, recovery,
    work::Work,
    writer::{DiskHealth, Writer},
};
use crate::{
    clock::Clock,
    metrics::Metrics,
    sequence::{NodeId, SetId},
    tasks::Tasks,
};

const LOCK: &str = "LOCK";

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
    pub work: Work,
    /// Where that is which was not synced yet.
    pub unsynced: Unsynced,
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
            work: Work::default(),
            unsynced: Unsynced::default(),
            block_cache_bytes: 64 << 20,
            tasks: Tasks::default(),
            metrics: Metrics::new(),
        }
    }
}

/// What a store takes, and what is left on its disk.
#[derive(Debug, Clone, Copy)]
pub struct Space {
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
    work: Work,
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
        check_contents(dir)?;
        let lock = lock(dir)?;
        let marker = identity::read_marker(dir)?;
        if let Some(marker) = &marker {
            identity::check(dir, &marker.identity, cluster, node)?;
            if !Database::path(dir).join("CURRENT").exists() {
                return Err(identity::lost(dir, "the database"));
            }
        }
        remove_old_snapshots(dir);
        let newest = identity::newest_release(marker.as_ref());
        let db = Arc::new(Database::open(dir, lock, newest, &options)?);
        recovery::check_complete(&db)?;
        let identity = identity::establish(&db, marker, cluster, node)?;
        let (work, metrics) = (options.work, options.metrics.clone());
        let writer = Writer::start(db.clone(), options)?;
        Ok(Arc::new(Store {
            identity,
            db,
            work,
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
    pub fn work(&self) -> Work {
        self.work
    }

    /// Where it is counted what the node does.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// What the store takes, and what is left. Blocks.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn space(&self) -> Result<Space, StoreError> {
        let dir = self.dir();
        let disk = statvfs(dir).map_err(|e| StoreError::io("cannot measure", dir)(e.into()))?;
        Ok(Space {
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
        let vote: Option<super::Vote> = self.db.get(Family::HardState, &log::vote_key(set))?;
        Ok(vote.is_some() || applied::has_table(&self.db, set)?)
    }
}

/// Takes the directory for this process.
pub(super) fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK);
    let file = File::create(&path).map_err(StoreError::io("cannot create", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Refused(format!(
            "data directory {} is in use by another process; stop that one, or choose another \
             data_dir",
            dir.display()
        ))),
        Err(error) => Err(StoreError::io("cannot lock", path)(error.into())),
    }
}

/// Removes the snapshots that earlier releases kept in files: the table holds what they held.
fn remove_old_snapshots(dir: &Path) {
    let path = dir.join("snapshots");
    match fs::remove_dir_all(&path) {
        Ok(()) => tracing::info!(path = %path.display(), "old snapshots removed"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // They take up space, and do no harm.
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "old snapshots were not removed");
        }
    }
}

/// Refuses a directory that holds somebody else's files.
pub(super) fn check_contents(dir: &Path) -> Result<(), StoreError> {
    // lost+found: the directory may be a file system of its own.
    const OURS: [&str; 6] = ["NODE", "NODE.tmp", LOCK, "db", "snapshots", "lost+found"];
    for entry in fs::read_dir(dir).map_err(StoreError::io("cannot read", dir))? {
        let name = entry
            .map_err(StoreError::io("cannot read", dir))?
            .file_name();
        if !OURS.iter().any(|ours| name == *ours) {
            return Err(StoreError::Refused(format!(
                "data directory {} holds {name:?}, which is not Ratchet's; choose an empty directory",
                dir.display()
            )));
        }
    }
    Ok(())
}
