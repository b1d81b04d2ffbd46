//! A change of a table, collected in memory and written in one batch.
//!
//! Invariant: reads through the change see what it holds; other readers see nothing of it until it is
//! written.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use rocksdb::WriteBatch;
use serde::Serialize;

use super::{
    generation::Namespaces,
    recent::RecentRecords,
    records::{NamespaceRecords, Records},
};
use crate::{
    sequence::{
        ClusterId, DayBooks, Ledger, Namespace, NamespaceId, NamespaceTable, NamespaceTotals,
        PartId, Place, QueuedId, Remembered, RequestBook, RequestTable, SectionId, SectionRecord,
        Table, Tombstone, WorkerRecord, WorkerTable,
    },
    storage::{
        codec,
        database::Database,
        error::StoreError,
        layout::{
            Family, day_key, days_range_of, ledger_key, request_book_key, request_key,
            request_place_key, section_key, worker_key, workers_range,
        },
    },
};

/// A change of the records with one prefix.
pub struct TableChange {
    db: Arc<Database>,
    prefix: Vec<u8>,
    /// Changed sections. In order, so that every run does the same.
    sections: BTreeMap<SectionId, SectionRecord>,
    /// Records that were read for the entry that is applied next.
    read_ahead: HashMap<SectionId, SectionRecord>,
    ledger: Option<Ledger>,
    request_book: Records<RequestBook>,
    remembered: Records<Remembered>,
    queued_ids: Records<QueuedId>,
    days: Records<DayBooks>,
    workers: Records<WorkerRecord>,
    namespaces: NamespaceRecords,
    /// Records of the table that need not be read from it.
    recent_records: Option<Arc<RecentRecords>>,
    /// Records that cannot change again before the change is written.
    batch: WriteBatch,
    /// How many numbers were noted as skipped since [`TableChange::take_skipped`] was called.
    skipped: u64,
}

impl TableChange {
    /// Begins a change of the table with this prefix and these namespaces.
    pub(in crate::storage) fn new(
        db: Arc<Database>, prefix: Vec<u8>, namespaces: Arc<Namespaces>,
    ) -> Self {
        TableChange {
            request_book: Records::new(&db),
            remembered: Records::new(&db),
            queued_ids: Records::new(&db),
            days: Records::new(&db),
            workers: Records::new(&db),
            namespaces: NamespaceRecords::new(db.clone(), prefix.clone(), namespaces),
            db,
            prefix,
            sections: BTreeMap::new(),
            read_ahead: HashMap::new(),
            ledger: None,
            recent_records: None,
            batch: WriteBatch::default(),
            skipped: 0,
        }
    }

    /// How many numbers the entries since the last call have booked as skipped by leaders that ended.
    pub(crate) fn take_skipped(&mut self) -> u64 {
        std::mem::take(&mut self.skipped)
    }

    /// Takes records from `recent_records` if they are there, instead of reading them. Some 5 us a record is saved.
    pub(in crate::storage) fn with_recent_records(
        self, recent_records: Arc<RecentRecords>,
    ) -> Self {
        TableChange { recent_records: Some(recent_records), ..self }
    }

