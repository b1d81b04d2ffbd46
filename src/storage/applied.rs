//! The applied table of one set: what the state machine has come to.
//!
//! Its records carry a generation. A snapshot arrives as another generation, beside the one in use,
//! and becomes the table in one atomic write. Invariant: a reader sees the table as it was after some
//! entry, never a part of two.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use arc_swap::ArcSwap;
use rocksdb::{Direction, IteratorMode, WriteBatch};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::{
    codec,
    database::{Database, Family},
    error::StoreError,
    namespaces::Namespaces,
    raft_types::{LogId, SnapshotMeta, StoredMembership},
    snapshot::{ArrivedSnapshot, OutgoingSnapshot, Records},
    store::Store,
    table_change::TableChange,
    work::Work,
};
use crate::sequence::{NamespaceId, SectionId, SectionKey, SectionRecord, SetId};

/// How many readers are at the disk at once: a slow one takes no more threads from the others' work.
const READERS_MAX: usize = 16;

/// How far the table is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AppliedMeta {
    pub(super) generation: u32,
    /// The last entry that it holds.
    pub last_applied: Option<LogId>,
    /// The last membership among them.
    pub membership: StoredMembership,
}

pub(super) fn meta_key(set: SetId) -> Vec<u8> {
    [set.to_be_bytes().as_slice(), &[0]].concat()
}

/// What all records of a generation start with.
pub(super) fn prefix(set: SetId, generation: u32) -> Vec<u8> {
    [
        set.to_be_bytes().as_slice(),
        &[1],
        &generation.to_be_bytes(),
    ]
    .concat()
}

/// From where to where, exclusive, all records of a generation lie.
pub(super) fn generation_range(set: SetId, generation: u32) -> (Vec<u8>, Vec<u8>) {
    (prefix(set, generation), prefix(set, generation + 1))
}

pub(super) fn namespace_key(prefix: &[u8], id: NamespaceId) -> Vec<u8> {
    [prefix, b"n", &id.0.to_be_bytes()].concat()
}

pub(super) fn section_key(prefix: &[u8], id: &SectionId) -> Vec<u8> {
    let namespace = id.namespace.0.to_be_bytes();
    match &id.key {
        SectionKey::Id(number) => [prefix, b"s", &namespace, b"i", &number.to_be_bytes()].concat(),
        SectionKey::Name(name) => [prefix, b"s", &namespace, b"b", name].concat(),
    }
}

/// The namespace of a section that stands under `key`, without its prefix.
pub(super) fn namespace_of_section(key: &[u8]) -> Option<NamespaceId> {
    let id = key.strip_prefix(b"s")?.first_chunk()?;
    Some(NamespaceId(u32::from_be_bytes(*id)))
}

/// Whether `set` has a table.
pub fn has_table(db: &Database, set: SetId) -> Result<bool, StoreError> {
    Ok(db
        .get::<AppliedMeta>(Family::Applied, &meta_key(set))?
        .is_some())
}

/// The last entry that the table of `set` holds.
pub fn last_applied(db: &Database, set: SetId) -> Result<Option<LogId>, StoreError> {
    let meta: Option<AppliedMeta> = db.get(Family::Applied, &meta_key(set))?;
    Ok(meta.and_then(|meta| meta.last_applied))
}

/// The table, for the state machine: the one who writes it.
pub struct AppliedTable {
    db: Arc<Database>,
    set: SetId,
    meta: AppliedMeta,
    view: AppliedView,
    work: Work,
}

/// The table, for reading, beside the state machine.
#[derive(Clone)]
pub struct AppliedView {
    db: Arc<Database>,
    set: SetId,
    generation: Arc<AtomicU32>,
    /// The greatest generation that a snapshot arrives as, or did.
    last_generation: Arc<AtomicU32>,
    namespaces: Arc<ArcSwap<Namespaces>>,
    work: Work,
    readers: Arc<Semaphore>,
}

impl AppliedView {
    pub(super) fn db(&self) -> &Arc<Database> {
        &self.db
    }

    pub(super) fn set(&self) -> SetId {
        self.set
    }

    /// A generation that has no records yet.
    pub(super) fn fresh_generation(&self) -> u32 {
        self.last_generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The namespaces.
    pub fn namespaces(&self) -> arc_swap::Guard<Arc<Namespaces>> {
        self.namespaces.load()
    }

    /// A section's record as [`AppliedView::section`] reads it, without blocking the caller's thread.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read_section(&self, id: SectionId) -> Result<SectionRecord, StoreError> {
        let failed = |why: String| StoreError::invalid(format!("the table was not read: {why}"));
        let reader = self.readers.clone().acquire_owned().await;
        let reader = reader.map_err(|error| failed(error.to_string()))?;
        let view = self.clone();
        let read = self.work.run(move || {
            // A caller that gives up leaves its thread at the disk: it counts until it is back.
            let _reader = reader;
            view.section(&id)
        });
        read.await.map_err(|error| failed(error.to_string()))?
    }

