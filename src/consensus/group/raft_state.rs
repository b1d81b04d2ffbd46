//! Small readings of Raft's types that several files need.

use openraft::raft::AppendEntriesResponse;

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

/// True if the receiver refused an append because it knows a later leader or candidate.
pub fn is_higher_vote(answer: &AppendEntriesResponse<Types>) -> bool {
    matches!(answer, AppendEntriesResponse::HigherVote(_))
}
