//! Request ids in a change of a table, until it is written.

use std::{collections::BTreeMap, sync::Arc};

use rocksdb::WriteBatch;
use serde::Serialize;

use crate::{
    sequence::{NamespaceId, PartId, Place, QueuedId, Remembered, RequestBook},
    storage::{
        codec,
        database::Database,
        error::StoreError,
        layout::{Family, request_book_key, request_key, request_place_key},
    },
};

/// The key of what a part of a message took.
type PartKey = Vec<u8>;

/// Changed records of request ids. `None` for one that is removed.
pub struct RequestChanges {
    db: Arc<Database>,
    prefix: Vec<u8>,
    book: Option<RequestBook>,
    ids: BTreeMap<PartKey, Option<Remembered>>,
    places: BTreeMap<Place, Option<QueuedId>>,
}

impl RequestChanges {
    /// No change of the table with this prefix.
    pub fn new(db: Arc<Database>, prefix: Vec<u8>) -> Self {
        RequestChanges { db, prefix, book: None, ids: BTreeMap::new(), places: BTreeMap::new() }
    }

    /// The book.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn book(&self) -> Result<RequestBook, StoreError> {
        if let Some(book) = self.book {
            return Ok(book);
        }
        let key = request_book_key(&self.prefix);
        Ok(self.db.get(Family::Applied, &key)?.unwrap_or_default())
    }

    /// Changes the book.
    pub fn put_book(&mut self, book: RequestBook) {
        self.book = Some(book);
    }

    /// What an id was used for.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn remembered(
        &self, namespace: NamespaceId, id: &PartId,
    ) -> Result<Option<Remembered>, StoreError> {
        let key = request_key(&self.prefix, namespace, id);
        if let Some(changed) = self.ids.get(&key) {
            return Ok(changed.clone());
        }
        self.db.get(Family::Applied, &key)
    }

    /// The id at a place.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn at(&self, place: Place) -> Result<Option<QueuedId>, StoreError> {
        if let Some(changed) = self.places.get(&place) {
            return Ok(changed.clone());
        }
        let key = request_place_key(&self.prefix, place);
        self.db.get(Family::Applied, &key)
    }

    /// Adds an id at a place.
    pub fn add(&mut self, place: Place, queued: QueuedId, remembered: Remembered) {
        let key = request_key(&self.prefix, queued.namespace, &queued.id);
        self.ids.insert(key, Some(remembered));
        self.places.insert(place, Some(queued));
    }

    /// Removes the id at a place.
    pub fn remove(&mut self, place: Place, queued: &QueuedId) {
        self.ids.insert(request_key(&self.prefix, queued.namespace, &queued.id), None);
        self.places.insert(place, None);
    }

    /// Moves all changes into `batch`.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if a record is too large.
    pub fn write(&mut self, batch: &mut WriteBatch) -> Result<(), StoreError> {
        let applied = self.db.family(Family::Applied)?;
        if let Some(book) = self.book.take() {
            let record = codec::encode_record(&book)?;
            batch.put_cf(applied, request_book_key(&self.prefix), record);
        }
        let mut change = |key: Vec<u8>, record: Option<Vec<u8>>| match record {
            Some(record) => batch.put_cf(applied, key, record),
            None => batch.delete_cf(applied, key),
        };
        for (key, remembered) in std::mem::take(&mut self.ids) {
            change(key, encoded(remembered)?);
        }
        for (place, queued) in std::mem::take(&mut self.places) {
            change(request_place_key(&self.prefix, place), encoded(queued)?);
        }
        Ok(())
    }
}

fn encoded(record: Option<impl Serialize>) -> Result<Option<Vec<u8>>, StoreError> {
    let record = record.map(|record| codec::encode_record(&record));
    Ok(record.transpose()?)
}
