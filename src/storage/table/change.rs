//! A change of a table, collected in memory and written in one batch.
//!
//! Invariant: reads through the change see what it holds; other readers see nothing of it until it is
//! written.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry},
    sync::Arc,
};

use rocksdb::WriteBatch;
use serde::Serialize;

use super::{
    generation::{Generation, StoredPrincipal},
    namespaces::NamespaceMap,
    recent::RecentRecords,
    records::Records,
};
use crate::{
    sequence::{
        ClusterId, DayAccounts, IdPlace, IdShare, Ledger, Namespace, NamespaceId, NamespaceTotals,
        NodeId, PartId, PrincipalKey, PrincipalRecord, Principals, QueuedId, Remembered,
        RequestBook, SectionId, SectionRecord, Table, Tombstone, WorkerRecord,
    },
    storage::{
        codec,
        database::Database,
        error::StoreError,
        layout::{
            Family, cluster_id_key, day_key, days_range_of, former_member_key, id_bytes_key,
            kind_range, ledger_key, namespace_key, namespace_sections_range, next_namespace_key,
            principal_key, principals_version_key, reclaim_key, request_book_key, request_key,
            request_place_key, section_key, tombstone_key, totals_key, worker_key, workers_range,
        },
    },
};

/// A change of the records of one generation.
pub struct TableChange {
    db: Arc<Database>,
    prefix: Vec<u8>,
    /// Changed sections. In order, so that every run does the same.
    sections: BTreeMap<SectionId, SectionRecord>,
    /// Records that were read for the entry that is applied next.
    read_ahead: HashMap<SectionId, SectionRecord>,
    ledger: Records<Ledger>,
    request_book: Records<RequestBook>,
    remembered: Records<Remembered>,
    queued_ids: Records<QueuedId>,
    id_bytes: Records<u64>,
    days: Records<DayAccounts>,
    workers: Records<WorkerRecord>,
    tombstones: Records<Tombstone>,
    next_namespace_id: Records<NamespaceId>,
    cluster_id: Records<ClusterId>,
    /// The nodes that the change removes from the members.
    removed_members: BTreeSet<NodeId>,
    /// The principals and their grants, with the change.
    principals: Arc<Principals>,
    changed_principals: Records<StoredPrincipal>,
    principals_version: Records<u64>,
    /// All namespaces with the change.
    namespaces: Arc<NamespaceMap>,
    /// The namespaces that were written.
    changed_namespaces: BTreeSet<NamespaceId>,
    /// Totals that were read: as they were, and as they are now.
    totals: BTreeMap<NamespaceId, (NamespaceTotals, NamespaceTotals)>,
    /// Whether a namespace with sections is removed.
    removes_sections: bool,
    /// Records of the table that need not be read from it: some 5 us a record are saved.
    recent_records: Option<Arc<RecentRecords>>,
    /// The records that are removed with namespaces, and those that cannot change again before the change is written.
    batch: WriteBatch,
    /// How many numbers of namespaces were noted as skipped since [`TableChange::take_skipped`] was called.
    skipped: Vec<(NamespaceId, u64)>,
}

impl TableChange {
    /// Begins a change of a table with these namespaces and principals. Records that are in `recent_records` are taken from
    /// there.
    pub(in crate::storage) fn new(
        generation: &Generation, (namespaces, principals): (Arc<NamespaceMap>, Arc<Principals>),
        recent_records: Option<Arc<RecentRecords>>,
    ) -> Self {
        let db = &generation.db;
        TableChange {
            db: db.clone(),
            prefix: generation.prefix(),
            sections: BTreeMap::new(),
            read_ahead: HashMap::new(),
            ledger: Records::new(db),
            request_book: Records::new(db),
            remembered: Records::new(db),
            queued_ids: Records::new(db),
            id_bytes: Records::new(db),
            days: Records::new(db),
            workers: Records::new(db),
            tombstones: Records::new(db),
            next_namespace_id: Records::new(db),
            cluster_id: Records::new(db),
            removed_members: BTreeSet::new(),
            principals,
            changed_principals: Records::new(db),
            principals_version: Records::new(db),
            namespaces,
            changed_namespaces: BTreeSet::new(),
            totals: BTreeMap::new(),
            removes_sections: false,
            recent_records,
            batch: WriteBatch::default(),
            skipped: Vec::new(),
        }
    }

