//! The description of an operation: its service, and the function that carries it out.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    allocator::Term,
    node::{
        access::{Asker, Guarded, Subject},
        way::{attempt::Attempt, operation::Facts},
    },
    proto::{Operation, Refusal},
};

/// An operation that the leader carries out.
pub(in crate::node) trait ByLeader: Operation + Guarded {
    /// It is not asked of a second leader once the answer of the first one is lost.
    const IS_ASKED_ONCE: bool = false;

    /// Its effect shows, although nobody got its answer.
    const SHOWS: bool = !Self::ONLY_READS;

    /// How long to wait for a leader, if not until the deadline.
    const PATIENCE: Duration = Duration::MAX;

    /// The part of the node that carries it out.
    type Service;

    /// Carries it out before `deadline`, on the node that leads the term, for a caller that may ask for it.
    fn carry_out(
        self, service: &Self::Service, term_and_asker: (&Term, &Asker), deadline: Instant,
    ) -> impl Future<Output = Attempt<Self::Answer>> + Send;

    /// Its answer, if it was `refused` because an attempt before has carried it out, as far as shows: things are as it asks.
    fn done_before(
        &self, _service: &Self::Service, _term: &Term, _refused: &Refusal,
    ) -> Option<Self::Answer> {
        None
    }

    /// Its subject for the audit, once it has the answer, and before.
    fn subject(&self, _answer: Option<&Self::Answer>) -> Subject {
        Subject::of(self.wanted())
    }

    /// About how many bytes the answer holds at most, as a message and encoded. 0: few.
    fn answer_bytes(&self, _service: &Self::Service) -> usize {
        0
    }

    /// The answer while no leader answers; `None` if only a leader has one.
    fn without_leader(_service: &Self::Service) -> Option<Self::Answer> {
        None
    }
}

/// An operation that the node carries out that is asked.
pub(in crate::node) trait ByAskedNode: Operation + Guarded {
    /// The part of the node that carries it out.
    type Service;

    /// Its subject for the audit.
    fn subject(&self) -> Subject {
        Subject::of(self.wanted())
    }

    /// Carries it out before `deadline`.
    fn carry_out(
        self, service: &Self::Service, deadline: Instant,
    ) -> impl Future<Output = Result<Self::Answer, Refusal>> + Send;
}

/// The facts about an operation that the leader carries out.
pub(in crate::node) const fn facts_of<Q: ByLeader>() -> Facts {
    Facts {
        method: Q::METHOD,
        is_idempotent: Q::IS_IDEMPOTENT,
        is_asked_once: Q::IS_ASKED_ONCE,
        shows: Q::SHOWS,
        patience: Q::PATIENCE,
    }
}
