//! A file system in memory that does to a node what bad disks and power cuts do.
//!
//! It is mounted over FUSE, so that the node's process uses it through the kernel like any other. A
//! file remembers how to undo what was written to it since its last fsync; a power cut undoes it. The
//! page cache of a real machine survives `kill -9`, and so hides a missing fsync: this one does not.
//! Directories (names, renames, removals) are durable at once, as on a journaling file system.

mod served;

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use fuser::{BackgroundSession, Config, Errno, FileAttr, INodeNo, MountOption};
use parking_lot::Mutex;

use served::{Served, attributes};

/// What a disk does wrong from now on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Every fsync fails with EIO, and what it should have saved is lost at the next power cut even
    /// if a later fsync succeeds: the kernel marks such pages clean.
    pub sync_fails: bool,
    /// Writes fail with ENOSPC.
    pub full: bool,
    /// How long an fsync takes.
    pub sync_takes: Duration,
}

/// What a disk has done so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Successful fsyncs.
    pub synced: u64,
    /// Fsyncs that were made to fail.
    pub sync_failed: u64,
    /// Fsyncs that were made to wait.
    pub sync_delayed: u64,
    /// Writes refused for lack of space.
    pub refused: u64,
    /// Bytes that a power cut took.
    pub lost_bytes: u64,
}

#[derive(Clone)]
struct Undo {
    at: usize,
    overwritten: Vec<u8>,
    length: usize,
}

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    /// Since the last fsync, oldest first.
    undo: Vec<Undo>,
    poisoned: bool,
}

impl Content {
    fn write(&mut self, at: usize, data: &[u8]) {
        let length = self.bytes.len();
        let end = at + data.len();
        let overwritten = self.bytes[at.min(length)..end.min(length)].to_vec();
        self.undo.push(Undo {
            at,
            overwritten,
            length,
        });
        if length < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(data);
    }

    fn resize(&mut self, to: usize) {
        let length = self.bytes.len();
        self.undo.push(Undo {
            at: to,
            overwritten: self.bytes[to.min(length)..].to_vec(),
            length,
        });
        self.bytes.resize(to, 0);
    }

    fn sync(&mut self) {
        if !self.poisoned {
            self.undo.clear();
        }
    }

    /// Undoes the writes after the first `kept`; answers how many bytes went.
    fn lose(&mut self, kept: usize) -> u64 {
        let mut lost = 0;
        for undo in self.undo.drain(kept.min(self.undo.len())..).rev() {
            lost +=
                (self.bytes.len().saturating_sub(undo.length)).max(undo.overwritten.len()) as u64;
            self.bytes.resize(undo.length, 0);
            self.bytes[undo.at.min(undo.length)..][..undo.overwritten.len()]
                .copy_from_slice(&undo.overwritten);
        }
        self.undo.clear();
        self.poisoned = false;
        lost
    }
}

#[derive(Clone)]
enum Inode {
    Dir(BTreeMap<OsString, u64>),
    File(Content),
}

/// All that a disk holds at one moment.
#[derive(Clone)]
pub struct Image {
    inodes: HashMap<u64, Inode>,
    next: u64,
}

struct State {
    image: Image,
    faults: Faults,
    tally: Tally,
}

/// A mounted disk. Dropping it unmounts it.
pub struct Disk {
    state: Arc<Mutex<State>>,
    mount: PathBuf,
    _session: BackgroundSession,
}

