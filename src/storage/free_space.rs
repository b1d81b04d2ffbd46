//! The free space on the disk of the data directory, and the reserve that is kept of it.
//!
//! A new section stays in the table for good. Below the reserve the leader makes none, so that a disk that fills up does
//! not stop all nodes together: keys in use go on with the space that is left. Snapshots keep the reserve as well.
//!
//! The spare is a file without content in the data directory. It holds the space that a node needs to open its data on a
//! disk without any room, and is removed for that.
//!
//! Invariant: whether the disk is low changes by a measurement alone.

use std::{
    fs::{self, File},
    io,
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
    fs::{FallocateFlags, fallocate, statvfs},
    io::Errno,
};

use super::error::StoreError;

/// The name of the spare in the data directory.
pub(super) const SPARE: &str = "SPARE";
/// How large the spare is, but at most a quarter of the reserve: opening the database writes what its log holds.
const SPARE_BYTES: u64 = 64 << 20;

/// Stands for a free space that is not known.
const UNKNOWN: u64 = u64::MAX;

/// A disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// The free space that this process may use.
    pub free_bytes: u64,
    /// The size of the disk; 0 if the file system does not tell.
    pub size_bytes: u64,
}

/// Measures the disk that a path is on.
pub type MeasureDisk = Arc<dyn Fn(&Path) -> io::Result<DiskSpace> + Send + Sync>;

/// Asks the file system.
pub fn measure_disk() -> MeasureDisk {
    Arc::new(|dir| {
        let disk = statvfs(dir)?;
        Ok(DiskSpace {
            free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
            size_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
        })
    })
}

/// The disk has less free space than the reserve. In megabytes (2^20 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{free_mb} MB are free, and the reserve is {reserve_mb} MB (disk_reserve_mb)")]
pub struct LowDisk {
    /// How much is free.
    pub free_mb: u32,
    /// How much should be.
    pub reserve_mb: u32,
}

/// The free space of the disk of a data directory.
pub struct FreeSpace {
    dir: PathBuf,
    reserve_bytes_max: u64,
    measure: MeasureDisk,
    is_low: AtomicBool,
    free_bytes: AtomicU64,
    reserve_bytes: AtomicU64,
    /// The file system gives no space to files without content.
    has_no_spare: AtomicBool,
}

impl FreeSpace {
    /// The free space of the disk of `dir`, of which `reserve_bytes_max` are kept, on a small disk a twentieth of it. It
    /// counts as plenty before the first measurement.
    pub(super) fn new(dir: &Path, reserve_bytes_max: u64, measure: MeasureDisk) -> Self {
        FreeSpace {
            dir: dir.to_owned(),
            reserve_bytes_max,
            measure,
            is_low: AtomicBool::new(false),
            free_bytes: AtomicU64::new(UNKNOWN),
            reserve_bytes: AtomicU64::new(reserve_bytes_max),
            has_no_spare: AtomicBool::new(false),
        }
    }

    /// True if a reserve is kept.
    pub fn has_reserve(&self) -> bool {
        self.reserve_bytes_max > 0
    }

