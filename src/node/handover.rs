//! Graceful handover: no gap in any key that has a section of its own.
//!
//! Invariant: a term that was closed is never opened again. Whatever fails on the way, this node
//! hands out nothing more in it, and keeps silent until a later term has a leader.

use std::{sync::Arc, time::Duration};

use tonic::Status;

use super::Shared;
use crate::{
    allocator::Term,
    consensus::{Leadership, ProposeError},
    planted::{Bug, is_planted},
    sequence::{Command, NodeId},
};

/// How many sections one log entry trims at most.
const ENTRY_SECTIONS_MAX: usize = 8_192;

impl Shared {
    /// Hands the leadership to `to`, or to the voter with the longest log.
    ///
    /// # Errors
    /// FAILED_PRECONDITION, before anything has changed, where nobody fit can take over;
    /// UNAVAILABLE where this node does not lead, or nobody took over within `limit`.
    pub async fn hand_over(
        &self,
        to: Option<NodeId>,
        limit: Duration,
    ) -> Result<Leadership, Status> {
        let Some(term) = self.allocator.load_full() else {
            return Err(Status::unavailable("this node does not lead"));
        };
        if to == Some(self.config.node_id) {
            return Ok(self.group.leadership().borrow().clone());
        }
        let successor = self
            .group
            .successor(term.term(), to)
            .map_err(|e| Status::failed_precondition(e.to_string()))?;
        tracing::info!(term = term.term(), successor, "handing the leadership over");
        let handover = async {
            self.give_back(&term).await;
            self.group.transfer(term.lease(), successor, limit).await
        };
        // Cut short, the term stays closed and its lease void.
        let _void = VoidOnDrop(term.clone());
        match tokio::time::timeout(limit, handover).await {
            Ok(Ok(leadership)) => Ok(leadership),
            Ok(Err(ProposeError::Stopped(why))) => Err(Status::unavailable(why)),
            Ok(Err(_)) | Err(_) => Err(Status::unavailable(format!(
                "node {successor} did not take over from term {} within {} ms; this node has given \
                 the term up, and whoever is elected goes on; see ratchet status",
                term.term(),
                limit.as_millis()
            ))),
        }
    }

    /// Hands over to whoever is fit, if this node leads; for a node that stops.
    ///
    /// # Errors
    /// As [`Shared::hand_over`]. A sole voter only gives its ceilings back.
    pub async fn hand_over_to_anyone(&self, limit: Duration) -> Result<(), Status> {
        let Some(term) = self.allocator.load_full() else {
            return Ok(());
        };
        if self.group.is_sole_voter() {
            if tokio::time::timeout(limit, self.give_back(&term))
                .await
                .is_err()
            {
                return Err(Status::unavailable(
                    "the ceilings could not be given back in time",
                ));
            }
            return Ok(());
        }
        self.hand_over(None, limit).await.map(drop)
    }

    /// Closes the term and lowers its ceilings to what was used.
    async fn give_back(&self, term: &Arc<Term>) {
        if is_planted(Bug::OpenDuringTransfer) {
            return;
        }
        let Some(trims) = term.retire().await else {
            return;
        };
        for entry in trims.chunks(ENTRY_SECTIONS_MAX) {
            let trim = Command::Trim(entry.to_vec());
            if let Err(error) = self.group.propose(term.term(), trim).await {
                // Numbers are skipped, as after a crash; none is repeated.
                tracing::warn!(%error, "some ceilings could not be given back");
                return;
            }
        }
    }
}

struct VoidOnDrop(Arc<Term>);

impl Drop for VoidOnDrop {
    fn drop(&mut self) {
        self.0.lease().void();
    }
}
