//! The rest of a data directory after a power cut: synced bytes, under synced names.
//!
//! A name is lost whose directory was not synced after it came there; a file that was given the name
//! of another has the other's content again. The database keeps its log in the process's memory until
//! it is synced (`UnsyncedWrites::InProcess`), and syncs its own directory, which is copied as it is.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Mutex,
};

/// The directory that the database sees to.
const DATABASE: &str = "db";

/// The names in a directory, and the inode that each stands for.
type Listing = BTreeMap<OsString, u64>;

/// The names on one disk.
pub struct Names {
    /// The names as they were when each directory was synced last.
    synced: Mutex<BTreeMap<PathBuf, Listing>>,
    /// Where a synced file stays under its inode, for when another one gets its name.
    kept: PathBuf,
}

impl Names {
    /// A disk that keeps its copies in a new directory `kept`, beside the data.
    pub fn new(kept: PathBuf) -> Names {
        fs::create_dir(&kept).expect("a directory");
        Names { synced: Mutex::default(), kept }
    }

    /// Notes that the names in `dir` are on the disk.
    pub fn synced(&self, dir: &Path) {
        let listing = self.list(dir).expect("a directory that was just synced");
        let mut synced = self.synced.lock().expect("the names");
        synced.insert(dir.to_owned(), listing);
    }

    fn list(&self, dir: &Path) -> io::Result<Listing> {
        let mut listing = Listing::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            match self.keep(&entry) {
                Ok(inode) => drop(listing.insert(entry.file_name(), inode)),
                // Somebody removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(listing)
    }

    fn keep(&self, entry: &fs::DirEntry) -> io::Result<u64> {
        let about = entry.metadata()?;
        if about.is_file() {
            match fs::hard_link(entry.path(), self.kept.join(about.ino().to_string())) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(about.ino())
    }

    /// Copies the rest of the data directory `from` after a power cut to `to`, beside it: nothing at
    /// all, if its own name was not synced. Called while the node still runs.
    pub fn cut_power(&self, from: &Path, to: &Path) {
        let (parent, name) = (from.parent(), from.file_name());
        let (parent, name) = (parent.expect("a parent"), name.expect("a name"));
        let is_left = {
            let synced = self.synced.lock().expect("the names");
            let beside = synced.get(parent);
            beside.is_some_and(|listing| listing.contains_key(name))
        };
        if is_left {
            // RocksDB tidies up on threads of its own: files that changed meanwhile are copied again.
            while !self.copied_unchanged(from, to) {
                fs::remove_dir_all(to).expect("removing a copy");
            }
            self.synced(parent);
        }
    }

    fn copied_unchanged(&self, from: &Path, to: &Path) -> bool {
        let before = sizes(from);
        let copied = self.copy_synced(from, to);
        before.is_ok() && copied.is_ok() && before.ok() == sizes(from).ok()
    }

    /// Copies the synced names of `from`, which are on the disk in `to` as well.
    fn copy_synced(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::create_dir(to)?;
        let synced = self.synced.lock().expect("the names");
        let listing = synced.get(from).cloned().unwrap_or_default();
        drop(synced);
        for (name, inode) in listing {
            let (path, copy) = (from.join(&name), to.join(&name));
            match fs::metadata(&path) {
                Ok(about) if about.is_dir() && name == DATABASE => copy_all(&path, &copy)?,
                Ok(about) if about.is_dir() => self.copy_synced(&path, &copy)?,
                Ok(about) if about.ino() == inode => fs::copy(&path, &copy).map(drop)?,
                Ok(_) => fs::copy(self.kept.join(inode.to_string()), &copy).map(drop)?,
                // That it was removed may be on the disk, synced or not.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        self.synced(to);
        Ok(())
    }
}

fn sizes(dir: &Path) -> io::Result<BTreeMap<PathBuf, u64>> {
    let mut sizes = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sizes.extend(self::sizes(&entry.path())?);
        } else {
            sizes.insert(entry.path(), entry.metadata()?.len());
        }
    }
    Ok(sizes)
}

/// Copies a directory with all that is in it. A socket that a crash left holds nothing.
pub fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &target)?;
        } else if !entry.file_type()?.is_socket() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
