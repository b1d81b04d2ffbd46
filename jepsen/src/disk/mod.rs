//! A file system in memory that does to a node what bad disks and power cuts do.
//!
//! It is mounted over FUSE, so that the node's process uses it through the kernel like any other. A
//! file remembers how to undo what was written to it since its last fsync, and a directory what was done
//! to its names; a power cut undoes it. The page cache of a real machine survives `kill -9`, and so
//! hides a missing fsync: this one does not.

mod content;
mod names;
mod served;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use fuser::{BackgroundSession, Config, Errno, FileAttr, INodeNo, MountOption};
use parking_lot::Mutex;
use rand::rngs::StdRng;

use content::Content;
use names::{Loss, Names};
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
    /// Names that a power cut took, brought back, or made stand for what they stood for before.
    pub lost_names: u64,
}

#[derive(Clone)]
enum Inode {
    Dir(Names),
    File(Content),
}

/// All that a disk holds at one moment.
#[derive(Clone)]
pub struct Image {
    inodes: BTreeMap<u64, Inode>,
    /// The next inode that was never used.
    next: u64,
    /// How often names changed.
    changes: u64,
}

struct State {
    image: Image,
    /// How often each file is open.
    open: HashMap<u64, u32>,
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
        let state = Arc::new(Mutex::new(State::empty()));
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

