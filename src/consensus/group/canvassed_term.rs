//! The term for which this node asks for votes ahead of the election.
//!
//! Invariant: the term is known for as long as its [`Standing`] lives.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

/// The term for which this node asks for votes ahead of the election; 0 while it asks for none.
#[derive(Debug, Default)]
pub struct CanvassedTerm(AtomicU64);

impl CanvassedTerm {
    /// This node asks for votes in `term` until the result is dropped.
    pub fn begin(&self, term: u64) -> Standing<'_> {
        self.0.store(term, Release);
        Standing(self)
    }

    /// True if this node asks for votes in `term`, or a later one, at this moment.
    pub fn is_at_least(&self, term: u64) -> bool {
        self.0.load(Acquire) >= term
    }
}

/// This node asks for votes in a term until this is dropped.
pub struct Standing<'a>(&'a CanvassedTerm);

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_stands_in_its_term_and_earlier_ones_until_it_has_asked() {
        let canvassed = CanvassedTerm::default();
        assert!(!canvassed.is_at_least(1));
        let standing = canvassed.begin(3);
        assert!(canvassed.is_at_least(2) && canvassed.is_at_least(3));
        assert!(!canvassed.is_at_least(4));
        drop(standing);
        assert!(!canvassed.is_at_least(1));
    }
}
