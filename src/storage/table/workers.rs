//! The worker ids of a namespace: read, and changed.
//!
//! Invariant: the records of a namespace that is removed go in the same write.

use std::{collections::BTreeMap, sync::Arc};

use rocksdb::WriteBatch;

use super::{generation::Generation, view::AppliedView};
use crate::{
    sequence::{NamespaceId, WorkerRecord},
    storage::{
        codec,
        database::Database,
        error::StoreError,
        layout::{Family, worker_key, workers_range},
    },
};

/// Reads the last lease of each worker id of a namespace that was ever leased, in the order of worker ids, on a thread for
/// blocking work. They are as the table was at one moment.
///
/// # Errors
/// [`StoreError`] if the database fails or a record is damaged.
pub async fn read_workers(
    view: &AppliedView, namespace: NamespaceId,
) -> Result<BTreeMap<u32, WorkerRecord>, StoreError> {
    view.read_few(move |generation| read(generation, namespace)).await
}

fn read(
    generation: &Generation, namespace: NamespaceId,
) -> Result<BTreeMap<u32, WorkerRecord>, StoreError> {
    let db = generation.db();
    let (from, to) = workers_range(&generation.prefix(), namespace);
    let mut workers = BTreeMap::new();
    for record in generation.records(&from, to)? {
        let (key, value) = record?;
        let not_a_worker = || db.damaged(Family::Applied, &key, "its key names no worker id");
        let worker = key.last_chunk().ok_or_else(not_a_worker)?;
        let record = db.decode(Family::Applied, &key, &value)?;
        workers.insert(u32::from_be_bytes(*worker), record);
    }
    Ok(workers)
}

/// Worker ids in a change of a table, until it is written.
pub struct WorkerChanges {
    db: Arc<Database>,
    prefix: Vec<u8>,
    leases: BTreeMap<(NamespaceId, u32), WorkerRecord>,
    /// All records of these namespaces are removed.
    removed: Vec<NamespaceId>,
}

impl WorkerChanges {
    /// No change of the table with this prefix.
    pub fn new(db: Arc<Database>, prefix: Vec<u8>) -> Self {
        WorkerChanges { db, prefix, leases: BTreeMap::new(), removed: Vec::new() }
    }

    /// The last lease of a worker id, of a namespace that is not removed.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn find(&self, id: NamespaceId, worker: u32) -> Result<Option<WorkerRecord>, StoreError> {
        match self.leases.get(&(id, worker)) {
            Some(lease) => Ok(Some(lease.clone())),
            None => (self.db).get(Family::Applied, &worker_key(&self.prefix, id, worker)),
        }
    }

    /// Changes the last lease of a worker id.
    pub fn put(&mut self, id: NamespaceId, worker: u32, lease: WorkerRecord) {
        self.leases.insert((id, worker), lease);
    }

    /// Removes the worker ids of a namespace. None of it is leased any more: ids of namespaces are used once.
    pub fn remove(&mut self, id: NamespaceId) {
        self.leases.retain(|of, _| of.0 != id);
        self.removed.push(id);
    }

    /// Adds the changes to `batch`.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if a record is too large.
    pub fn write(&mut self, batch: &mut WriteBatch) -> Result<(), StoreError> {
        let applied = self.db.family(Family::Applied)?;
        for id in std::mem::take(&mut self.removed) {
            let (from, to) = workers_range(&self.prefix, id);
            batch.delete_range_cf(applied, from, to);
        }
        for ((id, worker), lease) in std::mem::take(&mut self.leases) {
            let key = worker_key(&self.prefix, id, worker);
            batch.put_cf(applied, key, codec::encode_record(&lease)?);
        }
        Ok(())
    }
}
