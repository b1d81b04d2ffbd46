//! Creates directories and renames files so that a power cut does not lose their names.
//!
//! An fsync of a file does not bring its name to the disk: that takes a sync of the directory which
//! holds the name. (RocksDB does the same for the files of its own directory.)
//!
//! Invariant: what is created or renamed here is found under its name after a power cut.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::Arc,
};

use super::error::StoreError;
use crate::planted_bugs::{Bug, is_planted};

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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

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
}
