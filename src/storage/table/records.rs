//! The records of a change of a table until they are written: of one kind, and those of namespaces.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    ops::Bound,
    sync::Arc,
};

use rocksdb::{Direction::Forward, IteratorMode, WriteBatch};
use serde::{Serialize, de::DeserializeOwned};

use super::generation::Namespaces;
use crate::{
    sequence::{ClusterId, Namespace, NamespaceId, NamespaceTotals, Tombstone},
    storage::{
        codec,
        database::Database,
        error::StoreError,
        layout::{
            Family, cluster_id_key, namespace_key, namespace_sections_range, next_namespace_key,
            reclaim_key, tombstone_key, totals_key,
        },
    },
};

/// Changed records, by their full keys.
pub struct Records<V> {
    db: Arc<Database>,
    /// `None` for one that is removed.
    changed: BTreeMap<Vec<u8>, Option<V>>,
    /// Ranges of keys whose stored records are removed: where each begins, and its exclusive end.
    removed: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl<V: Clone + Serialize + DeserializeOwned> Records<V> {
    /// No change.
    pub fn new(db: &Arc<Database>) -> Self {
        Records { db: db.clone(), changed: BTreeMap::new(), removed: BTreeMap::new() }
    }

    /// The record under a key, if there is one.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn find(&self, key: &[u8]) -> Result<Option<V>, StoreError> {
        if let Some(changed) = self.changed.get(key) {
            return Ok(changed.clone());
        }
        match self.is_removed(key) {
            true => Ok(None),
            false => self.db.get(Family::Applied, key),
        }
    }

    /// The keys of the records in a range, which are few; its end is exclusive.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub fn keys(&self, (from, end): &(Vec<u8>, Vec<u8>)) -> Result<BTreeSet<Vec<u8>>, StoreError> {
        let mut keys = BTreeSet::new();
        for record in self.db.records(Family::Applied, IteratorMode::From(from, Forward))? {
            let (key, _) = record?;
            if *key >= **end {
                break;
            }
            if !self.is_removed(&key) {
                keys.insert(key.into_vec());
            }
        }
        for (key, changed) in self.changed.range(from.clone()..end.clone()) {
            match changed {
                Some(_) => keys.insert(key.clone()),
                None => keys.remove(key),
            };
        }
        Ok(keys)
    }

    /// True if no stored record under `key` counts.
    fn is_removed(&self, key: &[u8]) -> bool {
        let begin_before = (Bound::Unbounded, Bound::Included(key));
        let last = self.removed.range::<[u8], _>(begin_before).next_back();
        last.is_some_and(|(_, end)| key < &end[..])
    }

    /// Writes the record under a key, or removes it.
    pub fn put(&mut self, key: Vec<u8>, record: Option<V>) {
        self.changed.insert(key, record);
    }

    /// Removes all records with keys in a range; its end is exclusive. Ranges with the same beginning are one.
    pub fn remove_range(&mut self, (from, end): (Vec<u8>, Vec<u8>)) {
        self.changed.retain(|key, _| *key < from || *key >= end);
        let last = self.removed.entry(from).or_default();
        *last = end.max(std::mem::take(last));
    }

    /// Moves all changes into `batch`.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if a record is too large.
    pub fn write(&mut self, batch: &mut WriteBatch) -> Result<(), StoreError> {
        let applied = self.db.family(Family::Applied)?;
        // Before the records: one may have been written since its range was removed.
        for (from, end) in std::mem::take(&mut self.removed) {
            batch.delete_range_cf(applied, from, end);
        }
        for (key, record) in std::mem::take(&mut self.changed) {
            match record {
                Some(record) => batch.put_cf(applied, key, codec::encode_record(&record)?),
                None => batch.delete_cf(applied, key),
            }
        }
        Ok(())
    }
}

// What a change does to namespaces: the namespaces themselves, their totals, their tombstones, the next id. And to the
// id of the cluster.
//
// Invariant: the records of a namespace that is removed go in the same write, by a range, however many they are.