    /// What a power cut does to names: those that their directory's last fsync did not save are lost,
    /// as some file system might lose them. Only while no process has the disk in use. Answers which.
    pub fn lose_names(&self, rng: &mut StdRng) -> Vec<OsString> {
        self.state.lock().lose_names(rng)
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
    fn empty() -> State {
        let root = Inode::Dir(Names::default());
        State {
            image: Image {
                inodes: BTreeMap::from([(u64::from(INodeNo::ROOT), root)]),
                next: 2,
                changes: 0,
            },
            open: HashMap::new(),
            faults: Faults::default(),
            tally: Tally::default(),
        }
    }

    fn inode(&mut self, ino: INodeNo) -> Result<&mut Inode, Errno> {
        let inode = self.image.inodes.get_mut(&u64::from(ino));
        inode.ok_or(Errno::ENOENT)
    }

    fn dir(&mut self, ino: INodeNo) -> Result<&mut Names, Errno> {
        match self.inode(ino)? {
            Inode::Dir(names) => Ok(names),
            Inode::File(_) => Err(Errno::ENOTDIR),
        }
    }

    fn file(&mut self, ino: INodeNo) -> Result<&mut Content, Errno> {
        match self.inode(ino)? {
            Inode::File(content) => Ok(content),
            Inode::Dir(_) => Err(Errno::EISDIR),
        }
    }

    fn dirs(&mut self) -> impl Iterator<Item = (u64, &mut Names)> {
        let inodes = self.image.inodes.iter_mut();
        inodes.filter_map(|(ino, inode)| match inode {
            Inode::Dir(names) => Some((*ino, names)),
            Inode::File(_) => None,
        })
    }

    fn attributes(&self, ino: u64) -> Result<FileAttr, Errno> {
        let inode = self.image.inodes.get(&ino).ok_or(Errno::ENOENT)?;
        Ok(attributes(ino, inode))
    }

    fn find(&mut self, parent: INodeNo, name: &OsStr) -> Result<u64, Errno> {
        self.dir(parent)?.get(name).ok_or(Errno::ENOENT)
    }

    /// Changes what names of a directory stand for.
    fn change(
        &mut self,
        parent: INodeNo,
        names: Vec<(OsString, Option<u64>)>,
    ) -> Result<(), Errno> {
        let at = self.image.changes;
        self.dir(parent)?.change(at, names);
        self.image.changes += 1;
        Ok(())
    }

    fn make(&mut self, parent: INodeNo, name: &OsStr, inode: Inode) -> Result<FileAttr, Errno> {
        if self.faults.full {
            self.tally.refused += 1;
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

    fn link(&mut self, ino: INodeNo, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let attr = self.attributes(ino.into())?;
        if self.dir(parent)?.get(name).is_some() {
            return Err(Errno::EEXIST);
        }
        self.change(parent, vec![(name.to_owned(), Some(ino.into()))])?;
        Ok(attr)
    }

    fn remove(&mut self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let ino = self.find(parent, name)?;
        if let Some(Inode::Dir(names)) = self.image.inodes.get(&ino)
            && !names.entries().is_empty()
        {
            return Err(Errno::ENOTEMPTY);
        }
        // What is still open keeps its content: it just has no name any more.
        self.change(parent, vec![(name.to_owned(), None)])
    }

    /// A rename from one directory to another is two changes, one of each: either may be lost.
    fn rename(
        &mut self,
        (from, name): (INodeNo, &OsStr),
        (to, new_name): (INodeNo, &OsStr),
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

    fn write(&mut self, ino: INodeNo, at: u64, data: &[u8]) -> Result<u32, Errno> {
        if self.faults.full {
            self.tally.refused += 1;
            return Err(Errno::ENOSPC);
        }
        let at = usize::try_from(at).map_err(|_| Errno::EINVAL)?;
        self.file(ino)?.write(at, data);
        Ok(data.len() as u32)
    }

    /// Syncs a file's bytes or a directory's names; answers how long that takes.
    fn sync(&mut self, ino: INodeNo) -> Result<Duration, Errno> {
        if self.faults.sync_fails {
            self.tally.sync_failed += 1;
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
        self.tally.synced += 1;
        let takes = self.faults.sync_takes;
        self.tally.sync_delayed += u64::from(!takes.is_zero());
        Ok(takes)
    }

    /// `ino` was synced: its directory may remember that, and so on up to the root.
    fn note_synced(&mut self, ino: u64) {
        let noting = self
            .dirs()
            .filter_map(|(dir, names)| names.note_synced(ino).then_some(dir));
        for dir in noting.collect::<Vec<_>>() {
            self.note_synced(dir);
        }
    }

    fn lose_names(&mut self, rng: &mut StdRng) -> Vec<OsString> {
        let spans: Vec<(u64, u64)> = self.dirs().filter_map(|(_, dir)| dir.unsynced()).collect();
        let oldest = spans.iter().map(|span| span.0).min();
        let newest = spans.iter().map(|span| span.1).max();
        let (Some(oldest), Some(newest)) = (oldest, newest) else {
            return Vec::new();
        };
        let loss = Loss::draw(oldest, newest, rng);
        let lost: Vec<OsString> = self
            .dirs()
            .flat_map(|(_, names)| names.lose(&loss, rng))
            .collect();
        self.tally.lost_names += lost.len() as u64;
        self.sweep();
        lost
    }

    /// Lets go of what has no name, can get none back, and is not open.
    fn sweep(&mut self) {
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

    fn opened(&mut self, ino: u64) {
        *self.open.entry(ino).or_default() += 1;
    }

    fn released(&mut self, ino: u64) {
        if let Some(times) = self.open.get_mut(&ino) {
            *times -= 1;
            if *times == 0 {
                self.open.remove(&ino);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::Write,
    };

    use rand::SeedableRng;

    use super::*;

    fn state() -> (State, INodeNo) {
        (State::empty(), INodeNo::ROOT)
    }

    fn file(state: &mut State, dir: INodeNo, name: &str) -> INodeNo {
        let made = state.make(dir, name.as_ref(), Inode::File(Content::default()));
        made.unwrap().ino
    }

    fn dir(state: &mut State, parent: INodeNo, name: &str) -> INodeNo {
        let made = state.make(parent, name.as_ref(), Inode::Dir(Names::default()));
        made.unwrap().ino
    }

    /// Cuts the power until all is lost that can be.
    fn lose_all(state: &mut State) {
        let loss = Loss::Since(0);
        let mut rng = StdRng::seed_from_u64(1);
        for (_, names) in state.dirs() {
            names.lose(&loss, &mut rng);
        }
        state.sweep();
    }

    #[test]
    fn a_synced_file_goes_with_a_directory_whose_own_name_was_not_synced() {
        let (mut state, root) = state();
        let data = dir(&mut state, root, "data");
        let marker = file(&mut state, data, "NODE");
        state.sync(marker).unwrap();
        state.sync(data).unwrap();
        let mut kept = state.image.clone();
        lose_all(&mut state);
        assert!(state.find(root, "data".as_ref()).is_err());
        assert_eq!(state.image.inodes.len(), 1, "the root alone is left");

        std::mem::swap(&mut state.image, &mut kept);
        state.sync(root).unwrap();
        lose_all(&mut state);
        assert!(state.find(data, "NODE".as_ref()).is_ok());
    }

    #[test]
    fn fsync_of_a_file_alone_saves_its_name_only_where_order_is_not_kept() {
        for seed in 0..50 {
            let (mut state, root) = state();
            let data = dir(&mut state, root, "data");
            let synced = file(&mut state, data, "file");
            state.sync(synced).unwrap();
            let mut rng = StdRng::seed_from_u64(seed);
            let drawn = Loss::draw(0, 1, &mut StdRng::seed_from_u64(seed));
            state.lose_names(&mut rng);
            let stands = state.find(data, "file".as_ref()).is_ok();
            assert_eq!(stands, matches!(drawn, Loss::Any), "seed {seed}: {drawn:?}");
        }
    }

    #[test]
    fn what_was_removed_stays_until_the_removal_is_durable_and_nobody_reads_it() {
        let (mut state, root) = state();
        let removed = file(&mut state, root, "removed");
        state.write(removed, 0, b"bytes").unwrap();
        state.sync(removed).unwrap();
        state.sync(root).unwrap();
        state.opened(removed.into());
        state.remove(root, "removed".as_ref()).unwrap();
        let image = state.image.clone();
        lose_all(&mut state);
        let back = state.find(root, "removed".as_ref()).unwrap();
        assert_eq!(state.file(INodeNo(back)).unwrap().bytes, b"bytes");

        state.image = image;
        state.sync(root).unwrap();
        assert!(state.file(removed).is_ok(), "it is open");
        state.released(removed.into());
        state.sync(root).unwrap();
        assert!(state.file(removed).is_err());
    }

    #[test]
    fn either_half_of_a_rename_between_directories_may_be_lost() {
        let (mut state, root) = state();
        let (one, other) = (dir(&mut state, root, "one"), dir(&mut state, root, "other"));
        file(&mut state, one, "file");
        for synced in [root, one, other] {
            state.sync(synced).unwrap();
        }
        let name = "file".as_ref();
        state.rename((one, name), (other, name)).unwrap();
        let image = state.image.clone();
        state.sync(one).unwrap();
        lose_all(&mut state);
        assert!(state.find(one, name).is_err() && state.find(other, name).is_err());
        state.image = image;
        state.sync(other).unwrap();
        lose_all(&mut state);
        assert!(state.find(one, name).is_ok() && state.find(other, name).is_ok());
    }

    #[test]
    fn the_kernel_passes_on_what_a_process_syncs() {
        let mount = tempfile::tempdir().unwrap();
        let disk = match Disk::mount(mount.path()) {
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
        lose_all(&mut disk.state.lock());
        assert_eq!(fs::read(&kept).unwrap(), b"bytes");
        assert!(!lost.exists());
    }
}
