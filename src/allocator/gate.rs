//! A gate that closes for good, and tells when the last call inside has left.
//!
//! A graceful handover must know the highest number that was handed out. A call is inside from before
//! it takes its numbers until they are answered or discarded. Once the gate is closed, no call enters, and those that
//! wait inside are told: nobody gets a number until they have left.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// This bit of the state says that the gate is closed; the other bits count the calls inside.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// The gate of one term.
#[derive(Debug, Default)]
pub struct Gate {
    /// How many calls are inside, and [`CLOSED`] if the gate is closed.
    state: AtomicUsize,
    /// When it was closed. Set before the state says so.
    closed_at: OnceLock<Instant>,
    closing: Notify,
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
        self.closed_at.get_or_init(Instant::now);
        let was_open = self.state.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED == 0;
        self.closing.notify_waiters();
        was_open
    }

    /// True if the gate is closed, and no call is inside.
    pub fn is_deserted(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    /// Waits until the gate is closed.
    pub async fn closed(&self) {
        let mut closing = std::pin::pin!(self.closing.notified());
        // Before the look, so that no change after it is missed.
        closing.as_mut().enable();
        if !self.is_closed() {
            closing.await;
        }
    }

    /// Waits until the gate has been closed for `span`.
    pub async fn closed_for(&self, span: Duration) {
        self.closed().await;
        let since = *self.closed_at.get_or_init(Instant::now);
        tokio::time::sleep_until(since + span).await;
    }

    /// Waits until no call is inside. Call it after [`Gate::close`].
    pub async fn emptied(&self) {
        assert!(self.is_closed(), "an open gate may fill again");
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
        assert!(before & !CLOSED > 0, "only a call that is inside leaves");
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

    #[tokio::test(start_paused = true)]
    async fn who_waits_inside_is_told_when_the_gate_closes_and_how_long_ago_that_was() {
        const SPAN: Duration = Duration::from_secs(10);
        let gate = Gate::default();
        let inside = gate.enter().unwrap();
        let (closed, later) = (gate.closed(), gate.closed_for(SPAN));
        tokio::pin!(closed, later);
        assert!(futures::poll!(&mut closed).is_pending());
        assert!(futures::poll!(&mut later).is_pending());
        gate.close();
        assert!(futures::poll!(&mut closed).is_ready());
        assert!(!gate.is_deserted());
        drop(inside);
        assert!(gate.is_deserted());
        let began = Instant::now();
        later.await;
        assert_eq!(began.elapsed(), SPAN);
        // Counted from the closing, not from the call.
        gate.closed_for(SPAN).await;
        gate.close();
        gate.closed_for(SPAN).await;
        assert_eq!(began.elapsed(), SPAN);
    }
}
