//! Asks whether a majority still follows this leader, for answers that are not to rest on the clock.

use std::collections::BTreeSet;

use futures::{StreamExt, stream::FuturesUnordered};
use openraft::raft::AppendEntriesRequest;

use super::group::Group;
use crate::{
    consensus::lease::TermLease,
    storage::{Vote, is_higher_vote},
};

impl Group {
    /// Asks a majority whether it still follows this node in the lease's term. True if it does.
    ///
    /// Numbers that this node took from its memory before it asked are then in order, and the argument
    /// needs no clock: a successor needs the vote of a node that answered, and can have it only after
    /// that answer.
    pub async fn confirm(&self, lease: &TermLease) -> bool {
        let quorums = self.lease.quorums();
        let question = AppendEntriesRequest {
            vote: Vote::new_committed(lease.term(), self.node()),
            prev_log_id: None,
            entries: Vec::new(),
            leader_commit: None,
        };
        let membership = self.metrics().membership_config;
        let timeout = self.config.promise_time();
        let mut answers: FuturesUnordered<_> = quorums
            .voters()
            .into_iter()
            .filter(|&voter| voter != self.node())
            .filter_map(|voter| {
                let member = membership.membership().get_node(&voter)?;
                let peer = self.network.peer(voter, member);
                let question = &question;
                Some(async move { (voter, peer.append(question, timeout).await) })
            })
            .collect();
        let mut followers = BTreeSet::from([self.node()]);
        loop {
            if quorums.agree(&followers) {
                return !lease.is_void();
            }
            match answers.next().await {
                Some((voter, Ok(answer))) if !is_higher_vote(&answer) => {
                    followers.insert(voter);
                }
                Some((_, Ok(_) | Err(_))) => {}
                None => return false,
            }
        }
    }
}
