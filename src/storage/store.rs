//! The store of one node: its data directory, its database and its writer. It is opened with the checks that the directory
//! belongs to this node and is whole. The database holds the logs and the tables of all sets.

use std::{path::Path, sync::Arc};

use arc_swap::ArcSwap;
use rocksdb::WriteBatch;
use serde::Serialize;

use super::{
    blocking::BlockingExecutor,
    codec, data_dir,
    database::Database,
    directories::Directories,
    directory_check,
    error::StoreError,
    free_space::FreeSpace,
    identity::{self, Marker},
    layout::{Family, founding_token_key, promise_key},
    options::{BeforeApply, StoreOptions},
    recovery_record,
    writer::{DiskHealth, Writer},
};
use crate::{
    metrics::Metrics,
    sequence::{NodeId, SetId, TokenHash},
};

/// How much of the disk the store uses, and how much is left.
#[derive(Debug, Clone, Copy)]
pub struct DiskUsage {
    /// The size of the Raft logs, in files and in memory.
    pub log_bytes: u64,
    /// The size of the tables, in files and in memory.
    pub table_bytes: u64,
    /// The free space that this process may use.
    pub disk_free_bytes: u64,
    /// The size of the disk.
    pub disk_size_bytes: u64,
}

/// The store of one node.
pub struct Store {
    pub(super) owner: ArcSwap<Marker>,
    pub(super) db: Arc<Database>,
    pub(super) options: StoreOptions,
    pub(super) writer: Writer,
}

impl Store {
    /// Opens the data directory of a node, or creates one. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Inaccessible`] if the user of this process cannot use the directory, or no volume is there and one is
    /// required; [`StoreError::WrongSetUp`] if the directory belongs to another node or cluster, was created with another
    /// [`StoreOptions::dev`], holds other files, or its recovery was cut short; [`StoreError::Refused`] if it is in use by
    /// another process, or lost a part; [`StoreError::Damaged`] or [`StoreError::OtherRelease`] if a record cannot be read;
    /// [`StoreError::Io`] or [`StoreError::Database`] if the disk fails.
    pub fn open(
        dir: &Path, cluster: &str, node: NodeId, options: StoreOptions,
    ) -> Result<Arc<Store>, StoreError> {
        if options.require_volume {
            directory_check::check_volume(dir)?;
        }
        directory_check::check_access(dir)?;
        let opened = Store::open_accessible(dir, cluster, node, options);
        opened.map_err(|error| directory_check::denied_or(dir, error))
    }

    /// Opens a directory, or creates it, whose files may not be open to this user yet.
    fn open_accessible(
        dir: &Path, cluster: &str, node: NodeId, options: StoreOptions,
    ) -> Result<Arc<Store>, StoreError> {
        Directories::new(options.directory_synced.clone()).create(dir)?;
        data_dir::check_contents(dir)?;
        let lock = data_dir::lock(dir)?;
        let marker = identity::read_marker(dir)?;
        if let Some(marker) = &marker {
            identity::check_owner(dir, &marker.identity, cluster, node)?;
            identity::check_dev(dir, marker.dev, options.dev)?;
            if !Database::is_there(dir)? {
                return Err(identity::part_missing(dir, "the database"));
            }
        }
        let newest = identity::newest_release(marker.as_ref());
        let db = Arc::new(Database::open(dir, lock, newest, &options)?);
        recovery_record::check_complete(&db)?;
        let owner = match identity::reconcile(&db, marker, cluster, node)? {
            Some(owner) => owner,
            None => identity::draw(&db, cluster, node, options.dev)?,
        };
        let writer = Writer::start(db.clone(), options.clone())?;
        Ok(Arc::new(Store { owner: ArcSwap::from_pointee(owner), db, options, writer }))
    }

    /// The incarnation of the data directory.
    pub fn incarnation(&self) -> u64 {
        self.owner.load().identity.incarnation
    }

    /// Gives a directory without Raft state another incarnation. It is on the disk when this returns. Blocks.
    ///
    /// # Errors
    /// [`StoreError`] if the disk fails.
    pub fn renew_incarnation(&self) -> Result<(), StoreError> {
        let owner = self.owner.load();
        let Marker { identity, dev, .. } = &**owner;
        let owner = identity::draw(&self.db, &identity.cluster, identity.node, *dev)?;
        self.owner.store(Arc::new(owner));
        Ok(())
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        self.db.dir()
    }

    /// Where blocking work runs.
    pub fn blocking(&self) -> BlockingExecutor {
        self.options.blocking
    }

    /// The future that the state machine awaits before each write to the table.
    pub fn before_apply(&self) -> BeforeApply {
        self.options.before_apply.clone()
    }

    /// The metrics of the node.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.options.metrics
    }

    /// The free space of the disk.
    pub fn free_space(&self) -> &Arc<FreeSpace> {
        self.db.free_space()
    }

    /// Measures how much of the disk the store uses, and how much is left. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Io`] or [`StoreError::Database`] if the file system or the database does not tell.
    pub fn disk_usage(&self) -> Result<DiskUsage, StoreError> {
        let disk = self.free_space().measure()?;
        Ok(DiskUsage {
            log_bytes: self.db.family_bytes(Family::Log)?,
            table_bytes: self.db.family_bytes(Family::Applied)?,
            disk_free_bytes: disk.free_bytes,
            disk_size_bytes: disk.size_bytes,
        })
    }

    /// The state of the log's writer, for a watchdog.
    pub fn health(&self) -> Arc<DiskHealth> {
        self.writer.health()
    }

    /// True if the node has voted, followed a leader or founded a cluster in an earlier run.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    pub fn has_raft_state(&self) -> Result<bool, StoreError> {
        identity::has_raft_state(&self.db)
    }

    /// How long a promise lasts that the node gave in its last run, in milliseconds: so long it keeps out of
    /// elections after it heard of a leader. `None` if no run has recorded it.
    ///
    /// # Errors
    /// [`StoreError`] if the record is damaged or the database fails.
    pub fn promise_ms(&self, set: SetId) -> Result<Option<u64>, StoreError> {
        self.db.get(Family::HardState, &promise_key(set))
    }

    /// Records how long the promises of this run last. It is on the disk when this returns. Blocks.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub fn record_promise_ms(&self, set: SetId, promise_ms: u64) -> Result<(), StoreError> {
        self.record(promise_key(set), &promise_ms)
    }

    /// The token with which the cluster is to be founded that has claimed this node. `None`: without one.
    ///
    /// # Errors
    /// [`StoreError`] if the record is damaged or the database fails.
    pub fn founding_token(&self, set: SetId) -> Result<Option<TokenHash>, StoreError> {
        let recorded = self.db.get(Family::HardState, &founding_token_key(set))?;
        Ok(recorded.flatten())
    }

    /// Records the token with which the cluster is to be founded, or that there is none. It is on the disk when this returns.
    /// Blocks.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub fn record_founding_token(
        &self, set: SetId, token: Option<TokenHash>,
    ) -> Result<(), StoreError> {
        self.record(founding_token_key(set), &token)
    }

    fn record(&self, key: [u8; 5], value: &impl Serialize) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        let record = codec::encode_record(value)?;
        batch.put_cf(self.db.family(Family::HardState)?, key, record);
        self.db.write(batch, true)
    }
}
