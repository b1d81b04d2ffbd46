//! Which term this node leads, and whether the allocator of that term is open.
//!
//! Invariant: this moves forward only. Terms follow one another, an allocator is opened for the term that began last, and once
//! the node stops none is open any more.

use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

/// How far this node is with the terms that it leads. ARCHITECTURE.md has a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnStage {
    /// It leads no term.
    None {
        /// The last term that it led; 0 if there was none.
        after: u64,
    },
    /// It leads a term whose allocator is not open yet. If the term gets no chunks, it goes no further.
    Opening {
        /// The term.
        term: u64,
    },
    /// It leads a term whose allocator is open. The term may be over.
    Open {
        /// The term.
        term: u64,
    },
    /// The node stops. No term of it is opened any more.
    Stopped,
}

impl OwnStage {
    /// True if a node comes from this stage to `next`.
    fn leads_to(self, next: OwnStage) -> bool {
        match next {
            OwnStage::None { after } => self.term() == Some(after),
            OwnStage::Opening { term } => match self {
                OwnStage::None { after: last }
                | OwnStage::Opening { term: last }
                | OwnStage::Open { term: last } => last < term,
                OwnStage::Stopped => false,
            },
            OwnStage::Open { term } => self == OwnStage::Opening { term },
            OwnStage::Stopped => self != OwnStage::Stopped,
        }
    }

    /// The term that the node leads, open or not.
    pub fn term(self) -> Option<u64> {
        match self {
            OwnStage::Opening { term } | OwnStage::Open { term } => Some(term),
            OwnStage::None { .. } | OwnStage::Stopped => None,
        }
    }
}

/// The node stops: nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Stopped;

/// The term that this node leads, with its allocator `T` once that is open.
#[derive(Debug)]
pub struct OwnTerm<T> {
    /// Locked during each step.
    stage: Mutex<OwnStage>,
    /// The allocator while the stage is [`OwnStage::Open`], and none otherwise. It stands beside the stage so that a call finds
    /// it with one atomic load. It is replaced under the lock of the stage; a thread that loads it sees all that was done
    /// before.
    open: ArcSwapOption<T>,
}

/// It leads none.
impl<T> Default for OwnTerm<T> {
    fn default() -> Self {
        let (stage, open) = (OwnStage::None { after: 0 }, ArcSwapOption::empty());
        OwnTerm { stage: Mutex::new(stage), open }
    }
}

impl<T> OwnTerm<T> {
    /// How far the node is.
    pub fn stage(&self) -> OwnStage {
        *self.stage.lock()
    }

    /// The allocator that is open. One atomic load.
    pub fn look(&self) -> Guard<Option<Arc<T>>> {
        self.open.load()
    }

    /// As [`OwnTerm::look`], to be kept.
    pub fn opened(&self) -> Option<Arc<T>> {
        self.open.load_full()
    }

    /// The node leads `term` from now on, and has to open it. Returns the allocator of the term before, if that was open.
    ///
    /// # Errors
    /// [`Stopped`].
    ///
    /// # Panics
    /// If `term` does not come after the terms that the node led before.
    pub fn begin(&self, term: u64) -> Result<Option<Arc<T>>, Stopped> {
        self.advance(OwnStage::Opening { term }, None)
    }

    /// The allocator of `term` is open.
    ///
    /// # Errors
    /// [`Stopped`].
    ///
    /// # Panics
    /// Unless `term` began last, and has no allocator yet.
    pub fn open(&self, term: u64, allocator: Arc<T>) -> Result<(), Stopped> {
        self.advance(OwnStage::Open { term }, Some(allocator)).map(drop)
    }

    /// The node does not lead any more. Returns the allocator of its term, if that was open.
    pub fn leave(&self) -> Option<Arc<T>> {
        let after = self.stage().term()?;
        self.advance(OwnStage::None { after }, None).ok().flatten()
    }

    /// The node stops. Returns the allocator of its term, if that was open.
    pub fn stop(&self) -> Option<Arc<T>> {
        self.advance(OwnStage::Stopped, None).ok().flatten()
    }

    /// Takes the next step, and returns the allocator that was open before.
    fn advance(
        &self, next: OwnStage, allocator: Option<Arc<T>>,
    ) -> Result<Option<Arc<T>>, Stopped> {
        let mut stage = self.stage.lock();
        if *stage == OwnStage::Stopped {
            return Err(Stopped);
        }
        assert!(stage.leads_to(next), "{next:?} follows {stage:?}");
        *stage = next;
        Ok(self.open.swap(allocator))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_leads_no_term_then_opens_one_and_leaves_it() {
        let own = OwnTerm::default();
        assert_eq!(own.leave(), None, "it leads none");
        for term in [3, 7] {
            assert_eq!(own.begin(term), Ok(None));
            assert_eq!((own.stage().term(), own.opened()), (Some(term), None));
            assert_eq!(own.open(term, Arc::new(term)), Ok(()));
            assert_eq!(own.look().as_deref(), Some(&term));
            assert_eq!(own.leave().as_deref(), Some(&term));
            assert_eq!(own.stage(), OwnStage::None { after: term });
            assert_eq!(own.opened(), None);
        }
        assert_eq!(own.begin(8), Ok(None));
        assert_eq!(own.leave(), None, "it could not be opened");
    }

    #[test]
    fn a_later_term_begins_with_the_end_of_the_one_before() {
        let own = OwnTerm::default();
        own.begin(3).unwrap();
        own.begin(4).unwrap();
        own.open(4, Arc::new(4)).unwrap();
        assert_eq!(own.begin(5), Ok(Some(Arc::new(4))));
        assert_eq!((own.stage(), own.opened()), (OwnStage::Opening { term: 5 }, None));
    }

    #[test]
    fn a_node_that_stops_opens_no_term_also_not_one_that_it_is_opening() {
        let own = OwnTerm::default();
        own.begin(3).unwrap();
        assert_eq!(own.stop(), None);
        assert_eq!(own.open(3, Arc::new(3)), Err(Stopped));
        assert_eq!(own.begin(4), Err(Stopped));
        assert_eq!((own.leave(), own.stop(), own.opened()), (None, None, None));

        let own = OwnTerm::default();
        own.begin(3).unwrap();
        own.open(3, Arc::new(3)).unwrap();
        assert_eq!(own.stop().as_deref(), Some(&3));
        assert_eq!(own.opened(), None);
    }

    #[test]
    #[should_panic(expected = "Opening { term: 3 } follows None { after: 3 }")]
    fn a_term_that_was_led_before_does_not_begin_again() {
        let own = OwnTerm::<u64>::default();
        own.begin(3).unwrap();
        own.leave();
        let _ = own.begin(3);
    }

    #[test]
    #[should_panic(expected = "Open { term: 3 } follows Opening { term: 4 }")]
    fn an_allocator_of_an_earlier_term_is_not_opened() {
        let own = OwnTerm::default();
        own.begin(3).unwrap();
        own.begin(4).unwrap();
        let _ = own.open(3, Arc::new(3));
    }

    #[test]
    #[should_panic(expected = "Open { term: 3 } follows Open { term: 3 }")]
    fn a_term_has_one_allocator() {
        let own = OwnTerm::default();
        own.begin(3).unwrap();
        own.open(3, Arc::new(3)).unwrap();
        let _ = own.open(3, Arc::new(3));
    }
}
