//! Remembers the handover that is under way, or was last: all who ask for one in a term wait for the same.

use futures::future::{BoxFuture, FutureExt, Shared as Joined};
use parking_lot::Mutex;

use crate::{
    consensus::Leadership,
    proto::{Refusal, refusal},
    sequence::NodeId,
};

/// The outcome of a handover, for all callers that wait for it.
pub type HandoverOutcome = Result<Leadership, Refusal>;

/// The handover that is under way, or was last.
#[derive(Default)]
pub struct CurrentHandover(Mutex<Option<Handover>>);

/// One term's handover.
#[derive(Clone)]
pub struct Handover {
    term: u64,
    /// `None`: the node stops, and nobody else can lead.
    pub successor: Option<NodeId>,
    outcome: Joined<BoxFuture<'static, HandoverOutcome>>,
}

impl CurrentHandover {
    /// The handover of `term`: the one under way, or a new one to the node that `choose` names, which
    /// `begin` starts.
    ///
    /// # Errors
    /// Those of `choose`, if none is under way.
    pub fn join_or_begin<F: Future<Output = HandoverOutcome> + Send + 'static>(
        &self, term: u64, choose: impl FnOnce() -> Result<Option<NodeId>, Refusal>,
        begin: impl FnOnce(Option<NodeId>) -> F,
    ) -> Result<Handover, Refusal> {
        let mut current = self.0.lock();
        if let Some(handover) = current.as_ref().filter(|handover| handover.term == term) {
            return Ok(handover.clone());
        }
        let successor = choose()?;
        let handover = Handover { term, successor, outcome: begin(successor).boxed().shared() };
        *current = Some(handover.clone());
        Ok(handover)
    }
}

impl Handover {
    /// Waits for it until `deadline`. It goes on after that.
    ///
    /// # Errors
    /// Its own, and DEADLINE_EXCEEDED.
    pub async fn outcome(self, deadline: tokio::time::Instant) -> HandoverOutcome {
        let late = |_| {
            Err(refusal!(
                DeadlineExceeded,
                "the handover of term {} is under way and goes on; see ratchet status",
                self.term
            ))
        };
        let outcome = tokio::time::timeout_at(deadline, self.outcome).await;
        outcome.unwrap_or_else(late)
    }
}
