//! The free space on the disk of the data directory, and the reserve that is kept of it.
//!
//! A new section stays in the table for good. Below the reserve the leader makes none, so that a disk that fills up does
//! not stop all nodes together: keys in use go on with the space that is left. Snapshots keep the reserve as well.
//!
//! The files that go on growing below the reserve must fit into it: the log up to its bound ([`FreeSpace::log_bytes_max`]), as
//! much again while it is compacted, up to four files of it that are not compacted yet, and RocksDB's own log
//! ([`wal_bytes_max`]). So the bounds of both follow from the reserve, and a small disk has a short log.
//!
//! Invariant: whether the disk is low changes by a measurement alone.

use std::{
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

use rustix::fs::statvfs;

use super::{error::StoreError, spare::Spare};
use crate::{ordered_watch, sequence::NodeId};

/// The reserve of a disk that is too small for the setting: a twentieth of it, and no less than this.
const SMALL_RESERVE_BYTES: u64 = 64 << 20;
/// How large a part of the reserve the log may take.
const LOG_SHARE: u64 = 4;
/// How large a part of the reserve RocksDB's own log may take.
const WAL_SHARE: u64 = 16;
/// How large RocksDB's own log may be at most.
const WAL_BYTES_MAX: u64 = 64 << 20;
/// A log of RocksDB's that is shorter would write a file every moment.
const WAL_BYTES_MIN: u64 = 1 << 20;

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

/// A disk has less free space than its reserve. In megabytes (2^20 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{free_mb} MB are free{}, and the reserve is {reserve_mb} MB (disk_reserve_mb)", on_the_disk_of(.follower)
)]
pub struct LowDisk {
    /// How much is free.
    pub free_mb: u32,
    /// How much should be.
    pub reserve_mb: u32,
    /// The follower that has the disk; `None` for this node's.
    pub follower: Option<NodeId>,
}

impl LowDisk {
    /// Why new keys and namespaces are refused while it is low, without figures.
    pub fn why_refused(&self) -> &'static str {
        match self.follower {
            None => "the disk is nearly full",
            Some(_) => "the voters whose disks have room are no majority",
        }
    }
}

fn on_the_disk_of(follower: &Option<NodeId>) -> String {
    follower.map_or_else(String::new, |node| format!(" on the disk of node {node}"))
}

/// The free space of the disk of a data directory.
pub struct FreeSpace {
    dir: PathBuf,
    reserve_bytes_max: u64,
    measure: MeasureDisk,
    is_low: AtomicBool,
    free_bytes: AtomicU64,
    reserve_bytes: AtomicU64,
    /// Counts the measurements.
    measurements: ordered_watch::Sender<u64>,
    spare: Spare,
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
            measurements: ordered_watch::Sender::default(),
            spare: Spare::of(dir),
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

    /// How large the logs of all sets together may be so that they fit into the reserve, in bytes, as of the last measurement.
    /// `None` if no reserve is kept, or the file system does not tell how large the disk is.
    pub fn log_bytes_max(&self) -> Option<u64> {
        let reserve = self.reserve_bytes();
        (reserve > 0).then_some(reserve / LOG_SHARE)
    }

