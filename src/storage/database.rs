//! The RocksDB database of one node.
//!
//! Invariant: a record that RocksDB cannot read as it was written is an error. There is one exception:
//! RocksDB drops a last write that a power cut tore, and nobody was told that it is on the disk.

use std::{
    fs::{self, File},
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
};

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor,
    DBRecoveryMode, DataBlockIndexType, Direction, IteratorMode, Options, ReadOptions, WriteBatch,
    WriteBufferManager, WriteOptions,
    properties::{CUR_SIZE_ALL_MEM_TABLES, LIVE_SST_FILES_SIZE},
};
use serde::de::DeserializeOwned;

use super::{
    codec::{self, CodecError},
    data_dir::DATABASE,
    directories::Directories,
    error::StoreError,
    free_space::FreeSpace,
    layout::Family,
    options::{StoreOptions, UnsyncedWrites},
    unknown_format,
};

/// With 10 bits, one lookup in a hundred reads a block of a file that does not hold the key.
const FILTER_BITS_PER_KEY: f64 = 10.0;

/// How much of the cache all memtables together may take before the oldest one is written to a file: half of it, but no
/// less and no more than this.
const MEMTABLES_BYTES: RangeInclusive<usize> = (8 << 20)..=(32 << 20);
/// The share of a memtable's memory that its filter takes: 10 to 20 bits per record.
const MEMTABLE_FILTER_SHARE: f64 = 0.02;

/// The key and the value of a record.
pub type KeyValue = (Box<[u8]>, Box<[u8]>);

/// The database, and the lock on the data directory. The lock is released last.
pub struct Database {
    pub(super) db: rocksdb::DB,
    dir: PathBuf,
    directories: Directories,
    free_space: Arc<FreeSpace>,
    newest_release: String,
    _lock: File,
}

impl Database {
    /// Opens or creates the database in `dir`/db. `newest_release` is the newest release that has opened
    /// the directory. `lock` is held as long as the database is open.
    ///
    /// # Errors
    /// [`StoreError::Database`] if RocksDB cannot open it; [`StoreError::Io`] if the disk cannot be measured.
    pub fn open(
        dir: &Path, lock: File, newest_release: String, how: &StoreOptions,
    ) -> Result<Self, StoreError> {
        let path = Self::path(dir);
        let measure = how.measure_disk.clone();
        let free_space = Arc::new(FreeSpace::new(dir, how.disk_reserve_bytes, measure));
        let wal_bytes = wal_bytes(&path).map_err(StoreError::io("cannot read", &path))?;
        free_space.make_room_to_open(wal_bytes)?;
        let mut options = Options::default();
        options.set_max_total_wal_size(free_space.wal_bytes_max());
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_paranoid_checks(true);
        options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
        options.set_keep_log_file_num(4);
        options.set_max_log_file_size(4 << 20);
        options.set_max_open_files(256);
        // Large files reach the disk while they are written. If they did so at their end, all at once,
        // the log's fsyncs would wait for them.
        options.set_bytes_per_sync(1 << 20);
        if how.unsynced == UnsyncedWrites::InProcess {
            options.set_manual_wal_flush(true);
            // A simulation opens hundreds of databases a minute: each allocates less.
            options.set_max_total_wal_size(1 << 20);
            options.set_manifest_preallocation_size(64 << 10);
            options.set_max_file_opening_threads(1);
        }
        let cache = Cache::new_lru_cache(how.block_cache_bytes);
        let memtables =
            (how.block_cache_bytes / 2).clamp(*MEMTABLES_BYTES.start(), *MEMTABLES_BYTES.end());
        let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(
            memtables,
            false,
            cache.clone(),
        );
        options.set_write_buffer_manager(&buffers);
        let families = Family::ALL.map(|family| descriptor(family, &cache));
        let db = rocksdb::DB::open_cf_descriptors(&options, &path, families)
            .map_err(|error| failed(dir, &error))?;
        free_space.measure()?;
        Ok(Database {
            db,
            free_space,
            dir: dir.to_owned(),
            directories: Directories::new(how.directory_synced.clone()),
            newest_release,
            _lock: lock,
        })
    }

