//! The files and directories of a disk, its faults, and the effects of a power cut on it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::{OsStr, OsString},
    sync::Arc,
};

use fuser::{Errno, FileAttr, INodeNo};
use parking_lot::{Condvar, Mutex};
use rand::{SeedableRng, rngs::StdRng};

use super::{
    content::Content,
    inode::{Inode, attributes},
    names::{Loss, Names},
    pace::{Pace, Wait},
};

#[cfg(test)]
mod tests;

/// The faults of a disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskFaults {
    /// Every fsync fails with EIO, and the writes that it should have saved are lost at the next
    /// power cut even if a later fsync succeeds: the kernel marks such pages clean.
    pub sync_fails: bool,
    /// Writes fail with ENOSPC.
    pub full: bool,
    /// How long an fsync takes.
    pub pace: Pace,
}

/// The counts of a disk's operations so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskCounts {
    /// Fsyncs that were made to fail.
    pub sync_failed: u64,
    /// Fsyncs that were made to wait.
    pub sync_delayed: u64,
    /// Writes refused for lack of space.
    pub refused: u64,
}

/// All that a disk holds at one moment.
#[derive(Clone)]
pub struct Image {
    pub(super) inodes: BTreeMap<u64, Inode>,
    /// The next inode that was never used.
    pub(super) next: u64,
    /// How often names changed.
    pub(super) changes: u64,
}

pub(super) struct State {
    pub(super) image: Image,
    /// How often each file is open.
    pub(super) open: HashMap<u64, u32>,
    pub(super) faults: DiskFaults,
    pub(super) counts: DiskCounts,
    /// How often its faults were replaced; told to the fsyncs that wait.
    pub(super) replaced: u64,
    pub(super) eased: Arc<Condvar>,
    /// The random numbers of its pace.
    rng: StdRng,
}

