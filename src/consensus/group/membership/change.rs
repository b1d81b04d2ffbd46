//! Changes of the membership by an operator, and the reasons for which one is refused.
//!
//! Invariant: no change is let through after which the node that leads would vote no more.

use std::collections::{BTreeMap, BTreeSet};

use openraft::ChangeMembers;

use crate::{
    consensus::group::ProposeError,
    sequence::NodeId,
    storage::{Member, Membership},
};

/// A change of the membership by an operator.
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
    /// one, if a node to be moved is no member, or has another data directory there, or if `leader` would vote no more: it
    /// would lead on, and no other node would know a leader. Raft itself refuses what else cannot be done.
    pub(super) fn check(&self, now: &Membership, leader: NodeId) -> Result<(), ProposeError> {
        use MembershipChange::*;
        let known = |id| now.get_node(id);
        let why = match self {
            Add(id, _) if known(id).is_some() => {
                format!("node {id} has become a member meanwhile; see ratchet status")
            }
            Move(id, there)
                if known(id).is_none_or(|known| known.incarnation != there.incarnation) =>
            {
                format!("node {id} has been removed or replaced meanwhile; see ratchet status")
            }
            RemoveLearner(id, incarnation)
                if now.voter_ids().any(|voter| voter == *id)
                    || known(id).is_none_or(|known| known.incarnation != *incarnation) =>
            {
                format!("node {id} has been promoted or replaced meanwhile; see ratchet status")
            }
            // A leader before this one began to remove it, and left that halfway.
            _ if !self.voters_after(now).contains(&leader) => format!(
                "node {leader}, which leads, would vote no more after this change: its removal was begun, and left halfway; hand \
                 the leadership over first: ratchet transfer"
            ),
            Add(..) | Move(..) | Promote(_) | Remove(_) | RemoveLearner(..) => return Ok(()),
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
        use MembershipChange::*;
        let is_voter = |id: &NodeId| now.voter_ids().any(|voter| voter == *id);
        match self {
            Add(id, member) => ChangeMembers::AddNodes(BTreeMap::from([(id, member)])),
            Promote(id) => ChangeMembers::AddVoterIds(BTreeSet::from([id])),
            Remove(id) if is_voter(&id) => ChangeMembers::RemoveVoters(BTreeSet::from([id])),
            Remove(id) | RemoveLearner(id, _) => ChangeMembers::RemoveNodes(BTreeSet::from([id])),
            // Safe: `check` has found that it is the same node with the same data directory.
            Move(id, member) => ChangeMembers::SetNodes(BTreeMap::from([(id, member)])),
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
        MembershipChange::RemoveLearner(2, 20).check(&now, 1).expect("it is a learner");
        for (id, incarnation) in [(2, 21), (3, 30), (1, 10)] {
            let refused = MembershipChange::RemoveLearner(id, incarnation).check(&now, 1);
            assert!(matches!(refused, Err(ProposeError::Refused(_))), "{refused:?}");
        }
    }

    /// Raft completes the removal with whatever change comes next.
    #[test]
    fn a_leader_whose_removal_was_left_halfway_changes_nothing_until_another_node_leads() {
        let sets = vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 3])];
        let nodes = (1..=3).map(|id| (id, Member::default())).collect::<BTreeMap<_, _>>();
        let now = Membership::new(sets, nodes).expect("a membership");
        for change in [MembershipChange::Add(4, Member::default()), MembershipChange::Remove(2)] {
            change.check(&now, 1).expect("node 1 stays");
            let refused = change.check(&now, 2).expect_err("node 2 would lead on").to_string();
            assert!(
                refused.contains("node 2, which leads") && refused.contains("ratchet transfer")
            );
        }
        MembershipChange::Promote(2).check(&now, 2).expect("it takes the removal back");
    }
}
