//! One generation of a table, how far it is, and the namespaces of a set.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::BuildHasher,
    sync::Arc,
};

use hashbrown::{DefaultHashBuilder, HashTable};
use rocksdb::WriteBatch;
use serde::{Deserialize, Serialize};

use crate::{
    metrics::{CountsGuard, Metrics},
    sequence::{
        ClusterId, Ledger, Namespace, NamespaceId, NodeId, PrincipalKey, PrincipalRecord,
        Principals, SetId,
    },
    storage::{
        database::{Database, KeyValue},
        error::StoreError,
        layout::{self, Family, meta_key},
        raft_types::{LogId, StoredMembership},
        store::Store,
    },
};

// One generation of a table.
//
// The keys of a table's records carry a generation, so that the records of two tables can lie side by
// side: those of the table in use, and those of a snapshot that arrives.

/// The records of one generation of a set's table.
#[derive(Clone)]
pub struct Generation {
    /// The database that holds the records.
    pub(in crate::storage) db: Arc<Database>,
    /// The set whose table it is.
    pub(in crate::storage) set: SetId,
    /// Its number.
    pub(in crate::storage) number: u32,
}

impl Generation {
    /// Generation `number` of the table of `set`.
    pub fn new(db: &Arc<Database>, set: SetId, number: u32) -> Self {
        Generation { db: db.clone(), set, number }
    }

    /// The prefix of the keys of its records.
    pub fn prefix(&self) -> Vec<u8> {
        layout::generation_prefix(self.set, self.number)
    }

    /// The range of the keys of its records; its end is exclusive.
    pub fn range(&self) -> (Vec<u8>, Vec<u8>) {
        layout::generation_range(self.set, self.number)
    }

    /// Reads its namespaces.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or a namespace is damaged.
    pub fn read_namespaces(&self) -> Result<Namespaces, StoreError> {
        let (from, to) = layout::kind_range(&self.prefix(), b'n');
        let mut namespaces = Namespaces::default();
        for record in self.records(&from, to)? {
            let (key, value) = record?;
            namespaces.put(self.db.decode(Family::Applied, &key, &value)?);
        }
        Ok(namespaces)
    }

    /// Reads the ledger; the default if nothing was written to it.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn read_ledger(&self) -> Result<Ledger, StoreError> {
        let key = layout::ledger_key(&self.prefix());
        Ok(self.db.get(Family::Applied, &key)?.unwrap_or_default())
    }

    /// Reads the id of the cluster.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn read_cluster_id(&self) -> Result<Option<ClusterId>, StoreError> {
        self.db.get(Family::Applied, &layout::cluster_id_key(&self.prefix()))
    }

    /// Reads who may do what.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or a record is damaged.
    pub fn read_principals(&self) -> Result<Principals, StoreError> {
        let (from, to) = layout::kind_range(&self.prefix(), b'a');
        let principals = self.records(&from, to)?.map(|record| {
            let (key, value) = record?;
            self.db.decode::<StoredPrincipal>(Family::Applied, &key, &value)
        });
        let version_key = layout::principals_version_key(&self.prefix());
        let version = self.db.get(Family::Applied, &version_key)?.unwrap_or(0);
        Ok(Principals::new(principals.collect::<Result<Vec<_>, _>>()?, version))
    }

    /// Reads which nodes were members once, and were removed.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or a record is damaged.
    pub fn read_former_members(&self) -> Result<BTreeSet<NodeId>, StoreError> {
        let (from, to) = layout::kind_range(&self.prefix(), b'm');
        let nodes = self.records(&from, to)?.map(|record| {
            let (key, value) = record?;
            self.db.decode::<()>(Family::Applied, &key, &value)?;
            match key[from.len()..].try_into() {
                Ok(node) => Ok(NodeId::from_be_bytes(node)),
                Err(_) => Err(self.db.damaged(Family::Applied, &key, "it names no node")),
            }
        });
        nodes.collect()
    }

    /// The records from one full key on, up to another one, as [`Database::records_between`] gives them.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails, also as an item.
    pub fn records(
        &self, from: &[u8], to: Vec<u8>,
    ) -> Result<impl Iterator<Item = Result<KeyValue, StoreError>>, StoreError> {
        self.db.records_between(Family::Applied, from, to)
    }

    /// Removes its records. The removal is not synced.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub fn remove(&self) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        let (from, to) = self.range();
        batch.delete_range_cf(self.db.family(Family::Applied)?, from, to);
        self.db.write(batch, false)
    }
}

