//! The greeting between nodes: which node, of which cluster, with which data directory, listens there.
//!
//! A node is greeted before it counts as a member, and a member that comes back greets its peers.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use tonic::{Code, Status};

use super::{
    Config, NodeContext,
    config::check_address,
    introductions::{Introduction, this_build},
};
use crate::{
    proto::{
        peer::{Acknowledged, HelloRequest, HelloResponse},
        refused,
        v1::Reason,
    },
    sequence::{ClusterId, NodeId},
    storage::{Member, replacing},
};

/// How long a greeting may take.
pub const HELLO_TIMEOUT: Duration = Duration::from_millis(1_000);

/// What a fresh node is greeted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To found a cluster with it.
    Found,
    /// To add it to the cluster that this node leads.
    Add,
}

impl HelloRequest {
    /// A greeting of the node with this configuration to node `to`.
    pub fn from_node(config: &Config, to: NodeId) -> HelloRequest {
        HelloRequest {
            cluster: config.cluster.clone(),
            from: config.node_id,
            to,
            election_timeout_ms: config.election_timeout_ms,
            build: Some(this_build()),
            ..HelloRequest::default()
        }
    }
}

impl NodeContext {
    /// A greeting of this node to node `to`.
    pub(super) fn greeting_to(&self, to: NodeId) -> HelloRequest {
        HelloRequest {
            resp_address: self.resp_address.clone(),
            http_address: self.http_address.clone(),
            cluster_id: id_bytes(self.cluster_id()),
            ..HelloRequest::from_node(&self.config, to)
        }
    }

    /// This node, as the membership names it.
    pub fn as_member(&self) -> Member {
        Member {
            peer_address: self.peer_address.clone(),
            client_address: self.client_address.clone(),
            incarnation: self.group.store().identity().incarnation,
        }
    }

    /// Answers a greeting. The caller may be a stranger: a fresh node tells the founding node, or the leader that
    /// adds it, which data directory it has. A member tells nobody, since a stranger who knew it could speak to
    /// this node as a member; its peers know it from the membership.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the caller expects another node or directory, belongs to another cluster, or has another
    /// election timeout.
    /// DATA_LOSS if the caller's log is shorter than what it acknowledged.
    pub fn hello(&self, request: &HelloRequest) -> Result<HelloResponse, Status> {
        let config = &self.config;
        if request.cluster != config.cluster || request.to != config.node_id {
            return Err(Status::failed_precondition(format!(
                "this is node {} of cluster {:?}, not node {} of cluster {:?}; check the address",
                config.node_id, config.cluster, request.to, request.cluster
            )));
        }
        let known = (self.cluster_id(), ClusterId::from_bytes(&request.cluster_id));
        if let (Some(mine), Some(theirs)) = known
            && mine != theirs
        {
            return Err(Status::failed_precondition(format!(
                "node {} belongs to the cluster {:?} with the id {mine}, and node {}, which asks, to one of that name with the \
                 id {theirs}; check the address",
                config.node_id, config.cluster, request.from
            )));
        }
        if request.election_timeout_ms != config.election_timeout_ms {
            return Err(Status::failed_precondition(format!(
                "election_timeout_ms is {} on node {} and {} on node {}; all nodes must agree",
                config.election_timeout_ms,
                config.node_id,
                request.election_timeout_ms,
                request.from
            )));
        }
        let me = self.as_member();
        if request.to_incarnation != 0 && request.to_incarnation != me.incarnation {
            return Err(Status::failed_precondition(format!(
                "node {} has another data directory there than the one that the cluster knows; if \
                 that one was lost, {}",
                config.node_id,
                replacing(config.node_id)
            )));
        }
        if let Some(acknowledged) = &request.acknowledged {
            self.check_acknowledged(request.from, acknowledged)?;
        }
        let formed = self.group.is_formed();
        if !formed {
            self.be_claimed(request)?;
        }
        let told =
            Introduction::told(request.build.clone(), &request.resp_address, &request.http_address);
        self.note_claim(request.from, &told);
        let me = self.as_member();
        Ok(HelloResponse {
            incarnation: if formed { 0 } else { me.incarnation },
            formed,
            client_address: me.client_address,
            peer_address: me.peer_address,
            build: Some(this_build()),
            resp_address: self.resp_address.clone(),
            http_address: self.http_address.clone(),
        })
    }

