//! The spare: a file without content in the data directory. It holds the space that a node needs to open its data on a
//! disk without any room, and is removed for that.
//!
//! Opening the database replays RocksDB's own log: what that holds is written to new files before the old ones go.
//!
//! Invariant: a file counts as the spare only as far as the file system has set space aside for it.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

use super::error::StoreError;

/// The name of the spare in the data directory.
pub(super) const SPARE: &str = "SPARE";
/// The bytes that opening the database takes beside its logs: lists of its files, and its options.
const OPEN_BYTES: u64 = 4 << 20;
/// The unit in which the file system tells what it has set aside.
const BLOCK_BYTES: u64 = 512;

/// The spare of a data directory.
pub struct Spare {
    path: PathBuf,
    /// The size that was set aside by this process. Not every file system tells it at once.
    made_bytes: AtomicU64,
    /// The file system gives no space to files without content.
    is_unsupported: AtomicBool,
}

impl Spare {
    /// The spare of the data directory `dir`.
    pub fn of(dir: &Path) -> Spare {
        Spare {
            path: dir.join(SPARE),
            made_bytes: AtomicU64::new(0),
            is_unsupported: AtomicBool::new(false),
        }
    }

    /// How much space it takes to open a database of whose own log `wal_bytes` are to be replayed, and whose next one may
    /// have `next_wal_bytes`.
    pub fn needed_to_open(wal_bytes: u64, next_wal_bytes: u64) -> u64 {
        wal_bytes + next_wal_bytes + OPEN_BYTES
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it. False if there was none.
    ///
    /// # Errors
    /// [`StoreError::Io`] if it cannot be removed.
    pub fn remove(&self) -> Result<bool, StoreError> {
        self.made_bytes.store(0, Release);
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::io("cannot remove", &self.path)(error)),
        }
    }

    /// Gives it `bytes`, if it takes no more than `room` for that.
    ///
    /// # Errors
    /// [`StoreError::Io`] if it cannot be made, or looked at.
    pub fn keep(&self, bytes: u64, room: u64) -> Result<(), StoreError> {
        let (len, held) = match fs::metadata(&self.path) {
            Ok(found) => (found.len(), self.held(&found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (0, 0),
            Err(error) => return Err(StoreError::io("cannot look at", &self.path)(error)),
        };
        if held < bytes {
            let is_due = bytes - held <= room && !self.is_unsupported.load(Acquire);
            return if is_due { self.extend(bytes, held) } else { Ok(()) };
        }
        if len > bytes {
            let file = File::options().write(true).open(&self.path);
            let cut = file.and_then(|file| file.set_len(bytes));
            cut.map_err(StoreError::io("cannot cut", &self.path))?;
            self.made_bytes.store(bytes, Release);
        }
        Ok(())
    }

    /// How much space is set aside for the file.
    fn held(&self, found: &Metadata) -> u64 {
        match found.len() {
            made if made == self.made_bytes.load(Acquire) => made,
            len => len.min(found.blocks().saturating_mul(BLOCK_BYTES)),
        }
    }

    /// Sets `bytes` aside, where `held` are already.
    fn extend(&self, bytes: u64, held: u64) -> Result<(), StoreError> {
        let file = File::options().write(true).create(true).truncate(false).open(&self.path);
        let file = file.map_err(StoreError::io("cannot create", &self.path))?;
        let Err(error) = fallocate(&file, FallocateFlags::empty(), 0, bytes) else {
            self.made_bytes.store(bytes, Release);
            tracing::info!(
                path = %self.path.display(),
                bytes,
                "space is set aside, so that the node can open its data on a full disk"
            );
            return Ok(());
        };
        // A file without its space would pass for the spare.
        match held {
            0 => drop(self.remove()?),
            held => file.set_len(held).map_err(StoreError::io("cannot cut", &self.path))?,
        }
        if error != Errno::OPNOTSUPP {
            return Err(StoreError::io("cannot set space aside in", &self.path)(error.into()));
        }
        self.is_unsupported.store(true, Release);
        tracing::info!(
            path = %self.path.display(),
            "this file system sets no space aside: on a full disk the node may not open its data"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn a_file_without_its_space_is_no_spare() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join(SPARE);
        let set_aside = || fs::metadata(&path).unwrap().blocks() * BLOCK_BYTES;
        for len in [0, 4 * MB, 9 * MB] {
            let spare = Spare::of(dir.path());
            let file = File::create(&path).unwrap();
            file.set_len(len).unwrap();
            spare.keep(4 * MB, 4 * MB - 1).unwrap();
            assert_eq!(set_aside(), 0, "there is no room for it");
            spare.keep(4 * MB, 4 * MB).unwrap();
            assert!(set_aside() >= 4 * MB, "a file of {len} bytes");
            spare.keep(4 * MB, 0).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), 4 * MB);
        }
    }

    #[test]
    fn one_of_an_earlier_process_is_kept_and_one_that_was_deleted_comes_back() {
        let dir = TempDir::new().unwrap();
        Spare::of(dir.path()).keep(MB, MB).unwrap();
        let spare = Spare::of(dir.path());
        spare.keep(MB, 0).unwrap();
        assert!(spare.remove().unwrap() && !spare.remove().unwrap());
        spare.keep(MB, MB).unwrap();
        assert!(spare.path().exists());
    }
}
