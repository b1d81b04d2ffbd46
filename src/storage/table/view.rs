//! The applied table of one set, for readers beside the state machine.
//!
//! Invariant: a read sees a section as it was after some entry, also while a snapshot replaces the table.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SetOnce};

use super::{generation::Generation, namespaces::NamespaceMap, recent::RecentRecords};
use crate::{
    sequence::{
        ClusterId, Ledger, NamespaceId, NodeId, Principals, SectionId, SectionRecord, SetId,
    },
    storage::{
        blocking::BlockingExecutor,
        database::Database,
        error::StoreError,
        free_space::LowDisk,
        layout::{Family, next_namespace_key, section_key},
        store::Store,
    },
};

/// How many threads read sections at once. A slow disk cannot take more of the threads for blocking
/// work.
const READERS_MAX: usize = 16;

/// How many threads read pages of sections at once. They must not hold up calls that wait for a record.
const PAGE_READERS_MAX: usize = 2;

/// The applied table of one set, for readers. Clones read the same table.
#[derive(Clone)]
pub struct AppliedView {
    db: Arc<Database>,
    set: SetId,
    generation: Arc<AtomicU32>,
    /// The greatest generation that was given to the table or to a snapshot since the table was opened.
    last_generation: Arc<AtomicU32>,
    namespaces: Arc<ArcSwap<NamespaceMap>>,
    /// The namespaces have changed.
    namespaces_changed: Arc<Notify>,
    /// The principals and their grants.
    principals: Arc<ArcSwap<Principals>>,
    /// Notified when principals or grants have changed.
    principals_changed: Arc<Notify>,
    /// The id of the cluster, once the table holds it.
    cluster_id: Arc<SetOnce<ClusterId>>,
    /// The nodes that were members once, and were removed.
    former_members: Arc<ArcSwap<BTreeSet<NodeId>>>,
    /// A voter of the set whose low disk forbids new sections, although this node's is not low.
    low_voter: Arc<Mutex<Option<LowDisk>>>,
    recent_records: Arc<RecentRecords>,
    blocking: BlockingExecutor,
    before_read: Arc<dyn Fn() + Send + Sync>,
    readers: Arc<Semaphore>,
    page_readers: Arc<Semaphore>,
}

impl AppliedView {
    /// The set whose table it is.
    pub fn set(&self) -> SetId {
        self.set
    }

    /// A view of the table with the records of `generation`. Records stay in memory, of as many bytes as
    /// the store's `recent_records_bytes` allows.
    pub(in crate::storage) fn open(
        generation: &Generation, store: &Store,
    ) -> Result<Self, StoreError> {
        Ok(AppliedView {
            db: generation.db.clone(),
            set: generation.set,
            generation: Arc::new(AtomicU32::new(generation.number)),
            last_generation: Arc::new(AtomicU32::new(generation.number)),
            namespaces: Arc::new(ArcSwap::from_pointee(generation.read_namespaces()?)),
            namespaces_changed: Arc::new(Notify::new()),
            principals: Arc::new(ArcSwap::from_pointee(generation.read_principals()?)),
            principals_changed: Arc::new(Notify::new()),
            cluster_id: Arc::new(SetOnce::new_with(generation.read_cluster_id()?)),
            former_members: Arc::new(ArcSwap::from_pointee(generation.read_former_members()?)),
            low_voter: Arc::default(),
            recent_records: Arc::new(RecentRecords::new(store.options.recent_records_bytes)),
            blocking: store.blocking(),
            before_read: store.options.before_read.clone(),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            page_readers: Arc::new(Semaphore::new(PAGE_READERS_MAX)),
        })
    }

    /// The database that holds the table.
    pub(in crate::storage) fn db(&self) -> &Arc<Database> {
        &self.db
    }

    /// Notes the voter of the set whose low disk forbids new sections, if there is one.
    pub fn note_low_voter(&self, low: Option<LowDisk>) {
        *self.low_voter.lock() = low;
    }

    /// The low disk for which this node, as leader, makes no new sections in this table: its own one, or that of a voter, if
    /// those of too many voters are low. `None` while it makes them.
    pub fn limiting_disk(&self) -> Option<LowDisk> {
        self.db.free_space().low().or_else(|| *self.low_voter.lock())
    }

    /// The generation that readers are shown.
    pub(in crate::storage) fn generation(&self) -> Generation {
        let number = self.generation.load(Ordering::Acquire);
        Generation::new(&self.db, self.set, number)
    }

    /// Where blocking work runs.
    pub(in crate::storage) fn blocking(&self) -> BlockingExecutor {
        self.blocking
    }

