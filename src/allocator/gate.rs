//! A door that closes for good: tells when the last one inside has left.
//!
//! A graceful handover must know the highest number that was handed out. An answer that has taken
//! its numbers and not yet passed the fence is inside; after the door is closed nobody enters.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

const CLOSED: usize = 1 << (usize::BITS - 1);

/// The door.
#[derive(Debug, Default)]
pub struct Gate {
    /// How many are inside, and whether it is closed.
    state: AtomicUsize,
    emptied: Notify,
}

/// Somebody inside; leaves when dropped.
#[derive(Debug)]
pub struct Inside<'a>(&'a Gate);

impl Gate {
    /// Enters, unless it is closed.
    pub fn enter(&self) -> Option<Inside<'_>> {
        let before = self.state.fetch_add(1, Ordering::AcqRel);
        let inside = Inside(self);
        // Leaving again is what dropping does.
        (before & CLOSED == 0).then_some(inside)
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Closes it for good; true for the one who did.
    pub fn close(&self) -> bool {
        self.state.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED == 0
    }

    /// Waits until nobody is inside. Only of use once it is closed.
    pub async fn emptied(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.state.load(Ordering::Acquire) & !CLOSED == 0 {
                return;
            }
            emptied.await;
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if self.0.state.fetch_sub(1, Ordering::AcqRel) == CLOSED + 1 {
            self.0.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_empties_when_the_last_one_has_left_and_lets_nobody_in_again() {
        let gate = Gate::default();
        let first = gate.enter().unwrap();
        let second = gate.enter().unwrap();
        assert!(gate.close());
        assert!(!gate.close(), "closed already");
        assert!(gate.enter().is_none());
        drop(first);
        let emptied = gate.emptied();
        tokio::pin!(emptied);
        assert!(futures::poll!(&mut emptied).is_pending());
        drop(second);
        emptied.await;
        assert!(gate.enter().is_none());
    }
}