    /// The directory of the database in data directory `dir`.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join(DATABASE)
    }

    /// Whether data directory `dir` holds a database.
    ///
    /// # Errors
    /// [`StoreError::Io`] if that cannot be seen.
    pub fn is_there(dir: &Path) -> Result<bool, StoreError> {
        let current = Self::path(dir).join("CURRENT");
        current.try_exists().map_err(StoreError::io("cannot look at", current))
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The free space of the disk.
    pub fn free_space(&self) -> &Arc<FreeSpace> {
        &self.free_space
    }

    /// Creates directories and renames files durably.
    pub fn directories(&self) -> &Directories {
        &self.directories
    }

    /// RocksDB's handle of a column family.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the database does not have it.
    pub fn family(&self, family: Family) -> Result<&ColumnFamily, StoreError> {
        self.db.cf_handle(family.name()).ok_or_else(|| StoreError::Damaged {
            what: format!("column family {}", family.name()),
            place: self.dir.clone(),
            why: "it is missing".to_owned(),
        })
    }

    /// The size of a column family, in files and in memory.
    ///
    /// # Errors
    /// [`StoreError::Database`] if RocksDB does not tell.
    pub fn family_bytes(&self, family: Family) -> Result<u64, StoreError> {
        let family = self.family(family)?;
        let mut bytes = 0;
        for part in [LIVE_SST_FILES_SIZE, CUR_SIZE_ALL_MEM_TABLES] {
            let read = self.db.property_int_value_cf(family, part);
            bytes += read.map_err(|error| self.failed(&error))?.unwrap_or(0);
        }
        Ok(bytes)
    }

    /// Reads a record; `None` if there is none.
    ///
    /// # Errors
    /// Those of [`Database::decode`]; [`StoreError::Database`] if RocksDB fails.
    pub fn get<T: DeserializeOwned>(
        &self, family: Family, key: &[u8],
    ) -> Result<Option<T>, StoreError> {
        let bytes = self
            .db
            .get_pinned_cf(self.family(family)?, key)
            .map_err(|error| self.failed(&error))?;
        bytes.map(|bytes| self.decode(family, key, &bytes)).transpose()
    }

    /// Reads the records under many keys, in the order of the keys; `None` for one that does not exist.
    ///
    /// # Errors
    /// [`StoreError::Database`] if RocksDB fails; those of [`Database::decode`] if a record cannot be decoded.
    pub fn get_many<T: DeserializeOwned>(
        &self, family: Family, keys: &[Vec<u8>],
    ) -> Result<Vec<Option<T>>, StoreError> {
        if let [key] = keys {
            return Ok(vec![self.get(family, key)?]);
        }
        let handle = self.family(family)?;
        let found = self.db.batched_multi_get_cf(&handle, keys, false);
        assert_eq!(keys.len(), found.len(), "each key has an answer");
        let records = keys.iter().zip(found).map(|(key, bytes)| {
            let bytes = bytes.map_err(|error| self.failed(&error))?;
            bytes.map(|bytes| self.decode(family, key, &bytes)).transpose()
        });
        records.collect()
    }

    /// The records of a column family, in the order of their keys.
    ///
    /// # Errors
    /// [`StoreError::Database`] if RocksDB fails, also as an item.
    pub fn records(
        &self, family: Family, mode: IteratorMode<'_>,
    ) -> Result<impl Iterator<Item = Result<KeyValue, StoreError>>, StoreError> {
        let records = self.db.iterator_cf(self.family(family)?, mode);
        Ok(records.map(|record| record.map_err(|error| self.failed(&error))))
    }

    /// The records of a column family from one key on, up to another one, which is not among them. They are as they were
    /// when this was called.
    ///
    /// # Errors
    /// [`StoreError`] if the database fails, also as an item.
    pub fn records_between(
        &self, family: Family, from: &[u8], to: Vec<u8>,
    ) -> Result<impl Iterator<Item = Result<KeyValue, StoreError>>, StoreError> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(to);
        // Blocks that are read once must not evict blocks that are read often.
        options.fill_cache(false);
        let mode = IteratorMode::From(from, Direction::Forward);
        let records = self.db.iterator_cf_opt(self.family(family)?, options, mode);
        Ok(records.map(|record| record.map_err(|error| self.failed(&error))))
    }

    /// Decodes a record that was found under `key`.
    ///
    /// # Errors
    /// [`StoreError::OtherRelease`] if a newer release wrote it; [`StoreError::Damaged`] if it is not what
    /// was written.
    pub fn decode<T: DeserializeOwned>(
        &self, family: Family, key: &[u8], bytes: &[u8],
    ) -> Result<T, StoreError> {
        codec::decode_record(bytes).map_err(|error| self.undecoded(family, key, &error))
    }

    /// Checks a record that was found under `key`, of whatever type, without decoding it.
    ///
    /// # Errors
    /// [`StoreError::OtherRelease`] if a newer release wrote it; [`StoreError::Damaged`] if its bytes have changed.
    pub fn check(&self, family: Family, key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
        match codec::check_record(bytes) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.undecoded(family, key, &error)),
        }
    }

    /// The error for a record that cannot be decoded.
    fn undecoded(&self, family: Family, key: &[u8], error: &CodecError) -> StoreError {
        match error {
            CodecError::Version(found) => unknown_format::unknown_format(
                self.record(family, key),
                &Self::path(&self.dir),
                (*found).into(),
                codec::VERSION.into(),
                Some(&self.newest_release),
            ),
            CodecError::Short(_)
            | CodecError::Checksum { .. }
            | CodecError::Trailing(_)
            | CodecError::Format(_) => self.damaged(family, key, error),
        }
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

    /// Writes a batch atomically. Without `sync` it is on the disk only after a later sync.
    ///
    /// # Errors
    /// [`StoreError::Database`] if RocksDB fails.
    pub fn write(&self, batch: WriteBatch, sync: bool) -> Result<(), StoreError> {
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        self.db.write_opt(batch, &options).map_err(|error| self.failed(&error))
    }

    /// Writes a batch past RocksDB's log. It is on the disk only after a flush of its column family.
    ///
    /// # Errors
    /// [`StoreError::Database`] if RocksDB fails.
    pub fn write_unlogged(&self, batch: WriteBatch) -> Result<(), StoreError> {
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        self.db.write_opt(batch, &options).map_err(|error| self.failed(&error))
    }

    /// Brings all records of a column family to the disk, also those written past RocksDB's log.
    ///
    /// # Errors
    /// [`StoreError::Database`] if RocksDB fails.
    pub fn flush(&self, family: Family) -> Result<(), StoreError> {
        self.db.flush_cf(self.family(family)?).map_err(|error| self.failed(&error))
    }

    /// Brings everything that was written with RocksDB's log to the disk.
    ///
    /// # Errors
    /// [`StoreError::Database`] if RocksDB fails.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.db.flush_wal(true).map_err(|error| self.failed(&error))
    }

    /// Makes a [`StoreError`] of RocksDB's error.
    pub fn failed(&self, error: &rocksdb::Error) -> StoreError {
        failed(&self.dir, error)
    }
}

