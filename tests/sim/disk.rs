//! The disk of a node: the real store on a directory in memory, with an fsync that takes simulated time
//! and may fail, and a crash that loses bytes and names that were not synced.
//!
//! At a crash, the content of the disk is copied before the database is closed, because closing would
//! write the data that it keeps in memory. The node starts again on the copy.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet::{
    clock::Clock,
    storage::{BlockingExecutor, StoreOptions, UnsyncedWrites},
};
use tempfile::TempDir;

use crate::power::Names;

/// How a disk behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mood {
    /// An fsync takes 1 to 5 ms, now and then much longer.
    Well,
    /// An fsync takes so many milliseconds.
    Slow { shortest_ms: u64, longest_ms: u64 },
    /// An fsync never returns.
    Hanging,
    /// Neither an fsync nor a write to the table returns.
    Stuck,
    /// The next fsync fails.
    Failing,
}

/// The disk of one node.
pub struct Disk {
    parent: TempDir,
    names: Arc<Names>,
    state: Mutex<State>,
}

struct State {
    /// The number of crashes so far. After each, the data is in another directory.
    generation: u32,
    mood: Mood,
    rng: StdRng,
    /// Whether something was written and is not synced yet.
    syncing: bool,
}

impl Disk {
    /// An empty disk.
    pub fn new(seed: u64) -> Arc<Disk> {
        let shared_memory = Path::new("/dev/shm");
        let parent =
            if shared_memory.is_dir() { TempDir::new_in(shared_memory) } else { TempDir::new() };
        let parent = parent.expect("a temporary directory");
        Arc::new(Disk {
            names: Arc::new(Names::new(parent.path().join("kept"))),
            parent,
            state: Mutex::new(State {
                generation: 0,
                mood: Mood::Well,
                rng: StdRng::seed_from_u64(seed),
                syncing: false,
            }),
        })
    }

    /// The parent of all its directories.
    pub fn parent(&self) -> &Path {
        self.parent.path()
    }

    /// Where the data is now.
    pub fn data_dir(&self) -> PathBuf {
        self.dir_of(self.state.lock().expect("a disk").generation)
    }

    fn dir_of(&self, generation: u32) -> PathBuf {
        self.parent.path().join(generation.to_string())
    }

    /// How it behaves from now on.
    pub fn set(&self, mood: Mood) {
        self.state.lock().expect("a disk").mood = mood;
    }

    /// The options of a store on this disk.
    pub fn options(self: &Arc<Self>, clock: Arc<dyn Clock>) -> StoreOptions {
        let (disk, table, names) = (self.clone(), self.clone(), self.names.clone());
        StoreOptions {
            directory_synced: Arc::new(move |dir| names.synced(dir)),
            before_sync: Arc::new(move || Box::pin(disk.clone().sync())),
            before_apply: Arc::new(move || Box::pin(table.clone().apply())),
            blocking: BlockingExecutor::Inline,
            unsynced: UnsyncedWrites::InProcess,
            ..StoreOptions::new(clock)
        }
    }

    /// An fsync: takes its time, hangs, or fails.
    async fn sync(self: Arc<Self>) -> Result<(), String> {
        let wait = {
            let mut state = self.state.lock().expect("a disk");
            state.syncing = true;
            let hiccup = state.rng.random_ratio(1, 50);
            let takes = match state.mood {
                Mood::Slow { shortest_ms, longest_ms } => shortest_ms..=longest_ms,
                _ if hiccup => 1..=80,
                _ => 1..=5,
            };
            state.rng.random_range(takes)
        };
        tokio::time::sleep(Duration::from_millis(wait)).await;
        self.while_it_is(|mood| matches!(mood, Mood::Hanging | Mood::Stuck)).await;
        let mut state = self.state.lock().expect("a disk");
        if state.mood == Mood::Failing {
            return Err("IO error: While fdatasync: 000009.log: Input/output error".to_owned());
        }
        state.syncing = false;
        Ok(())
    }

    /// A write to the table: takes no time, or hangs.
    async fn apply(self: Arc<Self>) {
        self.while_it_is(|mood| mood == Mood::Stuck).await;
    }

    async fn while_it_is(&self, is_so: impl Fn(Mood) -> bool) {
        while is_so(self.state.lock().expect("a disk").mood) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Copies the content of the disk, while the node still runs. Bytes that it wrote and did not sync
    /// are lost. Returns whether its log lost something.
    pub fn cut_power(&self) -> bool {
        let (from, to, lost) = {
            let mut state = self.state.lock().expect("a disk");
            state.generation += 1;
            let lost = std::mem::take(&mut state.syncing);
            if state.mood == Mood::Failing {
                state.mood = Mood::Well;
            }
            let now = state.generation;
            (self.dir_of(now - 1), self.dir_of(now), lost)
        };
        self.names.cut_power(&from, &to);
        lost
    }

    /// Removes the directories that a crash has left behind.
    pub fn forget_the_past(&self) {
        let generation = self.state.lock().expect("a disk").generation;
        if let Some(last) = generation.checked_sub(1) {
            // There is none where the node had not started yet.
            let _ = fs::remove_dir_all(self.dir_of(last));
        }
    }
}
