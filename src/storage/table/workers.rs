//! Reads the worker ids of a namespace.

use std::collections::BTreeMap;

use super::{generation::Generation, view::AppliedView};
use crate::{
    sequence::{NamespaceId, WorkerRecord},
    storage::{
        error::StoreError,
        layout::{Family, workers_range},
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