/// The changed records of namespaces, under one prefix.
pub struct NamespaceRecords {
    db: Arc<Database>,
    prefix: Vec<u8>,
    /// All namespaces with the change.
    namespaces: Arc<Namespaces>,
    /// The namespaces that were written: true, or removed: false.
    changed: BTreeMap<NamespaceId, bool>,
    /// The removed namespaces that had sections.
    with_sections: Vec<NamespaceId>,
    next_id: Option<NamespaceId>,
    cluster_id: Option<ClusterId>,
    /// Totals that were read: as they were, and as they are now.
    totals: BTreeMap<NamespaceId, (NamespaceTotals, NamespaceTotals)>,
    tombstones: BTreeMap<String, Option<Tombstone>>,
}

impl NamespaceRecords {
    /// No change of the records with this prefix.
    pub fn new(db: Arc<Database>, prefix: Vec<u8>, namespaces: Arc<Namespaces>) -> Self {
        NamespaceRecords {
            db,
            prefix,
            namespaces,
            changed: BTreeMap::new(),
            with_sections: Vec::new(),
            next_id: None,
            cluster_id: None,
            totals: BTreeMap::new(),
            tombstones: BTreeMap::new(),
        }
    }

    /// The namespaces with this change.
    pub fn namespaces(&self) -> &Arc<Namespaces> {
        &self.namespaces
    }

    /// The changed tombstones: `None` for one that is removed.
    pub fn tombstones(&self) -> &BTreeMap<String, Option<Tombstone>> {
        &self.tombstones
    }

    /// True if a namespace with sections is removed.
    pub fn removes_sections(&self) -> bool {
        !self.with_sections.is_empty()
    }

    /// Writes a namespace.
    pub fn put(&mut self, namespace: Namespace) {
        self.changed.insert(namespace.id, true);
        Arc::make_mut(&mut self.namespaces).put(namespace);
    }

    /// Removes a namespace with its totals and all its sections. No section of it may be written any more.
    ///
    /// # Errors
    /// [`StoreError`] if the totals cannot be read.
    pub fn remove(&mut self, id: NamespaceId) -> Result<(), StoreError> {
        if self.totals(id)?.sections > 0 {
            self.with_sections.push(id);
        }
        self.totals.remove(&id);
        self.changed.insert(id, false);
        Arc::make_mut(&mut self.namespaces).remove(id);
        Ok(())
    }

