//! A table in memory, for tests of what commands do.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    convert::Infallible,
};

use crate::sequence::{
    Bump, ClusterId, Command, DayAccounts, EntryOutcome, IdPlace, IdShare, Ledger, Namespace,
    NamespaceId, NamespaceTotals, PartId, PrincipalKey, PrincipalRecord, Principals, QueuedId,
    Remembered, RequestBook, RequestId, SectionId, SectionRecord, SectionUse, Table, Tombstone,
    WorkerRecord, apply,
};

/// A table in memory.
#[derive(Default)]
pub struct MemoryTable {
    pub ledger: Ledger,
    pub sections: HashMap<SectionId, SectionRecord>,
    pub namespaces: BTreeMap<NamespaceId, Namespace>,
    pub days: BTreeMap<(NamespaceId, u32), DayAccounts>,
    pub totals: BTreeMap<NamespaceId, NamespaceTotals>,
    pub tombstones: BTreeMap<String, Tombstone>,
    pub next_id: Option<NamespaceId>,
    pub cluster_id: Option<ClusterId>,
    pub principals: Principals,
    pub book: RequestBook,
    pub places: BTreeMap<IdPlace, QueuedId>,
    pub ids: BTreeMap<(NamespaceId, RequestId, u32), Remembered>,
    pub id_bytes: BTreeMap<IdShare, u64>,
    pub workers: BTreeMap<(NamespaceId, u32), WorkerRecord>,
    pub skipped: u64,
}

/// A command that was proposed at no known time.
pub fn bumps(bumps: Vec<Bump>) -> Command {
    Command::Bump { bumps, skipped: vec![], now_ms: 0 }
}

/// A trim that was proposed at no known time.
pub fn trims(sections: Vec<SectionUse>) -> Command {
    Command::Trim { sections, now_ms: 0 }
}

/// A checkpoint that was proposed at no known time.
pub fn checkpoints(sections: Vec<SectionId>) -> Command {
    Command::Checkpoint { sections, now_ms: 0 }
}

/// A release that was proposed at no known time.
pub fn releases(sections: Vec<SectionUse>) -> Command {
    Command::Release { sections, now_ms: 0 }
}

/// Applies a command of `term`.
pub fn run(table: &mut MemoryTable, term: u64, command: Command) -> EntryOutcome {
    let Ok(outcome) = apply(table, term, &command);
    outcome
}

impl Table for MemoryTable {
    type Error = Infallible;

    fn ledger(&self) -> Result<Ledger, Infallible> {
        Ok(self.ledger)
    }
    fn put_ledger(&mut self, ledger: Ledger) {
        self.ledger = ledger;
    }
    fn section(&self, id: &SectionId, epoch: u64) -> Result<SectionRecord, Infallible> {
        let record = self.sections.get(id).copied().unwrap_or_default();
        // Nothing may depend on the floor of an older record.
        let floor = match record.epoch < epoch {
            true => record.max_seq,
            false => record.floor,
        };
        Ok(SectionRecord { floor, ..record })
    }
    fn put_section(&mut self, id: &SectionId, record: SectionRecord) {
        self.sections.insert(id.clone(), record);
    }
    fn principals(&self) -> &Principals {
        &self.principals
    }
    fn put_principal(&mut self, key: PrincipalKey, record: Option<PrincipalRecord>) {
        self.principals.put(key, record);
    }
    fn put_principals_version(&mut self, version: u64) {
        self.principals.set_version(version);
    }
    fn day_accounts(&self, id: NamespaceId, day: u32) -> Result<Option<DayAccounts>, Infallible> {
        Ok(self.days.get(&(id, day)).copied())
    }
    fn note_skipped(&mut self, _: NamespaceId, numbers: u64) {
        self.skipped += numbers;
    }
    fn put_day_accounts(&mut self, id: NamespaceId, day: u32, accounts: DayAccounts) {
        self.days.insert((id, day), accounts);
    }
    fn accounted_days(&self, id: NamespaceId) -> Result<BTreeSet<u32>, Infallible> {
        Ok(self.days.keys().filter(|of| of.0 == id).map(|of| of.1).collect())
    }
    fn remove_day_accounts(&mut self, id: NamespaceId, day: u32) {
        self.days.remove(&(id, day));
    }

