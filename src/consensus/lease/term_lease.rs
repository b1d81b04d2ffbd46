//! The lease of one term. Checking it takes one atomic load, so that every answer can afford it.
//!
//! Invariant: a void lease never becomes valid again.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::clock::Instant;

/// The lease is void, for good.
const VOID: u64 = 0;
/// No majority has acknowledged anything yet. As a deadline, it has always passed.
const EXPIRED: u64 = 1;

/// The lease of one term of this node's leadership.
#[derive(Debug)]
pub struct TermLease {
    term: u64,
    began: Instant,
    /// In nanoseconds; or `VOID`, or `EXPIRED`. One number, so that one load reads the whole state.
    deadline: AtomicU64,
    changed: Notify,
}

impl TermLease {
    /// A lease that is not valid yet, of a term that this node found at `began` to be its own.
    pub(super) fn new(term: u64, began: Instant) -> Self {
        TermLease { term, began, deadline: AtomicU64::new(EXPIRED), changed: Notify::new() }
    }

    /// The term that the lease belongs to.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// When this node noticed that it leads the term.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// True if nobody else can lead at `now`. One atomic load.
    pub fn is_valid(&self, now: Instant) -> bool {
        // Acquire pairs with the release in `set_deadline`: a thread that sees the deadline sees what it
        // rests on. Plus one, so that `EXPIRED` has passed even at the very start of the clock.
        now.as_nanos().saturating_add(1) < self.deadline.load(Ordering::Acquire)
    }

    /// True if no number of this term may be answered any more.
    pub fn is_void(&self) -> bool {
        self.deadline.load(Ordering::Acquire) == VOID
    }

    /// Until when the lease is valid; an instant that has passed if it is not.
    pub fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Ends the lease for good.
    pub fn void(&self) {
        if self.deadline.swap(VOID, Ordering::AcqRel) != VOID {
            tracing::info!(term = self.term, "the lease of this term is void");
        }
        debug_assert!(self.is_void(), "a void lease was extended");
        self.changed.notify_waiters();
    }

    /// Waits until `enough` is true of the lease. It is asked now, and after each extension and the end.
    pub async fn wait_until(&self, enough: impl Fn(&TermLease) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if enough(self) {
                return;
            }
            changed.await;
        }
    }

    /// Makes the lease valid until `deadline`, or not at all, unless it is void.
    pub(super) fn set_deadline(&self, deadline: Option<Instant>) {
        let deadline = deadline.map_or(EXPIRED, |at| at.as_nanos().max(EXPIRED));
        let unless_void = |current| (current != VOID).then_some(deadline);
        let replaced = self.deadline.fetch_update(Ordering::AcqRel, Ordering::Acquire, unless_void);
        debug_assert_ne!(replaced, Ok(VOID), "a void lease was extended");
        if replaced.is_ok() {
            self.changed.notify_waiters();
        }
    }
}
