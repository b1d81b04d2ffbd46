//! The gate of a term: it says how far the term is, lets calls in while the term serves, and tells when the last call has left.
//!
//! A graceful handover must know the highest number that was handed out. A call is inside from before
//! it takes its numbers until they are answered or discarded. Once the gate is closed, no call enters, and those that
//! wait inside are told: nobody gets a number until they have left.
//!
//! Invariant: the stage of the term moves forward only. No call that entered before the gate was closed is missed by a task
//! that waits until it is empty.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::stage::TermStage;

/// From this bit on the state says how far the term is. The bits below it count the calls inside.
const STAGE_SHIFT: u32 = usize::BITS - 3;
/// The bits that count the calls inside.
const INSIDE: usize = (1 << STAGE_SHIFT) - 1;

const _: () = assert!(TermStage::ALL.len() <= 1 << 3, "a stage has three bits");
// So a state without calls is 0 at first, and no greater than `INSIDE` as long as the term serves.
const _: () = assert!(TermStage::Serving as usize == 0);

/// The stage that a state tells.
fn stage_of(state: usize) -> TermStage {
    TermStage::ALL[state >> STAGE_SHIFT]
}

/// The gate of one term.
#[derive(Debug, Default)]
pub struct Gate {
    /// How far the term is, and how many calls are inside: one number, so that a call that enters costs one step, and all
    /// changes of both have one order.
    ///
    /// Each change acquires and releases, and each look acquires. So a task that sees a stage sees what was done before the
    /// term came to it, and one that sees an empty gate sees what those did that were inside.
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
        (before <= INSIDE).then_some(inside)
    }

    /// How far the term is.
    pub fn stage(&self) -> TermStage {
        stage_of(self.state.load(Ordering::Acquire))
    }

    /// Takes the term to the stage `next`, and tells those that wait for the gate to close. False, and nothing is done, if
    /// this comes too late ([`TermStage::is_too_late_for`]).
    ///
    /// # Panics
    /// If no term comes to `next` from where it is.
    pub fn advance(&self, next: TermStage) -> bool {
        self.closed_at.get_or_init(Instant::now);
        let step = |state: usize| {
            let moved = (next as usize) << STAGE_SHIFT | state & INSIDE;
            stage_of(state).leads_to(next).then_some(moved)
        };
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
        let is_done = before.is_ok();
        if let Err(state) = before {
            let stage = stage_of(state);
            assert!(stage.is_too_late_for(next), "a term that is {stage:?} becomes {next:?}");
        }
        self.closing.notify_waiters();
        is_done
    }

    /// True if the gate is closed: the term does not serve any more.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) > INSIDE
    }

    /// True if no call is inside. While the gate is open, one may enter at any moment.
    pub fn is_empty(&self) -> bool {
        self.state.load(Ordering::Acquire) & INSIDE == 0
    }

    /// True if the gate is closed, and no call is inside.
    pub fn is_deserted(&self) -> bool {
        let state = self.state.load(Ordering::Acquire);
        state > INSIDE && state & INSIDE == 0
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

    /// Waits until no call is inside. Call it once the gate is closed.
    pub async fn emptied(&self) {
        assert!(self.is_closed(), "an open gate may fill again");
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.is_empty() {
                return;
            }
            emptied.await;
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let before = self.0.state.fetch_sub(1, Ordering::AcqRel);
        assert!(before & INSIDE > 0, "only a call that is inside leaves");
        if before > INSIDE && before & INSIDE == 1 {
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
        assert!(gate.advance(TermStage::Closing));
        assert!(!gate.advance(TermStage::Closing), "closed already");
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
        gate.advance(TermStage::Closing);
        assert!(futures::poll!(&mut closed).is_ready());
        assert!(!gate.is_deserted());
        drop(inside);
        assert!(gate.is_deserted());
        let began = Instant::now();
        later.await;
        assert_eq!(began.elapsed(), SPAN);
        // Counted from the closing, not from the call.
        gate.closed_for(SPAN).await;
        gate.advance(TermStage::Abandoned);
        gate.closed_for(SPAN).await;
        assert_eq!(began.elapsed(), SPAN);
    }

    #[test]
    fn a_step_keeps_the_calls_inside_and_a_term_that_was_lost_meanwhile_stays_so() {
        let gate = Gate::default();
        assert_eq!(gate.stage(), TermStage::Serving);
        let inside = gate.enter().unwrap();
        assert!(gate.advance(TermStage::Closing));
        assert_eq!((gate.stage(), gate.is_empty()), (TermStage::Closing, false));
        assert!(gate.advance(TermStage::Abandoned), "it is lost while a call is inside");
        assert_eq!((gate.stage(), gate.is_empty()), (TermStage::Abandoned, false));
        drop(inside);
        assert!(gate.is_deserted());
        for late in [TermStage::Closing, TermStage::Closed, TermStage::HandedOff] {
            assert!(!gate.advance(late));
            assert_eq!(gate.stage(), TermStage::Abandoned);
        }
    }

    #[test]
    fn the_end_of_a_term_that_handed_off_its_memory_is_not_forgotten_when_the_memory_is_dropped() {
        let gate = Gate::default();
        for next in [TermStage::Closing, TermStage::Closed, TermStage::HandedOff] {
            assert!(gate.advance(next));
        }
        assert!(!gate.advance(TermStage::Abandoned));
        assert_eq!(gate.stage(), TermStage::HandedOff);
    }

    #[test]
    #[should_panic(expected = "a term that is Closing becomes HandedOff")]
    fn a_term_whose_calls_are_not_waited_for_leaves_no_memory() {
        let gate = Gate::default();
        gate.advance(TermStage::Closing);
        gate.advance(TermStage::HandedOff);
    }

    #[test]
    #[should_panic(expected = "a term that is HandedOff becomes Returned")]
    fn a_term_has_one_last_entry() {
        let gate = Gate::default();
        let steps = [TermStage::Closing, TermStage::Closed, TermStage::HandedOff];
        for next in steps.into_iter().chain([TermStage::Returned]) {
            gate.advance(next);
        }
    }
}
