//! The records of one generation of a set's table.

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

/// The records of one generation of a table.
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

    /// The database that holds it.
    pub fn db(&self) -> &Arc<Database> {
        &self.db
    }

    /// Whose table it is of.
    pub fn set(&self) -> SetId {
        self.set
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What the keys of its records start with.
    pub fn prefix(&self) -> Vec<u8> {
        layout::generation_prefix(self.set, self.number)
    }

    /// From where to where, exclusive, its records lie.
    pub fn range(&self) -> (Vec<u8>, Vec<u8>) {
        layout::generation_range(self.set, self.number)
    }

    /// Its namespaces.
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

    /// Removes all its records.
    pub fn remove(&self) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        let (from, to) = self.range();
        batch.delete_range_cf(self.db.family(Family::Applied)?, from, to);
        self.db.write(batch, false)
    }
}