    /// Reads several records, on a thread for blocking work, as the table was at one moment.
    ///
    /// # Errors
    /// [`StoreError`] if `read` fails, or no thread runs it.
    pub(super) async fn read_few<T: Send + 'static>(
        &self, read: impl Fn(&Generation) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.on_thread(&self.page_readers, move |view| view.read_now(read)).await
    }

    /// Reads the table as it is now. Blocks.
    fn read_now<T>(
        &self, read: impl Fn(&Generation) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        loop {
            let generation = self.generation();
            let what = read(&generation)?;
            // If a snapshot replaced the table meanwhile, records may have been removed: read again.
            if self.generation().number == generation.number {
                return Ok(what);
            }
        }
    }

    /// Reads on a thread for blocking work, once one of `readers` is free.
    ///
    /// # Errors
    /// [`StoreError`] if `read` fails, or no thread runs it.
    async fn on_thread<T: Send + 'static>(
        &self, readers: &Arc<Semaphore>,
        read: impl FnOnce(&AppliedView) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let failed = |why: String| StoreError::invalid(format!("the table cannot be read: {why}"));
        let reader = readers.clone().acquire_owned().await;
        let reader = reader.map_err(|error| failed(error.to_string()))?;
        let view = self.clone();
        let done = self.blocking.run(move || {
            // If the caller gives up, the thread is still busy: the permit is held until it is done.
            let _reader = reader;
            read(&view)
        });
        done.await.map_err(|error| failed(error.to_string()))?
    }

    /// A new generation, which has no records yet.
    pub(in crate::storage) fn fresh_generation(&self) -> Generation {
        let number = self.last_generation.fetch_add(1, Ordering::Relaxed) + 1;
        Generation::new(&self.db, self.set, number)
    }

    /// Shows these namespaces to readers from now on.
    pub(in crate::storage) fn show_namespaces(&self, namespaces: Arc<NamespaceMap>) {
        self.namespaces.store(namespaces);
        self.namespaces_changed.notify_waiters();
    }

    /// Shows readers from now on that these may do what.
    pub(in crate::storage) fn show_principals(&self, principals: Arc<Principals>) {
        if !Arc::ptr_eq(&self.principals.load(), &principals) {
            self.principals.store(principals);
            self.principals_changed.notify_waiters();
        }
    }

    /// Shows the id of the cluster to readers from now on.
    pub(in crate::storage) fn show_cluster_id(&self, id: Option<ClusterId>) {
        // An id never changes: one that is there already is the same. A snapshot of another cluster is not installed.
        let shown = id.map(|id| self.cluster_id.set(id));
        assert!(
            shown.is_none_or(|shown| shown.is_ok()) || self.cluster_id() == id,
            "the table names two clusters: {:?} and {id:?}",
            self.cluster_id()
        );
    }

    /// The id of the cluster; `None` if this node does not know it yet.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.cluster_id.get().copied()
    }

    /// Shows readers from now on that these nodes were removed from the members, too.
    pub(in crate::storage) fn show_removed_members(&self, nodes: &BTreeSet<NodeId>) {
        if !nodes.is_empty() {
            let before = self.former_members.load();
            self.former_members.store(Arc::new(before.union(nodes).copied().collect()));
        }
    }

    /// The nodes that were members once, and were removed, as of the last applied batch of entries, or of the one that is being
    /// written. One that was added again is among them.
    pub fn former_members(&self) -> arc_swap::Guard<Arc<BTreeSet<NodeId>>> {
        self.former_members.load()
    }

    /// Waits until this node knows the id of the cluster.
    pub async fn until_named(&self) -> ClusterId {
        *self.cluster_id.wait().await
    }

    /// Shows the records of `generation` to readers from now on.
    pub(in crate::storage) fn show(
        &self, generation: &Generation, namespaces: NamespaceMap, principals: Principals,
        former_members: BTreeSet<NodeId>,
    ) {
        assert_ne!(
            generation.number,
            self.generation.load(Ordering::Relaxed),
            "a generation becomes the table once"
        );
        self.generation.store(generation.number, Ordering::Release);
        self.recent_records.clear();
        self.former_members.store(Arc::new(former_members));
        self.show_principals(Arc::new(principals));
        self.show_namespaces(Arc::new(namespaces));
    }

    /// The namespaces as of the last applied batch of entries, or of the one that is being written.
    pub fn namespaces(&self) -> arc_swap::Guard<Arc<NamespaceMap>> {
        self.namespaces.load()
    }

    /// The principals and their grants, as of the last applied batch of entries, or of the one that is being written.
    pub fn principals(&self) -> arc_swap::Guard<Arc<Principals>> {
        self.principals.load()
    }

    /// Waits until `are_so` holds for the principals.
    pub async fn until_principals(&self, are_so: impl Fn(&Principals) -> bool) {
        until(&self.principals_changed, || are_so(&self.principals())).await;
    }

    /// Waits until `are_so` holds for the namespaces.
    pub async fn until_namespaces(&self, are_so: impl Fn(&NamespaceMap) -> bool) {
        until(&self.namespaces_changed, || are_so(&self.namespaces())).await;
    }

    /// The records of sections in memory.
    pub fn recent_records(&self) -> &Arc<RecentRecords> {
        &self.recent_records
    }

    /// Reads the ledger. May read the disk: blocks.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn ledger(&self) -> Result<Ledger, StoreError> {
        self.read_now(Generation::read_ledger)
    }

    /// Whether the cluster was founded: its first namespaces were created, or none were wanted. Reads on a thread for
    /// blocking work.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub async fn is_founded(&self) -> Result<bool, StoreError> {
        let next_id = |generation: &Generation| {
            let key = next_namespace_key(&generation.prefix());
            generation.db.get::<NamespaceId>(Family::Applied, &key)
        };
        let reading = self.on_thread(&self.readers, move |view| view.read_now(next_id));
        Ok(reading.await?.is_some())
    }

    /// Reads the records of sections as [`AppliedView::sections`] does, on a thread for blocking work.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or a record is damaged.
    pub async fn read_sections(
        &self, ids: Vec<SectionId>,
    ) -> Result<Vec<SectionRecord>, StoreError> {
        let reading = self.on_thread(&self.readers, move |view| {
            (view.before_read)();
            view.sections(&ids)
        });
        reading.await
    }

    /// Reads a section's record; the default if there is none. May read the disk: blocks.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn section(&self, id: &SectionId) -> Result<SectionRecord, StoreError> {
        let records = self.sections(std::slice::from_ref(id))?;
        Ok(records.into_iter().next().unwrap_or_default())
    }

    /// Reads the records of sections, in their order; the default for a section that has none. May read the disk:
    /// blocks.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or a record is damaged.
    pub fn sections(&self, ids: &[SectionId]) -> Result<Vec<SectionRecord>, StoreError> {
        self.read_now(|generation| {
            let prefix = generation.prefix();
            let keys: Vec<Vec<u8>> = ids.iter().map(|id| section_key(&prefix, id)).collect();
            let records = self.db.get_many(Family::Applied, &keys)?;
            Ok(records.into_iter().map(Option::unwrap_or_default).collect())
        })
    }
}

