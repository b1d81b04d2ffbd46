//! Who belongs to the group: founding it, adding, promoting and removing nodes, and how far each is.
//!
//! Invariant: from before a membership is proposed until it is known to be in force, the leader's
//! lease needs the majority of the new voters as well.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering::{Acquire, Release},
    time::Duration,
};

use openraft::{
    ChangeMembers, Precondition, RaftMetrics, ServerState, async_runtime::watch::WatchReceiver,
};

use super::group::{Group, ProposeError, refused};
use crate::{
    sequence::NodeId,
    storage::{Member, StoreError, Types},
    watch,
};

/// What is known of one node.
#[derive(Debug, Clone)]
pub struct NodeState {
    /// Which.
    pub id: NodeId,
    /// Where it is.
    pub member: Member,
    /// Whether it votes.
    pub voter: bool,
    /// What it does.
    pub role: Role,
    /// Its last log entry: of this node, or known to be on the disk of a follower of this node.
    pub log_index: Option<u64>,
    /// The last entry that it applied; known of this node alone.
    pub applied_index: Option<u64>,
}

/// The voters of a membership that is committed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Voters {
    /// 1 + the index of the membership's log entry, the same on all nodes; 0 while none is known.
    pub version: u64,
    /// Where they are; of two memberships while one takes the other's place.
    pub members: BTreeMap<NodeId, Member>,
}

/// What a node does in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Leader,
    /// It votes and follows.
    Follower,
    /// It stands for election.
    Candidate,
    /// It receives the log and does not vote.
    Learner,
}

impl Group {
    /// Founds the cluster with these voters. Called once, on one node.
    ///
    /// # Errors
    /// [`StoreError`] if this node already belongs to a cluster.
    pub async fn found(&self, members: BTreeMap<NodeId, Member>) -> Result<(), StoreError> {
        self.raft
            .initialize(members)
            .await
            .map_err(|e| StoreError::invalid(format!("the cluster cannot be founded: {e}")))
    }

    /// The members: node, where it is, whether it votes.
    pub fn members(&self) -> BTreeMap<NodeId, (Member, bool)> {
        let membership = self.metrics().membership_config;
        let voters: BTreeSet<NodeId> = membership.membership().voter_ids().collect();
        membership
            .membership()
            .nodes()
            .map(|(&id, member)| (id, (member.clone(), voters.contains(&id))))
            .collect()
    }

    /// The voters as of the last membership that is applied here, now and from now on.
    pub fn voters(&self) -> watch::Receiver<Voters> {
        self.voters.subscribe()
    }

    /// The version of [`Group::voters`]: one atomic load.
    pub fn voters_version(&self) -> u64 {
        self.voters_version.load(Acquire)
    }

    /// Follows what Raft says of the voters. A membership counts once it is applied: an earlier one may
    /// yet be replaced by a later leader's at the same index.
    pub(super) fn follow_voters(&self, seen: &RaftMetrics<Types>) {
        let membership = &seen.membership_config;
        let index = membership.log_id().as_ref().map(|id| id.index);
        let applied = seen.last_applied.as_ref().map(|id| id.index);
        let version = index.map_or(0, |index| index + 1);
        if index > applied || version <= self.voters_version() {
            return;
        }
        let voters = membership.membership().voter_ids();
        let members = voters.filter_map(|id| {
            let member = membership.membership().get_node(&id)?;
            Some((id, member.clone()))
        });
        let members = members.collect();
        self.voters.send_replace(Voters { version, members });
        self.voters_version.store(version, Release);
    }

    /// What this node knows of every member.
    pub fn nodes(&self) -> Vec<NodeState> {
        let metrics = self.metrics();
        let replicated = |id: &NodeId| {
            let progress = metrics.replication.as_ref()?.get(id)?;
            progress.as_ref().map(|log_id| log_id.index)
        };
        self.members()
            .into_iter()
            .map(|(id, (member, voter))| {
                let mine = id == self.node();
                let role = match metrics.state {
                    _ if metrics.current_leader == Some(id) => Role::Leader,
                    ServerState::Candidate if mine => Role::Candidate,
                    _ if voter => Role::Follower,
                    _ => Role::Learner,
                };
                NodeState {
                    id,
                    member,
                    voter,
                    role,
                    log_index: if mine {
                        metrics.last_log_index
                    } else {
                        replicated(&id)
                    },
                    applied_index: metrics
                        .last_applied
                        .as_ref()
                        .filter(|_| mine)
                        .map(|log_id| log_id.index),
                }
            })
            .collect()
    }