/// A principal as it is stored: its key in the table cannot be taken apart again.
pub type StoredPrincipal = (PrincipalKey, PrincipalRecord);

// How far a table is.

/// How far a table is, as it is stored beside the table's records.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AppliedMeta {
    /// The generation in use.
    pub(in crate::storage) generation: u32,
    /// The last entry that the table holds.
    pub last_applied: Option<LogId>,
    /// The last membership that the table holds.
    pub membership: StoredMembership,
}

impl AppliedMeta {
    /// Reads that of the table of `set`; `None` if there is no table.
    pub(in crate::storage) fn read(db: &Database, set: SetId) -> Result<Option<Self>, StoreError> {
        db.get(Family::Applied, &meta_key(set))
    }
}

/// Who may do what, as the table of `set` has it. `None` if the table is of no cluster, or its founding has not come to its
/// end: the id of the cluster is written last.
///
/// # Errors
/// [`StoreError`] if the database fails or a record is damaged.
pub fn founded_principals(store: &Store, set: SetId) -> Result<Option<Principals>, StoreError> {
    let meta = AppliedMeta::read(&store.db, set)?.unwrap_or_default();
    let generation = Generation::new(&store.db, set, meta.generation);
    match generation.read_cluster_id()? {
        Some(_) => Ok(Some(generation.read_principals()?)),
        None => Ok(None),
    }
}

// All namespaces of a set, in memory.
//
// A change makes a new version; readers keep the version that they hold. Versions share their unchanged
// parts: a change copies one part of the names and one of the ids, however many namespaces there are.

/// How many parts hold the names.
const PARTS: usize = 128;
/// How many consecutive ids one part holds.
const IDS_PER_PART: u32 = 128;

/// One version of all namespaces of a set.
#[derive(Debug, Clone)]
pub struct Namespaces {
    /// Namespaces by id, in parts: part n holds the ids from n * [`IDS_PER_PART`] on.
    by_id: BTreeMap<u32, Arc<BTreeMap<NamespaceId, Arc<Namespace>>>>,
    /// Namespaces by name, in [`PARTS`] parts by the name's hash.
    by_name: Vec<Arc<HashTable<Arc<Namespace>>>>,
    hasher: DefaultHashBuilder,
}

