//! Which voter the leadership goes to in a transfer.

use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;

use super::nodes::replicated_index;
use crate::{
    consensus::group::{Group, ProposeError},
    sequence::NodeId,
};

impl Group {
    /// The voter to hand the leadership of `term` to: among those that were heard within a follower lease,
    /// the one with the longest log. If `wanted` is given: that node, or why it cannot be.
    ///
    /// # Errors
    /// [`ProposeError::Refused`] if `wanted` is not a member, is a learner, or was not heard; or if no
    /// other voter was heard.
    pub fn successor(&self, term: u64, wanted: Option<NodeId>) -> Result<NodeId, ProposeError> {
        let now = self.lease.now();
        let heard = |id: NodeId| {
            self.lease
                .last_ack(term, id)
                .is_some_and(|sent| now.since(sent) < self.follower_lease())
        };
        let mut others = self.nodes();
        others.retain(|node| node.id != self.node());
        if let Some(wanted) = wanted {
            let Some(node) = others.iter().find(|node| node.id == wanted) else {
                return refuse(format!("node {wanted} is not a member"));
            };
            if !node.voter {
                return refuse(format!(
                    "node {wanted} is a learner; promote it first: ratchet node promote {wanted}"
                ));
            }
            if !heard(wanted) {
                return refuse(format!(
                    "node {wanted} does not answer; see ratchet status, then choose another node"
                ));
            }
            return Ok(wanted);
        }
        let candidates = others.iter().filter(|node| node.voter && heard(node.id));
        match candidates.max_by_key(|node| node.log_index) {
            Some(node) => Ok(node.id),
            None => refuse("no other voter answers; there is nobody to lead instead".to_owned()),
        }
    }
}

impl Group {
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
        tokio::time::timeout(patience, caught_up)
            .await
            .unwrap_or(false)
    }
}

fn refuse(why: String) -> Result<NodeId, ProposeError> {
    Err(ProposeError::Refused(why))
}
