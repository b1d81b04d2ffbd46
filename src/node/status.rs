//! The status of the cluster, as this node knows it, and its own readiness.
//!
//! `readiness.rs` says whether it is ready, and `measure.rs` measures it for each scrape. `free_space.rs` follows the room on
//! its disk. `activity.rs` notes what it does, and `recent_activity.rs` keeps the last two minutes of that.

mod activity;
mod free_space;
mod measure;
pub(super) mod readiness;
pub(super) mod recent_activity;

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use self::recent_activity::Activity;
use super::{
    Config,
    access::{Asker, what_is_open},
    common::Common,
    members::Members,
    requests::operation::{ByAskedNode, ByLeader},
    terms::LedTerms,
    wall_clock::{
        believed_time::{Belief, ClockDoubt},
        ids_time::IdsTime,
    },
    way::{attempt::Attempt, patience::FOR_STATUS, search::leader_of},
};
use crate::{
    allocator::Term,
    clock::{Clock, whole_ms},
    consensus::{Group, NodeState, ThisNode},
    metrics::Metrics,
    proto::{Refusal, v1},
    sequence::NodeId,
};

/// About how many bytes the status has for each member.
const MEMBER_BYTES: usize = 1_024;

/// How often the wall clock is looked at.
const CHECK_EVERY: Duration = Duration::from_secs(1);

impl ByLeader for v1::StatusRequest {
    type Service = Arc<Status>;

    const PATIENCE: Duration = FOR_STATUS;

    async fn carry_out(
        self, status: &Arc<Status>, _: (&Term, &Asker), _: Instant,
    ) -> Attempt<v1::StatusResponse> {
        Ok(status.now())
    }

    fn answer_bytes(&self, status: &Arc<Status>) -> usize {
        let members = status.group.membership.members();
        let open: usize = members.keys().map(|&node| status.open_at(node).len()).sum();
        members.len() * MEMBER_BYTES + open
    }

    fn without_leader(status: &Arc<Status>) -> Option<v1::StatusResponse> {
        Some(status.now())
    }
}

impl ByAskedNode for v1::ListMappedKeysRequest {
    type Service = Arc<Status>;

    async fn carry_out(
        self, status: &Arc<Status>, _: Instant,
    ) -> Result<v1::ListMappedKeysResponse, Refusal> {
        let config = &status.config;
        let tables = [config.leaf_names(), config.tinyid_names(), config.yuewen_names()];
        let keys = tables.into_iter().flat_map(|names| {
            let keys = names.keys_in(&self.namespace);
            keys.map(move |(name, key)| v1::MappedKey {
                setting: names.setting.to_owned(),
                name: name.to_owned(),
                key: key.to_owned(),
            })
        });
        Ok(v1::ListMappedKeysResponse { keys: keys.collect() })
    }
}

/// The service that tells of a node and of the cluster: its status, its metrics, its recent activity.
pub struct Status {
    config: Arc<Config>,
    this_node: Arc<ThisNode>,
    group: Arc<Group>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    led: Arc<LedTerms>,
    members: Arc<Members>,
    /// The time of ids: the status tells whether it is believed.
    time: IdsTime,
    /// The activity of this node in the last seconds.
    recent: Activity,
    /// Held while a scrape reads what may block: a disk that hangs holds one thread, however often somebody
    /// scrapes.
    scrape_lock: Arc<Mutex<()>>,
}

impl Status {
    /// That of the node. `time` is that of ids.
    pub(super) fn new(
        common: &Common, led: Arc<LedTerms>, members: Arc<Members>, time: IdsTime,
    ) -> Self {
        Status {
            config: common.config.clone(),
            this_node: common.this_node.clone(),
            group: common.group.clone(),
            clock: common.clock.clone(),
            metrics: common.metrics.clone(),
            led,
            members,
            time,
            recent: Activity::default(),
            scrape_lock: Arc::default(),
        }
    }

