//! Small readings of Raft's types that several files need: the quorums of a membership, the term that a vote tells of, how far
//! a follower has the log.

use openraft::{RaftMetrics, raft::AppendEntriesResponse};

use crate::{
    consensus::lease::Quorums,
    sequence::NodeId,
    storage::{StoredMembership, Types, Vote},
};

/// The quorums of a membership as it stands in the log.
pub fn quorums_of(membership: &StoredMembership) -> Quorums {
    let log_index = membership.log_id().as_ref().map_or(0, |id| id.index);
    let voter_sets = membership.membership().get_joint_config().clone();
    Quorums::new(log_index, voter_sets)
}

/// The term that `node` leads, if its vote says that it leads one.
pub fn term_led(vote: &Vote, node: NodeId) -> Option<u64> {
    (vote.committed && vote.leader_id.voted_for == node).then_some(vote.leader_id.term)
}

/// Up to where the log of `id` is known to match this leader's log. `None` for a node that has nothing, and on a node that
/// does not lead.
pub fn replicated_index(metrics: &RaftMetrics<Types>, id: NodeId) -> Option<u64> {
    let progress = metrics.replication.as_ref()?.get(&id)?;
    progress.as_ref().map(|log_id| log_id.index)
}

/// True if the receiver refused an append because it knows a later leader or candidate.
pub fn is_higher_vote(answer: &AppendEntriesResponse<Types>) -> bool {
    matches!(answer, AppendEntriesResponse::HigherVote(_))
}
