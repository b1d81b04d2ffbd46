//! Remembers the handover that is under way, or was last: all who ask for one in a term wait for the same.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, Shared as Joined};
use parking_lot::Mutex;

use crate::{
    clock::Clock,
    consensus::{Group, Leadership},
    metrics::Metrics,
    node::{Config, common::Common, members::Members, terms::LedTerms},
    proto::{Refusal, refusal},
    sequence::NodeId,
};

/// The handovers of a Raft group's leadership to other nodes.
pub struct Handovers {
    pub(super) config: Arc<Config>,
    pub(super) group: Arc<Group>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) led: Arc<LedTerms>,
    pub(super) members: Arc<Members>,
    /// The one that is under way, or was last.
    pub(super) current: CurrentHandover,
}

impl Handovers {
    /// None yet.
    pub(in crate::node) fn new(common: &Common, led: Arc<LedTerms>, members: Arc<Members>) -> Self {
        Handovers {
            config: common.config.clone(),
            group: common.group.clone(),
            clock: common.clock.clone(),
            metrics: common.metrics.clone(),
            led,
            members,
            current: CurrentHandover::default(),
        }
    }
}

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
