//! One generation of a table.
//!
//! The keys of a table's records carry a generation, so that the records of two tables can lie side by
//! side: those of the table in use, and those of a snapshot that arrives.

use std::sync::Arc;

use rocksdb::{Direction, IteratorMode, WriteBatch};

use super::namespaces::Namespaces;
use crate::{
    sequence::SetId,
    storage::{
        database::Database,
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
        Generation {
            db: db.clone(),
            set,
            number,
        }
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