impl Disk {
    /// Mounts an empty disk at `mount`, which must be an empty directory.
    ///
    /// # Errors
    /// There is no FUSE here, or no right to mount.
    pub fn mount(mount: &Path) -> io::Result<Disk> {
        let root = HashMap::from([(u64::from(INodeNo::ROOT), Inode::Dir(BTreeMap::new()))]);
        let state = Arc::new(Mutex::new(State {
            image: Image {
                inodes: root,
                next: 2,
            },
            faults: Faults::default(),
            tally: Tally::default(),
        }));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("ratchet-jepsen".to_owned())];
        let session = fuser::spawn_mount(Served(state.clone()), mount, &config)?;
        Ok(Disk {
            state,
            mount: mount.to_owned(),
            _session: session,
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// From now on it does this wrong, and nothing else.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// What it has done so far.
    pub fn tally(&self) -> Tally {
        self.state.lock().tally
    }

    /// A power cut: each file keeps what was synced, and of what was not at most the first `kept`
    /// writes. Only while no process has the disk in use. Answers how many bytes went.
    pub fn lose_unsynced(&self, kept: usize) -> u64 {
        let mut state = self.state.lock();
        let mut lost = 0;
        for inode in state.image.inodes.values_mut() {
            if let Inode::File(content) = inode {
                lost += content.lose(kept);
            }
        }
        state.tally.lost_bytes += lost;
        lost
    }

    /// What it holds now, as a copy taken at this moment would.
    pub fn image(&self) -> Image {
        self.state.lock().image.clone()
    }

    /// Replaces all it holds. Only while no process has the disk in use.
    pub fn restore(&self, image: Image) {
        self.state.lock().image = image;
    }
}

impl State {
    fn dir(&mut self, ino: INodeNo) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        match self.image.inodes.get_mut(&u64::from(ino)) {
            Some(Inode::Dir(entries)) => Ok(entries),
            Some(Inode::File(_)) => Err(Errno::ENOTDIR),
            None => Err(Errno::ENOENT),
        }
    }

    fn file(&mut self, ino: INodeNo) -> Result<&mut Content, Errno> {
        match self.image.inodes.get_mut(&u64::from(ino)) {
            Some(Inode::File(content)) => Ok(content),
            Some(Inode::Dir(_)) => Err(Errno::EISDIR),
            None => Err(Errno::ENOENT),
        }
    }

    fn attributes(&self, ino: u64) -> Result<FileAttr, Errno> {
        let inode = self.image.inodes.get(&ino).ok_or(Errno::ENOENT)?;
        Ok(attributes(ino, inode))
    }

    fn find(&mut self, parent: INodeNo, name: &OsStr) -> Result<u64, Errno> {
        self.dir(parent)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    fn make(&mut self, parent: INodeNo, name: &OsStr, inode: Inode) -> Result<FileAttr, Errno> {
        if self.faults.full {
            self.tally.refused += 1;
            return Err(Errno::ENOSPC);
        }
        let ino = self.image.next;
        let entries = self.dir(parent)?;
        if entries.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        entries.insert(name.to_owned(), ino);
        self.image.next += 1;
        self.image.inodes.insert(ino, inode);
        self.attributes(ino)
    }

    fn remove(&mut self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let ino = self.find(parent, name)?;
        if let Some(Inode::Dir(entries)) = self.image.inodes.get(&ino)
            && !entries.is_empty()
        {
            return Err(Errno::ENOTEMPTY);
        }
        // A file that is still open keeps its content: it just has no name any more.
        self.dir(parent)?.remove(name);
        Ok(())
    }

    fn write(&mut self, ino: INodeNo, at: u64, data: &[u8]) -> Result<u32, Errno> {
        if self.faults.full {
            self.tally.refused += 1;
            return Err(Errno::ENOSPC);
        }
        let at = usize::try_from(at).map_err(|_| Errno::EINVAL)?;
        self.file(ino)?.write(at, data);
        Ok(data.len() as u32)
    }

    fn sync(&mut self, ino: INodeNo) -> Result<Duration, Errno> {
        if self.faults.sync_fails {
            self.tally.sync_failed += 1;
            self.file(ino)?.poisoned = true;
            return Err(Errno::EIO);
        }
        self.file(ino)?.sync();
        self.tally.synced += 1;
        let takes = self.faults.sync_takes;
        self.tally.sync_delayed += u64::from(!takes.is_zero());
        Ok(takes)
    }

    fn rename(
        &mut self,
        (from, name): (INodeNo, &OsStr),
        (to, new_name): (INodeNo, &OsStr),
    ) -> Result<(), Errno> {
        let ino = self.find(from, name)?;
        self.dir(to)?;
        self.dir(from)?.remove(name);
        self.dir(to)?.insert(new_name.to_owned(), ino);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_cut_takes_what_was_not_synced_and_leaves_what_was() {
        let mut content = Content::default();
        content.write(0, b"durable");
        content.sync();
        content.write(7, b" lost");
        content.write(0, b"DUR");
        content.resize(4);
        assert_eq!(content.bytes, b"DURa");
        assert!(content.lose(0) > 0);
        assert_eq!(content.bytes, b"durable");
    }

    #[test]
    fn a_power_cut_may_leave_the_first_of_the_unsynced_writes() {
        let mut content = Content::default();
        content.write(0, b"one");
        content.write(3, b"two");
        content.lose(1);
        assert_eq!(content.bytes, b"one");
    }

    #[test]
    fn what_a_failed_fsync_did_not_save_is_lost_even_after_one_that_succeeds() {
        let mut content = Content::default();
        content.write(0, b"gone");
        content.poisoned = true;
        content.sync();
        content.lose(0);
        assert_eq!(content.bytes, b"");
    }
}