    /// How large RocksDB's own log may be, as of the last measurement.
    pub(super) fn wal_bytes_max(&self) -> u64 {
        wal_bytes_max(self.reserve_bytes())
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
                follower: None,
            }
        })
    }

    /// Counts the measurements from now on, those that fail among them.
    pub fn measurements(&self) -> ordered_watch::Receiver<u64> {
        self.measurements.subscribe()
    }

    /// Measures the disk. One that was low stays so until a quarter more than the reserve is free: otherwise it would come
    /// and go with each file that is compacted. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the file system does not tell.
    pub fn measure(&self) -> Result<DiskSpace, StoreError> {
        let measured = self.read().inspect(|disk| self.take_in(*disk));
        self.measurements.send_modify(|count| *count += 1);
        measured
    }

    /// Takes in what was measured.
    fn take_in(&self, disk: DiskSpace) {
        let reserve = self.reserve_of(disk);
        let enough = match self.is_low.load(Acquire) {
            true => reserve + reserve / 4,
            false => reserve,
        };
        let is_known = disk.size_bytes > 0;
        self.free_bytes.store(if is_known { disk.free_bytes } else { UNKNOWN }, Release);
        self.reserve_bytes.store(reserve, Release);
        self.is_low.store(is_known && disk.free_bytes < enough, Release);
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

    /// Measures the disk, and removes the spare if there is no room to open the database, of whose own log `wal_bytes` are
    /// to be replayed. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the file system does not tell its free space, or the spare cannot be removed.
    pub(super) fn make_room_to_open(&self, wal_bytes: u64) -> Result<(), StoreError> {
        let disk = self.measure()?;
        let needed = Spare::needed_to_open(wal_bytes, self.wal_bytes_max());
        if disk.size_bytes == 0 || disk.free_bytes >= needed {
            return Ok(());
        }
        if self.spare.remove()? {
            tracing::warn!(
                path = %self.spare.path().display(),
                free_bytes = disk.free_bytes,
                "the disk has no room: the spare is removed, so that the node can open its data; make room"
            );
        }
        let disk = self.measure()?;
        if disk.free_bytes < wal_bytes {
            tracing::error!(
                directory = %self.dir.display(),
                free_bytes = disk.free_bytes,
                "opening the data can take {wal_bytes} bytes, and fails if the disk has no room for them; make room"
            );
        }
        Ok(())
    }

    /// Makes the spare, or gives it the size that it should have, if there is room for it above the reserve; removes it if
    /// no reserve is to be kept. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the file system does not tell its free space, or the spare cannot be made.
    pub fn keep_spare(&self) -> Result<(), StoreError> {
        if !self.has_reserve() {
            return self.spare.remove().map(drop);
        }
        let disk = self.read()?;
        if disk.size_bytes == 0 {
            return Ok(());
        }
        let reserve = self.reserve_of(disk);
        let wal = wal_bytes_max(reserve);
        let room = disk.free_bytes.saturating_sub(reserve + reserve / 4);
        self.spare.keep(Spare::needed_to_open(wal, wal), room)
    }

    fn read(&self) -> Result<DiskSpace, StoreError> {
        let measured = (self.measure)(&self.dir);
        measured.map_err(StoreError::io("cannot ask for the free space of", &self.dir))
    }

    fn reserve_of(&self, disk: DiskSpace) -> u64 {
        match disk.size_bytes {
            0 => 0,
            size => self.reserve_bytes_max.min(SMALL_RESERVE_BYTES.max(size / 20)),
        }
    }
}

