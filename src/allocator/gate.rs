//! A gate that closes for good, and tells when the last call inside has left.
//!
//! A graceful handover must know the highest number that was handed out. A call is inside from before
//! it takes its numbers until they are answered or discarded. Once the gate is closed, no call enters.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// This bit of the state says that the gate is closed; the other bits count the calls inside.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// The gate of one term.
#[derive(Debug, Default)]
pub struct Gate {
    /// How many calls are inside, and [`CLOSED`] if the gate is closed.
    state: AtomicUsize,
    emptied: Notify,
}

/// A call inside the gate. Leaves when dropped.
#[derive(Debug)]
pub struct Inside<'a>(&'a Gate);

impl Gate {
    /// Enters. `None` if the gate is closed.
    pub fn enter(&self) -> Option<Inside<'_>> {
        let before = self.state.fetch_add(1, Ordering::AcqRel);
        let inside = Inside(self);
        // If the gate is closed, dropping `inside` leaves again.
        (before & CLOSED == 0).then_some(inside)
    }

    /// True if the gate is closed.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Closes the gate for good. True for the caller that closed it, false if it was closed already.
    pub fn close(&self) -> bool {
        self.state.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED == 0
    }

    /// Waits until no call is inside. Call it after [`Gate::close`].
    pub async fn emptied(&self) {
        debug_assert!(self.is_closed(), "an open gate may fill again");
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
        let before = self.0.state.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before & !CLOSED > 0, "only a call that is inside leaves");
        if before == CLOSED + 1 {
            self.0.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_closed_gate_is_empty_when_the_last_call_has_left_and_lets_no_call_in() {
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