    fn namespace(&self, id: NamespaceId) -> Option<&Namespace> {
        self.namespaces.get(&id)
    }
    fn namespace_named(&self, name: &str) -> Option<&Namespace> {
        self.namespaces.values().find(|n| n.config.name == name)
    }
    fn namespace_count(&self) -> usize {
        self.namespaces.len()
    }
    fn put_namespace(&mut self, namespace: Namespace) {
        self.namespaces.insert(namespace.id, namespace);
    }
    fn remove_namespace(&mut self, id: NamespaceId) -> Result<(), Infallible> {
        self.sections.retain(|section, _| section.namespace != id);
        self.days.retain(|of, _| of.0 != id);
        self.workers.retain(|of, _| of.0 != id);
        self.totals.remove(&id);
        self.namespaces.remove(&id);
        Ok(())
    }
    fn next_namespace_id(&self) -> Result<Option<NamespaceId>, Infallible> {
        Ok(self.next_id)
    }
    fn put_next_namespace_id(&mut self, id: NamespaceId) {
        self.next_id = Some(id);
    }
    fn cluster_id(&self) -> Result<Option<ClusterId>, Infallible> {
        Ok(self.cluster_id)
    }
    fn put_cluster_id(&mut self, id: ClusterId) {
        self.cluster_id = Some(id);
    }
    fn totals(&mut self, id: NamespaceId) -> Result<&mut NamespaceTotals, Infallible> {
        Ok(self.totals.entry(id).or_default())
    }
    fn tombstone(&self, name: &str) -> Result<Option<Tombstone>, Infallible> {
        Ok(self.tombstones.get(name).copied())
    }
    fn put_tombstone(&mut self, name: &str, tombstone: Option<Tombstone>) {
        match tombstone {
            Some(tombstone) => self.tombstones.insert(name.to_owned(), tombstone),
            None => self.tombstones.remove(name),
        };
    }

    fn worker(&self, id: NamespaceId, worker: u32) -> Result<Option<WorkerRecord>, Infallible> {
        Ok(self.workers.get(&(id, worker)).cloned())
    }
    fn put_worker(&mut self, id: NamespaceId, worker: u32, record: WorkerRecord) {
        self.workers.insert((id, worker), record);
    }

    fn request_book(&self) -> Result<RequestBook, Infallible> {
        Ok(self.book)
    }
    fn put_request_book(&mut self, book: RequestBook) {
        self.book = book;
    }
    fn remembered(
        &self, namespace: NamespaceId, id: &PartId,
    ) -> Result<Option<Remembered>, Infallible> {
        Ok(self.ids.get(&(namespace, id.request.clone(), id.part)).cloned())
    }
    fn queued_id(&self, place: IdPlace) -> Result<Option<QueuedId>, Infallible> {
        Ok(self.places.get(&place).cloned())
    }
    fn put_remembered(&mut self, namespace: NamespaceId, id: &PartId, remembered: Remembered) {
        self.ids.insert((namespace, id.request.clone(), id.part), remembered);
    }
    fn id_bytes(&self, share: IdShare) -> Result<u64, Infallible> {
        Ok(self.id_bytes.get(&share).copied().unwrap_or(0))
    }
    fn put_id_bytes(&mut self, share: IdShare, bytes: u64) {
        match bytes {
            0 => self.id_bytes.remove(&share),
            bytes => self.id_bytes.insert(share, bytes),
        };
    }
    fn remember(&mut self, place: IdPlace, queued: QueuedId, remembered: Remembered) {
        self.put_remembered(queued.namespace, &queued.id, remembered);
        self.places.insert(place, queued);
    }
    fn forget(&mut self, place: IdPlace, queued: &QueuedId) {
        self.ids.remove(&(queued.namespace, queued.id.request.clone(), queued.id.part));
        self.places.remove(&place);
    }
}
