//! Counts the calls that wait for sections of which the term has nothing yet.
//!
//! A section that a call waits for is not evicted before that call is served, also if its caller has gone.

use super::queued_section::QueuedSection;

/// How many of them wait, in a part of the memory.
#[derive(Debug, Default)]
pub struct FirstWaiters(usize);

impl FirstWaiters {
    /// How many they are.
    pub fn len(&self) -> usize {
        self.0
    }

    /// Lets `act` change a section, and counts what changes by that.
    pub fn watch<R>(
        &mut self, queued: &mut QueuedSection, act: impl FnOnce(&mut QueuedSection) -> R,
    ) -> R {
        let before = queued.first_waiters();
        let result = act(queued);
        let after = self.0 + queued.first_waiters();
        assert!(after >= before, "calls that wait were not counted");
        self.0 = after - before;
        result
    }
}
