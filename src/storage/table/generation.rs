//! One generation of a table.
//!
//! The keys of a table's records carry a generation, so that the records of two tables can lie side by
//! side: those of the table in use, and those of a snapshot that arrives.

use std::{collections::BTreeSet, sync::Arc};

use rocksdb::WriteBatch;

use super::namespaces::NamespaceMap;
use crate::{
    sequence::{
        ClusterId, Ledger, Namespace, NodeId, PrincipalKey, PrincipalRecord, Principals, SetId,
    },
    storage::{
        database::{Database, KeyValue},
        error::StoreError,
        layout::{self, Family},
    },
};

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
    pub fn read_namespaces(&self) -> Result<NamespaceMap, StoreError> {
        let prefix = self.prefix();
        let (from, to) = layout::kind_range(&prefix, b'n');
        let mut namespaces = NamespaceMap::default();
        for record in self.records(&from, to)? {
            let (key, value) = record?;
            let namespace: Namespace = self.db.decode(Family::Applied, &key, &value)?;
            // `put` relies on ids that come once. Keys come once, so each must name the id of its record. A peer may have sent
            // both.
            if key[..] != layout::namespace_key(&prefix, namespace.id)[..] {
                let why = format!("it holds the namespace with id {}", namespace.id.0);
                return Err(self.db.damaged(Family::Applied, &key, why));
            }
            namespaces.put(namespace);
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

    /// Reads the principals.
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
