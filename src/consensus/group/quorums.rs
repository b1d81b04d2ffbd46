//! The quorums of a membership as it stands in Raft's log.

use crate::{consensus::lease::Quorums, storage::StoredMembership};

/// The quorums of `membership`, which need not be committed.
pub fn quorums_of(membership: &StoredMembership) -> Quorums {
    let log_index = membership.log_id().as_ref().map_or(0, |id| id.index);
    let voter_sets = membership.membership().get_joint_config().clone();
    Quorums::new(log_index, voter_sets)
}
