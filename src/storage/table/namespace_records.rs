//! Reads what the table has of a namespace beside its sections: the accounts of its days, and its worker ids.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::{generation::Generation, view::AppliedView};
use crate::{
    sequence::{DayAccounts, NamespaceId, WorkerRecord},
    storage::{
        error::StoreError,
        layout::{Family, day_key, days_range_of, workers_range},
    },
};

/// Reads the accounts of a namespace, from day `from` on, on a thread for blocking work. Each is as the table was at
/// one moment.
///
/// # Errors
/// [`StoreError`] if the database fails or a record is damaged.
pub async fn read_days(
    view: &AppliedView, namespace: NamespaceId, from: u32,
) -> Result<Vec<(u32, DayAccounts)>, StoreError> {
    let read = move |generation: &Generation| {
        let (_, to) = days_range_of(&generation.prefix(), namespace);
        by_number(generation, &day_key(&generation.prefix(), namespace, from), to)
    };
    view.read_few(read).await
}

/// The records from one full key on, up to another one, each with the number at the end of its key.
fn by_number<V: DeserializeOwned>(
    generation: &Generation, from: &[u8], to: Vec<u8>,
) -> Result<Vec<(u32, V)>, StoreError> {
    let db = &generation.db;
    let records = generation.records(from, to)?.map(|record| {
        let (key, value) = record?;
        let no_number = || db.damaged(Family::Applied, &key, "its key ends with no number");
        let number = key.last_chunk().ok_or_else(no_number)?;
        Ok((u32::from_be_bytes(*number), db.decode(Family::Applied, &key, &value)?))
    });
    records.collect()
}

/// Reads the last lease of each worker id of a namespace that was ever leased, in the order of worker ids, on a thread for
/// blocking work. They are as the table was at one moment.
///
/// # Errors
/// [`StoreError`] if the database fails or a record is damaged.
pub async fn read_workers(
    view: &AppliedView, namespace: NamespaceId,
) -> Result<BTreeMap<u32, WorkerRecord>, StoreError> {
    let read = move |generation: &Generation| {
        let (from, to) = workers_range(&generation.prefix(), namespace);
        by_number::<WorkerRecord>(generation, &from, to)
    };
    Ok(view.read_few(read).await?.into_iter().collect())
}