fn failed(dir: &Path, error: &rocksdb::Error) -> StoreError {
    StoreError::Database { dir: dir.to_owned(), message: error.to_string() }
}

/// How many bytes the database in `path` has in its own log, which are replayed when it is opened.
fn wal_bytes(path: &Path) -> io::Result<u64> {
    let files = match fs::read_dir(path) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut bytes = 0;
    for file in files {
        let file = file?;
        if Path::new(&file.file_name()).extension().is_some_and(|kind| kind == "log") {
            bytes += file.metadata()?.len();
        }
    }
    Ok(bytes)
}

/// The options of a column family.
fn descriptor(family: Family, cache: &Cache) -> ColumnFamilyDescriptor {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(cache);
    // Indexes and filters lie in the cache, in parts, so that memory is bounded however large the tables
    // grow.
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    tables.set_partition_filters(true);
    tables.set_pin_top_level_index_and_filter(true);
    let mut options = Options::default();
    if family == Family::Applied {
        // Most lookups are for new sections, or for sections that one file of many holds.
        tables.set_bloom_filter(FILTER_BITS_PER_KEY, false);
        options.set_memtable_whole_key_filtering(true);
        options.set_memtable_prefix_bloom_ratio(MEMTABLE_FILTER_SHARE);
        // A lookup finds the part of a block by a hash, instead of a binary search.
        tables.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    }
    options.set_block_based_table_factory(&tables);
    ColumnFamilyDescriptor::new(family.name(), options)
}
