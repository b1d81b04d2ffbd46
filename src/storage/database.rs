//! The RocksDB database of one node.
//!
//! Invariant: what RocksDB cannot read back as it was written is an error: of a torn last write
//! after a power cut alone, which nobody was told is on the disk, it may let go.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor,
    DBRecoveryMode, IteratorMode, Options, WriteBatch, WriteOptions,
    properties::{CUR_SIZE_ALL_MEM_TABLES, LIVE_SST_FILES_SIZE},
};
use serde::de::DeserializeOwned;

use super::{
    codec::{self, CodecError},
    directories::Directories,
    error::StoreError,
    layout::Family,
    options::{StoreOptions, UnsyncedWrites},
    release,
};

/// One lookup in a hundred of a key that a file does not hold reads a block of it in vain.
const FILTER_BITS_PER_KEY: f64 = 10.0;

/// A record's key, and what stands under it.
pub type KeyValue = (Box<[u8]>, Box<[u8]>);

/// The database, and the lock on its directory: the lock is let go last.
pub struct Database {
    pub(super) db: rocksdb::DB,
    dir: PathBuf,
    directories: Directories,
    newest_release: String,
    _lock: File,
}

impl Database {
    /// Opens or creates the database in `dir`/db, which `newest_release` has opened at the latest.
    /// `lock` is held as long as it is open.
    pub fn open(
        dir: &Path,
        lock: File,
        newest_release: String,
        how: &StoreOptions,
    ) -> Result<Self, StoreError> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_paranoid_checks(true);
        options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
        options.set_max_total_wal_size(64 << 20);
        options.set_keep_log_file_num(4);
        options.set_max_log_file_size(4 << 20);
        options.set_max_open_files(256);
        // Large files reach the disk as they are written, not all at once at their end: the log's
        // fsyncs would wait for them.
        options.set_bytes_per_sync(1 << 20);
        if how.unsynced == UnsyncedWrites::InProcess {
            options.set_manual_wal_flush(true);
            // A simulation opens hundreds of databases a minute: less is set aside for each.
            options.set_max_total_wal_size(1 << 20);
            options.set_manifest_preallocation_size(64 << 10);
            options.set_max_file_opening_threads(1);
        }
        let cache = Cache::new_lru_cache(how.block_cache_bytes);
        let families = Family::ALL.map(|family| descriptor(family, &cache));
        let path = Self::path(dir);
        let db = rocksdb::DB::open_cf_descriptors(&options, &path, families)
            .map_err(|error| failed(dir, &error))?;
        Ok(Database {
            db,
            dir: dir.to_owned(),
            directories: Directories::new(how.directory_synced.clone()),
            newest_release,
            _lock: lock,
        })
    }

    /// Where the database of data directory `dir` is.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join("db")
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What creates directories and gives files their names.
    pub fn directories(&self) -> &Directories {
        &self.directories
    }

    /// A column family.
    pub fn family(&self, family: Family) -> Result<&ColumnFamily, StoreError> {
        self.db
            .cf_handle(family.name())
            .ok_or_else(|| StoreError::Damaged {
                what: format!("column family {}", family.name()),
                place: self.dir.clone(),
                why: "it is missing".to_owned(),
            })
    }

    /// What a column family takes: its files, and what of it is in memory.
    pub fn family_bytes(&self, family: Family) -> Result<u64, StoreError> {
        let family = self.family(family)?;
        let mut bytes = 0;
        for part in [LIVE_SST_FILES_SIZE, CUR_SIZE_ALL_MEM_TABLES] {
            let read = self.db.property_int_value_cf(family, part);
            bytes += read.map_err(|error| self.failed(&error))?.unwrap_or(0);
        }
        Ok(bytes)
    }

    /// Reads a sealed record.
    pub fn get<T: DeserializeOwned>(
        &self,
        family: Family,
        key: &[u8],
    ) -> Result<Option<T>, StoreError> {
        let bytes = self
            .db
            .get_pinned_cf(self.family(family)?, key)
            .map_err(|error| self.failed(&error))?;
        bytes
            .map(|bytes| self.decode(family, key, &bytes))
            .transpose()
    }

    /// The records of a family, in the order of their keys.
    pub fn records(
        &self,
        family: Family,
        mode: IteratorMode<'_>,
    ) -> Result<impl Iterator<Item = Result<KeyValue, StoreError>>, StoreError> {
        let records = self.db.iterator_cf(self.family(family)?, mode);
        Ok(records.map(|record| record.map_err(|error| self.failed(&error))))
    }

    /// Reads a sealed record that was found under `key`.
    pub fn decode<T: DeserializeOwned>(
        &self,
        family: Family,
        key: &[u8],
        bytes: &[u8],
    ) -> Result<T, StoreError> {
        codec::decode_record(bytes).map_err(|error| match error {
            CodecError::Version(found) => release::unknown_format(
                self.record(family, key),
                &Self::path(&self.dir),
                found.into(),
                codec::VERSION.into(),
                Some(&self.newest_release),
            ),
            error => self.damaged(family, key, error),
        })
    }

    /// The newest release that has opened the data directory, this one included.
    pub fn newest_release(&self) -> &str {
        &self.newest_release
    }

    fn record(&self, family: Family, key: &[u8]) -> String {
        format!("record {} of {}", key.escape_ascii(), family.name())
    }

    /// The error for a record that is not what was written.
    pub fn damaged(&self, family: Family, key: &[u8], why: impl ToString) -> StoreError {
        StoreError::Damaged {
            what: self.record(family, key),
            place: Self::path(&self.dir),
            why: why.to_string(),
        }
    }

    /// Writes a batch, atomically; on the disk only once it is synced (or another one after it).
    pub fn write(&self, batch: WriteBatch, sync: bool) -> Result<(), StoreError> {
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        self.db
            .write_opt(batch, &options)
            .map_err(|error| self.failed(&error))
    }

    /// Writes a batch past the log: on the disk only once its family is flushed.
    pub fn write_unlogged(&self, batch: WriteBatch) -> Result<(), StoreError> {
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        self.db
            .write_opt(batch, &options)
            .map_err(|error| self.failed(&error))
    }

    /// Brings all of a family to the disk, what was written past the log as well.
    pub fn flush(&self, family: Family) -> Result<(), StoreError> {
        self.db
            .flush_cf(self.family(family)?)
            .map_err(|error| self.failed(&error))
    }

    /// Brings all that was written to the disk.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.db.flush_wal(true).map_err(|error| self.failed(&error))
    }

    /// The error for RocksDB's own.
    pub fn failed(&self, error: &rocksdb::Error) -> StoreError {
        failed(&self.dir, error)
    }
}

fn failed(dir: &Path, error: &rocksdb::Error) -> StoreError {
    StoreError::Database {
        dir: dir.to_owned(),
        message: error.to_string(),
    }
}

fn descriptor(family: Family, cache: &Cache) -> ColumnFamilyDescriptor {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(cache);
    // In the cache, in parts: the memory has a limit however large the tables grow.
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    tables.set_partition_filters(true);
    tables.set_pin_top_level_index_and_filter(true);
    if family == Family::Applied {
        // Most sections that are looked up are new, or lie in one file of many.
        tables.set_bloom_filter(FILTER_BITS_PER_KEY, false);
    }
    let mut options = Options::default();
    options.set_block_based_table_factory(&tables);
    ColumnFamilyDescriptor::new(family.name(), options)
}
