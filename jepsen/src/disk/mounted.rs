//! A disk that is mounted over FUSE.

use std::{ffi::OsString, io, path::Path, sync::Arc};

use fuser::{BackgroundSession, Config, MountOption};
use parking_lot::Mutex;
use rand::rngs::StdRng;

use super::{
    fuse::Served,
    inode::Inode,
    pace::Pace,
    state::{DiskCounts, DiskFaults, Image, State},
};

/// A mounted disk. Dropping it unmounts it.
pub struct Disk {
    state: Arc<Mutex<State>>,
    _session: BackgroundSession,
}

impl Disk {
    /// Mounts an empty disk at `mount`, which must be an empty directory. Its random numbers come from `seed`.
    ///
    /// # Errors
    /// There is no FUSE here, or no right to mount.
    pub fn mount(mount: &Path, seed: u64) -> io::Result<Disk> {
        let state = Arc::new(Mutex::new(State::empty(seed)));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("ratchet-jepsen".to_owned())];
        let session = fuser::spawn_mount(Served(state.clone()), mount, &config)?;
        Ok(Disk { state, _session: session })
    }

    /// Replaces its faults. Fsyncs that wait are done.
    pub fn set_faults(&self, faults: DiskFaults) {
        self.state.lock().set_faults(faults);
    }

    /// Does `work` while no fsync waits: the kernel does not let a killed process end before its fsyncs are answered.
    pub fn without_waits<T>(&self, work: impl FnOnce() -> T) -> T {
        let faults = self.state.lock().faults;
        self.set_faults(DiskFaults { pace: Pace::Quick, ..faults });
        let done = work();
        self.set_faults(faults);
        done
    }

    /// The counts of the disk's operations so far.
    pub fn counts(&self) -> DiskCounts {
        self.state.lock().counts
    }

    /// A power cut: each file keeps the synced bytes, and at most the first `kept` of the writes that
    /// were not synced. Only while no process uses the disk. Returns how many bytes were lost.
    pub fn lose_unsynced(&self, kept: usize) -> u64 {
        let mut state = self.state.lock();
        let mut lost = 0;
        for inode in state.image.inodes.values_mut() {
            if let Inode::File(content) = inode {
                lost += content.lose(kept);
            }
        }
        lost
    }

    /// Cuts the power for names: names that their directory's last fsync did not save are lost, as some
    /// file system might lose them. Only while no process has the disk in use. Answers which.
    pub fn lose_names(&self, rng: &mut StdRng) -> Vec<OsString> {
        self.state.lock().lose_names(rng)
    }

    /// The content of the disk now, as a copy taken at this moment has it.
    pub fn image(&self) -> Image {
        self.state.lock().image.clone()
    }

    /// Replaces all it holds. Only while no process has the disk in use.
    pub fn restore(&self, image: Image) {
        self.state.lock().image = image;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::Write,
    };

    use super::*;

    #[test]
    fn the_kernel_passes_on_what_a_process_syncs() {
        let mount = tempfile::tempdir().unwrap();
        let disk = match Disk::mount(mount.path(), 1) {
            Ok(disk) => disk,
            Err(error) => return eprintln!("NO FUSE, NOT TESTED: {error}"),
        };
        let (kept, lost) = (mount.path().join("kept"), mount.path().join("lost"));
        let write = |path: &Path| {
            let mut file = File::create(path)?;
            file.write_all(b"bytes")?;
            file.sync_all()
        };
        write(&kept).unwrap();
        File::open(mount.path()).unwrap().sync_all().unwrap();
        write(&lost).unwrap();
        fs::remove_file(&kept).unwrap();
        // All but the order that is not kept, which a file's fsync tells of its name.
        disk.state.lock().lose_all();
        assert_eq!(fs::read(&kept).unwrap(), b"bytes");
        assert!(!lost.exists());
    }
}
