//! Records operations while a run goes on.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::history::{History, Op};

/// Takes the operations of all callers.
pub struct Recorder {
    start: Instant,
    history: Mutex<History>,
    next_process: AtomicU64,
    /// When the latest answered operation was invoked.
    answered: watch::Sender<u64>,
    recorded: AtomicU64,
    acknowledged: AtomicU64,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder {
            start: Instant::now(),
            history: Mutex::default(),
            next_process: AtomicU64::new(0),
            answered: watch::Sender::new(0),
            recorded: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
        }
    }
}

impl Recorder {
    /// Nanoseconds since the start of the run.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A process id that was never used.
    pub fn new_process(&self) -> u64 {
        self.next_process.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds an operation that ended.
    pub fn push(&self, op: Op) {
        self.recorded.fetch_add(1, Ordering::Relaxed);
        if op.is_ok() {
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            self.answered.send_if_modified(|latest| {
                let later = op.invoked_ns > *latest;
                *latest = (*latest).max(op.invoked_ns);
                later
            });
        }
        self.history.lock().push(op);
    }

    /// How many operations ended.
    pub fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }

    /// How many operations were answered.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until an operation that was invoked after `since` is answered.
    pub async fn answered_since(&self, since: u64) {
        let mut answered = self.answered.subscribe();
        // This cannot fail: the sender lives as long as `self`.
        let _ = answered.wait_for(|latest| *latest > since).await;
    }

    /// Calls `look` with all operations so far.
    pub fn with<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        look(&self.history.lock())
    }

    /// Takes all operations so far.
    pub fn take(&self) -> History {
        std::mem::take(&mut *self.history.lock())
    }
}
