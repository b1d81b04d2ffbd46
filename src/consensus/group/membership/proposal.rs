//! Founds the cluster, and carries out a membership change while the leader's lease holds.
//!
//! Invariant: from before a membership is proposed until it is known which one is in force, the leader's
//! lease needs the majority of the proposed voters as well.

use std::{collections::BTreeMap, sync::Arc};

use openraft::{
    RaftMetrics,
    async_runtime::watch::WatchReceiver,
    errors::{ClientWriteError, RaftError},
    raft::Precondition,
};

use super::{GroupMembership, change::MembershipChange};
use crate::{
    clock::Instant,
    consensus::group::{ProposeError, quorums::quorums_of},
    sequence::NodeId,
    storage::{Member, StoreError, StoredMembership, Types, term_led},
};

impl GroupMembership {
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
    /// wait for that. With `unless_unfit`, each is checked by [`GroupMembership::check_voters_after`] first.
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
        let _one_at_a_time = self.turn.try_lock().map_err(|_| {
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
    ///   because `turn` is held. From here that one is needed alone.
    /// * *Unknown*, or this node no longer leads: the proposed voters remain needed until another change
    ///   reads what is in force, or another term begins (it reads its log anew).
    /// * The watcher of Raft's metrics may bring an older membership later. Within a term the lease
    ///   follows only to a later log index, and a leader's log only grows.
    async fn carry_out(
        &self, term: u64, change: MembershipChange, unless_unfit: Option<Instant>,
    ) -> Result<(), ProposeError> {
        let before = self.membership_in_force(term).await?;
        change.check(before.membership(), self.this_node.id)?;
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

    /// The error that the proposer of a failed change of `before` in `term` is told. Raft answers the same before the first
    /// step and before the second one: nothing was done only if it acts on the membership that it acted on before.
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
        let me = self.this_node.id;
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
