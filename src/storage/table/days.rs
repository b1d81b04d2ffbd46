//! The books of a namespace, day by day.

use rocksdb::{Direction, IteratorMode};

use super::view::AppliedView;
use crate::{
    sequence::{DayBooks, NamespaceId},
    storage::{
        database::Database,
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
    view.read_few(move |generation| read(generation.db(), &generation.prefix(), namespace, from))
        .await
}

/// As [`read_days`], of the table whose keys have this prefix.
///
/// # Errors
/// As [`read_days`].
pub fn read(
    db: &Database, prefix: &[u8], namespace: NamespaceId, from: u32,
) -> Result<Vec<(u32, DayBooks)>, StoreError> {
    let first = day_key(prefix, namespace, from);
    let last = day_key(prefix, namespace, u32::MAX);
    let mut days = Vec::new();
    for record in db.records(Family::Applied, IteratorMode::From(&first, Direction::Forward))? {
        let (key, value) = record?;
        if *key > *last {
            break;
        }
        let not_a_day = || db.damaged(Family::Applied, &key, "its key names no day");
        let day = key.last_chunk().ok_or_else(not_a_day)?;
        let books = db.decode(Family::Applied, &key, &value)?;
        days.push((u32::from_be_bytes(*day), books));
    }
    Ok(days)
}
