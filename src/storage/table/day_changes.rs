//! Books of days in a change of a table, until it is written.

use std::{collections::BTreeMap, sync::Arc};

use rocksdb::WriteBatch;

use crate::{
    sequence::{DayBooks, NamespaceId},
    storage::{
        codec,
        database::Database,
        error::StoreError,
        layout::{Family, day_key},
    },
};

/// Changed books of days.
pub struct DayChanges {
    db: Arc<Database>,
    prefix: Vec<u8>,
    books: BTreeMap<(NamespaceId, u32), DayBooks>,
    /// Of these namespaces, all stored books of days before this one are removed.
    removed_before: BTreeMap<NamespaceId, u32>,
}

impl DayChanges {
    /// No change of the table with this prefix.
    pub fn new(db: Arc<Database>, prefix: Vec<u8>) -> Self {
        DayChanges { db, prefix, books: BTreeMap::new(), removed_before: BTreeMap::new() }
    }

    /// The books of a namespace and a day, if there are any.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn find(&self, id: NamespaceId, day: u32) -> Result<Option<DayBooks>, StoreError> {
        if let Some(books) = self.books.get(&(id, day)) {
            return Ok(Some(*books));
        }
        if self.removed_before.get(&id).is_some_and(|first| day < *first) {
            return Ok(None);
        }
        let key = day_key(&self.prefix, id, day);
        self.db.get(Family::Applied, &key)
    }

    /// Changes the books of a namespace and a day.
    pub fn put(&mut self, id: NamespaceId, day: u32, books: DayBooks) {
        self.books.insert((id, day), books);
    }

    /// Removes the books of a namespace and all days before `day`.
    pub fn remove_before(&mut self, id: NamespaceId, day: u32) {
        self.books.retain(|of, _| of.0 != id || of.1 >= day);
        let first = self.removed_before.entry(id).or_default();
        *first = day.max(*first);
    }

    /// Adds the changes to `batch`.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if a record is too large.
    pub fn write(&mut self, batch: &mut WriteBatch) -> Result<(), StoreError> {
        let applied = self.db.family(Family::Applied)?;
        // Before the books: those may be of a day to which a clock was set back.
        for (id, day) in std::mem::take(&mut self.removed_before) {
            let (from, to) = (day_key(&self.prefix, id, 0), day_key(&self.prefix, id, day));
            batch.delete_range_cf(applied, from, to);
        }
        for ((id, day), books) in std::mem::take(&mut self.books) {
            let key = day_key(&self.prefix, id, day);
            batch.put_cf(applied, key, codec::encode_record(&books)?);
        }
        Ok(())
    }
}
