//! The status of the cluster.

use axum::{extract::State, response::Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    body,
    problem::{Problem, Problems},
    request::{Due, Node, Timeout},
};
use crate::{
    proto::{peer::administer_request::Request as Administer, v1},
    server::administer::administer,
};

/// The leader's view of the cluster, or what the asked node last knew.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterStatus {
    /// The cluster's name.
    cluster: String,
    /// The cluster's id, a UUID that never changes; null if the node belongs to no cluster, or does not know it yet.
    cluster_id: Option<String>,
    /// Whether the node whose view this is holds no data and belongs to no cluster: it waits until one is founded, or it is
    /// added to one.
    waits: bool,
    /// The node whose view this is: the leader, or the asked node if it knows none.
    node: u64,
    /// The node that leads; null if none is known.
    leader: Option<u64>,
    /// The Raft term.
    term: u64,
    /// Whether that node may answer: it leads, and a majority has confirmed it.
    serving: bool,
    /// What the leader has in memory; null if no leader answers.
    memory: Option<LeaderMemory>,
    /// The disk of that node.
    disk: Option<DiskSpace>,
    /// The wall clock of that node; null if it does not lead.
    clock: Option<Clock>,
    /// The members.
    nodes: Vec<NodeStatus>,
}

/// What the leader has in memory.
#[derive(Debug, Serialize, ToSchema)]
struct LeaderMemory {
    /// Keys in use.
    keys: u64,
    /// How many bytes they take.
    bytes: u64,
    /// How many bytes they may take.
    bytes_max: u64,
}

/// The disk of a node, as it was measured last.
#[derive(Debug, Serialize, ToSchema)]
struct DiskSpace {
    /// How many bytes are free; null if the file system does not tell.
    free_bytes: Option<u64>,
    /// How many should be.
    reserve_bytes: u64,
    /// Whether fewer are: as leader the node refuses new keys and namespaces.
    low: bool,
    /// Why the node, as leader, refuses new keys and namespaces; null while it takes them.
    refuses_new_keys: Option<String>,
}

/// What a leader's wall clock is worth. Ids of a time need one with which those of a majority of the voters agree.
#[derive(Debug, Serialize, ToSchema)]
struct Clock {
    /// What it shows, in milliseconds since 1970.
    wall_ms: u64,
    /// Whether those of a majority agree with it, within `apart_max_ms`.
    believed: bool,
    /// Whether ids of a time are made.
    makes_ids: bool,
    /// If it is not believed: how far it is ahead of those of a majority, in milliseconds; null if they are not known.
    ahead_ms: Option<i64>,
    /// How far it may be from them (clock_apart_max_ms).
    apart_max_ms: u64,
    /// Whether the node is the only voter, and believes its own clock.
    alone: bool,
}

/// A member.
#[derive(Debug, Serialize, ToSchema)]
struct NodeStatus {
    /// The node's id.
    id: u64,
    /// leader, follower, candidate, learner, or unknown.
    role: &'static str,
    /// Whether it votes.
    voter: bool,
    /// Where clients reach it.
    address: String,
    /// Where its peers reach it.
    peer_address: String,
    /// The last entry of its log.
    log_index: Option<u64>,
    /// The last entry that it applied.
    applied_index: Option<u64>,
    /// By how many entries its log is behind the leader's.
    lag: Option<u64>,
    /// How long the leader has not heard it, in milliseconds.
    silent_ms: Option<u64>,
    /// Whether that is longer than an election takes.
    missing: bool,
    /// How far its wall clock is ahead of the leader's, in milliseconds.
    clock_ahead_ms: Option<i64>,
    /// The release that it runs.
    version: Option<String>,
}

/// The leader's view of the cluster, or what the asked node last knew.
#[utoipa::path(get, path = "/v1/status", tag = "cluster", params(Timeout),
    responses((status = 200, body = ClusterStatus), Problems))]
pub async fn status(State(context): Node, due: Due) -> Result<Response, Problem> {
    let request = Administer::Status(v1::StatusRequest {});
    let (status, reserved): (v1::StatusResponse, _) =
        administer(&context, request, due.deadline).await?;
    body::reserved_json(&ClusterStatus::from(status), reserved)
}

impl From<v1::StatusResponse> for ClusterStatus {
    fn from(status: v1::StatusResponse) -> Self {
        ClusterStatus {
            cluster: status.cluster,
            cluster_id: Some(status.cluster_id).filter(|id| !id.is_empty()),
            waits: status.waits,
            node: status.node,
            leader: status.leader,
            term: status.term,
            serving: status.serving,
            memory: status.memory.map(|memory| LeaderMemory {
                keys: memory.keys,
                bytes: memory.bytes,
                bytes_max: memory.bytes_max,
            }),
            disk: status.disk.map(|disk| DiskSpace {
                free_bytes: disk.free_bytes,
                reserve_bytes: disk.reserve_bytes,
                low: disk.low,
                refuses_new_keys: Some(disk.refuses_new_keys).filter(|why| !why.is_empty()),
            }),
            clock: status.clock.map(|clock| Clock {
                wall_ms: clock.wall_ms,
                believed: clock.believed,
                makes_ids: clock.makes_ids,
                ahead_ms: clock.ahead_ms,
                apart_max_ms: clock.apart_max_ms,
                alone: clock.alone,
            }),
            nodes: status.nodes.into_iter().map(NodeStatus::from).collect(),
        }
    }
}

impl From<v1::NodeStatus> for NodeStatus {
    fn from(node: v1::NodeStatus) -> Self {
        NodeStatus {
            id: node.id,
            role: role(&node),
            voter: node.voter,
            log_index: node.log_index,
            applied_index: node.applied_index,
            lag: node.lag,
            silent_ms: node.silent_ms,
            missing: node.missing,
            clock_ahead_ms: node.clock_ahead_ms,
            version: node.build.map(|build| build.version),
            address: node.address,
            peer_address: node.peer_address,
        }
    }
}

/// The name of a node's role.
pub fn role(node: &v1::NodeStatus) -> &'static str {
    match node.role() {
        v1::Role::Leader => "leader",
        v1::Role::Follower => "follower",
        v1::Role::Candidate => "candidate",
        v1::Role::Learner => "learner",
        v1::Role::Unspecified => "unknown",
    }
}