    /// Reads the records of sections that the next entry changes, unless they are in memory: many together cost a part of
    /// what each costs alone.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or a record is damaged.
    pub(crate) fn read_ahead<'a>(
        &mut self, ids: impl Iterator<Item = &'a SectionId>,
    ) -> Result<(), StoreError> {
        let unchanged = ids.filter(|id| !self.sections.contains_key(*id)).cloned();
        let mut unread: Vec<SectionId> = unchanged.collect();
        if unread.len() < 2 {
            return Ok(());
        }
        let lift = self.ledger()?.lift;
        if let Some(recent) = &self.recent_records {
            let in_memory = recent.find_many(&unread, lift);
            let mut in_memory = in_memory.iter().map(Option::is_some);
            unread.retain(|_| !in_memory.next().unwrap_or(false));
        }
        let keys = unread.iter().map(|id| section_key(&self.prefix, id));
        let records = (self.db).get_many(Family::Applied, &keys.collect::<Vec<_>>())?;
        let records = records.into_iter().map(Option::unwrap_or_default);
        self.read_ahead = unread.into_iter().zip(records).collect();
        Ok(())
    }

    /// The namespaces with this change.
    pub(in crate::storage) fn namespaces(&self) -> &Arc<Namespaces> {
        self.namespaces.namespaces()
    }

    /// The changed tombstones: `None` for one that is removed.
    pub(in crate::storage) fn tombstones(&self) -> &BTreeMap<String, Option<Tombstone>> {
        self.namespaces.tombstones()
    }

    /// The id of the cluster, if this change gives it one that is not written yet.
    pub(in crate::storage) fn new_cluster_id(&self) -> Option<ClusterId> {
        self.namespaces.new_cluster_id()
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
        &mut self, key: &[u8], value: &impl Serialize,
    ) -> Result<(), StoreError> {
        let applied = self.db.family(Family::Applied)?;
        self.batch.put_cf(applied, key, codec::encode_record(value)?);
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
        self.request_book.write(&mut self.batch)?;
        self.remembered.write(&mut self.batch)?;
        self.queued_ids.write(&mut self.batch)?;
        self.days.write(&mut self.batch)?;
        self.workers.write(&mut self.batch)?;
        self.read_ahead = HashMap::new();
        let sections = std::mem::take(&mut self.sections);
        let applied = self.db.family(Family::Applied)?;
        for (id, record) in &sections {
            let key = section_key(&self.prefix, id);
            (self.batch).put_cf(applied, key, codec::encode_record(record)?);
        }
        self.db.write(std::mem::take(&mut self.batch), false)?;
        Ok(sections)
    }

    /// The section's record: the changed one, that which `in_memory` finds, one that was read ahead, or that of the table.
    fn find_section(
        &self, id: &SectionId, in_memory: impl FnOnce(&RecentRecords) -> Option<SectionRecord>,
    ) -> Result<SectionRecord, StoreError> {
        if let Some(record) = self.sections.get(id) {
            return Ok(*record);
        }
        let Some(recent) = self.recent_records.as_deref().and_then(in_memory) else {
            return match self.read_ahead.get(id) {
                Some(record) => Ok(*record),
                None => self.read_section(id),
            };
        };
        // Every replica must come to the same record, whatever it has in memory.
        debug_assert_eq!(
            SectionRecord {
                floor: recent.floor,
                written_ms: recent.written_ms,
                ..self.read_section(id)?
            },
            recent,
            "{id:?} in the table and in memory"
        );
        Ok(recent)
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
        self.find_section(id, |recent| recent.find(id, lift))
    }

    fn gapless_section(&self, id: &SectionId, _: u64) -> Result<SectionRecord, StoreError> {
        self.find_section(id, |recent| recent.find_gapless(id))
    }

    fn put_section(&mut self, id: &SectionId, record: SectionRecord) {
        self.sections.insert(id.clone(), record);
    }

    fn day_books(&self, id: NamespaceId, day: u32) -> Result<Option<DayBooks>, StoreError> {
        self.days.find(&day_key(&self.prefix, id, day))
    }

    fn put_day_books(&mut self, id: NamespaceId, day: u32, books: DayBooks) {
        self.days.put(day_key(&self.prefix, id, day), Some(books));
    }

    fn days_booked(&self, id: NamespaceId) -> Result<BTreeSet<u32>, StoreError> {
        let days = self.days.keys(&days_range_of(&self.prefix, id))?.into_iter();
        Ok(days.filter_map(|key| key.last_chunk().copied()).map(u32::from_be_bytes).collect())
    }

    fn remove_day_books(&mut self, id: NamespaceId, day: u32) {
        self.days.put(day_key(&self.prefix, id, day), None);
    }

    fn note_skipped(&mut self, numbers: u64) {
        self.skipped += numbers;
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
        self.days.remove_range(days_range_of(&self.prefix, id));
        self.workers.remove_range(workers_range(&self.prefix, id));
        self.sections.retain(|section, _| section.namespace != id);
        self.namespaces.remove(id)
    }

    fn next_namespace_id(&self) -> Result<Option<NamespaceId>, StoreError> {
        self.namespaces.next_id()
    }

    fn put_next_namespace_id(&mut self, id: NamespaceId) {
        self.namespaces.put_next_id(id);
    }

    fn cluster_id(&self) -> Result<Option<ClusterId>, StoreError> {
        self.namespaces.cluster_id()
    }

    fn put_cluster_id(&mut self, id: ClusterId) {
        self.namespaces.put_cluster_id(id);
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

impl WorkerTable for TableChange {
    fn worker(&self, id: NamespaceId, worker: u32) -> Result<Option<WorkerRecord>, StoreError> {
        self.workers.find(&worker_key(&self.prefix, id, worker))
    }

    fn put_worker(&mut self, id: NamespaceId, worker: u32, record: WorkerRecord) {
        self.workers.put(worker_key(&self.prefix, id, worker), Some(record));
    }
}

impl RequestTable for TableChange {
    type ReadError = StoreError;

    fn request_book(&self) -> Result<RequestBook, StoreError> {
        let book = self.request_book.find(&request_book_key(&self.prefix))?;
        Ok(book.unwrap_or_default())
    }

    fn put_request_book(&mut self, book: RequestBook) {
        self.request_book.put(request_book_key(&self.prefix), Some(book));
    }

    fn remembered(
        &self, namespace: NamespaceId, id: &PartId,
    ) -> Result<Option<Remembered>, StoreError> {
        self.remembered.find(&request_key(&self.prefix, namespace, id))
    }

    fn queued_id(&self, place: Place) -> Result<Option<QueuedId>, StoreError> {
        self.queued_ids.find(&request_place_key(&self.prefix, place))
    }

    fn remember(&mut self, place: Place, queued: QueuedId, remembered: Remembered) {
        let key = request_key(&self.prefix, queued.namespace, &queued.id);
        self.remembered.put(key, Some(remembered));
        self.queued_ids.put(request_place_key(&self.prefix, place), Some(queued));
    }

    fn forget(&mut self, place: Place, queued: &QueuedId) {
        self.remembered.put(request_key(&self.prefix, queued.namespace, &queued.id), None);
        self.queued_ids.put(request_place_key(&self.prefix, place), None);
    }
}
