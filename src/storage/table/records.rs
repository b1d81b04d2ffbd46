//! The records of one kind of a change of a table, until they are written. Reads see the changed records before the stored
//! ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rocksdb::WriteBatch;
use serde::{Serialize, de::DeserializeOwned};

use crate::storage::{codec, database::Database, error::StoreError, layout::Family};

/// Changed records, by their full keys.
pub struct Records<V> {
    db: Arc<Database>,
    /// `None` for one that is removed.
    changed: BTreeMap<Vec<u8>, Option<V>>,
}

impl<V: Clone + Serialize + DeserializeOwned> Records<V> {
    /// No change.
    pub fn new(db: &Arc<Database>) -> Self {
        Records { db: db.clone(), changed: BTreeMap::new() }
    }

    /// The record under a key, if there is one.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails or the record is damaged.
    pub fn find(&self, key: &[u8]) -> Result<Option<V>, StoreError> {
        match self.changed.get(key) {
            Some(changed) => Ok(changed.clone()),
            None => self.db.get(Family::Applied, key),
        }
    }

    /// The keys of the records in a range, which are few; its end is exclusive.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails.
    pub fn keys(&self, (from, end): &(Vec<u8>, Vec<u8>)) -> Result<BTreeSet<Vec<u8>>, StoreError> {
        let mut keys = BTreeSet::new();
        for record in self.db.records_between(Family::Applied, from, end.clone())? {
            keys.insert(record?.0.into_vec());
        }
        for (key, changed) in self.changed.range(from.clone()..end.clone()) {
            match changed {
                Some(_) => keys.insert(key.clone()),
                None => keys.remove(key),
            };
        }
        Ok(keys)
    }

    /// Writes the record under a key, or removes it.
    pub fn put(&mut self, key: Vec<u8>, record: Option<V>) {
        self.changed.insert(key, record);
    }

    /// Removes all records with keys in a range; its end is exclusive. The stored ones go with `batch`: nobody may look for one
    /// before it is written.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the column family is missing.
    pub fn remove_range(
        &mut self, (from, end): (Vec<u8>, Vec<u8>), batch: &mut WriteBatch,
    ) -> Result<(), StoreError> {
        self.changed.retain(|key, _| *key < from || *key >= end);
        batch.delete_range_cf(self.db.family(Family::Applied)?, from, end);
        Ok(())
    }

    /// Moves all changes into `batch`.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if a record is too large.
    pub fn write(&mut self, batch: &mut WriteBatch) -> Result<(), StoreError> {
        let applied = self.db.family(Family::Applied)?;
        for (key, record) in std::mem::take(&mut self.changed) {
            match record {
                Some(record) => batch.put_cf(applied, key, codec::encode_record(&record)?),
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
    fn what_a_range_removes_is_gone_once_it_is_written_and_what_is_written_afterwards_stays() {
        let dir = TempDir::new().unwrap();
        let store = Store::open(dir.path(), "test", 1, StoreOptions::new(Arc::new(BootClock)));
        let table = AppliedTable::open(&store.unwrap(), 1).unwrap();
        let db = table.view().db().clone();
        let write = |records: &mut Records<u64>, mut batch: WriteBatch| {
            records.write(&mut batch).unwrap();
            db.write(batch, false).unwrap();
        };
        let key = |last: u8| vec![9, last];
        let mut records = Records::new(&db);
        for last in 1..=5 {
            records.put(key(last), Some(u64::from(last)));
        }
        write(&mut records, WriteBatch::default());
        records.put(key(2), Some(20));
        let mut batch = WriteBatch::default();
        for end in [2, 4, 3] {
            records.remove_range((key(0), key(end)), &mut batch).unwrap();
        }
        records.put(key(3), Some(30));
        records.put(key(5), None);
        assert_eq!(records.find(&key(3)).unwrap(), Some(30));
        assert_eq!(records.keys(&(key(3), key(9))).unwrap(), [key(3), key(4)].into());
        write(&mut records, batch);
        let found = [1, 2, 3, 4, 5].map(|last| records.find(&key(last)).unwrap());
        assert_eq!(found, [None, None, Some(30), Some(4), None]);
        assert_eq!(records.keys(&(key(1), key(9))).unwrap(), [key(3), key(4)].into());
        assert_eq!(records.keys(&(key(4), key(5))).unwrap(), [key(4)].into());
    }
}
