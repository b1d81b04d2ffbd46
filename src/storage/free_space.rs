//! Keeps free space on the disk for the log: large writes ask here first.

use std::path::Path;

use super::error::StoreError;

/// How many bytes stay free (on a small disk: a twentieth of it).
const RESERVE_BYTES: u64 = 256 << 20;

/// Checks that the disk of `dir` can take `bytes` more and keep the reserve.
///
/// # Errors
/// [`StoreError::DiskNearlyFull`] if it cannot; [`StoreError::Io`] if the file system does not tell its
/// free space.
pub fn check(dir: &Path, bytes: u64) -> Result<(), StoreError> {
    let disk = rustix::fs::statvfs(dir).map_err(|error| {
        let error = std::io::Error::from(error);
        StoreError::io("cannot ask for the free space of", dir)(error)
    })?;
    let needed = bytes.saturating_add(reserve(disk.f_blocks.saturating_mul(disk.f_frsize)));
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    // Some file systems report a size of 0: they are not checked.
    if disk.f_blocks == 0 || free >= needed {
        return Ok(());
    }
    Err(StoreError::DiskNearlyFull { dir: dir.to_owned(), free, needed })
}

/// The reserve on a disk of this size.
fn reserve(disk_bytes: u64) -> u64 {
    RESERVE_BYTES.min(disk_bytes / 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_larger_than_the_free_space_is_refused_with_both_sizes() {
        let dir = tempfile::TempDir::new().unwrap();
        check(dir.path(), 1).unwrap();
        let refused = check(dir.path(), u64::MAX).unwrap_err().to_string();
        assert!(refused.contains(dir.path().to_str().unwrap()), "{refused}");
        assert!(refused.contains("make room"), "{refused}");
    }

    #[test]
    fn the_reserve_is_a_twentieth_of_a_small_disk() {
        assert_eq!(reserve(1 << 40), RESERVE_BYTES);
        assert_eq!(reserve(20 << 20), 1 << 20);
    }
}
