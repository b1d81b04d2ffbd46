//! The lease of one term. Checking it takes one atomic load, so that every answer can afford it.
//!
//! Invariant: a void lease never becomes valid again.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::clock::Instant;

/// How far the lease of a term is. ARCHITECTURE.md has a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseStage {
    /// Answers of the term count until the deadline, which moves as a majority acknowledges.
    Held {
        /// It may have passed.
        deadline: Instant,
    },
    /// No answer of the term counts any more.
    Void,
}

impl LeaseStage {
    /// As one number. A deadline of 0, when the clock starts, has passed as well as [`EXPIRED`].
    fn as_number(self) -> u64 {
        match self {
            LeaseStage::Held { deadline } => deadline.as_nanos().max(EXPIRED),
            LeaseStage::Void => VOID,
        }
    }

    /// The stage that a number stands for.
    fn of_number(number: u64) -> Self {
        match number {
            VOID => LeaseStage::Void,
            deadline => LeaseStage::Held { deadline: Instant::from_nanos(deadline) },
        }
    }
}

/// The lease is void, for good.
const VOID: u64 = 0;
/// No majority has acknowledged anything yet. As a deadline, it has always passed.
const EXPIRED: u64 = 1;

/// The lease of one term of this node's leadership.
#[derive(Debug)]
pub struct TermLease {
    term: u64,
    began: Instant,
    /// The stage, as one number, so that one load reads all of it. Each change acquires and releases, and each look
    /// acquires: a thread that sees a deadline sees what it rests on, and one that sees a void lease sees why it is void.
    stage: AtomicU64,
    /// Extended, or void.
    changed: Notify,
    /// Void. An idle leader's lease is extended forty times a second: who waits for its end alone is not woken for that.
    ended: Notify,
}

/// A node has one lease in each term.
impl PartialEq for TermLease {
    fn eq(&self, other: &Self) -> bool {
        self.term == other.term
    }
}

impl TermLease {
    /// A lease that is not valid yet, of a term that this node found at `began` to be its own.
    pub(super) fn new(term: u64, began: Instant) -> Self {
        let (changed, ended) = (Notify::new(), Notify::new());
        TermLease { term, began, stage: AtomicU64::new(EXPIRED), changed, ended }
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
        // Plus one, so that `EXPIRED` has passed even at the very start of the clock. `VOID` has passed, too.
        now.as_nanos().saturating_add(1) < self.stage.load(Ordering::Acquire)
    }

    /// How far the lease is.
    pub fn stage(&self) -> LeaseStage {
        LeaseStage::of_number(self.stage.load(Ordering::Acquire))
    }

    /// True if no number of this term may be answered any more.
    pub fn is_void(&self) -> bool {
        self.stage() == LeaseStage::Void
    }

    /// Until when the lease is valid; an instant that has passed if it is not.
    pub fn deadline(&self) -> Instant {
        match self.stage() {
            LeaseStage::Held { deadline } => deadline,
            LeaseStage::Void => Instant::from_nanos(VOID),
        }
    }

    /// Ends the lease for good.
    pub fn void(&self) {
        self.end();
    }

    /// As [`TermLease::void`]. True if it was not void before.
    pub(super) fn end(&self) -> bool {
        let is_ended = self.advance(LeaseStage::Void);
        if is_ended {
            tracing::info!(term = self.term, "the lease of this term is void");
        }
        is_ended
    }

    /// Waits until the lease is void.
    pub async fn until_void(&self) {
        until(&self.ended, || self.is_void()).await;
    }

    /// Waits until `enough` is true of the lease. It is asked now, and after each extension and the end.
    pub async fn wait_until(&self, enough: impl Fn(&TermLease) -> bool) {
        until(&self.changed, || enough(self)).await;
    }

    /// Makes the lease valid until `deadline`, or not at all, unless it is void.
    pub(super) fn set_deadline(&self, deadline: Option<Instant>) {
        let deadline = deadline.unwrap_or(Instant::from_nanos(EXPIRED));
        self.advance(LeaseStage::Held { deadline });
    }

    /// Takes the lease to the stage `next`, and tells those that wait. False, and nothing is done, if it is void.
    fn advance(&self, next: LeaseStage) -> bool {
        let unless_void = |number| (number != VOID).then_some(next.as_number());
        let before = self.stage.fetch_update(Ordering::AcqRel, Ordering::Acquire, unless_void);
        assert_ne!(before, Ok(VOID), "a void lease was changed");
        if before.is_err() {
            return false;
        }
        if next == LeaseStage::Void {
            self.ended.notify_waiters();
        }
        self.changed.notify_waiters();
        true
    }
}

/// Waits until `is_true`, which is asked now, and whenever `changed` tells.
async fn until(changed: &Notify, is_true: impl Fn() -> bool) {
    loop {
        let mut changed = std::pin::pin!(changed.notified());
        // Before the look, so that no change after it is missed.
        changed.as_mut().enable();
        if is_true() {
            return;
        }
        changed.await;
    }
}