    /// The status of the cluster, as this node knows it.
    pub fn now(&self) -> v1::StatusResponse {
        let now = self.group.leadership().borrow().clone();
        let nodes = self.group.membership.nodes();
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
            cluster_id: self.members.printed_cluster_id(),
            waits: !self.group.is_formed(),
            set: self.group.config.set.into(),
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
                    role: role(node, leader_of(&now)).into(),
                    voter: node.voter,
                    address: node.member.client_address.clone(),
                    peer_address: node.member.peer_address.clone(),
                    log_index: node.log_index,
                    applied_index: node.applied_index,
                    lag: lag(node),
                    silent_ms: node.silence.map(|silence| whole_ms(silence.lasts)),
                    unheard_in_term: node.silence.is_some_and(|silence| !silence.in_term),
                    missing: node.silence.is_some_and(|silence| silence.lasts > missing_after),
                    build: self.members.introduction_of(node.id).map(|told| told.build),
                    clock_ahead_ms: self.group.clock_ahead_ms(node.id).filter(|_| leads),
                    open: self.open_at(node.id),
                })
                .collect(),
        }
    }

    /// The ports of this node that are open, to whom, and the grants there, in words; empty if none is.
    pub fn open(&self) -> String {
        what_is_open(&self.config, &self.group)
    }

    /// The ports of a member that are open, in words; empty if nothing is, or it is not known.
    fn open_at(&self, node: NodeId) -> String {
        match node == self.config.node_id {
            true => self.open(),
            false => self.group.membership.open_at(node),
        }
    }

    /// The free space of this node's disk, as it was measured last.
    fn disk_space(&self) -> v1::DiskSpace {
        let free_space = self.this_node.store.free_space();
        v1::DiskSpace {
            free_bytes: free_space.free_bytes(),
            reserve_bytes: free_space.reserve_bytes(),
            low: free_space.low().is_some(),
            refuses_new_keys: self
                .group
                .limiting_disk()
                .map(|low| low.to_string())
                .unwrap_or_default(),
        }
    }

    /// The memory of the term that this node leads. `None` if it does not lead, or its term is closed: looking could block.
    fn leader_memory(&self) -> Option<v1::LeaderMemory> {
        let term = self.led.serving()?;
        let footprint = term.footprint();
        Some(v1::LeaderMemory {
            keys: footprint.keys as u64,
            bytes: (footprint.bytes - footprint.vacant_bytes) as u64,
            bytes_max: self.group.budget.memory_bytes,
        })
    }

    /// Looks at the wall clock for as long as the node runs. One that does not lead looks as well: it may lead next.
    pub(super) async fn follow_clock(self: Arc<Self>) {
        let mut checks = tokio::time::interval(CHECK_EVERY);
        loop {
            checks.tick().await;
            match self.led.serving() {
                Some(term) => drop(self.time.look(term.term())),
                None => self.time.follow(),
            }
        }
    }

    /// The reading of this node's clock, and whether it is believed. `None` if this node does not lead.
    fn clock_status(&self) -> Option<v1::ClockStatus> {
        let belief = self.time.look(self.led.serving()?.term());
        let apart_max_ms = self.config.clock_apart_max_ms;
        let (doubt, makes_ids) = match belief {
            Belief::Agreed { .. } => (None, true),
            Belief::RunsOn { doubt, .. } => (Some(doubt), true),
            Belief::Doubted(doubt) => (Some(doubt), false),
        };
        let distance = doubt.and_then(|ClockDoubt { distance, .. }| distance);
        Some(v1::ClockStatus {
            wall_ms: self.clock.wall_ms(),
            believed: doubt.is_none(),
            makes_ids,
            ahead_ms: distance.map(|distance| distance.signed_ms()),
            apart_max_ms,
            alone: self.group.is_sole_voter(),
        })
    }
}

/// A leader that was heard is known before Raft follows it: in the term that is told, `leader` alone leads.
fn role(node: &NodeState, leader: Option<NodeId>) -> v1::Role {
    match node {
        NodeState { id, .. } if leader == Some(*id) => v1::Role::Leader,
        NodeState { stands: true, .. } => v1::Role::Candidate,
        NodeState { voter: true, .. } => v1::Role::Follower,
        NodeState { .. } => v1::Role::Learner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Member;

    #[test]
    fn the_leader_that_was_heard_leads_though_raft_does_not_follow_it_yet() {
        let member = Member {
            peer_address: "127.0.0.1:7601".to_owned(),
            client_address: "127.0.0.1:7600".to_owned(),
            incarnation: 1,
        };
        let node = |id, voter| NodeState {
            id,
            member: member.clone(),
            voter,
            stands: false,
            log_index: None,
            applied_index: None,
            silence: None,
        };
        let roles = [node(1, true), node(3, true), node(4, false)].map(|node| role(&node, Some(1)));
        assert_eq!(roles, [v1::Role::Leader, v1::Role::Follower, v1::Role::Learner]);
        let stands = NodeState { stands: true, ..node(3, true) };
        assert_eq!(
            [role(&stands, None), role(&node(1, true), None)],
            [v1::Role::Candidate, v1::Role::Follower]
        );
    }
}
