//! Which voter can lead next. It must have been heard within the time of a promise, and of those the one with the longest
//! log is taken. The handovers ask here.

use std::{collections::BTreeSet, time::Duration};

use openraft::async_runtime::watch::WatchReceiver;

use super::{group::Group, replication::replicated_index};
use crate::sequence::NodeId;

/// Why no voter can take over.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub struct NoSuccessor {
    why: String,
    /// True if it is only that nobody was heard: that may change.
    pub silent: bool,
}

impl Group {
    /// The voter to hand the leadership of `term` to: among those that were heard within the time of a promise,
    /// the one with the longest log. If `wanted` is given: that node, or why it cannot be.
    ///
    /// # Errors
    /// `NoSuccessor` if `wanted` is not a member, is a learner, or was not heard; or if no other voter was heard.
    pub fn successor(&self, term: u64, wanted: Option<NodeId>) -> Result<NodeId, NoSuccessor> {
        let Some(wanted) = wanted else {
            let nobody = "no other voter answers; there is nobody to lead instead";
            let none = || refused(nobody, !self.is_sole_voter());
            return self.successor_that(term, |_| true).ok_or_else(none);
        };
        let seen = self.metrics();
        let membership = seen.membership_config.membership();
        if membership.get_node(&wanted).is_none() || wanted == self.node() {
            return Err(refused(format!("node {wanted} is not a member"), false));
        }
        if !self.other_voters().contains(&wanted) {
            let why = format!("is a learner; promote it first: ratchet node promote {wanted}");
            return Err(refused(format!("node {wanted} {why}"), false));
        }
        if !self.is_heard(term, wanted) {
            let why = "does not answer; see ratchet status, then choose another node";
            return Err(refused(format!("node {wanted} {why}"), true));
        }
        Ok(wanted)
    }

    /// As [`Group::successor`], if `failed` could not take over: another voter, or `failed` again if there is no other.
    pub fn another_successor(&self, term: u64, failed: NodeId) -> NodeId {
        self.successor_that(term, |id| id != failed).unwrap_or(failed)
    }

    /// The voter to hand the leadership of `term` to, of those for which `fits` is true: among those that were heard within the
    /// time of a promise, the one with the longest log.
    pub fn successor_that(&self, term: u64, fits: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let seen = self.metrics();
        let others = self.other_voters().into_iter();
        let fit = others.filter(|id| self.is_heard(term, *id) && fits(*id));
        fit.max_by_key(|id| replicated_index(&seen, *id))
    }

    /// The voters but for this node.
    pub(super) fn other_voters(&self) -> BTreeSet<NodeId> {
        let seen = self.metrics();
        let voters = seen.membership_config.membership().voter_ids();
        voters.filter(|id| *id != self.node()).collect()
    }

    /// True if a node was heard within the time of a promise.
    pub(super) fn is_heard(&self, term: u64, id: NodeId) -> bool {
        let last_ack = self.lease.last_ack(term, id);
        last_ack.is_some_and(|sent| self.lease.now().since(sent) < self.config.promise_time())
    }

    /// Waits, at most `patience`, until the log of node `id` has all that this leader's log has now. False if it does
    /// not come to that, and on a node that does not lead.
    pub async fn has_whole_log(&self, id: NodeId, patience: Duration) -> bool {
        let last = self.metrics().last_log_index;
        let mut metrics = self.raft.metrics();
        let caught_up = async {
            while replicated_index(&metrics.borrow_watched(), id) < last {
                if metrics.changed().await.is_err() {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(patience, caught_up).await.unwrap_or(false)
    }
}

fn refused(why: impl Into<String>, silent: bool) -> NoSuccessor {
    NoSuccessor { why: why.into(), silent }
}
