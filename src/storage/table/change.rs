//! A change of a table, collected in memory and written in one batch.
//!
//! Invariant: reads through the change see what it holds; other readers see nothing of it until it is
//! written.

use std::{collections::BTreeMap, sync::Arc};

use rocksdb::WriteBatch;
use serde::Serialize;

use super::{
    namespace_records::NamespaceRecords, namespaces::Namespaces, recent::RecentRecords,
    request_changes::RequestChanges,
};
use crate::{
    sequence::{
        Ledger, Namespace, NamespaceId, NamespaceTable, NamespaceTotals, QueuedId, Remembered,
        RequestBook, RequestId, RequestTable, SectionId, SectionRecord, Table, Tombstone,
    },
    storage::{
        codec,
        database::Database,
        error::StoreError,
        layout::{Family, ledger_key, section_key},
    },
};

/// A change of the records with one prefix.
pub struct TableChange {
    db: Arc<Database>,
    prefix: Vec<u8>,
    /// Changed sections. In order, so that every run does the same.
    sections: BTreeMap<SectionId, SectionRecord>,
    ledger: Option<Ledger>,
    requests: RequestChanges,
    namespaces: NamespaceRecords,
    /// Records of the table that need not be read from it.
    recent_records: Option<Arc<RecentRecords>>,
    /// Records that cannot change again before the change is written.
    batch: WriteBatch,
}

impl TableChange {
    /// Begins a change of the table with this prefix and these namespaces.
    pub(in crate::storage) fn new(
        db: Arc<Database>,
        prefix: Vec<u8>,
        namespaces: Arc<Namespaces>,
    ) -> Self {
        TableChange {
            requests: RequestChanges::new(db.clone(), prefix.clone()),
            namespaces: NamespaceRecords::new(db.clone(), prefix.clone(), namespaces),
            db,
            prefix,
            sections: BTreeMap::new(),
            ledger: None,
            recent_records: None,
            batch: WriteBatch::default(),
        }
    }

    /// Takes records from `recent_records` if they are there, instead of reading them. Some 5 us a record is saved.
    pub(in crate::storage) fn with_recent_records(
        self,
        recent_records: Arc<RecentRecords>,
    ) -> Self {
        TableChange {
            recent_records: Some(recent_records),
            ..self
        }
    }

    /// The namespaces with this change.
    pub(in crate::storage) fn namespaces(&self) -> &Arc<Namespaces> {
        self.namespaces.namespaces()
    }

    /// The changed tombstones: `None` for one that is removed.
    pub(in crate::storage) fn tombstones(&self) -> &BTreeMap<String, Option<Tombstone>> {
        self.namespaces.tombstones()
    }

    /// Whether the change removes sections of namespaces, whose space is to be freed once it is written.
    pub(in crate::storage) fn removes_sections(&self) -> bool {
        self.namespaces.removes_sections()
    }

    /// Adds a record under a full key, prefix included.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the value is too large.
    pub(in crate::storage) fn put(
        &mut self,
        key: &[u8],
        value: &impl Serialize,
    ) -> Result<(), StoreError> {
        let applied = self.db.family(Family::Applied)?;
        self.batch
            .put_cf(applied, key, codec::encode_record(value)?);
        Ok(())
    }

    /// Writes everything that was added since the last call, in one batch. It is not synced. Returns the sections
    /// that were written.
    ///
    /// # Errors
    /// [`StoreError`] if a record is too large or the database fails.
    pub(in crate::storage) fn write(
        &mut self,
    ) -> Result<BTreeMap<SectionId, SectionRecord>, StoreError> {
        self.namespaces.write(&mut self.batch)?;
        if let Some(ledger) = self.ledger.take() {
            self.put(&ledger_key(&self.prefix), &ledger)?;
        }
        self.requests.write(&mut self.batch)?;
        let sections = std::mem::take(&mut self.sections);
        for (id, record) in &sections {
            self.put(&section_key(&self.prefix, id), record)?;
        }
        self.db.write(std::mem::take(&mut self.batch), false)?;
        Ok(sections)
    }

