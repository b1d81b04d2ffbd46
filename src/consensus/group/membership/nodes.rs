//! The state of each member, and of this node's own log, as far as this node knows it.

use std::collections::{BTreeMap, BTreeSet};

use openraft::{RaftMetrics, ServerState};

use super::GroupMembership;
use crate::{
    consensus::{group::replication::replicated_index, lease::PeerSilence},
    sequence::NodeId,
    storage::{Member, Types},
};

/// The state of one node, as far as it is known.
#[derive(Debug, Clone)]
pub struct NodeState {
    /// The node.
    pub id: NodeId,
    /// Its addresses and its data directory.
    pub member: Member,
    /// True if it is a voter.
    pub voter: bool,
    /// True if it stands for election; known of this node alone.
    pub stands: bool,
    /// Its last log entry: known of this node, and (as far as it is on the disk there) of the followers
    /// of this node.
    pub log_index: Option<u64>,
    /// The last entry that it applied; known of this node alone.
    pub applied_index: Option<u64>,
    /// For how long it has not been heard; known of the others, if this node leads.
    pub silence: Option<PeerSilence>,
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

impl GroupMembership {
    /// The members: for each node its addresses, and whether it is a voter.
    pub fn members(&self) -> BTreeMap<NodeId, (Member, bool)> {
        members_of(&self.raft_metrics())
    }

    /// The state of every member, as far as this node knows it.
    pub fn nodes(&self) -> Vec<NodeState> {
        let (me, metrics) = (self.this_node.id, self.raft_metrics());
        members_of(&metrics)
            .into_iter()
            .map(|(id, (member, voter))| {
                let stands = id == me && metrics.state == ServerState::Candidate;
                let (log_index, applied_index, silence) = match id == me {
                    true => (
                        metrics.last_log_index,
                        metrics.last_applied.as_ref().map(|log_id| log_id.index),
                        None,
                    ),
                    false => (replicated_index(&metrics, id), None, self.lease.silence(id)),
                };
                NodeState { id, member, voter, stands, log_index, applied_index, silence }
            })
            .collect()
    }

    /// The ports of `node`, another member, that are open, in words, as it told this leader last. Empty if nothing is, or this
    /// node does not lead or has not heard that one in its term.
    pub fn open_at(&self, node: NodeId) -> String {
        // Ports of which it told an earlier term may be closed by now.
        match self.lease.silence(node).is_some_and(|silence| silence.in_term) {
            true => self.this_node.peer_machines.open_at(node),
            false => String::new(),
        }
    }

    /// How far this node's log is.
    pub fn log_state(&self) -> LogState {
        let metrics = self.raft_metrics();
        LogState {
            last: metrics.last_log_index,
            committed: metrics.local_committed.map(|log_id| log_id.index),
            applied: metrics.last_applied.map(|log_id| log_id.index),
        }
    }
}

fn members_of(metrics: &RaftMetrics<Types>) -> BTreeMap<NodeId, (Member, bool)> {
    let membership = metrics.membership_config.membership();
    let voters: BTreeSet<NodeId> = membership.voter_ids().collect();
    let nodes = membership.nodes();
    nodes.map(|(&id, member)| (id, (member.clone(), voters.contains(&id)))).collect()
}
