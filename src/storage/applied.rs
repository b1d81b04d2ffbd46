//! The applied table of one set: what the state machine has come to.
//!
//! Its records carry a generation. A snapshot is installed as the next generation, beside the one in
//! use, and becomes the table in one atomic write. Invariant: a reader sees the table as it was
//! after some entry, never a part of two.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use arc_swap::ArcSwap;
use rocksdb::{Direction, IteratorMode, ReadOptions, WriteBatch};
use serde::{Deserialize, Serialize};

use super::{
    codec,
    database::{Database, Family},
    error::StoreError,
    raft_types::{LogId, SnapshotMeta, StoredMembership},
    snapshot::{Shelf, SnapshotFile, SnapshotView},
    store::Store,
    work::Work,
};
use crate::{
    planted::{Bug, is_planted},
    sequence::{Namespace, NamespaceId, SectionId, SectionKey, SectionRecord, SetId, Table},
};

/// How many bytes of an arriving snapshot are written at once.
const INSTALL_BYTES: usize = 1 << 20;

/// How far the table is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AppliedMeta {
    generation: u32,
    /// The last entry that it holds.
    pub last_applied: Option<LogId>,
    /// The last membership among them.
    pub membership: StoredMembership,
}

/// All namespaces of a set.
#[derive(Debug, Clone, Default)]
pub struct Namespaces {
    by_id: BTreeMap<NamespaceId, Namespace>,
    ids: hashbrown::HashMap<String, NamespaceId>,
}

impl Namespaces {
    /// By its id.
    pub fn by_id(&self, id: NamespaceId) -> Option<&Namespace> {
        self.by_id.get(&id)
    }

    /// By its name.
    pub fn by_name(&self, name: &str) -> Option<&Namespace> {
        self.by_id.get(self.ids.get(name)?)
    }

    /// All, in the order of their creation.
    pub fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.by_id.values()
    }

    fn next_id(&self) -> NamespaceId {
        NamespaceId(self.by_id.last_key_value().map_or(1, |(id, _)| id.0 + 1))
    }

    fn put(&mut self, namespace: Namespace) {
        self.ids.insert(namespace.config.name.clone(), namespace.id);
        self.by_id.insert(namespace.id, namespace);
    }
}

fn meta_key(set: SetId) -> Vec<u8> {
    [set.to_be_bytes().as_slice(), &[0]].concat()
}

/// What all records of a generation start with.
fn prefix(set: SetId, generation: u32) -> Vec<u8> {
    [
        set.to_be_bytes().as_slice(),
        &[1],
        &generation.to_be_bytes(),
    ]
    .concat()
}

fn namespace_key(prefix: &[u8], id: NamespaceId) -> Vec<u8> {
    [prefix, b"n", &id.0.to_be_bytes()].concat()
}

fn section_key(prefix: &[u8], id: &SectionId) -> Vec<u8> {
    let namespace = id.namespace.0.to_be_bytes();
    match &id.key {
        SectionKey::Id(number) => [prefix, b"s", &namespace, b"i", &number.to_be_bytes()].concat(),
        SectionKey::Name(name) => [prefix, b"s", &namespace, b"b", name].concat(),
    }
}

/// Whether `set` has a table.
pub fn has_table(db: &Database, set: SetId) -> Result<bool, StoreError> {
    Ok(db
        .get::<AppliedMeta>(Family::Applied, &meta_key(set))?
        .is_some())
}

/// The table, for the state machine: the one who writes it.
pub struct AppliedTable {
    db: Arc<Database>,
    set: SetId,
    meta: AppliedMeta,
    view: AppliedView,
    shelf: Shelf,
    work: Work,
}

/// The table, for reading, beside the state machine.
#[derive(Clone)]
pub struct AppliedView {
    db: Arc<Database>,
    set: SetId,
    generation: Arc<AtomicU32>,
    namespaces: Arc<ArcSwap<Namespaces>>,
}

impl AppliedView {
    /// The namespaces.
    pub fn namespaces(&self) -> arc_swap::Guard<Arc<Namespaces>> {
        self.namespaces.load()
    }

