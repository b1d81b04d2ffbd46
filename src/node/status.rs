//! What this node knows of the cluster.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    NodeContext,
    leader_search::{Attempt, leader_of},
    operations::ByLeader,
};
use crate::{
    allocator::Term,
    clock::whole_ms,
    consensus::{NodeState, Role},
    proto::v1,
};

/// About how many bytes the status has for each member.
const MEMBER_BYTES: usize = 1_024;

impl ByLeader for v1::StatusRequest {
    const PATIENCE: Duration = Duration::from_secs(1);

    async fn carry_out(
        self, node: &Arc<NodeContext>, _: &Term, _: Instant,
    ) -> Attempt<v1::StatusResponse> {
        Ok(node.status())
    }

    fn answer_bytes(&self, node: &NodeContext) -> usize {
        node.group.members().len() * MEMBER_BYTES
    }

    fn without_leader(node: &NodeContext) -> Option<v1::StatusResponse> {
        Some(node.status())
    }
}

impl NodeContext {
    /// What this node knows of the cluster.
    pub fn status(&self) -> v1::StatusResponse {
        let now = self.group.leadership().borrow().clone();
        let nodes = self.group.nodes();
        let own_log = nodes
            .iter()
            .find(|node| node.id == self.config.node_id)
            .and_then(|node| node.log_index);
        let leads = leader_of(&now) == Some(self.config.node_id);
        let serving = now.own.as_ref().is_some_and(|own| own.is_valid(self.clock.now()));
        let missing_after = Duration::from_millis(self.config.election_timeout_ms);
        let lag = |node: &NodeState| {
            let behind = own_log.unwrap_or(0).saturating_sub(node.log_index.unwrap_or(0));
            leads.then_some(behind)
        };
        v1::StatusResponse {
            cluster: self.config.cluster.clone(),
            cluster_id: self.printed_cluster_id(),
            waits: !self.group.is_formed(),
            set: self.group.config().set.into(),
            node: self.config.node_id,
            leader: leader_of(&now),
            term: now.term,
            serving,
            memory: self.leader_memory(),
            disk: Some(self.disk_space()),
            clock: self.clock_status(),
            nodes: nodes
                .iter()
                .map(|node| v1::NodeStatus {
                    id: node.id,
                    role: role(node.role).into(),
                    voter: node.voter,
                    address: node.member.client_address.clone(),
                    peer_address: node.member.peer_address.clone(),
                    log_index: node.log_index,
                    applied_index: node.applied_index,
                    lag: lag(node),
                    silent_ms: node.silence.map(|silence| whole_ms(silence.lasts)),
                    unheard_in_term: node.silence.is_some_and(|silence| !silence.in_term),
                    missing: node.silence.is_some_and(|silence| silence.lasts > missing_after),
                    build: self.introduction_of(node.id).map(|told| told.build),
                    clock_ahead_ms: self.group.clock_ahead_ms(node.id).filter(|_| leads),
                })
                .collect(),
        }
    }
}

impl NodeContext {
    /// The free space of this node's disk, as it was measured last.
    fn disk_space(&self) -> v1::DiskSpace {
        let free_space = self.group.store().free_space();
        v1::DiskSpace {
            free_bytes: free_space.free_bytes(),
            reserve_bytes: free_space.reserve_bytes(),
            low: free_space.low().is_some(),
            refuses_new_keys: self
                .refuses_new_keys()
                .map(|low| low.to_string())
                .unwrap_or_default(),
        }
    }

    /// What this node has in memory as leader. `None` if it does not lead, or its term is closed: looking could block.
    fn leader_memory(&self) -> Option<v1::LeaderMemory> {
        let term = self.allocator.load_full().filter(|term| !term.is_over())?;
        let footprint = term.footprint();
        Some(v1::LeaderMemory {
            keys: footprint.keys as u64,
            bytes: (footprint.bytes - footprint.vacant_bytes) as u64,
            bytes_max: self.config.memory_limits().bytes_max as u64,
        })
    }
}

fn role(role: Role) -> v1::Role {
    match role {
        Role::Leader => v1::Role::Leader,
        Role::Follower => v1::Role::Follower,
        Role::Candidate => v1::Role::Candidate,
        Role::Learner => v1::Role::Learner,
    }
}
