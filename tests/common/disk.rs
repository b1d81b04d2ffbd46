//! A disk under a real node, whose fsyncs fail or hang on demand, whose reads hang on demand, and which fills up on demand.

use std::{
    collections::BTreeMap,
    future::ready,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use ratchet::{
    node::Config,
    storage::{DiskSpace, StoreOptions},
};

use super::cluster::Cluster;

/// The size of a disk, and how much of it is free at first.
const SIZE_BYTES: u64 = 1 << 40;

/// The behaviour of an fsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    Succeeds,
    /// It does not return until the disk is told otherwise.
    Hangs,
    Fails,
}

/// The disk of one node.
#[derive(Clone)]
pub struct Disk {
    fsync: Arc<(Mutex<Fsync>, Condvar)>,
    /// How many fsyncs hang.
    hanging: Arc<AtomicU64>,
    free_bytes: Arc<AtomicU64>,
}

impl Default for Disk {
    fn default() -> Self {
        Disk {
            fsync: Arc::new((Mutex::new(Fsync::Succeeds), Condvar::new())),
            hanging: Arc::default(),
            free_bytes: Arc::new(SIZE_BYTES.into()),
        }
    }
}

/// A cluster of `n` nodes with this change of their configuration, each with a disk of its own. All of them answer.
pub async fn on_disks(n: u64, change: impl Fn(&mut Config)) -> (Cluster, BTreeMap<u64, Disk>) {
    let mut cluster = Cluster::configured(n, change);
    let mut disks = BTreeMap::new();
    for id in 1..=n {
        let disk = Disk::default();
        let mut seams = cluster.seams(id);
        seams.storage = disk.under(&seams.storage);
        cluster.start_node_with(id, seams).await;
        disks.insert(id, disk);
    }
    cluster.all_answer().await;
    (cluster, disks)
}

impl Disk {
    /// Sets the behaviour of every fsync from now on. Calls that hang go on.
    pub fn set(&self, fsync: Fsync) {
        let (state, changed) = &*self.fsync;
        *state.lock().unwrap() = fsync;
        changed.notify_all();
    }

    /// How many fsyncs hang.
    pub fn hanging(&self) -> u64 {
        self.hanging.load(Ordering::SeqCst)
    }

    /// So many megabytes are free from now on.
    pub fn set_free_mb(&self, megabytes: u64) {
        self.free_bytes.store(megabytes << 20, Ordering::SeqCst);
    }

    /// Every fsync hangs until the answer is dropped, and fails from then on.
    pub fn hang_then_fail(&self) -> Hanging {
        self.hang_then(Fsync::Fails)
    }

    /// Every fsync hangs until the answer is dropped, and does as `then` says from then on.
    pub fn hang_then(&self, then: Fsync) -> Hanging {
        self.set(Fsync::Hangs);
        Hanging(self.clone(), then)
    }

    /// `options` of a store on this disk.
    pub fn under(&self, options: &StoreOptions) -> StoreOptions {
        let (disk, free_bytes) = (self.clone(), self.free_bytes.clone());
        StoreOptions {
            measure_disk: Arc::new(move |_| {
                let free_bytes = free_bytes.load(Ordering::SeqCst);
                Ok(DiskSpace { free_bytes, size_bytes: SIZE_BYTES })
            }),
            before_sync: Arc::new(move || Box::pin(ready(disk.sync()))),
            ..options.clone()
        }
    }

    fn sync(&self) -> Result<(), String> {
        let (state, changed) = &*self.fsync;
        let state = state.lock().unwrap();
        self.hanging.fetch_add(1, Ordering::SeqCst);
        let state = changed.wait_while(state, |fsync| *fsync == Fsync::Hangs);
        self.hanging.fetch_sub(1, Ordering::SeqCst);
        match *state.unwrap() {
            Fsync::Fails => {
                Err("IO error: While fdatasync: 000009.log: Input/output error".to_owned())
            }
            Fsync::Succeeds | Fsync::Hangs => Ok(()),
        }
    }
}

/// A disk that hangs.
pub struct Hanging(Disk, Fsync);

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// The reads of records for calls, on the disk of one node.
#[derive(Clone, Default)]
pub struct Reads(Arc<(Mutex<Hung>, Condvar)>);

#[derive(Default)]
struct Hung {
    hang: bool,
    /// How many reads wait.
    reads: usize,
}

impl Reads {
    /// Every read hangs until the answer is dropped.
    pub fn hang(&self) -> HangingReads {
        self.0.0.lock().unwrap().hang = true;
        HangingReads(self.clone())
    }

    /// How many reads hang.
    pub fn hanging(&self) -> usize {
        self.0.0.lock().unwrap().reads
    }

    /// `options` of a store on this disk.
    pub fn under(&self, options: &StoreOptions) -> StoreOptions {
        let reads = self.clone();
        StoreOptions { before_read: Arc::new(move || reads.wait()), ..options.clone() }
    }

    fn wait(&self) {
        let (state, changed) = &*self.0;
        let mut hung = state.lock().unwrap();
        hung.reads += 1;
        let mut hung = changed.wait_while(hung, |hung| hung.hang).unwrap();
        hung.reads -= 1;
    }
}

/// Reads that hang.
pub struct HangingReads(Reads);

impl Drop for HangingReads {
    fn drop(&mut self) {
        let (state, changed) = &*self.0.0;
        state.lock().unwrap().hang = false;
        changed.notify_all();
    }
}