impl State {
    pub(super) fn empty(seed: u64) -> State {
        let root = Inode::Dir(Names::default());
        State {
            image: Image {
                inodes: BTreeMap::from([(u64::from(INodeNo::ROOT), root)]),
                next: 2,
                changes: 0,
            },
            open: HashMap::new(),
            faults: DiskFaults::default(),
            counts: DiskCounts::default(),
            replaced: 0,
            eased: Arc::default(),
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// Replaces its faults. Fsyncs that wait are done.
    pub(super) fn set_faults(&mut self, faults: DiskFaults) {
        self.faults = faults;
        self.replaced += 1;
        self.eased.notify_all();
    }

    pub(super) fn inode(&mut self, ino: INodeNo) -> Result<&mut Inode, Errno> {
        let inode = self.image.inodes.get_mut(&u64::from(ino));
        inode.ok_or(Errno::ENOENT)
    }

    pub(super) fn dir(&mut self, ino: INodeNo) -> Result<&mut Names, Errno> {
        match self.inode(ino)? {
            Inode::Dir(names) => Ok(names),
            Inode::File(_) => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn file(&mut self, ino: INodeNo) -> Result<&mut Content, Errno> {
        match self.inode(ino)? {
            Inode::File(content) => Ok(content),
            Inode::Dir(_) => Err(Errno::EISDIR),
        }
    }

    pub(super) fn dirs(&mut self) -> impl Iterator<Item = (u64, &mut Names)> {
        let inodes = self.image.inodes.iter_mut();
        inodes.filter_map(|(ino, inode)| match inode {
            Inode::Dir(names) => Some((*ino, names)),
            Inode::File(_) => None,
        })
    }

    pub(super) fn attributes(&self, ino: u64) -> Result<FileAttr, Errno> {
        let inode = self.image.inodes.get(&ino).ok_or(Errno::ENOENT)?;
        Ok(attributes(ino, inode))
    }

    pub(super) fn find(&mut self, parent: INodeNo, name: &OsStr) -> Result<u64, Errno> {
        self.dir(parent)?.get(name).ok_or(Errno::ENOENT)
    }

    /// Changes the inodes of names of a directory.
    pub(super) fn change(
        &mut self, parent: INodeNo, names: Vec<(OsString, Option<u64>)>,
    ) -> Result<(), Errno> {
        let at = self.image.changes;
        self.dir(parent)?.change(at, names);
        self.image.changes += 1;
        Ok(())
    }

    pub(super) fn make(
        &mut self, parent: INodeNo, name: &OsStr, inode: Inode,
    ) -> Result<FileAttr, Errno> {
        if self.faults.full {
            self.counts.refused += 1;
            return Err(Errno::ENOSPC);
        }
        let ino = self.image.next;
        if self.dir(parent)?.get(name).is_some() {
            return Err(Errno::EEXIST);
        }
        self.change(parent, vec![(name.to_owned(), Some(ino))])?;
        self.image.next += 1;
        self.image.inodes.insert(ino, inode);
        self.attributes(ino)
    }

    pub(super) fn link(
        &mut self, ino: INodeNo, parent: INodeNo, name: &OsStr,
    ) -> Result<FileAttr, Errno> {
        let attr = self.attributes(ino.into())?;
        if self.dir(parent)?.get(name).is_some() {
            return Err(Errno::EEXIST);
        }
        self.change(parent, vec![(name.to_owned(), Some(ino.into()))])?;
        Ok(attr)
    }

    pub(super) fn remove(&mut self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let ino = self.find(parent, name)?;
        if let Some(Inode::Dir(names)) = self.image.inodes.get(&ino)
            && !names.entries().is_empty()
        {
            return Err(Errno::ENOTEMPTY);
        }
        // An open file keeps its content without a name.
        self.change(parent, vec![(name.to_owned(), None)])
    }

    /// A rename between two directories is one change in each. Either may be lost alone.
    pub(super) fn rename(
        &mut self, (from, name): (INodeNo, &OsStr), (to, new_name): (INodeNo, &OsStr),
    ) -> Result<(), Errno> {
        let ino = self.find(from, name)?;
        self.dir(to)?;
        let gone = (name.to_owned(), None);
        let come = (new_name.to_owned(), Some(ino));
        if from == to {
            return self.change(from, vec![gone, come]);
        }
        self.change(to, vec![come])?;
        self.change(from, vec![gone])
    }

    pub(super) fn write(&mut self, ino: INodeNo, at: u64, data: &[u8]) -> Result<u32, Errno> {
        if self.faults.full {
            self.counts.refused += 1;
            return Err(Errno::ENOSPC);
        }
        let at = usize::try_from(at).map_err(|_| Errno::EINVAL)?;
        self.file(ino)?.write(at, data);
        Ok(data.len() as u32)
    }

    /// Syncs the bytes of a file or the names of a directory; returns the wait of the caller, if it
    /// must wait.
    pub(super) fn sync(&mut self, ino: INodeNo) -> Result<Option<Wait>, Errno> {
        if self.faults.sync_fails {
            self.counts.sync_failed += 1;
            match self.inode(ino)? {
                Inode::Dir(names) => names.poison(),
                Inode::File(content) => content.poison(),
            }
            return Err(Errno::EIO);
        }
        match self.inode(ino)? {
            Inode::Dir(names) => {
                names.sync();
                self.sweep();
            }
            Inode::File(content) => content.sync(),
        }
        self.note_synced(ino.into());
        let takes = self.faults.pace.draw(&mut self.rng);
        self.counts.sync_delayed += u64::from(takes.is_some());
        Ok(takes.map(|takes| Wait { takes, replaced: self.replaced }))
    }

    /// Notes in the directories above `ino` that it was synced.
    pub(super) fn note_synced(&mut self, ino: u64) {
        let noting = self.dirs().filter_map(|(dir, names)| names.note_synced(ino).then_some(dir));
        for dir in noting.collect::<Vec<_>>() {
            self.note_synced(dir);
        }
    }

    pub(super) fn lose_names(&mut self, rng: &mut StdRng) -> Vec<OsString> {
        let spans: Vec<(u64, u64)> = self.dirs().filter_map(|(_, dir)| dir.unsynced()).collect();
        let oldest = spans.iter().map(|span| span.0).min();
        let newest = spans.iter().map(|span| span.1).max();
        let (Some(oldest), Some(newest)) = (oldest, newest) else {
            return Vec::new();
        };
        let loss = Loss::draw(oldest, newest, rng);
        let lost: Vec<OsString> =
            self.dirs().flat_map(|(_, names)| names.lose(&loss, rng)).collect();
        self.sweep();
        lost
    }

    /// Removes inodes that have no name, cannot get one back, and are not open.
    pub(super) fn sweep(&mut self) {
        let mut needed: BTreeSet<u64> = self.open.keys().copied().collect();
        needed.insert(INodeNo::ROOT.into());
        let mut dirs = vec![u64::from(INodeNo::ROOT)];
        while let Some(dir) = dirs.pop() {
            if let Some(Inode::Dir(names)) = self.image.inodes.get(&dir) {
                dirs.extend(names.targets().filter(|ino| needed.insert(*ino)));
            }
        }
        self.image.inodes.retain(|ino, _| needed.contains(ino));
    }

    pub(super) fn opened(&mut self, ino: u64) {
        *self.open.entry(ino).or_default() += 1;
    }

    pub(super) fn released(&mut self, ino: u64) {
        if let Some(times) = self.open.get_mut(&ino) {
            *times -= 1;
            if *times == 0 {
                self.open.remove(&ino);
            }
        }
    }

    /// A power cut that takes all unsynced names.
    #[cfg(test)]
    pub(super) fn lose_all(&mut self) {
        let mut rng = StdRng::seed_from_u64(1);
        for (_, names) in self.dirs() {
            names.lose(&Loss::Since(0), &mut rng);
        }
        self.sweep();
    }
}

impl Wait {
    /// Waits. A disk that works again has done the fsync.
    pub(super) fn end(self, disk: &Mutex<State>) {
        let mut state = disk.lock();
        let eased = state.eased.clone();
        let is_same = |state: &mut State| state.replaced == self.replaced;
        eased.wait_while_for(&mut state, is_same, self.takes);
    }
}