    /// How many numbers the entries since the last call counted as skipped by leaders that ended, by namespace.
    pub(crate) fn take_skipped(&mut self) -> Vec<(NamespaceId, u64)> {
        std::mem::take(&mut self.skipped)
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
        let epoch = self.ledger()?.epoch;
        if let Some(recent) = &self.recent_records {
            let in_memory = recent.find_many(&unread, epoch);
            let mut in_memory = in_memory.iter().map(Option::is_some);
            unread.retain(|_| !in_memory.next().unwrap_or(false));
        }
        let keys = unread.iter().map(|id| section_key(&self.prefix, id));
        let records = (self.db).get_many(Family::Applied, &keys.collect::<Vec<_>>())?;
        assert_eq!(unread.len(), records.len(), "each section has a record");
        let records = records.into_iter().map(Option::unwrap_or_default);
        self.read_ahead = unread.into_iter().zip(records).collect();
        Ok(())
    }

    /// The namespaces with this change.
    pub(in crate::storage) fn namespaces(&self) -> &Arc<NamespaceMap> {
        &self.namespaces
    }

    /// The principals and their grants, with this change.
    pub(in crate::storage) fn all_principals(&self) -> &Arc<Principals> {
        &self.principals
    }

    /// Removes nodes from the members: their ids are remembered as those of former ones.
    pub(crate) fn remove_members(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        self.removed_members.extend(nodes);
    }

    /// The nodes that this change removes from the members.
    pub(in crate::storage) fn removed_members(&self) -> &BTreeSet<NodeId> {
        &self.removed_members
    }

    /// The tombstones with this change, by name.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or a record is damaged.
    pub(in crate::storage) fn tombstones(&self) -> Result<BTreeMap<String, Tombstone>, StoreError> {
        let range = kind_range(&self.prefix, b'd');
        let named = self.tombstones.keys(&range)?.into_iter().map(|key| {
            let name = String::from_utf8_lossy(&key[range.0.len()..]).into_owned();
            Ok(self.tombstones.find(&key)?.map(|tombstone| (name, tombstone)))
        });
        named.filter_map(Result::transpose).collect()
    }

