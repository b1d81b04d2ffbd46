//! Whether a memory has room for more keys. While it has not, keys that are new to the term wait until others were let go.

use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use tokio::sync::Notify;

/// After so many new keys the memory is measured again.
const NEW_KEYS: usize = 1_024;

/// Whether there is room for more keys.
#[derive(Debug, Default)]
pub struct Room {
    is_full: AtomicBool,
    new_keys: AtomicUsize,
    to_release: Notify,
    changed: Notify,
}

impl Room {
    /// Notes that a key was added.
    pub fn note_new_key(&self) {
        if self.new_keys.fetch_add(1, Relaxed) % NEW_KEYS == NEW_KEYS - 1 {
            self.wake_releaser();
        }
    }

    /// Makes [`Room::to_release`] return.
    pub fn wake_releaser(&self) {
        self.to_release.notify_one();
    }

    /// Waits until the memory should be measured: many keys were added, or its gate was closed.
    pub async fn to_release(&self) {
        self.to_release.notified().await;
    }

    /// True if no key should be added.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Acquire)
    }

    /// Notes whether a key may be added. Who waits for room goes on in any case: what waits takes room, too.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Release);
        self.changed.notify_waiters();
    }

    /// Nobody lets keys go any more.
    pub fn give_up(&self) {
        self.set_full(false);
        self.wake_releaser();
    }

    /// Returns at once if there is room, or after the next attempt to make some.
    pub async fn wait(&self) {
        let changed = self.changed.notified();
        if self.is_full() {
            self.wake_releaser();
            changed.await;
        }
    }
}