    /// The id of the next namespace, if the cluster was founded.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub fn next_id(&self) -> Result<Option<NamespaceId>, StoreError> {
        match self.next_id {
            Some(id) => Ok(Some(id)),
            None => (self.db).get(Family::Applied, &next_namespace_key(&self.prefix)),
        }
    }

    /// Writes the id of the next namespace.
    pub fn put_next_id(&mut self, id: NamespaceId) {
        self.next_id = Some(id);
    }

    /// The id of the cluster, if it has one.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub fn cluster_id(&self) -> Result<Option<ClusterId>, StoreError> {
        match self.cluster_id {
            Some(id) => Ok(Some(id)),
            None => (self.db).get(Family::Applied, &cluster_id_key(&self.prefix)),
        }
    }

    /// Writes the id of the cluster.
    pub fn put_cluster_id(&mut self, id: ClusterId) {
        self.cluster_id = Some(id);
    }

    /// The id of the cluster, if this change gives it one that is not written yet.
    pub fn new_cluster_id(&self) -> Option<ClusterId> {
        self.cluster_id
    }

    /// The totals of a namespace, to be changed. They are read once in a change.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn totals(&mut self, id: NamespaceId) -> Result<&mut NamespaceTotals, StoreError> {
        Ok(match self.totals.entry(id) {
            Entry::Occupied(known) => &mut known.into_mut().1,
            Entry::Vacant(unknown) => {
                let key = totals_key(&self.prefix, id);
                let read: NamespaceTotals = self.db.get(Family::Applied, &key)?.unwrap_or_default();
                &mut unknown.insert((read, read)).1
            }
        })
    }

    /// The tombstone under a name.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub fn tombstone(&self, name: &str) -> Result<Option<Tombstone>, StoreError> {
        match self.tombstones.get(name) {
            Some(changed) => Ok(*changed),
            None => (self.db).get(Family::Applied, &tombstone_key(&self.prefix, name)),
        }
    }

    /// Writes a tombstone, or removes it.
    pub fn put_tombstone(&mut self, name: &str, tombstone: Option<Tombstone>) {
        self.tombstones.insert(name.to_owned(), tombstone);
    }

    /// Adds the changed records to `batch`, before any section is added to it.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if a record is too large.
    pub fn write(&mut self, batch: &mut WriteBatch) -> Result<(), StoreError> {
        let applied = self.db.family(Family::Applied)?;
        for id in std::mem::take(&mut self.with_sections) {
            let (from, to) = namespace_sections_range(&self.prefix, id);
            batch.delete_range_cf(applied, from, to);
            batch.put_cf(applied, reclaim_key(&self.prefix, id), []);
        }
        for (id, exists) in std::mem::take(&mut self.changed) {
            let key = namespace_key(&self.prefix, id);
            match self.namespaces.by_id(id).filter(|_| exists) {
                Some(namespace) => batch.put_cf(applied, key, codec::encode_record(namespace)?),
                None => {
                    batch.delete_cf(applied, key);
                    batch.delete_cf(applied, totals_key(&self.prefix, id));
                }
            }
        }
        if let Some(id) = self.next_id.take() {
            let key = next_namespace_key(&self.prefix);
            batch.put_cf(applied, key, codec::encode_record(&id)?);
        }
        if let Some(id) = self.cluster_id.take() {
            let key = cluster_id_key(&self.prefix);
            batch.put_cf(applied, key, codec::encode_record(&id)?);
        }
        for (id, (was, now)) in std::mem::take(&mut self.totals) {
            if was != now {
                let key = totals_key(&self.prefix, id);
                batch.put_cf(applied, key, codec::encode_record(&now)?);
            }
        }
        for (name, tombstone) in std::mem::take(&mut self.tombstones) {
            let key = tombstone_key(&self.prefix, &name);
            match tombstone {
                Some(tombstone) => batch.put_cf(applied, key, codec::encode_record(&tombstone)?),
                None => batch.delete_cf(applied, key),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::{
        clock::BootClock,
        storage::{AppliedTable, Store, StoreOptions},
    };

    #[test]
    fn what_a_range_removes_is_gone_at_once_and_what_is_written_afterwards_stays() {
        let dir = TempDir::new().unwrap();
        let store = Store::open(dir.path(), "test", 1, StoreOptions::new(Arc::new(BootClock)));
        let table = AppliedTable::open(&store.unwrap(), 1).unwrap();
        let db = table.view().db().clone();
        let write = |records: &mut Records<u64>| {
            let mut batch = WriteBatch::default();
            records.write(&mut batch).unwrap();
            db.write(batch, false).unwrap();
        };
        let key = |last: u8| vec![9, last];
        let mut records = Records::new(&db);
        for last in 1..=5 {
            records.put(key(last), Some(u64::from(last)));
        }
        write(&mut records);
        records.put(key(2), Some(20));
        for end in [2, 4, 3] {
            records.remove_range((key(0), key(end)));
        }
        records.put(key(3), Some(30));
        records.put(key(5), None);
        let found =
            |records: &Records<u64>| [1, 2, 3, 4, 5].map(|last| records.find(&key(last)).unwrap());
        let expected = [None, None, Some(30), Some(4), None];
        for _ in 0..2 {
            assert_eq!(found(&records), expected);
            assert_eq!(records.keys(&(key(1), key(9))).unwrap(), [key(3), key(4)].into());
            assert_eq!(records.keys(&(key(4), key(5))).unwrap(), [key(4)].into());
            write(&mut records);
        }
    }
}
