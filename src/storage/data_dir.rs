//! A data directory as a whole: which files it may hold, and the lock on it.
//!
//! Invariant: one process at a time uses a data directory.

use std::{
    fs::{self, File},
    path::Path,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use super::{error::StoreError, spare::SPARE};

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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use tempfile::TempDir;

    use super::*;

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
}
