//! A watched value, like tokio's `watch`, but receivers are woken in the order in which they began to wait.
//! Tokio spreads its waiters over several lists at random, which a simulation's seed cannot decide.
//!
//! Invariant: after a change, a receiver has seen it, or its next `changed` returns at once.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::Notify;

/// The value, for reading. Drop it soon: a sender that changes the value waits for it.
pub struct Ref<'a, T>(RwLockReadGuard<'a, T>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// All senders are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nobody changes the watched value any more")]
pub struct Gone;

struct Watched<T> {
    value: RwLock<T>,
    /// Counts changes; moves while `value` is locked for writing.
    version: AtomicU64,
    changed: Notify,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

/// Changes the value.
pub struct Sender<T>(Arc<Watched<T>>);

/// Sees the changes of the value.
pub struct Receiver<T> {
    watched: Arc<Watched<T>>,
    seen: u64,
}

/// Creates a watched value: the sender changes it, the receivers watch it.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender(Arc::new(Watched {
        value: RwLock::new(value),
        version: AtomicU64::new(0),
        changed: Notify::new(),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(0),
    }));
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        channel(T::default()).0
    }
}

impl<T> Sender<T> {
    /// A receiver that has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        self.0.receivers.fetch_add(1, Ordering::AcqRel);
        Receiver { seen: self.0.version.load(Ordering::Acquire), watched: self.0.clone() }
    }

    /// The value.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.0.value.read())
    }

    /// True if a receiver exists.
    pub fn is_watched(&self) -> bool {
        self.0.receivers.load(Ordering::Acquire) > 0
    }

    /// Changes the value, with or without receivers. They are woken if `change` returns true.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        {
            let mut value = self.0.value.write();
            if !change(&mut value) {
                return false;
            }
            self.0.version.fetch_add(1, Ordering::AcqRel);
        }
        self.0.changed.notify_waiters();
        true
    }

    /// Changes the value, with or without receivers, and wakes them.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Replaces the value, with or without receivers, wakes them, and returns the old value.
    pub fn send_replace(&self, mut new: T) -> T {
        self.send_modify(|value| std::mem::swap(value, &mut new));
        new
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::AcqRel);
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T> Receiver<T> {
    /// The value.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.watched.value.read())
    }

    /// The value. It counts as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = Ref(self.watched.value.read());
        self.seen = self.watched.version.load(Ordering::Acquire);
        value
    }

    /// Waits until there is a value that this receiver has not seen. It then counts as seen.
    ///
    /// # Errors
    /// [`Gone`] if all senders are dropped first.
    pub async fn changed(&mut self) -> Result<(), Gone> {
        loop {
            let mut changed = std::pin::pin!(self.watched.changed.notified());
            // Enqueued before the version is read: a change after that wakes this receiver.
            changed.as_mut().enable();
            let version = self.watched.version.load(Ordering::Acquire);
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if self.watched.senders.load(Ordering::Acquire) == 0 {
                return Err(Gone);
            }
            changed.await;
        }
    }

    /// Waits for a value that fits, and returns that very value. It counts as seen.
    ///
    /// # Errors
    /// [`Gone`] if all senders are dropped first.
    pub async fn wait_for(&mut self, mut fits: impl FnMut(&T) -> bool) -> Result<T, Gone>
    where
        T: Clone,
    {
        loop {
            let fitting = {
                let value = self.borrow_and_update();
                fits(&value).then(|| value.clone())
            };
            match fitting {
                Some(value) => return Ok(value),
                None => self.changed().await?,
            }
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.watched.receivers.fetch_add(1, Ordering::AcqRel);
        Receiver { watched: self.watched.clone(), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.watched.receivers.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn a_receiver_sees_the_last_change_once() {
        let (sender, mut receiver) = channel(1);
        assert_eq!(sender.send_replace(2), 1);
        sender.send_modify(|value| *value += 1);
        receiver.changed().await.unwrap();
        assert_eq!(*receiver.borrow(), 3);
        assert!(!sender.send_if_modified(|_| false));
        assert!(futures::poll!(std::pin::pin!(receiver.changed())).is_pending());
        assert_eq!(receiver.wait_for(|value| *value == 3).await.unwrap(), 3);
        assert!(sender.is_watched());
        drop(sender);
        assert_eq!(receiver.changed().await, Err(Gone));
    }

    #[tokio::test]
    async fn who_waits_first_is_woken_first() {
        let sender = Sender::<u64>::default();
        let woken: Arc<Mutex<Vec<usize>>> = Arc::default();
        let waiting: Vec<_> = (0..20)
            .map(|id| {
                let (mut receiver, woken) = (sender.subscribe(), woken.clone());
                tokio::spawn(async move {
                    receiver.changed().await.unwrap();
                    woken.lock().unwrap().push(id);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        sender.send_modify(|value| *value += 1);
        for waiter in waiting {
            waiter.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), Vec::from_iter(0..20));
    }
}
