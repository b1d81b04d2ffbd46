//! A data directory as a whole: which files it may hold, and the lock on it.
//!
//! Invariant: one process at a time uses a data directory.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use super::{error::StoreError, spare::SPARE};

const LOCK: &str = "LOCK";
/// Where earlier releases kept snapshots.
const OLD_SNAPSHOTS: &str = "snapshots";

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

/// Removes the snapshot files of earlier releases. The table holds everything that they held.
pub fn remove_old_snapshots(dir: &Path) {
    let path = dir.join(OLD_SNAPSHOTS);
    match fs::remove_dir_all(&path) {
        Ok(()) => {
            tracing::info!(path = %path.display(), "removed the snapshots of an earlier release");
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // They take up space and do no other harm.
        Err(error) => {
            tracing::warn!(
                path = %path.display(),
                %error,
                "cannot remove the snapshots of an earlier release; they can be deleted by hand"
            );
        }
    }
}

/// Checks that the directory holds no files but Ratchet's.
///
/// # Errors
/// [`StoreError::Refused`] for a file that is not Ratchet's; [`StoreError::Io`] if the directory cannot
/// be listed.
pub fn check_contents(dir: &Path) -> Result<(), StoreError> {
    // A directory that is the root of a file system holds lost+found.
    const KNOWN: [&str; 7] = ["NODE", "NODE.tmp", LOCK, "db", SPARE, OLD_SNAPSHOTS, "lost+found"];
    for entry in fs::read_dir(dir).map_err(StoreError::io("cannot read", dir))? {
        let name = entry.map_err(StoreError::io("cannot read", dir))?.file_name();
        if !KNOWN.iter().any(|known| name == *known) {
            return Err(StoreError::Refused(format!(
                "data directory {} holds {name:?}, which is not a file of Ratchet's; choose an empty \
                 directory",
                dir.display()
            )));
        }
    }
    Ok(())
}
