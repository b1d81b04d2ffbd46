//! A data directory as a whole: what may be in it, and the lock on it.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use rustix::fs::{FlockOperation, flock};

use super::error::StoreError;

const LOCK: &str = "LOCK";

/// Takes the directory for this process.
pub fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK);
    let file = File::create(&path).map_err(StoreError::io("cannot create", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Refused(format!(
            "data directory {} is in use by another process; stop that one, or choose another \
             data_dir",
            dir.display()
        ))),
        Err(error) => Err(StoreError::io("cannot lock", path)(error.into())),
    }
}

/// Removes the snapshots that earlier releases kept in files: the table holds what they held.
pub fn remove_old_snapshots(dir: &Path) {
    let path = dir.join("snapshots");
    match fs::remove_dir_all(&path) {
        Ok(()) => tracing::info!(path = %path.display(), "old snapshots removed"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // They take up space, and do no harm.
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "old snapshots were not removed");
        }
    }
}

/// Refuses a directory that holds somebody else's files.
pub fn check_contents(dir: &Path) -> Result<(), StoreError> {
    // lost+found: the directory may be a file system of its own.
    const OURS: [&str; 6] = ["NODE", "NODE.tmp", LOCK, "db", "snapshots", "lost+found"];
    for entry in fs::read_dir(dir).map_err(StoreError::io("cannot read", dir))? {
        let name = entry
            .map_err(StoreError::io("cannot read", dir))?
            .file_name();
        if !OURS.iter().any(|ours| name == *ours) {
            return Err(StoreError::Refused(format!(
                "data directory {} holds {name:?}, which is not Ratchet's; choose an empty directory",
                dir.display()
            )));
        }
    }
    Ok(())
}
