//! What a change does to namespaces: the namespaces themselves, their totals, their tombstones, the next id. And to the
//! id of the cluster.
//!
//! Invariant: the records of a namespace that is removed go in the same write, by a range, however many they are.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use rocksdb::WriteBatch;

use super::namespaces::Namespaces;
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