    fn read_section(&self, id: &SectionId) -> Result<SectionRecord, StoreError> {
        let key = section_key(&self.prefix, id);
        Ok(self.db.get(Family::Applied, &key)?.unwrap_or_default())
    }
}

impl Table for TableChange {
    fn ledger(&self) -> Result<Ledger, StoreError> {
        if let Some(ledger) = self.ledger {
            return Ok(ledger);
        }
        let key = ledger_key(&self.prefix);
        Ok(self.db.get(Family::Applied, &key)?.unwrap_or_default())
    }

    fn put_ledger(&mut self, ledger: Ledger) {
        self.ledger = Some(ledger);
    }

    fn section(&self, id: &SectionId, lift: u64) -> Result<SectionRecord, StoreError> {
        if let Some(record) = self.sections.get(id) {
            return Ok(*record);
        }
        let recent_records = self.recent_records.as_ref();
        let Some(recent) = recent_records.and_then(|records| records.find(id, lift)) else {
            return self.read_section(id);
        };
        // Every replica must come to the same record, whatever it has in memory.
        debug_assert_eq!(
            SectionRecord {
                floor: recent.floor,
                ..self.read_section(id)?
            },
            recent,
            "{id:?} in the table and in memory"
        );
        Ok(recent)
    }

    fn put_section(&mut self, id: &SectionId, record: SectionRecord) {
        self.sections.insert(id.clone(), record);
    }
}

impl NamespaceTable for TableChange {
    type Error = StoreError;

    fn namespace(&self, id: NamespaceId) -> Option<&Namespace> {
        self.namespaces().by_id(id)
    }

    fn namespace_named(&self, name: &str) -> Option<&Namespace> {
        self.namespaces().by_name(name)
    }

    fn namespace_count(&self) -> usize {
        self.namespaces().count()
    }

    fn put_namespace(&mut self, namespace: Namespace) {
        self.namespaces.put(namespace);
    }

    fn remove_namespace(&mut self, id: NamespaceId) -> Result<(), StoreError> {
        self.sections.retain(|section, _| section.namespace != id);
        self.namespaces.remove(id)
    }

    fn next_namespace_id(&self) -> Result<Option<NamespaceId>, StoreError> {
        self.namespaces.next_id()
    }

    fn put_next_namespace_id(&mut self, id: NamespaceId) {
        self.namespaces.put_next_id(id);
    }

    fn totals(&mut self, id: NamespaceId) -> Result<&mut NamespaceTotals, StoreError> {
        self.namespaces.totals(id)
    }

    fn tombstone(&self, name: &str) -> Result<Option<Tombstone>, StoreError> {
        self.namespaces.tombstone(name)
    }

    fn put_tombstone(&mut self, name: &str, tombstone: Option<Tombstone>) {
        self.namespaces.put_tombstone(name, tombstone);
    }
}

impl RequestTable for TableChange {
    type ReadError = StoreError;

    fn request_book(&self) -> Result<RequestBook, StoreError> {
        self.requests.book()
    }

    fn put_request_book(&mut self, book: RequestBook) {
        self.requests.put_book(book);
    }

    fn remembered(
        &self,
        namespace: NamespaceId,
        id: &RequestId,
    ) -> Result<Option<Remembered>, StoreError> {
        self.requests.remembered(namespace, id)
    }

    fn queued_id(&self, place: u64) -> Result<Option<QueuedId>, StoreError> {
        self.requests.at(place)
    }

    fn remember(&mut self, place: u64, queued: QueuedId, remembered: Remembered) {
        self.requests.add(place, queued, remembered);
    }

    fn forget(&mut self, place: u64, queued: &QueuedId) {
        self.requests.remove(place, queued);
    }
}
