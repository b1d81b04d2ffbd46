//! Room on the disk: what may fill it leaves enough for the log.

use std::path::Path;

use super::error::StoreError;

/// This is left free, in bytes (on a small disk: a twentieth of it).
const RESERVE_BYTES: u64 = 256 << 20;

/// Checks that the disk of `dir` has room for `bytes` more, and the reserve.
///
/// # Errors
/// [`StoreError::DiskNearlyFull`], or [`StoreError::Io`] where the file system does not say.
pub fn check(dir: &Path, bytes: u64) -> Result<(), StoreError> {
    let disk = rustix::fs::statvfs(dir).map_err(|error| {
        let error = std::io::Error::from(error);
        StoreError::io("cannot ask for the free space of", dir)(error)
    })?;
    let needed = bytes.saturating_add(reserve(disk.f_blocks.saturating_mul(disk.f_frsize)));
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    // Some file systems state no size.
    if disk.f_blocks == 0 || free >= needed {
        return Ok(());
    }
    Err(StoreError::DiskNearlyFull {
        dir: dir.to_owned(),
        free,
        needed,
    })
}

/// Of a disk of so many bytes.
fn reserve(disk_bytes: u64) -> u64 {
    RESERVE_BYTES.min(disk_bytes / 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_disk_has_is_refused_with_what_is_free_and_what_is_needed() {
        let dir = tempfile::TempDir::new().unwrap();
        check(dir.path(), 1).unwrap();
        let refused = check(dir.path(), u64::MAX).unwrap_err().to_string();
        assert!(refused.contains(dir.path().to_str().unwrap()), "{refused}");
        assert!(refused.contains("make room"), "{refused}");
        assert_eq!(reserve(1 << 40), RESERVE_BYTES);
        assert_eq!(reserve(20 << 20), 1 << 20);
    }
}