    /// A section's record; the default where there is none. Reads the disk where it must: blocks.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn section(&self, id: &SectionId) -> Result<SectionRecord, StoreError> {
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            let key = section_key(&prefix(self.set, generation), id);
            let record = self.db.get(Family::Applied, &key)?;
            // A snapshot may have replaced the table meanwhile.
            if self.generation.load(Ordering::Acquire) == generation {
                return Ok(record.unwrap_or_default());
            }
        }
    }
}

impl AppliedTable {
    /// Opens the table of `set`, and clears away a snapshot that was not installed to the end.
    pub fn open(store: &Arc<Store>, set: SetId) -> Result<Self, StoreError> {
        let db = store.db.clone();
        let meta: AppliedMeta = db.get(Family::Applied, &meta_key(set))?.unwrap_or_default();
        let mut batch = WriteBatch::default();
        let applied = db.family(Family::Applied)?;
        let first = prefix(set, 0);
        batch.delete_range_cf(applied, first, prefix(set, meta.generation));
        let end = [set.to_be_bytes().as_slice(), &[2]].concat();
        batch.delete_range_cf(applied, prefix(set, meta.generation + 1), end);
        db.write(batch, false)?;
        let namespaces = read_namespaces(&db, &prefix(set, meta.generation))?;
        let view = AppliedView {
            db: db.clone(),
            set,
            generation: Arc::new(AtomicU32::new(meta.generation)),
            last_generation: Arc::new(AtomicU32::new(meta.generation)),
            namespaces: Arc::new(ArcSwap::from_pointee(namespaces)),
            work: store.work(),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
        };
        Ok(AppliedTable {
            work: store.work(),
            db,
            set,
            meta,
            view,
        })
    }

    /// A view for readers.
    pub fn view(&self) -> AppliedView {
        self.view.clone()
    }

    /// How far it is.
    pub fn meta(&self) -> &AppliedMeta {
        &self.meta
    }

    /// Begins a change.
    pub fn change(&self) -> TableChange {
        let prefix = prefix(self.set, self.meta.generation);
        TableChange::new(self.db.clone(), prefix, self.view.namespaces.load_full())
    }

    /// Writes a change, and with it how far the table is then, at once. It need not be synced: the log
    /// is, and would be applied again.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn write(&mut self, mut change: TableChange, meta: AppliedMeta) -> Result<(), StoreError> {
        change.put(&meta_key(self.set), &meta)?;
        change.write()?;
        self.meta = meta;
        self.view.namespaces.store(change.namespaces().clone());
        Ok(())
    }

    /// A snapshot of the table as it is now, to be sent to a peer.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the membership is too large.
    pub async fn snapshot(&self) -> Result<OutgoingSnapshot, StoreError> {
        let meta = SnapshotMeta {
            last_log_id: self.meta.last_applied,
            last_membership: self.meta.membership.clone(),
        };
        let records = Records {
            db: self.db.clone(),
            set: self.set,
            generation: self.meta.generation,
        };
        OutgoingSnapshot::take(records, meta, self.work).await
    }

    /// Replaces the table by a snapshot. Blocks.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn install(&mut self, snapshot: ArrivedSnapshot) -> Result<(), StoreError> {
        let (covers, records) = snapshot.into_parts();
        let generation = records.generation();
        let namespaces = read_namespaces(&self.db, &prefix(self.set, generation))?;
        let meta = AppliedMeta {
            generation,
            last_applied: covers.last_log_id,
            membership: covers.last_membership,
        };
        let mut batch = WriteBatch::default();
        let applied = self.db.family(Family::Applied)?;
        batch.put_cf(applied, meta_key(self.set), codec::seal(&meta)?);
        self.db.write(batch, true)?;
        records.installed();
        let old = std::mem::replace(&mut self.meta, meta);
        // Readers must have the new table before the old one goes.
        self.view.generation.store(generation, Ordering::Release);
        self.view.namespaces.store(Arc::new(namespaces));
        remove_generation(&self.db, self.set, old.generation)
    }
}

/// Removes all records of a generation.
pub(super) fn remove_generation(
    db: &Database,
    set: SetId,
    generation: u32,
) -> Result<(), StoreError> {
    let mut batch = WriteBatch::default();
    let (from, to) = generation_range(set, generation);
    batch.delete_range_cf(db.family(Family::Applied)?, from, to);
    db.write(batch, false)
}

pub(super) fn read_namespaces(db: &Database, prefix: &[u8]) -> Result<Namespaces, StoreError> {
    let from = [prefix, b"n"].concat();
    let mut namespaces = Namespaces::default();
    let mode = IteratorMode::From(&from, Direction::Forward);
    for record in db.db.iterator_cf(db.family(Family::Applied)?, mode) {
        let (key, value) = record.map_err(|error| db.failed(&error))?;
        if !key.starts_with(&from) {
            break;
        }
        namespaces.put(db.unseal(Family::Applied, &key, &value)?);
    }
    Ok(namespaces)
}
