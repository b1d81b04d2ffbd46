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
    /// Removes a learner with this incarnation; not a voter.
    RemoveLearner(NodeId, u64),
    /// A member has other addresses.
    Move(NodeId, Member),
}

impl MembershipChange {
    /// Refuses a change that was asked for when the membership was another one.
    ///
    /// # Errors
    /// [`ProposeError::Refused`] if a node to be added is a member of `now`, if a learner to be removed votes or is another
    /// one, or if a node to be moved is no member, or has another data directory there. Raft itself refuses what else
    /// cannot be done.
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
            MembershipChange::RemoveLearner(id, incarnation)
                if now.voter_ids().any(|voter| voter == *id)
                    || known(id).is_none_or(|known| known.incarnation != *incarnation) =>
            {
                format!("node {id} has been promoted or replaced meanwhile; see ratchet status")
            }
            MembershipChange::Add(..)
            | MembershipChange::Move(..)
            | MembershipChange::Promote(_)
            | MembershipChange::Remove(_)
            | MembershipChange::RemoveLearner(..) => return Ok(()),
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
            | MembershipChange::RemoveLearner(..) => false,
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
            MembershipChange::Remove(id) | MembershipChange::RemoveLearner(id, _) => {
                ChangeMembers::RemoveNodes(BTreeSet::from([id]))
            }
            // Safe: `check` has found that it is the same node with the same data directory.
            MembershipChange::Move(id, member) => {
                ChangeMembers::SetNodes(BTreeMap::from([(id, member)]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learner_is_removed_for_another_run_of_it_only_while_it_is_the_one_that_was_met() {
        let member = |incarnation| Member { incarnation, ..Member::default() };
        let nodes = BTreeMap::from([(1, member(10)), (2, member(20))]);
        let now = Membership::new(vec![BTreeSet::from([1])], nodes).expect("a membership");
        MembershipChange::RemoveLearner(2, 20).check(&now).expect("it is a learner");
        for (id, incarnation) in [(2, 21), (3, 30), (1, 10)] {
            let refused = MembershipChange::RemoveLearner(id, incarnation).check(&now);
            assert!(matches!(refused, Err(ProposeError::Refused(_))), "{refused:?}");
        }
    }
}
