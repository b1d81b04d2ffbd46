//! What an operator can change of a membership.

use std::collections::{BTreeMap, BTreeSet};

use openraft::ChangeMembers;

use crate::{
    consensus::group::ProposeError,
    sequence::NodeId,
    storage::{Member, Membership},
};

/// What an operator can change of a membership.
#[derive(Debug, Clone)]
pub enum MembershipChange {
    /// Adds a new node, as a learner.
    Add(NodeId, Member),
    /// Makes a learner a voter.
    Promote(NodeId),
    /// Removes a node, voter or learner; not the leader.
    Remove(NodeId),
    /// Removes a learner; not a voter.
    RemoveLearner(NodeId),
    /// A member has other addresses.
    Move(NodeId, Member),
}

impl MembershipChange {
    /// Refuses a change that was asked for when the membership was another one.
    ///
    /// # Errors
    /// [`ProposeError::Refused`] if a node to be added is a member of `now`, if a learner to be removed votes, or if a node to
    /// be moved is no member, or has another data directory there. Raft itself refuses what else cannot be done.
    pub(super) fn check(&self, now: &Membership) -> Result<(), ProposeError> {
        let known = |id| now.get_node(id);
        let why = match self {
            MembershipChange::Add(id, _) if known(id).is_some() => {
                format!("node {id} has become a member meanwhile; see ratchet status")
            }
            MembershipChange::Move(id, there)
                if known(id).is_none_or(|known| known.incarnation != there.incarnation) =>
            {
                format!("node {id} has been removed or replaced meanwhile; see ratchet status")
            }
            MembershipChange::RemoveLearner(id) if now.voter_ids().any(|voter| voter == *id) => {
                format!("node {id} has been promoted meanwhile; see ratchet status")
            }
            MembershipChange::Add(..)
            | MembershipChange::Move(..)
            | MembershipChange::Promote(_)
            | MembershipChange::Remove(_)
            | MembershipChange::RemoveLearner(_) => return Ok(()),
        };
        Err(ProposeError::Refused(why))
    }

    /// The voters after the change. A change that was left halfway is completed by the next one, so of a
    /// joint membership its last voter set counts.
    pub(super) fn voters_after(&self, now: &Membership) -> BTreeSet<NodeId> {
        let mut voters = now.get_joint_config().last().cloned().unwrap_or_default();
        match self {
            MembershipChange::Promote(id) => voters.insert(*id),
            MembershipChange::Remove(id) => voters.remove(id),
            MembershipChange::Add(..)
            | MembershipChange::Move(..)
            | MembershipChange::RemoveLearner(_) => false,
        };
        voters
    }

    /// The change as openraft takes it.
    pub(super) fn into_raft(self, now: &Membership) -> ChangeMembers<NodeId, Member> {
        let is_voter = |id: &NodeId| now.voter_ids().any(|voter| voter == *id);
        match self {
            MembershipChange::Add(id, member) => {
                ChangeMembers::AddNodes(BTreeMap::from([(id, member)]))
            }
            MembershipChange::Promote(id) => ChangeMembers::AddVoterIds(BTreeSet::from([id])),
            MembershipChange::Remove(id) if is_voter(&id) => {
                ChangeMembers::RemoveVoters(BTreeSet::from([id]))
            }
            MembershipChange::Remove(id) | MembershipChange::RemoveLearner(id) => {
                ChangeMembers::RemoveNodes(BTreeSet::from([id]))
            }
            // Safe: `check` has found that it is the same node with the same data directory.
            MembershipChange::Move(id, member) => {
                ChangeMembers::SetNodes(BTreeMap::from([(id, member)]))
            }
        }
    }
}