    /// The reserve, as of the last measurement.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes.load(Acquire)
    }

    /// How much was free when the disk was measured last; `None` if the file system does not tell.
    pub fn free_bytes(&self) -> Option<u64> {
        let free = self.free_bytes.load(Acquire);
        (free != UNKNOWN).then_some(free)
    }

    /// Whether the reserve was touched when the disk was measured last.
    pub fn low(&self) -> Option<LowDisk> {
        self.is_low.load(Acquire).then(|| {
            let mb = |bytes: u64| u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
            LowDisk {
                free_mb: mb(self.free_bytes.load(Acquire)),
                reserve_mb: mb(self.reserve_bytes()),
            }
        })
    }

    /// Measures the disk. One that was low stays so until a quarter more than the reserve is free: otherwise it would come
    /// and go with each file that is compacted. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the file system does not tell.
    pub fn measure(&self) -> Result<DiskSpace, StoreError> {
        let disk = self.read()?;
        let reserve = self.reserve_of(disk);
        let enough = match self.is_low.load(Acquire) {
            true => reserve + reserve / 4,
            false => reserve,
        };
        let is_known = disk.size_bytes > 0;
        self.free_bytes.store(if is_known { disk.free_bytes } else { UNKNOWN }, Release);
        self.reserve_bytes.store(reserve, Release);
        self.is_low.store(is_known && disk.free_bytes < enough, Release);
        Ok(disk)
    }

    /// Checks that the disk can take `bytes` more and keep the reserve. Blocks.
    ///
    /// # Errors
    /// [`StoreError::DiskNearlyFull`] if it cannot; [`StoreError::Io`] if the file system does not tell its free space.
    pub fn check(&self, bytes: u64) -> Result<(), StoreError> {
        let disk = self.read()?;
        let needed = bytes.saturating_add(self.reserve_of(disk));
        // Some file systems report a size of 0: they are not checked.
        if disk.size_bytes == 0 || disk.free_bytes >= needed {
            return Ok(());
        }
        Err(StoreError::DiskNearlyFull { dir: self.dir.clone(), free: disk.free_bytes, needed })
    }

    /// Removes the spare if the disk has no room to open the database. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the file system does not tell its free space, or the spare cannot be removed.
    pub(super) fn make_room_to_open(&self) -> Result<(), StoreError> {
        let disk = self.read()?;
        if disk.size_bytes == 0 || disk.free_bytes >= spare_bytes(self.reserve_of(disk)) {
            return Ok(());
        }
        let path = self.dir.join(SPARE);
        match fs::remove_file(&path) {
            Ok(()) => {
                tracing::warn!(
                    path = %path.display(),
                    free_bytes = disk.free_bytes,
                    "the disk has no room: the spare is removed, so that the node can open its data; make room"
                );
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StoreError::io("cannot remove", path)(error)),
        }
    }

    /// Makes the spare if there is none, and room for it above the reserve. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the file system does not tell its free space, or the spare cannot be made.
    pub fn keep_spare(&self) -> Result<(), StoreError> {
        let disk = self.read()?;
        let reserve = self.reserve_of(disk);
        let (bytes, path) = (spare_bytes(reserve), self.dir.join(SPARE));
        let has_room = disk.free_bytes >= reserve + reserve / 4 + bytes;
        if bytes == 0 || !has_room || self.has_no_spare.load(Acquire) || path.exists() {
            return Ok(());
        }
        let file = File::create(&path).map_err(StoreError::io("cannot create", &path))?;
        let Err(error) = fallocate(&file, FallocateFlags::empty(), 0, bytes) else {
            return Ok(());
        };
        // A file without its space would pass for the spare.
        fs::remove_file(&path).map_err(StoreError::io("cannot remove", &path))?;
        match error {
            Errno::OPNOTSUPP => {
                self.has_no_spare.store(true, Release);
                tracing::info!(
                    path = %path.display(),
                    "this file system sets no space aside: on a full disk the node may not open its data"
                );
                Ok(())
            }
            error => Err(StoreError::io("cannot set space aside in", path)(error.into())),
        }
    }

    fn read(&self) -> Result<DiskSpace, StoreError> {
        let measured = (self.measure)(&self.dir);
        measured.map_err(StoreError::io("cannot ask for the free space of", &self.dir))
    }

    fn reserve_of(&self, disk: DiskSpace) -> u64 {
        self.reserve_bytes_max.min(disk.size_bytes / 20)
    }
}

fn spare_bytes(reserve_bytes: u64) -> u64 {
    SPARE_BYTES.min(reserve_bytes / 4)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tempfile::TempDir;

    use super::*;

    const MB: u64 = 1 << 20;

    /// The free space of `dir` on a disk of 10 GB, of which 100 MB are the reserve; and how much is free.
    fn disk(dir: &Path) -> (FreeSpace, Arc<Mutex<u64>>) {
        let free_mb = Arc::new(Mutex::new(5_000));
        let told = free_mb.clone();
        let measure = move |_: &Path| {
            let free_bytes = *told.lock() * MB;
            Ok(DiskSpace { free_bytes, size_bytes: 10_000 * MB })
        };
        (FreeSpace::new(dir, 100 * MB, Arc::new(measure)), free_mb)
    }

    #[test]
    fn a_write_larger_than_the_free_space_is_refused_with_both_sizes() {
        let dir = TempDir::new().unwrap();
        let space = FreeSpace::new(dir.path(), MB, measure_disk());
        space.check(1).unwrap();
        let refused = space.check(u64::MAX).unwrap_err().to_string();
        assert!(refused.contains(dir.path().to_str().unwrap()), "{refused}");
        assert!(refused.contains("make room"), "{refused}");
    }

    #[test]
    fn the_reserve_is_a_twentieth_of_a_small_disk() {
        let space = FreeSpace::new(Path::new("/"), 256 * MB, measure_disk());
        let of = |size_bytes| space.reserve_of(DiskSpace { free_bytes: 0, size_bytes });
        assert_eq!((of(1 << 40), of(20 * MB)), (256 * MB, MB));
    }

    #[test]
    fn a_disk_is_low_below_the_reserve_until_a_quarter_more_than_that_is_free() {
        let (space, free_mb) = disk(Path::new("/"));
        let mut is_low = |free| {
            *free_mb.lock() = free;
            space.measure().unwrap();
            space.low().is_some()
        };
        let seen = [100, 99, 100, 124, 125, 100, 0].map(&mut is_low);
        assert_eq!(seen, [false, true, true, true, false, false, true]);
        assert_eq!(space.low(), Some(LowDisk { free_mb: 0, reserve_mb: 100 }));
    }

    #[test]
    fn the_spare_is_made_where_there_is_room_and_removed_where_there_is_none() {
        let dir = TempDir::new().unwrap();
        let (space, free_mb) = disk(dir.path());
        let spare = dir.path().join(SPARE);
        for (free, has_spare) in [(149, false), (150, true), (25, true), (24, false), (24, false)] {
            *free_mb.lock() = free;
            space.make_room_to_open().unwrap();
            space.keep_spare().unwrap();
            assert_eq!(spare.exists(), has_spare, "{free} MB are free");
            if has_spare {
                assert_eq!(fs::metadata(&spare).unwrap().len(), 25 * MB);
            }
        }
    }
}
