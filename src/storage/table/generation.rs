//! One generation of a table.
//!
//! The keys of a table's records carry a generation, so that the records of two tables can lie side by
//! side: those of the table in use, and those of a snapshot that arrives.

use std::sync::Arc;

use rocksdb::{Direction, IteratorMode, ReadOptions, WriteBatch};

use super::namespaces::Namespaces;
use crate::{
    sequence::{ClusterId, SetId},
    storage::{
        database::{Database, KeyValue},
        error::StoreError,
        layout::{self, Family},
    },
};

/// The records of one generation of a set's table.
#[derive(Clone)]
pub struct Generation {
    db: Arc<Database>,
    set: SetId,
    number: u32,
}

impl Generation {
    /// Generation `number` of the table of `set`.
    pub fn new(db: &Arc<Database>, set: SetId, number: u32) -> Self {
        Generation { db: db.clone(), set, number }
    }

    /// The database that holds the records.
    pub fn db(&self) -> &Arc<Database> {
        &self.db
    }

    /// The set whose table it is.
    pub fn set(&self) -> SetId {
        self.set
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
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
        let from = layout::namespaces_prefix(&self.prefix());
        let mut namespaces = Namespaces::default();
        let mode = IteratorMode::From(&from, Direction::Forward);
        for record in self.db.records(Family::Applied, mode)? {
            let (key, value) = record?;
            if !key.starts_with(&from) {
                break;
            }
            namespaces.put(self.db.decode(Family::Applied, &key, &value)?);
        }
        Ok(namespaces)
    }

    /// Reads the id of the cluster.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn read_cluster_id(&self) -> Result<Option<ClusterId>, StoreError> {
        self.db.get(Family::Applied, &layout::cluster_id_key(&self.prefix()))
    }

    /// The records from one full key on, up to another one, which is not among them. They are as they were when this was
    /// called.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails, also as an item.
    pub fn records(
        &self, from: &[u8], to: Vec<u8>,
    ) -> Result<impl Iterator<Item = Result<KeyValue, StoreError>>, StoreError> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(to);
        // Blocks that are read once must not evict blocks that are read often.
        options.fill_cache(false);
        let mode = IteratorMode::From(from, Direction::Forward);
        let family = self.db.family(Family::Applied)?;
        let records = self.db.db.iterator_cf_opt(family, options, mode);
        Ok(records.map(|record| record.map_err(|error| self.db.failed(&error))))
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