/// How large RocksDB's own log may be if so many bytes of the disk are the reserve.
fn wal_bytes_max(reserve_bytes: u64) -> u64 {
    match reserve_bytes {
        0 => WAL_BYTES_MAX,
        reserve => (reserve / WAL_SHARE).clamp(WAL_BYTES_MIN, WAL_BYTES_MAX),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use parking_lot::Mutex;
    use tempfile::TempDir;

    use super::*;
    use crate::storage::spare::SPARE;

    const MB: u64 = 1 << 20;

    /// The free space of `dir` on a disk of 100 GB, of which `reserve_mb` are the reserve; and how much is free.
    fn disk(dir: &Path, reserve_mb: u64) -> (FreeSpace, Arc<Mutex<u64>>) {
        let free_mb = Arc::new(Mutex::new(50_000));
        let told = free_mb.clone();
        let measure = move |_: &Path| {
            let free_bytes = *told.lock() * MB;
            Ok(DiskSpace { free_bytes, size_bytes: 100_000 * MB })
        };
        (FreeSpace::new(dir, reserve_mb * MB, Arc::new(measure)), free_mb)
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
    fn the_reserve_is_a_twentieth_of_a_small_disk_and_64_mb_of_a_tiny_one() {
        let space = FreeSpace::new(Path::new("/"), 256 * MB, measure_disk());
        let of = |size_bytes| space.reserve_of(DiskSpace { free_bytes: 0, size_bytes });
        assert_eq!([1 << 40, 2_000 * MB, 20 * MB].map(of), [256 * MB, 100 * MB, 64 * MB]);
        assert_eq!(of(0), 0, "a file system that does not tell its size");
    }

    #[test]
    fn what_may_still_be_written_below_the_reserve_fits_into_it() {
        for size_mb in [20, 1_000, 8_000, 20_480, 1 << 20] {
            let size_bytes = size_mb * MB;
            let measure = move |_: &Path| Ok(DiskSpace { free_bytes: 0, size_bytes });
            let space = FreeSpace::new(Path::new("/"), 1_024 * MB, Arc::new(measure));
            space.measure().unwrap();
            let (log, wal) = (space.log_bytes_max().unwrap(), space.wal_bytes_max());
            // The log, a compaction of it, four files of it, RocksDB's own log and what it flushes.
            let all = log + log + 4 * wal + 2 * wal;
            assert!(all <= space.reserve_bytes(), "a disk of {size_mb} MB: {all}");
        }
    }

    #[test]
    fn a_disk_is_low_below_the_reserve_until_a_quarter_more_than_that_is_free() {
        let (space, free_mb) = disk(Path::new("/"), 100);
        let mut is_low = |free| {
            *free_mb.lock() = free;
            space.measure().unwrap();
            space.low().is_some()
        };
        let seen = [100, 99, 100, 124, 125, 100, 0].map(&mut is_low);
        assert_eq!(seen, [false, true, true, true, false, false, true]);
        assert_eq!(space.low(), Some(LowDisk { free_mb: 0, reserve_mb: 100, follower: None }));
    }

    #[test]
    fn measurements_are_counted_also_those_that_fail() {
        let fails = Arc::new(AtomicBool::new(false));
        let told = fails.clone();
        let measure = move |_: &Path| match told.load(Acquire) {
            false => Ok(DiskSpace { free_bytes: MB, size_bytes: 100_000 * MB }),
            true => Err(io::Error::other("no answer")),
        };
        let space = FreeSpace::new(Path::new("/"), 100 * MB, Arc::new(measure));
        let seen = space.measurements();
        space.measure().unwrap();
        fails.store(true, Release);
        space.measure().unwrap_err();
        assert_eq!(*seen.borrow(), 2);
        assert!(space.low().is_some(), "what was measured last");
    }

    #[test]
    fn a_low_disk_says_whose_it_is() {
        let of = |follower| LowDisk { free_mb: 7, reserve_mb: 8, follower }.to_string();
        assert!(of(Some(3)).starts_with("7 MB are free on the disk of node 3, and"));
        assert!(of(None).starts_with("7 MB are free, and"));
    }

    #[test]
    fn the_spare_is_made_where_there_is_room_and_removed_where_there_is_none() {
        let dir = TempDir::new().unwrap();
        // RocksDB's own log may have 10 MB.
        let (space, free_mb) = disk(dir.path(), 160);
        let spare = dir.path().join(SPARE);
        for (free, has_spare) in [(223, false), (224, true), (24, true), (23, false), (23, false)] {
            *free_mb.lock() = free;
            space.make_room_to_open(10 * MB).unwrap();
            space.keep_spare().unwrap();
            assert_eq!(spare.exists(), has_spare, "{free} MB are free");
            if has_spare {
                assert_eq!(fs::metadata(&spare).unwrap().len(), 24 * MB);
            }
        }
    }

    #[test]
    fn the_spare_goes_for_a_replay_that_takes_more_than_the_setting_says() {
        let dir = TempDir::new().unwrap();
        let (space, free_mb) = disk(dir.path(), 160);
        space.keep_spare().unwrap();
        *free_mb.lock() = 60;
        space.make_room_to_open(45 * MB).unwrap();
        assert!(dir.path().join(SPARE).exists());
        space.make_room_to_open(47 * MB).unwrap();
        assert!(!dir.path().join(SPARE).exists());
    }

    #[test]
    fn the_spare_follows_the_setting_and_goes_with_the_reserve() {
        let dir = TempDir::new().unwrap();
        let spare = dir.path().join(SPARE);
        for (reserve_mb, spare_mb) in [(160, 24), (320, 44), (160, 24)] {
            disk(dir.path(), reserve_mb).0.keep_spare().unwrap();
            assert_eq!(fs::metadata(&spare).unwrap().len(), spare_mb * MB, "{reserve_mb}");
        }
        disk(dir.path(), 0).0.keep_spare().unwrap();
        assert!(!spare.exists());
    }
}