/// Waits until `is_so` holds. It is looked at again whenever something `changed`.
async fn until(changed: &Notify, is_so: impl Fn() -> bool) {
    loop {
        let notified = changed.notified();
        tokio::pin!(notified);
        // Before the look, so that no change after it is missed.
        notified.as_mut().enable();
        if is_so() {
            return;
        }
        notified.await;
    }
}

#[cfg(test)]
impl AppliedView {
    /// Removes the id of the cluster from the table: as a release without ids left it.
    pub(crate) fn remove_cluster_id(&self) {
        let key = crate::storage::layout::cluster_id_key(&self.generation().prefix());
        let mut batch = rocksdb::WriteBatch::default();
        batch.delete_cf(self.db.family(Family::Applied).expect("a family"), key);
        self.db.write(batch, true).expect("written");
    }

    /// Damages a section's record, so that reading it fails.
    pub(crate) fn damage(&self, id: &SectionId) {
        let key = section_key(&self.generation().prefix(), id);
        let mut batch = rocksdb::WriteBatch::default();
        let applied = self.db.family(Family::Applied).expect("a family");
        batch.put_cf(applied, key, b"damaged");
        self.db.write(batch, false).expect("written");
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::{
        clock::BootClock,
        storage::{AppliedTable, DiskSpace, StoreOptions},
    };

    const MB: u64 = 1 << 20;

    #[test]
    fn a_low_voter_forbids_new_sections_of_its_set_and_the_low_disk_of_this_node_those_of_all() {
        let dir = TempDir::new().unwrap();
        let free_mb = Arc::new(Mutex::new(50_000));
        let told = free_mb.clone();
        let options = StoreOptions {
            measure_disk: Arc::new(move |_| {
                Ok(DiskSpace { free_bytes: *told.lock() * MB, size_bytes: 100_000 * MB })
            }),
            disk_reserve_bytes: 100 * MB,
            ..StoreOptions::new(Arc::new(BootClock))
        };
        let store = Store::open(dir.path(), "test", 1, options).unwrap();
        let [first, second] = [1, 2].map(|set| AppliedTable::open(&store, set).unwrap().view());
        let voter = LowDisk { free_mb: 7, reserve_mb: 8, follower: Some(3) };
        first.clone().note_low_voter(Some(voter));
        let refusals = || [&first, &second].map(AppliedView::limiting_disk);
        assert_eq!(refusals(), [Some(voter), None]);
        assert_eq!(store.free_space().low(), None, "this disk has room");
        *free_mb.lock() = 9;
        store.free_space().measure().unwrap();
        let own = LowDisk { free_mb: 9, reserve_mb: 100, follower: None };
        assert_eq!(refusals(), [Some(own); 2], "its own disk comes first");
        *free_mb.lock() = 50_000;
        store.free_space().measure().unwrap();
        first.note_low_voter(None);
        assert_eq!(refusals(), [None; 2]);
    }
}