impl Default for Namespaces {
    fn default() -> Self {
        Namespaces {
            by_id: BTreeMap::new(),
            by_name: vec![Arc::default(); PARTS],
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl Namespaces {
    /// The namespace with this id.
    pub fn by_id(&self, id: NamespaceId) -> Option<&Namespace> {
        let namespace = self.by_id.get(&(id.0 / IDS_PER_PART))?.get(&id)?;
        Some(namespace)
    }

    /// The namespace with this name.
    pub fn by_name(&self, name: &str) -> Option<&Namespace> {
        let (hash, part) = self.find(name);
        let namespace = self.by_name[part].find(hash, |known| known.config.name == name)?;
        Some(namespace)
    }

    /// What `metrics` count for the namespace with this id. Of one that is deleted it is what all without a place have
    /// together.
    pub fn counts_of(&self, id: NamespaceId, metrics: &Metrics) -> CountsGuard {
        match self.by_id(id) {
            Some(known) => metrics.namespaces().of(id.0, &known.config.name),
            None => metrics.namespaces().others(),
        }
    }

    /// All namespaces, in the order of their creation.
    pub fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.by_id.values().flat_map(|part| part.values().map(|namespace| &**namespace))
    }

    /// How many namespaces there are.
    pub fn count(&self) -> usize {
        self.by_id.values().map(|part| part.len()).sum()
    }

    /// Adds a namespace, or replaces the one with the same id.
    pub(in crate::storage) fn put(&mut self, namespace: Namespace) {
        // Entries change it on every replica: in a release build none ends here.
        debug_assert!(
            self.by_id(namespace.id).is_none_or(|known| known.config.name == namespace.config.name),
            "a namespace keeps its name"
        );
        let namespace = Arc::new(namespace);
        let (hash, part) = self.find(&namespace.config.name);
        let names = Arc::make_mut(&mut self.by_name[part]);
        match names.find_mut(hash, |known| known.id == namespace.id) {
            Some(known) => *known = namespace.clone(),
            None => {
                let hasher = &self.hasher;
                names.insert_unique(hash, namespace.clone(), |known| {
                    hasher.hash_one(known.config.name.as_str())
                });
            }
        }
        let ids = self.by_id.entry(namespace.id.0 / IDS_PER_PART).or_default();
        Arc::make_mut(ids).insert(namespace.id, namespace);
    }

    /// Removes the namespace with this id, if there is one.
    pub(in crate::storage) fn remove(&mut self, id: NamespaceId) {
        let part = id.0 / IDS_PER_PART;
        let Some(ids) = self.by_id.get_mut(&part) else {
            return;
        };
        let Some(namespace) = Arc::make_mut(ids).remove(&id) else {
            return;
        };
        if ids.is_empty() {
            self.by_id.remove(&part);
        }
        let (hash, part) = self.find(&namespace.config.name);
        let names = Arc::make_mut(&mut self.by_name[part]);
        if let Ok(known) = names.find_entry(hash, |known| known.id == id) {
            known.remove();
        }
    }

    /// A name's hash, and which part holds the name.
    fn find(&self, name: &str) -> (u64, usize) {
        let hash = self.hasher.hash_one(name);
        // The middle bits: the hash tables inside the parts use the lowest and the highest.
        (hash, (hash >> 32) as usize % PARTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::NamespaceConfig;

    fn namespace(id: u32, step: u64) -> Namespace {
        Namespace::new(
            NamespaceId(id),
            NamespaceConfig { step, ..NamespaceConfig::new(format!("n{id}")) },
        )
    }

    #[test]
    fn a_change_leaves_older_versions_as_they_were_and_copies_one_part() {
        let mut versions = vec![Namespaces::default()];
        for id in 1..=1_000 {
            let mut next = versions[versions.len() - 1].clone();
            next.put(namespace(id, 1));
            versions.push(next);
        }
        let mut changed = versions[1_000].clone();
        changed.put(namespace(7, 2));
        for (count, version) in versions.iter().enumerate() {
            assert_eq!(version.count(), count);
            let ids: Vec<u32> = version.iter().map(|namespace| namespace.id.0).collect();
            assert_eq!(ids, (1..=count as u32).collect::<Vec<_>>());
            assert!(version.by_name(&format!("n{}", count + 1)).is_none());
        }
        let step = |version: &Namespaces| {
            let (by_name, by_id) = (version.by_name("n7"), version.by_id(NamespaceId(7)));
            assert_eq!(by_name, by_id);
            by_name.map(|namespace| namespace.config.step)
        };
        assert_eq!(step(&versions[6]), None);
        assert_eq!((step(&versions[1_000]), step(&changed)), (Some(1), Some(2)));
        assert_eq!(changed.count(), 1_000);

        let (before, after) = (&versions[1_000], &changed);
        let parts = before.by_name.iter().zip(&after.by_name);
        let copied = parts.filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        let ids = before.by_id.values().zip(after.by_id.values());
        let copied_ids = ids.filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert_eq!((copied, copied_ids), (1, 1), "how many parts were copied");
    }

    #[test]
    fn a_namespace_that_is_removed_is_found_under_neither_id_nor_name_and_its_name_can_be_taken_again()
     {
        let mut namespaces = Namespaces::default();
        (1..=300).for_each(|id| namespaces.put(namespace(id, 1)));
        let before = namespaces.clone();
        for id in 1..=300 {
            namespaces.remove(NamespaceId(id));
            namespaces.remove(NamespaceId(id));
            assert!(namespaces.by_id(NamespaceId(id)).is_none());
            assert!(namespaces.by_name(&format!("n{id}")).is_none());
            assert_eq!(namespaces.count(), 300 - id as usize);
        }
        assert_eq!(before.count(), 300);
        let mut again = namespace(7, 1);
        again.id = NamespaceId(301);
        namespaces.put(again);
        let found = namespaces.by_name("n7").map(|found| found.id);
        assert_eq!(found, Some(NamespaceId(301)));
    }
}