    /// A section's record; the default where there is none. Reads the disk where it must.
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
            namespaces: Arc::new(ArcSwap::from_pointee(namespaces)),
        };
        Ok(AppliedTable {
            shelf: Shelf::open(store.dir(), set)?,
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
    pub fn change(&self) -> TableChange<'_> {
        TableChange {
            table: self,
            prefix: prefix(self.set, self.meta.generation),
            meta: self.meta.clone(),
            sections: HashMap::new(),
            namespaces: self.view.namespaces.load_full(),
            batch: WriteBatch::default(),
            failed: None,
        }
    }

    /// Completes a change that was written.
    pub fn changed(&mut self, written: Written) {
        self.meta = written.meta;
        self.view.namespaces.store(written.namespaces);
    }

    /// The current snapshot.
    pub fn current_snapshot(&self) -> Option<SnapshotFile> {
        self.shelf.current()
    }

    /// A view of the table as it is now, to write a snapshot from.
    pub async fn snapshot_view(&self) -> SnapshotView {
        let (set, shelf) = (self.set, self.shelf.clone());
        SnapshotView::take(self.db.clone(), self.work, move |view, db| {
            write_snapshot(view, db, set, &shelf)
        })
        .await
    }

    /// Replaces the table by a snapshot. Blocks.
    pub fn install(&mut self, snapshot: SnapshotFile) -> Result<(), StoreError> {
        let snapshot = self.shelf.adopt(snapshot)?;
        let generation = self.meta.generation + 1;
        let to = prefix(self.set, generation);
        let applied = self.db.family(Family::Applied)?;
        let mut batch = WriteBatch::default();
        snapshot.for_each(|key, value| {
            batch.put_cf(applied, [to.as_slice(), &key].concat(), value);
            if batch.size_in_bytes() >= INSTALL_BYTES {
                self.db.write(std::mem::take(&mut batch), false)?;
            }
            Ok(())
        })?;
        self.db.write(batch, false)?;
        let namespaces = read_namespaces(&self.db, &to)?;
        let meta = AppliedMeta {
            generation,
            last_applied: snapshot.meta().last_log_id,
            membership: snapshot.meta().last_membership.clone(),
        };
        let mut batch = WriteBatch::default();
        batch.put_cf(applied, meta_key(self.set), codec::seal(&meta)?);
        batch.delete_range_cf(applied, prefix(self.set, self.meta.generation), to);
        self.db.write(batch, true)?;
        self.meta = meta;
        self.view.generation.store(generation, Ordering::Release);
        self.view.namespaces.store(Arc::new(namespaces));
        self.shelf.put(snapshot);
        Ok(())
    }
}

fn read_namespaces(db: &Database, prefix: &[u8]) -> Result<Namespaces, StoreError> {
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

fn write_snapshot(
    view: &rocksdb::Snapshot<'_>,
    db: &Database,
    set: SetId,
    shelf: &Shelf,
) -> Result<SnapshotFile, StoreError> {
    let applied = db.family(Family::Applied)?;
    let key = meta_key(set);
    let meta: AppliedMeta = match view.get_cf(applied, &key).map_err(|e| db.failed(&e))? {
        Some(bytes) => db.unseal(Family::Applied, &key, &bytes)?,
        None => AppliedMeta::default(),
    };
    let from = prefix(set, meta.generation);
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound(prefix(set, meta.generation + 1));
    let mode = IteratorMode::From(&from, Direction::Forward);
    let records = view.iterator_cf_opt(applied, options, mode).map(|record| {
        let (key, value) = record.map_err(|error| db.failed(&error))?;
        Ok((key[from.len()..].into(), value))
    });
    let records = records.filter(|record: &Result<(Box<[u8]>, _), StoreError>| {
        let is_section = matches!(record, Ok((key, _)) if key.starts_with(b"s"));
        !(is_section && is_planted(Bug::CeilingMissingFromSnapshot))
    });
    let about = SnapshotMeta {
        last_log_id: meta.last_applied,
        last_membership: meta.membership,
    };
    let snapshot = shelf.write(about, records)?;
    shelf.put(snapshot.clone());
    Ok(snapshot)
}

/// Entries being applied: reads see what they wrote, nobody else does until it is written.
pub struct TableChange<'a> {
    table: &'a AppliedTable,
    prefix: Vec<u8>,
    /// How far the table will be.
    pub meta: AppliedMeta,
    sections: HashMap<SectionId, SectionRecord>,
    namespaces: Arc<Namespaces>,
    batch: WriteBatch,
    failed: Option<StoreError>,
}

/// A change that is written.
pub struct Written {
    meta: AppliedMeta,
    namespaces: Arc<Namespaces>,
}

impl TableChange<'_> {
    /// Writes all of it at once. It need not be synced: the log is, and would be applied again.
    pub fn write(mut self) -> Result<Written, StoreError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let db = &self.table.db;
        let applied = db.family(Family::Applied)?;
        for (id, record) in &self.sections {
            let key = section_key(&self.prefix, id);
            self.batch.put_cf(applied, key, codec::seal(record)?);
        }
        let key = meta_key(self.table.set);
        self.batch.put_cf(applied, key, codec::seal(&self.meta)?);
        db.write(self.batch, false)?;
        Ok(Written {
            meta: self.meta,
            namespaces: self.namespaces,
        })
    }

    fn put(&mut self, namespace: &Namespace) -> Result<(), StoreError> {
        let applied = self.table.db.family(Family::Applied)?;
        let key = namespace_key(&self.prefix, namespace.id);
        self.batch.put_cf(applied, key, codec::seal(namespace)?);
        Ok(())
    }
}

impl Table for TableChange<'_> {
    type Error = StoreError;

    fn section(&self, id: &SectionId) -> Result<SectionRecord, StoreError> {
        match self.sections.get(id) {
            Some(record) => Ok(*record),
            None => self.table.view.section(id),
        }
    }

    fn put_section(&mut self, id: &SectionId, record: SectionRecord) {
        self.sections.insert(id.clone(), record);
    }

    fn namespace(&self, id: NamespaceId) -> Option<&Namespace> {
        self.namespaces.by_id(id)
    }

    fn namespace_named(&self, name: &str) -> Option<&Namespace> {
        self.namespaces.by_name(name)
    }

    fn next_namespace_id(&self) -> NamespaceId {
        self.namespaces.next_id()
    }

    fn put_namespace(&mut self, namespace: Namespace) {
        if let Err(error) = self.put(&namespace) {
            self.failed.get_or_insert(error);
        }
        Arc::make_mut(&mut self.namespaces).put(namespace);
    }
}
