//! Books of days in a change of a table, until it is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rocksdb::WriteBatch;

use super::days;
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
    /// `None` stands for books that are removed.
    books: BTreeMap<(NamespaceId, u32), Option<DayBooks>>,
    /// All stored books of these namespaces are removed.
    removed: BTreeSet<NamespaceId>,
}

impl DayChanges {
    /// No change of the table with this prefix.
    pub fn new(db: Arc<Database>, prefix: Vec<u8>) -> Self {
        DayChanges { db, prefix, books: BTreeMap::new(), removed: BTreeSet::new() }
    }

    /// The books of a namespace and a day, if there are any.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn find(&self, id: NamespaceId, day: u32) -> Result<Option<DayBooks>, StoreError> {
        if let Some(changed) = self.books.get(&(id, day)) {
            return Ok(*changed);
        }
        if self.removed.contains(&id) {
            return Ok(None);
        }
        let key = day_key(&self.prefix, id, day);
        self.db.get(Family::Applied, &key)
    }

    /// The days of which a namespace has books.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or a record is damaged.
    pub fn booked(&self, id: NamespaceId) -> Result<BTreeSet<u32>, StoreError> {
        let mut booked = BTreeSet::new();
        if !self.removed.contains(&id) {
            let stored = days::read(&self.db, &self.prefix, id, 0)?;
            booked.extend(stored.into_iter().map(|(day, _)| day));
        }
        for ((_, day), changed) in self.books.range((id, 0)..=(id, u32::MAX)) {
            match changed {
                Some(_) => booked.insert(*day),
                None => booked.remove(day),
            };
        }
        Ok(booked)
    }

    /// Changes the books of a namespace and a day.
    pub fn put(&mut self, id: NamespaceId, day: u32, books: DayBooks) {
        self.books.insert((id, day), Some(books));
    }

    /// Removes the books of a namespace and a day.
    pub fn remove(&mut self, id: NamespaceId, day: u32) {
        self.books.insert((id, day), None);
    }

    /// Removes all books of a namespace.
    pub fn remove_all(&mut self, id: NamespaceId) {
        self.books.retain(|of, _| of.0 != id);
        self.removed.insert(id);
    }

    /// Adds the changes to `batch`.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if a record is too large.
    pub fn write(&mut self, batch: &mut WriteBatch) -> Result<(), StoreError> {
        let applied = self.db.family(Family::Applied)?;
        for id in std::mem::take(&mut self.removed) {
            let (from, to) = (day_key(&self.prefix, id, 0), day_key(&self.prefix, id, u32::MAX));
            batch.delete_range_cf(applied, from, to);
        }
        for ((id, day), books) in std::mem::take(&mut self.books) {
            let key = day_key(&self.prefix, id, day);
            match books {
                Some(books) => batch.put_cf(applied, key, codec::encode_record(&books)?),
                None => batch.delete_cf(applied, key),
            }
        }
        Ok(())
    }
}
