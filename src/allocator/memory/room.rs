//! Whether a memory has room for more keys. While it has not, keys that are new to the term wait until others were
//! let go, unless they share a section of which the term has numbers.

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

    /// Notes whether a key may be added. Who waits goes on if so.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Release);
        if !is_full {
            self.changed.notify_waiters();
        }
    }

    /// The releaser has ended an attempt to make room. Who waits goes on, also if there is none: calls that wait take room
    /// themselves.
    pub fn attempt_over(&self) {
        self.changed.notify_waiters();
    }

    /// Nobody lets keys go any more.
    pub fn give_up(&self) {
        self.set_full(false);
        self.wake_releaser();
    }

    /// Returns once there is room, or once the releaser has found nothing more to let go.
    pub async fn wait(&self) {
        let changed = self.changed.notified();
        if self.is_full() {
            self.wake_releaser();
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn who_waits_for_room_goes_on_once_there_is_some_or_an_attempt_is_over() {
        let room = Room::default();
        assert!(room.wait().now_or_never().is_some());
        for goes_on in [|room: &Room| room.set_full(false), Room::attempt_over] {
            room.set_full(true);
            let mut waiting = pin!(room.wait());
            assert_eq!(waiting.as_mut().now_or_never(), None);
            room.set_full(true);
            assert_eq!(waiting.as_mut().now_or_never(), None, "still full");
            goes_on(&room);
            assert_eq!(waiting.now_or_never(), Some(()));
        }
    }
}
