//! Directories, and the names in them.
//!
//! A name is on the disk only when the directory that it stands in was synced: an fsync of the file
//! alone does not see to it. Invariant: what is created or renamed here is found under its name after
//! a power cut. (RocksDB does the same for the files of its own directory.)

use std::{
    fs::{self, File},
    io,
    path::Path,
    sync::Arc,
};

use super::error::StoreError;
use crate::planted::{Bug, is_planted};

/// Creates directories and gives files their names, lastingly.
#[derive(Clone)]
pub struct Directories {
    synced: Arc<dyn Fn(&Path) + Send + Sync>,
}

impl Directories {
    /// `synced` is told of each directory that was synced.
    pub fn new(synced: Arc<dyn Fn(&Path) + Send + Sync>) -> Self {
        Directories { synced }
    }

    /// Creates `dir`, and the directories that it is in, where they are missing.
    pub fn create(&self, dir: &Path) -> Result<(), StoreError> {
        let existed = dir.is_dir();
        let parent = match dir.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => return Ok(()),
        };
        if !existed {
            // One that exists may be new as well: an earlier run had come so far.
            self.create(parent)?;
            fs::create_dir(dir).map_err(StoreError::io("cannot create", dir))?;
        }
        match self.sync(parent) {
            // It was not we who created `dir`, in a directory that we may not even read.
            Err(error) if existed && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced.map_err(StoreError::io("cannot sync", parent)),
        }
    }

    /// Gives a file another name in `dir`, the directory that it is in.
    pub fn rename(&self, dir: &Path, from: &Path, to: &Path) -> io::Result<()> {
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
