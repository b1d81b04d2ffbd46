//! Snapshots: the applied table as of one log entry, in a file.
//!
//! Invariant: a file stands under its final name only when it
//! is whole and on the disk, and what arrives from a peer is installed only when it proves whole.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    database::Database, error::StoreError, raft_types::SnapshotMeta, snapshot_file, store::Store,
    work::Work,
};
use crate::{random, sequence::SetId};

/// A whole snapshot on the disk. It stays readable while one holds it, even if its file is removed.
#[derive(Debug, Clone)]
pub struct SnapshotFile {
    file: Arc<File>,
    path: PathBuf,
    meta: Arc<SnapshotMeta>,
    /// Held while the file has no lasting name: it goes with the last holder.
    temporary: Option<Arc<Temporary>>,
}

impl SnapshotFile {
    /// What it covers.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// Up to `len` bytes of the file from `offset` on; none at its end.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn read_part(&self, offset: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        let mut part = vec![0; len];
        let mut filled = 0;
        while filled < len {
            let read = self
                .file
                .read_at(&mut part[filled..], offset + filled as u64)
                .map_err(StoreError::io("cannot read", &self.path))?;
            if read == 0 {
                break;
            }
            filled += read;
        }
        part.truncate(filled);
        Ok(part)
    }

    /// Calls `each` for every record. The file has proved whole before.
    ///
    /// # Errors
    /// [`StoreError`]: the file's, or what `each` came to.
    pub fn for_each(
        &self,
        each: impl FnMut(Vec<u8>, Vec<u8>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        snapshot_file::scan(&self.path, &self.file, each).map(drop)
    }

    /// Opens a file whose name says that it is whole; reads no more than its head.
    fn open(path: PathBuf, set: SetId) -> Result<Self, StoreError> {
        let file = File::open(&path).map_err(StoreError::io("cannot open", &path))?;
        let meta = snapshot_file::read_head(&path, &file, set)?;
        Ok(SnapshotFile {
            file: Arc::new(file),
            path,
            meta: Arc::new(meta),
            temporary: None,
        })
    }
}

/// The snapshots of one set: at most one is kept.
#[derive(Clone)]
pub struct Shelf {
    dir: PathBuf,
    set: SetId,
    current: Arc<Mutex<Option<SnapshotFile>>>,
}

impl Shelf {
    /// Opens the set's snapshots in a data directory, and clears away what was left unfinished.
    pub fn open(data_dir: &Path, set: SetId) -> Result<Self, StoreError> {
        let dir = data_dir.join("snapshots");
        fs::create_dir_all(&dir).map_err(StoreError::io("cannot create", &dir))?;
        let shelf = Shelf {
            dir: dir.clone(),
            set,
            current: Arc::default(),
        };
        let mine = format!("{set}-");
        for entry in fs::read_dir(&dir).map_err(StoreError::io("cannot read", &dir))? {
            let path = entry.map_err(StoreError::io("cannot read", &dir))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !name.starts_with(&mine) {
                continue;
            }
            if name.ends_with(".snap") {
                shelf.put(SnapshotFile::open(path, set)?);
            } else {
                fs::remove_file(&path).map_err(StoreError::io("cannot remove", path))?;
            }
        }
        Ok(shelf)
    }

    /// The current snapshot.
    pub fn current(&self) -> Option<SnapshotFile> {
        self.current.lock().clone()
    }

    /// Makes `snapshot` the current one, unless a newer one is; removes the older.
    pub fn put(&self, snapshot: SnapshotFile) {
        let mut current = self.current.lock();
        let older = match current.take() {
            Some(newer) if newer.meta.last_log_id > snapshot.meta.last_log_id => {
                *current = Some(newer);
                Some(snapshot)
            }
            last => {
                let older = last.filter(|last| last.path != snapshot.path);
                *current = Some(snapshot);
                older
            }
        };
        if let Some(older) = older
            && let Err(error) = fs::remove_file(&older.path)
        {
            // It is removed at the next start.
            tracing::warn!(path = %older.path.display(), %error, "an old snapshot was not removed");
        }
    }

    fn final_path(&self, meta: &SnapshotMeta) -> PathBuf {
        let (term, index) = match &meta.last_log_id {
            Some(last) => (last.committed_leader_id().to_string(), last.index),
            None => ("0".to_owned(), 0),
        };
        self.dir.join(format!("{}-{term}-{index}.snap", self.set))
    }

    fn temporary_path(&self) -> PathBuf {
        let unique = random::number();
        self.dir.join(format!("{}-{unique:x}.tmp", self.set))
    }

    /// Writes a snapshot of `records` and puts it under its final name.
    pub fn write(
        &self,
        meta: SnapshotMeta,
        records: impl Iterator<Item = Result<(Box<[u8]>, Box<[u8]>), StoreError>>,
    ) -> Result<SnapshotFile, StoreError> {
        let temporary = Temporary(self.temporary_path());
        snapshot_file::write(&temporary.0, self.set, &meta, records)?;
        self.keep(&temporary, &meta)
    }

