//! What this node knows of each member.

use std::collections::{BTreeMap, BTreeSet};

use openraft::{RaftMetrics, ServerState};

use crate::{
    consensus::{group::Group, lease::Silence},
    sequence::NodeId,
    storage::{Member, Types},
};

/// What is known of one node.
#[derive(Debug, Clone)]
pub struct NodeState {
    /// The node.
    pub id: NodeId,
    /// Its addresses and its data directory.
    pub member: Member,
    /// True if it is a voter.
    pub voter: bool,
    /// What it does.
    pub role: Role,
    /// Its last log entry: known of this node, and (as far as it is on the disk there) of the followers
    /// of this node.
    pub log_index: Option<u64>,
    /// The last entry that it applied; known of this node alone.
    pub applied_index: Option<u64>,
    /// For how long it has not been heard; known of the others, if this node leads.
    pub silence: Option<Silence>,
}

/// How far this node's log is; `None` for no entry.
#[derive(Debug, Clone, Copy)]
pub struct LogState {
    /// Its last entry.
    pub last: Option<u64>,
    /// The last entry that it knows to be committed.
    pub committed: Option<u64>,
    /// The last entry that it applied.
    pub applied: Option<u64>,
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
    /// The members: for each node its addresses, and whether it is a voter.
    pub fn members(&self) -> BTreeMap<NodeId, (Member, bool)> {
        let membership = self.metrics().membership_config;
        let voters: BTreeSet<NodeId> = membership.membership().voter_ids().collect();
        membership
            .membership()
            .nodes()
            .map(|(&id, member)| (id, (member.clone(), voters.contains(&id))))
            .collect()
    }

    /// What this node knows of every member.
    pub fn nodes(&self) -> Vec<NodeState> {
        let metrics = self.metrics();
        let members = self.members().into_iter();
        members
            .map(|(id, (member, voter))| {
                let role = self.role(&metrics, id, voter);
                let (log_index, applied_index, silence) = match id == self.node() {
                    true => (
                        metrics.last_log_index,
                        metrics.last_applied.as_ref().map(|log_id| log_id.index),
                        None,
                    ),
                    false => (replicated_index(&metrics, id), None, self.lease.silence(id)),
                };
                NodeState { id, member, voter, role, log_index, applied_index, silence }
            })
            .collect()
    }

    /// The role of node `id`. That a node stands for election is known of this node alone.
    fn role(&self, metrics: &RaftMetrics<Types>, id: NodeId, voter: bool) -> Role {
        let is_candidate = metrics.state == ServerState::Candidate && id == self.node();
        if metrics.current_leader == Some(id) {
            Role::Leader
        } else if is_candidate {
            Role::Candidate
        } else if voter {
            Role::Follower
        } else {
            Role::Learner
        }
    }

    /// How far this node's log is.
    pub fn log_state(&self) -> LogState {
        let metrics = self.metrics();
        LogState {
            last: metrics.last_log_index,
            committed: metrics.local_committed.map(|log_id| log_id.index),
            applied: metrics.last_applied.map(|log_id| log_id.index),
        }
    }
}

/// Up to where the log of `id` is known to match this leader's log. `None` for a node that has nothing,
/// and on a node that does not lead.
pub(super) fn replicated_index(metrics: &RaftMetrics<Types>, id: NodeId) -> Option<u64> {
    let progress = metrics.replication.as_ref()?.get(&id)?;
    progress.as_ref().map(|log_id| log_id.index)
}