    /// Whether the change removes sections of namespaces, whose space is to be freed once it is written.
    pub(in crate::storage) fn removes_sections(&self) -> bool {
        self.removes_sections
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
        for id in std::mem::take(&mut self.changed_namespaces) {
            if let Some(namespace) = self.namespaces.clone().by_id(id) {
                self.put(&namespace_key(&self.prefix, id), namespace)?;
            }
        }
        for (id, (was, now)) in std::mem::take(&mut self.totals) {
            if was != now {
                self.put(&totals_key(&self.prefix, id), &now)?;
            }
        }
        for node in std::mem::take(&mut self.removed_members) {
            self.put(&former_member_key(&self.prefix, node), &())?;
        }
        self.next_namespace_id.write(&mut self.batch)?;
        self.cluster_id.write(&mut self.batch)?;
        self.changed_principals.write(&mut self.batch)?;
        self.principals_version.write(&mut self.batch)?;
        self.tombstones.write(&mut self.batch)?;
        self.ledger.write(&mut self.batch)?;
        self.request_book.write(&mut self.batch)?;
        self.remembered.write(&mut self.batch)?;
        self.queued_ids.write(&mut self.batch)?;
        self.id_bytes.write(&mut self.batch)?;
        self.days.write(&mut self.batch)?;
        self.workers.write(&mut self.batch)?;
        self.read_ahead = HashMap::new();
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
    type Error = StoreError;

    fn ledger(&self) -> Result<Ledger, StoreError> {
        Ok(self.ledger.find(&ledger_key(&self.prefix))?.unwrap_or_default())
    }

    fn put_ledger(&mut self, ledger: Ledger) {
        self.ledger.put(ledger_key(&self.prefix), Some(ledger));
    }

    // The changed record, the one in memory, one that was read ahead, or that of the table.
    fn section(&self, id: &SectionId, epoch: u64) -> Result<SectionRecord, StoreError> {
        if let Some(record) = self.sections.get(id) {
            return Ok(*record);
        }
        let recent = self.recent_records.as_deref();
        let Some(recent) = recent.and_then(|recent| recent.find(id, epoch)) else {
            return match self.read_ahead.get(id) {
                Some(record) => Ok(*record),
                None => self.read_section(id),
            };
        };
        // Every replica must come to the same record, whatever it has in memory. Not in a release: it is a read of the table
        // for each section of an entry whose record is in memory, which is what the memory saves. A machine reads 100 000 to
        // 200 000 records a second (docs/performance.md, "Ten million records").
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

    fn put_section(&mut self, id: &SectionId, record: SectionRecord) {
        self.sections.insert(id.clone(), record);
    }

    fn day_accounts(&self, id: NamespaceId, day: u32) -> Result<Option<DayAccounts>, StoreError> {
        self.days.find(&day_key(&self.prefix, id, day))
    }

    fn put_day_accounts(&mut self, id: NamespaceId, day: u32, accounts: DayAccounts) {
        self.days.put(day_key(&self.prefix, id, day), Some(accounts));
    }

    fn accounted_days(&self, id: NamespaceId) -> Result<BTreeSet<u32>, StoreError> {
        let days = self.days.keys(&days_range_of(&self.prefix, id))?.into_iter();
        Ok(days.filter_map(|key| key.last_chunk().copied()).map(u32::from_be_bytes).collect())
    }

    fn remove_day_accounts(&mut self, id: NamespaceId, day: u32) {
        self.days.put(day_key(&self.prefix, id, day), None);
    }

    fn note_skipped(&mut self, namespace: NamespaceId, numbers: u64) {
        if numbers > 0 {
            self.skipped.push((namespace, numbers));
        }
    }

    fn namespace(&self, id: NamespaceId) -> Option<&Namespace> {
        self.namespaces.by_id(id)
    }

    fn namespace_named(&self, name: &str) -> Option<&Namespace> {
        self.namespaces.by_name(name)
    }

    fn namespace_count(&self) -> usize {
        self.namespaces.count()
    }

    fn put_namespace(&mut self, namespace: Namespace) {
        self.changed_namespaces.insert(namespace.id);
        Arc::make_mut(&mut self.namespaces).put(namespace);
    }

    // All goes in one write, by ranges, however much it is. Nothing is looked for under the id any more, or written: an id
    // is used once, and code that has one looks for the namespace first.
    fn remove_namespace(&mut self, id: NamespaceId) -> Result<(), StoreError> {
        let has_sections = self.totals(id)?.sections > 0;
        let applied = self.db.family(Family::Applied)?;
        if has_sections {
            let (from, to) = namespace_sections_range(&self.prefix, id);
            self.batch.delete_range_cf(applied, from, to);
            self.batch.put_cf(applied, reclaim_key(&self.prefix, id), []);
            self.removes_sections = true;
        }
        self.batch.delete_cf(applied, namespace_key(&self.prefix, id));
        self.batch.delete_cf(applied, totals_key(&self.prefix, id));
        self.days.remove_range(days_range_of(&self.prefix, id), &mut self.batch)?;
        self.workers.remove_range(workers_range(&self.prefix, id), &mut self.batch)?;
        self.sections.retain(|section, _| section.namespace != id);
        self.totals.remove(&id);
        self.changed_namespaces.remove(&id);
        Arc::make_mut(&mut self.namespaces).remove(id);
        Ok(())
    }

    fn next_namespace_id(&self) -> Result<Option<NamespaceId>, StoreError> {
        self.next_namespace_id.find(&next_namespace_key(&self.prefix))
    }

    fn put_next_namespace_id(&mut self, id: NamespaceId) {
        self.next_namespace_id.put(next_namespace_key(&self.prefix), Some(id));
    }

    fn cluster_id(&self) -> Result<Option<ClusterId>, StoreError> {
        self.cluster_id.find(&cluster_id_key(&self.prefix))
    }

    fn put_cluster_id(&mut self, id: ClusterId) {
        self.cluster_id.put(cluster_id_key(&self.prefix), Some(id));
    }

    fn principals(&self) -> &Principals {
        &self.principals
    }

    fn put_principal(&mut self, key: PrincipalKey, record: Option<PrincipalRecord>) {
        let stored = record.clone().map(|record| (key.clone(), record));
        self.changed_principals.put(principal_key(&self.prefix, &key), stored);
        Arc::make_mut(&mut self.principals).put(key, record);
    }

    fn put_principals_version(&mut self, version: u64) {
        self.principals_version.put(principals_version_key(&self.prefix), Some(version));
        Arc::make_mut(&mut self.principals).set_version(version);
    }

    fn totals(&mut self, id: NamespaceId) -> Result<&mut NamespaceTotals, StoreError> {
        Ok(match self.totals.entry(id) {
            // They are read once in a change.
            Entry::Occupied(known) => &mut known.into_mut().1,
            Entry::Vacant(unknown) => {
                let key = totals_key(&self.prefix, id);
                let read: NamespaceTotals = self.db.get(Family::Applied, &key)?.unwrap_or_default();
                &mut unknown.insert((read, read)).1
            }
        })
    }

    fn tombstone(&self, name: &str) -> Result<Option<Tombstone>, StoreError> {
        self.tombstones.find(&tombstone_key(&self.prefix, name))
    }

    fn put_tombstone(&mut self, name: &str, tombstone: Option<Tombstone>) {
        self.tombstones.put(tombstone_key(&self.prefix, name), tombstone);
    }

    fn worker(&self, id: NamespaceId, worker: u32) -> Result<Option<WorkerRecord>, StoreError> {
        self.workers.find(&worker_key(&self.prefix, id, worker))
    }

    fn put_worker(&mut self, id: NamespaceId, worker: u32, record: WorkerRecord) {
        self.workers.put(worker_key(&self.prefix, id, worker), Some(record));
    }

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

    fn queued_id(&self, place: IdPlace) -> Result<Option<QueuedId>, StoreError> {
        self.queued_ids.find(&request_place_key(&self.prefix, place))
    }

    fn put_remembered(&mut self, namespace: NamespaceId, id: &PartId, remembered: Remembered) {
        self.remembered.put(request_key(&self.prefix, namespace, id), Some(remembered));
    }

    fn id_bytes(&self, share: IdShare) -> Result<u64, StoreError> {
        Ok(self.id_bytes.find(&id_bytes_key(&self.prefix, share))?.unwrap_or(0))
    }

    fn put_id_bytes(&mut self, share: IdShare, bytes: u64) {
        let bytes = (bytes > 0).then_some(bytes);
        self.id_bytes.put(id_bytes_key(&self.prefix, share), bytes);
    }

    fn remember(&mut self, place: IdPlace, queued: QueuedId, remembered: Remembered) {
        self.put_remembered(queued.namespace, &queued.id, remembered);
        self.queued_ids.put(request_place_key(&self.prefix, place), Some(queued));
    }

    fn forget(&mut self, place: IdPlace, queued: &QueuedId) {
        self.remembered.put(request_key(&self.prefix, queued.namespace, &queued.id), None);
        self.queued_ids.put(request_place_key(&self.prefix, place), None);
    }
}
