//! What an operator can change of a membership, and how it is carried out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use openraft::{
    ChangeMembers, RaftMetrics,
    async_runtime::watch::WatchReceiver,
    errors::{ClientWriteError, RaftError},
    raft::Precondition,
};

use crate::{
    clock::Instant,
    consensus::group::{
        Group, ProposeError,
        group::{quorums_of, term_led},
    },
    sequence::NodeId,
    storage::{Member, Membership, StoreError, StoredMembership, Types},
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
    /// one, if a node to be moved is no member, or has another data directory there, or if `leader` would vote no more: it
    /// would lead on, and no other node would know a leader. Raft itself refuses what else cannot be done.
    fn check(&self, now: &Membership, leader: NodeId) -> Result<(), ProposeError> {
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
    fn into_raft(self, now: &Membership) -> ChangeMembers<NodeId, Member> {
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

// Founds the cluster, and carries out a membership change while the leader's lease holds.
//
// Invariant: from before a membership is proposed until it is known which one is in force, the leader's
// lease needs the majority of the proposed voters as well.

impl Group {
    /// Founds the cluster with these voters. To be called once, on one node.
    ///
    /// # Errors
    /// If this node belongs to a cluster already.
    pub async fn found(&self, members: BTreeMap<NodeId, Member>) -> Result<(), StoreError> {
        self.raft
            .initialize(members)
            .await
            .map_err(|e| StoreError::invalid(format!("the cluster cannot be founded: {e}")))
    }

    /// Changes the membership, one step of `changes` after the other: one caller at a time, and to the end even if it does not
    /// wait for that. With `unless_unfit`, each is checked by [`Group::check_voters_after`] first.
    ///
    /// # Errors
    /// * [`ProposeError::Refused`] if another change is under way, if the membership is no longer the one
    ///   that the change was meant for, if its voters are unfit, or if Raft refuses it.
    /// * [`ProposeError::NotLeader`] if this node does not lead `term`.
    /// * [`ProposeError::Unknown`] if the leadership was lost meanwhile, also after the first of two steps.
    /// * [`ProposeError::Stopped`] if Raft has stopped.
    ///
    /// After a failure on the way a voter may have been added or removed halfway (both majorities are
    /// needed then). If the change is asked for again, it is completed.
    pub async fn change(
        self: &Arc<Self>, term: u64, changes: Vec<MembershipChange>, unless_unfit: Option<Instant>,
    ) -> Result<(), ProposeError> {
        let changing = self.clone().change_to_the_end(term, changes, unless_unfit);
        let changing = tokio::spawn(self.this_node.tasks.watched("a membership change", changing));
        changing.await.map_err(|e| ProposeError::Stopped(e.to_string()))?
    }

    async fn change_to_the_end(
        self: Arc<Self>, term: u64, changes: Vec<MembershipChange>, unless_unfit: Option<Instant>,
    ) -> Result<(), ProposeError> {
        // Waiting would be of no use: the caller could be gone long before its turn comes.
        let _one_at_a_time = self.membership_change.try_lock().map_err(|_| {
            let why = "another membership change is under way; ask again when it is done";
            ProposeError::Refused(why.to_owned())
        })?;
        for (step, change) in changes.into_iter().enumerate() {
            match self.carry_out(term, change, unless_unfit).await {
                Err(ProposeError::NotLeader(_)) if step > 0 => {
                    return Err(ProposeError::Unknown(term));
                }
                carried_out => carried_out?,
            }
        }
        Ok(())
    }

    /// Proposes a change, and keeps the lease within what may come into force.
    ///
    /// For Raft a membership is in force as soon as it is in this leader's log, committed or not. From
    /// then on the lease must need its majority. Otherwise a majority of the new voters could elect a
    /// successor while the old leader still answers. In every order of events it does:
    ///
    /// * *Before.* The membership that Raft acts on is read from Raft itself, not from what a watcher saw
    ///   of it, and Raft proposes only if that one is still the last
    ///   (`Precondition::LastMembershipLogId`). The voters that follow from it are needed before the
    ///   proposal is made.
    /// * *On the way.* Raft logs a joint membership, made of the old voters and the new ones, and then
    ///   the new voters alone. The lease needs a majority of the old voters and one of the new: at least
    ///   what each of these memberships needs.
    /// * *Done, or definitely refused* ([`is_definite`]): whatever was proposed is in the log by then, or
    ///   never will be. Raft is asked again for the membership that it acts on: the new one, the old one,
    ///   or, if the second step was refused, the joint one. No other membership can come into force,
    ///   because `membership_change` is held. From here that one is needed alone.
    /// * *Unknown*, or this node no longer leads: the proposed voters remain needed until another change
    ///   reads what is in force, or another term begins (it reads its log anew).
    /// * The watcher of Raft's metrics may bring an older membership later. Within a term the lease
    ///   follows only to a later log index, and a leader's log only grows.
    async fn carry_out(
        &self, term: u64, change: MembershipChange, unless_unfit: Option<Instant>,
    ) -> Result<(), ProposeError> {
        let before = self.membership_in_force(term).await?;
        change.check(before.membership(), self.node())?;
        if let Some(asked) = unless_unfit {
            // The caller may have checked this while another change was under way.
            let fit = self.check_voters_after(term, &change, asked);
            fit.map_err(|unfit| ProposeError::Refused(unfit.to_string()))?;
        }
        let voters = change.voters_after(before.membership());
        self.lease.need(quorums_of(&before), Some(voters));
        let unless_changed = [
            Precondition::CommittedLeaderId { committed_leader_id: term.into() },
            Precondition::LastMembershipLogId { last_membership_log_id: *before.log_id() },
        ];
        let written = self
            .raft
            .change_membership_if(change.into_raft(before.membership()), false, unless_changed)
            .await;
        if written.as_ref().err().is_none_or(is_definite)
            && let Ok(now) = self.membership_in_force(term).await
        {
            self.lease.need(quorums_of(&now), None);
        }
        let written = match written {
            Ok(written) => written,
            Err(error) => return Err(self.failed_change(term, &before, error).await),
        };
        // If this node is asked for its members from now on, the answer must contain the change.
        let index = written.log_id.index;
        let seen = |metrics: &RaftMetrics<Types>| {
            let log_id = metrics.membership_config.log_id();
            log_id.is_some_and(|id| id.index >= index)
        };
        match self.raft.metrics().wait_until(seen).await {
            Ok(_) => Ok(()),
            Err(error) => Err(ProposeError::Stopped(error.to_string())),
        }
    }

    /// What the failure of a change of `before` in `term` means for its proposer. Raft answers the same before the first step
    /// and before the second one: nothing was done only if it acts on the membership that it acted on before.
    async fn failed_change(
        &self, term: u64, before: &StoredMembership,
        error: RaftError<Types, ClientWriteError<Types>>,
    ) -> ProposeError {
        let read = self.raft.with_raft_state(|state| *state.membership_state.effective().log_id());
        match read.await {
            Ok(now) if now != *before.log_id() => ProposeError::Unknown(term),
            Ok(_) | Err(_) => match error {
                RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => {
                    ProposeError::NotLeader(term)
                }
                RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => {
                    ProposeError::Unknown(term)
                }
                RaftError::APIError(
                    refused @ (ClientWriteError::ChangeMembershipError(_)
                    | ClientWriteError::PreconditionFailed(_)),
                ) => ProposeError::Refused(refused.to_string()),
                RaftError::Fatal(fatal) => ProposeError::Stopped(fatal.to_string()),
            },
        }
    }

    /// The membership that Raft acts on at this moment, as the leader of `term`.
    async fn membership_in_force(&self, term: u64) -> Result<StoredMembership, ProposeError> {
        let me = self.node();
        let read = self.raft.with_raft_state(move |state| {
            let leads = term_led(state.vote_ref(), me) == Some(term);
            leads.then(|| state.membership_state.effective().as_ref().clone())
        });
        read.await
            .map_err(|e| ProposeError::Stopped(e.to_string()))?
            .ok_or(ProposeError::NotLeader(term))
    }
}

/// True if a failed change left nothing on its way.
///
/// Raft checks the leadership, the preconditions and the membership before it writes an entry, for the
/// first step and for the second, and answers the errors that are definite from there alone. Of an entry
/// that was written and replaced it says `LogEntryDiscarded`. If Raft stopped, it says `Fatal` of all
/// that was under way.
fn is_definite(error: &RaftError<Types, ClientWriteError<Types>>) -> bool {
    matches!(
        error,
        RaftError::APIError(
            ClientWriteError::ForwardToLeader(_)
                | ClientWriteError::ChangeMembershipError(_)
                | ClientWriteError::PreconditionFailed(_)
        )
    )
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
