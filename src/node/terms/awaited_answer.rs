//! Knows whether the allocator that was opened last has answered a request.
//!
//! Invariant: the first answer after an opening is told from all later ones, once.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::Instant;

/// When this node opened its allocator, until a request is answered from it.
#[derive(Debug, Default)]
pub struct AwaitedAnswer {
    /// In nanoseconds; 0 if no answer is awaited.
    open_since: AtomicU64,
}

impl AwaitedAnswer {
    /// The allocator was opened at `opened`, and no request was answered yet.
    pub fn begin(&self, opened: Instant) {
        self.open_since.store(opened.as_nanos(), Relaxed);
    }

    /// When the allocator was opened, if this is its first answer. One atomic load for all later ones.
    pub fn end(&self) -> Option<Instant> {
        if self.open_since.load(Relaxed) == 0 {
            return None;
        }
        let opened = self.open_since.swap(0, Relaxed);
        (opened != 0).then_some(Instant::from_nanos(opened))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_answer_after_an_opening_ends_the_wait_for_it() {
        let opened = Instant::from_nanos(5);
        let awaited = AwaitedAnswer::default();
        assert_eq!(awaited.end(), None);
        awaited.begin(opened);
        assert_eq!(awaited.end(), Some(opened));
        assert_eq!(awaited.end(), None);
    }
}
