//! The books of a namespace, day by day.

use super::{generation::Generation, view::AppliedView};
use crate::{
    sequence::{DayBooks, NamespaceId},
    storage::{
        error::StoreError,
        layout::{Family, day_key},
    },
};

/// Reads the books of a namespace, from day `from` on, on a thread for blocking work. Each is as the table was at one
/// moment.
///
/// # Errors
/// [`StoreError`] if the database fails or a record is damaged.
pub async fn read_days(
    view: &AppliedView, namespace: NamespaceId, from: u32,
) -> Result<Vec<(u32, DayBooks)>, StoreError> {
    view.read_few(move |generation| read(generation, namespace, from)).await
}

fn read(
    generation: &Generation, namespace: NamespaceId, from: u32,
) -> Result<Vec<(u32, DayBooks)>, StoreError> {
    let (db, prefix) = (generation.db(), generation.prefix());
    let first = day_key(&prefix, namespace, from);
    let last = day_key(&prefix, namespace, u32::MAX);
    let mut days = Vec::new();
    for record in generation.records(&first, last)? {
        let (key, value) = record?;
        let not_a_day = || db.damaged(Family::Applied, &key, "its key names no day");
        let day = key.last_chunk().ok_or_else(not_a_day)?;
        let books = db.decode(Family::Applied, &key, &value)?;
        days.push((u32::from_be_bytes(*day), books));
    }
    Ok(days)
}
