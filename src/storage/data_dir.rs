//! A data directory as a whole: which files it may hold, the lock on it, the names that outlive a power cut, the space
//! that is kept.

use std::{
    fs::{self, DirBuilder, File, Metadata},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

use rustix::{
    fs::{FallocateFlags, FlockOperation, fallocate, flock},
    io::Errno,
};

use super::error::StoreError;
use crate::planted_bugs::{Bug, is_planted};

// A data directory as a whole: which files it may hold, and the lock on it.
//
// Invariant: one process at a time uses a data directory.

const LOCK: &str = "LOCK";
/// The name of the directory of the database.
pub(super) const DATABASE: &str = "db";
/// The name of the local socket of a running node. A node that crashed leaves it behind.
pub const LOCAL_SOCKET: &str = "admin.sock";

/// Locks the directory for this process, as long as the returned file is open.
///
/// # Errors
/// [`StoreError::Refused`] if another process holds the lock; [`StoreError::Io`] if the lock file
/// cannot be created or locked.
pub fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK);
    let file = File::create(&path).map_err(StoreError::io("cannot create", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(StoreError::Refused(format!(
            "data directory {} is in use by another process; stop that process, or choose another \
             data_dir",
            dir.display()
        ))),
        Err(error) => Err(StoreError::io("cannot lock", path)(error.into())),
    }
}

/// Checks that the directory holds no files but Ratchet's.
///
/// # Errors
/// [`StoreError::WrongSetUp`] for a file that is not Ratchet's; [`StoreError::Io`] if the directory cannot
/// be listed.
pub fn check_contents(dir: &Path) -> Result<(), StoreError> {
    // A directory that is the root of a file system holds lost+found.
    const KNOWN: [&str; 7] =
        ["NODE", "NODE.tmp", LOCK, DATABASE, SPARE, LOCAL_SOCKET, "lost+found"];
    for entry in fs::read_dir(dir).map_err(StoreError::io("cannot read", dir))? {
        let name = entry.map_err(StoreError::io("cannot read", dir))?.file_name();
        if !KNOWN.iter().any(|known| name == *known) {
            return Err(StoreError::WrongSetUp(format!(
                "data directory {} holds {name:?}, which is not a file of Ratchet's; move that file away, \
                 or choose an empty directory",
                dir.display()
            )));
        }
    }
    Ok(())
}

// Creates directories and renames files so that a power cut does not lose their names.
//
// An fsync of a file does not bring its name to the disk: that takes a sync of the directory which
// holds the name. Invariant: what is created or renamed here is found under its name after a power
// cut. (RocksDB does the same for the files of its own directory.)

/// A data directory holds names of keys, and the tokens of leases.
const OWN_MODE: u32 = 0o700;
const PARENTS_MODE: u32 = 0o777;

/// Creates directories and renames files durably.
#[derive(Clone)]
pub struct Directories {
    synced: Arc<dyn Fn(&Path) + Send + Sync>,
}

impl Directories {
    /// `synced` is called after each sync of a directory.
    pub fn new(synced: Arc<dyn Fn(&Path) + Send + Sync>) -> Self {
        Directories { synced }
    }

    /// Creates `dir`, for this process's user alone, and its missing parents.
    ///
    /// # Errors
    /// [`StoreError::Io`] if a directory cannot be created, or its parent not be synced.
    pub fn create(&self, dir: &Path) -> Result<(), StoreError> {
        self.create_with(dir, OWN_MODE)
    }

    fn create_with(&self, dir: &Path, mode: u32) -> Result<(), StoreError> {
        let existed = dir.is_dir();
        let parent = match dir.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return Ok(()),
        };
        if !existed {
            self.create_with(parent, PARENTS_MODE)?;
            let created = DirBuilder::new().mode(mode).create(dir);
            created.map_err(StoreError::io("cannot create", dir))?;
        }
        // The parent is synced even if `dir` existed: an earlier run may have ended before its sync.
        match self.sync(parent) {
            // Somebody else created `dir`, in a directory that this process may not even read.
            Err(error) if existed && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced.map_err(StoreError::io("cannot sync", parent)),
        }
    }

    /// Renames a file inside `dir`.
    ///
    /// # Errors
    /// If the rename or the sync of `dir` fails.
    pub fn rename(&self, dir: &Path, from: &Path, to: &Path) -> io::Result<()> {
        assert_eq!((from.parent(), to.parent()), (Some(dir), Some(dir)));
        fs::rename(from, to)?;
        self.sync(dir)
    }

    fn sync(&self, dir: &Path) -> io::Result<()> {
        if is_planted(Bug::NamesNotSynced) {
            return Ok(());
        }
        File::open(dir)?.sync_all()?;
        (self.synced)(dir);
        Ok(())
    }
}

// The spare: a file without content in the data directory. It holds the space that a node needs to open its data on a
// disk without any room, and is removed for that.
//
// Opening the database replays RocksDB's own log: what that holds is written to new files before the old ones go.
//
// Invariant: a file counts as the spare only as far as the file system has set space aside for it.

/// The name of the spare in the data directory.
pub(super) const SPARE: &str = "SPARE";
/// What opening the database takes beside its logs: lists of its files, and its options.
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
    use std::os::unix::{fs::PermissionsExt, net::UnixListener};

    use tempfile::TempDir;

    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn a_data_directory_is_its_users_alone_and_its_parents_are_as_usual() {
        let dir = TempDir::new().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let usual = dir.path().join("usual");
        fs::create_dir(&usual).unwrap();
        let data = dir.path().join("parent/data");
        Directories::new(Arc::new(|_| {})).create(&data).unwrap();
        assert_eq!(mode(&data), 0o700);
        assert_eq!(mode(&dir.path().join("parent")), mode(&usual));
    }

    #[test]
    fn a_socket_that_a_crash_left_is_a_file_of_ratchets_and_any_other_file_is_not() {
        let dir = TempDir::new().unwrap();
        drop(UnixListener::bind(dir.path().join(LOCAL_SOCKET)).unwrap());
        assert!(dir.path().join(LOCAL_SOCKET).exists());
        check_contents(dir.path()).unwrap();
        File::create(dir.path().join("thesis.txt")).unwrap();
        let refused = check_contents(dir.path()).unwrap_err();
        assert!(refused.is_of_set_up() && refused.to_string().contains("thesis.txt"), "{refused}");
    }

    /// The other process may end: then the next start of this one helps.
    #[test]
    fn a_directory_that_another_process_uses_is_not_set_up_wrongly() {
        let dir = TempDir::new().unwrap();
        let held = lock(dir.path()).unwrap();
        let refused = lock(dir.path()).unwrap_err();
        assert!(!refused.is_of_set_up() && refused.to_string().contains("in use"), "{refused}");
        drop(held);
        lock(dir.path()).unwrap();
    }

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