    /// Gives a snapshot that has arrived its lasting name. Only when it is being installed: found at
    /// the next start, it would be installed over a log that it may not fit.
    pub fn adopt(&self, snapshot: SnapshotFile) -> Result<SnapshotFile, StoreError> {
        match &snapshot.temporary {
            Some(temporary) => self.keep(temporary, &snapshot.meta),
            None => Ok(snapshot),
        }
    }

    /// Puts a whole and synced file under its final name.
    fn keep(&self, temporary: &Temporary, meta: &SnapshotMeta) -> Result<SnapshotFile, StoreError> {
        let path = self.final_path(meta);
        let rename = || {
            fs::rename(&temporary.0, &path)?;
            File::open(&self.dir)?.sync_all()
        };
        rename().map_err(StoreError::io("cannot write", &path))?;
        SnapshotFile::open(path, self.set)
    }
}

/// A file that is removed unless it was given its final name.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            // It is removed at the next start.
            tracing::warn!(path = %self.0.display(), %error, "a file was not removed");
        }
    }
}

/// A snapshot that is arriving from a peer. Dropped before it is whole, it leaves nothing behind.
pub struct IncomingSnapshot {
    shelf: Shelf,
    temporary: Temporary,
    file: File,
}

impl IncomingSnapshot {
    /// Makes room for a snapshot of `set`.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn create(store: &Store, set: SetId) -> Result<Self, StoreError> {
        let shelf = Shelf {
            dir: store.dir().join("snapshots"),
            set,
            current: Arc::default(),
        };
        let temporary = Temporary(shelf.temporary_path());
        let file = File::create_new(&temporary.0)
            .map_err(StoreError::io("cannot create", &temporary.0))?;
        Ok(IncomingSnapshot {
            shelf,
            temporary,
            file,
        })
    }

    /// Adds the next bytes. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn write(&mut self, part: &[u8]) -> Result<(), StoreError> {
        let io = StoreError::io("cannot write", &self.temporary.0);
        self.file.write_all(part).map_err(io)
    }

    /// Checks that all of it has arrived unharmed, and brings it to the disk. Blocks.
    ///
    /// # Errors
    /// [`StoreError`]; nothing of it is kept then.
    pub fn finish(self) -> Result<SnapshotFile, StoreError> {
        let path = &self.temporary.0;
        self.file
            .sync_all()
            .map_err(StoreError::io("cannot write", path))?;
        let file = File::open(path).map_err(StoreError::io("cannot open", path))?;
        let (set, meta) = snapshot_file::scan(path, &file, |_, _| Ok(()))?;
        if set != self.shelf.set {
            return Err(StoreError::invalid(format!(
                "the snapshot that arrived is of set {set}, not of set {}",
                self.shelf.set
            )));
        }
        Ok(SnapshotFile {
            file: Arc::new(file),
            path: path.clone(),
            meta: Arc::new(meta),
            temporary: Some(Arc::new(self.temporary)),
        })
    }
}

/// A view of a table as it was at one moment, from which a snapshot can be written. RocksDB's own
/// snapshots borrow the database, so that a thread of its own holds it until it is needed.
pub struct SnapshotView(View);

enum View {
    Held {
        write: Option<tokio::sync::oneshot::Sender<()>>,
        written: tokio::task::JoinHandle<Result<SnapshotFile, StoreError>>,
    },
    /// Without threads, it is written at once.
    Written(Option<Result<SnapshotFile, StoreError>>),
}

impl SnapshotView {
    /// Takes the view; it is taken when this returns.
    pub async fn take(
        db: Arc<Database>,
        work: Work,
        write: impl FnOnce(&rocksdb::Snapshot<'_>, &Database) -> Result<SnapshotFile, StoreError>
        + Send
        + 'static,
    ) -> Self {
        if work == Work::Inline {
            let written = write(&db.db.snapshot(), &db);
            return SnapshotView(View::Written(Some(written)));
        }
        let (taken, view) = tokio::sync::oneshot::channel();
        let (go, wait) = tokio::sync::oneshot::channel();
        let written = tokio::task::spawn_blocking(move || {
            let snapshot = db.db.snapshot();
            // Nobody waits once the node stops.
            let _ = taken.send(());
            match wait.blocking_recv() {
                Ok(()) => write(&snapshot, &db),
                Err(_) => Err(StoreError::invalid("the snapshot is not wanted any more")),
            }
        });
        // An error means that the thread is gone, which `write` reports.
        let _ = view.await;
        SnapshotView(View::Held {
            write: Some(go),
            written,
        })
    }

    /// Writes the snapshot.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn write(&mut self) -> Result<SnapshotFile, StoreError> {
        match &mut self.0 {
            View::Held { write, written } => {
                if let Some(go) = write.take() {
                    // An error means that the thread is gone, which is reported below.
                    let _ = go.send(());
                }
                written.await.map_err(|error| {
                    StoreError::invalid(format!("writing a snapshot failed: {error}"))
                })?
            }
            View::Written(written) => written
                .take()
                .unwrap_or_else(|| Err(StoreError::invalid("the snapshot was written before"))),
        }
    }
}