    /// Lets this fresh node be met by a founder, or by the leader that is about to add it.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the founder's `peers` differs from this node's, or as [`FoundingClaim`] says.
    ///
    /// [`FoundingClaim`]: super::founding_claim::FoundingClaim
    fn be_claimed(&self, request: &HelloRequest) -> Result<(), Status> {
        let me = self.config.node_id;
        if request.adds {
            return self.founding_claim.add(request.from, me);
        }
        if request.founders.is_empty() {
            return Ok(());
        }
        let named = request.founders.iter();
        let theirs: BTreeMap<_, _> = named.map(|one| (one.id, one.address.clone())).collect();
        if theirs != self.config.peers {
            return Err(Status::failed_precondition(format!(
                "peers is {} on node {} and {} on node {me}; give all founding nodes the same peers",
                written(&theirs),
                request.from,
                written(&self.config.peers),
            )));
        }
        self.founding_claim.meet(request.from, me)
    }

    /// Asks who listens at `address`, expecting a fresh node `id`.
    ///
    /// # Errors
    /// UNAVAILABLE if nobody answers, FAILED_PRECONDITION if it is another node, has other timings or refuses,
    /// ALREADY_EXISTS if it belongs to a cluster.
    pub(super) async fn introduce(
        &self, id: NodeId, address: &str, purpose: Purpose,
    ) -> Result<Member, Status> {
        let founders = match purpose {
            Purpose::Found => self.founders(),
            Purpose::Add => Vec::new(),
        };
        let adds = purpose == Purpose::Add;
        let request = HelloRequest { founders, adds, ..self.greeting_to(id) };
        let hello = self.ask_who(id, address, request).await?;
        if hello.formed || hello.incarnation == 0 {
            return Err(Status::already_exists(format!(
                "node {id} at {address} belongs to a cluster already; {}",
                match purpose {
                    Purpose::Add =>
                        "start it with an empty data_dir and an id that was never used, or \
                         correct the address"
                            .to_owned(),
                    Purpose::Found => format!(
                        "if this node here lost its data directory, {}; if that node's directory is \
                         left over from another cluster, empty it",
                        replacing(self.config.node_id)
                    ),
                }
            )));
        }
        Ok(Member {
            peer_address: address.to_owned(),
            client_address: hello.client_address,
            incarnation: hello.incarnation,
        })
    }

    /// Asks whether the member `id`, with the data directory that `known` names, listens at `address`. Returns the
    /// member with its addresses there.
    ///
    /// # Errors
    /// UNAVAILABLE if nobody answers, FAILED_PRECONDITION if it is another node or directory.
    pub async fn find(&self, id: NodeId, known: &Member, address: &str) -> Result<Member, Status> {
        let request = HelloRequest { to_incarnation: known.incarnation, ..self.greeting_to(id) };
        let hello = self.ask_who(id, address, request).await?;
        Ok(Member {
            peer_address: address.to_owned(),
            client_address: hello.client_address,
            incarnation: known.incarnation,
        })
    }

    /// Greets node `id` at `address`.
    async fn ask_who(
        &self, id: NodeId, address: &str, request: HelloRequest,
    ) -> Result<HelloResponse, Status> {
        check_address("peer_address", address)
            .map_err(|invalid| Status::invalid_argument(invalid.to_string()))?;
        let about = |why: &str| format!("node {id} at {address}: {why}");
        self.transport.hello(address, request, HELLO_TIMEOUT).await.map_err(|status| {
            match status.code() {
                Code::FailedPrecondition => Status::failed_precondition(about(status.message())),
                Code::InvalidArgument => Status::invalid_argument(about(status.message())),
                _ => refused(Reason::NotHeardYet, about(status.message())),
            }
        })
    }

    /// Refuses a peer that comes back with a shorter log than it acknowledged to this leader.
    ///
    /// # Errors
    /// DATA_LOSS if its log is shorter; the text says what to do.
    fn check_acknowledged(&self, from: NodeId, now: &Acknowledged) -> Result<(), Status> {
        let known = self.group.nodes().into_iter().find(|node| node.id == from);
        let Some(known) = known.filter(|node| node.member.incarnation == now.incarnation) else {
            return Ok(());
        };
        let before = known.log_index.unwrap_or(0);
        if before <= now.log_index {
            return Ok(());
        }
        Err(Status::data_loss(format!(
            "the log of node {from} ends at {}, but it acknowledged entries up to {before} to node \
             {}: its data directory is an older copy, or its disk lost what it had synced; {}",
            now.log_index,
            self.config.node_id,
            replacing(from)
        )))
    }
}

/// A cluster's id as a greeting carries it. Empty if it is not known.
fn id_bytes(id: Option<ClusterId>) -> Bytes {
    id.map(|id| Bytes::copy_from_slice(id.as_bytes())).unwrap_or_default()
}

/// `peers` as they are given on a command line.
fn written(peers: &BTreeMap<NodeId, String>) -> String {
    let each: Vec<String> = peers.iter().map(|(id, address)| format!("{id}={address}")).collect();
    match each.is_empty() {
        true => "not set".to_owned(),
        false => each.join(","),
    }
}