    /// The voter to hand the leadership of `term` to: one that was heard within a lease, with the
    /// longest log. Asked for `wanted`, that one or why not.
    ///
    /// # Errors
    /// [`ProposeError::Refused`] with the reason.
    pub fn successor(&self, term: u64, wanted: Option<NodeId>) -> Result<NodeId, ProposeError> {
        let now = self.lease.now();
        let heard = |id: NodeId| {
            let within = Duration::from_millis(self.config().election_timeout_ms);
            self.lease
                .last_credit(term, id)
                .is_some_and(|sent| now.since(sent) < within)
        };
        let others = self
            .nodes()
            .into_iter()
            .filter(|node| node.id != self.node());
        let candidates: Vec<NodeState> = others
            .filter(|node| wanted.is_none_or(|wanted| wanted == node.id))
            .collect();
        let refuse = |why: String| Err(ProposeError::Refused(why));
        match (wanted, candidates.first()) {
            (Some(wanted), None) => return refuse(format!("node {wanted} is not a member")),
            (Some(wanted), Some(node)) if !node.voter => {
                return refuse(format!(
                    "node {wanted} is a learner; promote it first: ratchet node promote {wanted}"
                ));
            }
            (Some(wanted), Some(_)) if !heard(wanted) => {
                return refuse(format!(
                    "node {wanted} does not answer; see ratchet status, then choose another node"
                ));
            }
            _ => {}
        }
        candidates
            .into_iter()
            .filter(|node| node.voter && heard(node.id))
            .max_by_key(|node| node.log_index)
            .map(|node| node.id)
            .ok_or_else(|| {
                ProposeError::Refused(
                    "no other voter answers; there is nobody to lead instead".into(),
                )
            })
    }

    /// Adds a learner.
    ///
    /// # Errors
    /// [`ProposeError`].
    pub async fn add_learner(
        &self,
        term: u64,
        id: NodeId,
        member: Member,
    ) -> Result<(), ProposeError> {
        let written = self.raft.add_learner(id, member, false).await;
        written.map(drop).map_err(|e| refused(term, e))
    }

    /// Makes a learner a voter.
    ///
    /// # Errors
    /// [`ProposeError`].
    pub async fn promote(&self, term: u64, id: NodeId) -> Result<(), ProposeError> {
        let mut voters = self.voter_ids();
        voters.insert(id);
        let change = ChangeMembers::AddVoterIds(BTreeSet::from([id]));
        self.change_voters(term, voters, change).await
    }

    /// Removes a node, voter or learner; not this one.
    ///
    /// # Errors
    /// [`ProposeError`].
    pub async fn remove(&self, term: u64, id: NodeId) -> Result<(), ProposeError> {
        let mut voters = self.voter_ids();
        let change = if voters.remove(&id) {
            ChangeMembers::RemoveVoters(BTreeSet::from([id]))
        } else {
            ChangeMembers::RemoveNodes(BTreeSet::from([id]))
        };
        self.change_voters(term, voters, change).await
    }

    /// The last log entry that this node has purged; what lies before comes by snapshot alone.
    pub fn purged_index(&self) -> Option<u64> {
        self.metrics().purged.map(|log_id| log_id.index)
    }

    /// Whether this node is the one and only voter.
    pub fn is_sole_voter(&self) -> bool {
        self.lease.quorums().is_sole(self.node())
    }

    fn voter_ids(&self) -> BTreeSet<NodeId> {
        let members = self.members().into_iter();
        members
            .filter(|(_, (_, voter))| *voter)
            .map(|(id, _)| id)
            .collect()
    }

    async fn change_voters(
        &self,
        term: u64,
        voters: BTreeSet<NodeId>,
        change: ChangeMembers<NodeId, Member>,
    ) -> Result<(), ProposeError> {
        let _one_at_a_time = self.changing.lock().await;
        self.lease.set_proposed(Some(voters));
        let in_this_term = Precondition::CommittedLeaderId {
            committed_leader_id: term.into(),
        };
        let written = self
            .raft
            .change_membership_if(change, false, [in_this_term])
            .await;
        if let Ok(written) = &written {
            // In force for Raft; wait until the watcher has told the lease as well.
            let index = written.log_id.index;
            let in_force = |seen: &RaftMetrics<Types>| {
                seen.membership_config
                    .log_id()
                    .as_ref()
                    .is_some_and(|id| id.index >= index)
            };
            let mut metrics = self.raft.metrics();
            if let Ok(seen) = metrics.wait_until(in_force).await {
                let sets = seen.membership_config.membership().get_joint_config();
                self.lease
                    .set_quorums(super::lease::Quorums::new(sets.iter().cloned()));
            }
            self.lease.set_proposed(None);
        }
        // After a failure the change may still come into force: its majority goes on counting,
        // until a change succeeds or another term begins.
        written.map(drop).map_err(|e| refused(term, e))
    }
}
