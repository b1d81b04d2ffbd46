//! The greeting between nodes: which node, of which cluster, with which data directory, listens there.
//!
//! A node is greeted before it counts as a member, and a member that comes back greets its peers.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::{
    Config, NodeContext,
    config::check_address,
    founding_claim::Attempt,
    introductions::{Introduction, this_build},
};
use crate::{
    proto::{
        peer::{Acknowledged, Founding, FoundingStep, HelloRequest, HelloResponse},
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
    Found(Attempt, FoundingStep),
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
    /// DATA_LOSS if the caller's log is shorter than what it acknowledged, or another process answers with its data.
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
        let leader = self.group.leadership().borrow().leader.clone();
        let (leader, at) = leader.map(|(id, at)| (id, at.peer_address)).unwrap_or_default();
        Ok(HelloResponse {
            leader,
            leader_address: at,
            incarnation: if formed { 0 } else { me.incarnation },
            formed,
            client_address: me.client_address,
            peer_address: me.peer_address,
            build: Some(this_build()),
            resp_address: self.resp_address.clone(),
            http_address: self.http_address.clone(),
        })
    }

    /// Lets this fresh node be met or claimed by a founder, or by the leader that is about to add it.
    ///
    /// # Errors
    /// UNAVAILABLE if the leader does not know its cluster's id yet. Else as [`NodeContext::take_part_in`] and
    /// [`FoundingClaim`].
    ///
    /// [`FoundingClaim`]: super::founding_claim::FoundingClaim
    fn be_claimed(&self, request: &HelloRequest) -> Result<(), Status> {
        if request.adds {
            let cluster = ClusterId::from_bytes(&request.cluster_id).ok_or_else(|| {
                let why = format!("node {} does not know its cluster's id yet", request.from);
                refused(Reason::NotFounded, why)
            })?;
            return self.founding_claim.claim_for_cluster(cluster, self.config.node_id);
        }
        match &request.founding {
            Some(founding) => self.be_met(request.from, founding),
            None => Ok(()),
        }
    }

    /// Answers the founder `from`.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the founder's `peers` differs from this node's. Else as [`NodeContext::take_part_in`].
    fn be_met(&self, from: NodeId, founding: &Founding) -> Result<(), Status> {
        let named = founding.founders.iter();
        let theirs: BTreeMap<_, _> = named.map(|one| (one.id, one.address.clone())).collect();
        if theirs != self.config.peers {
            return Err(Status::failed_precondition(format!(
                "peers is {} on node {from} and {} on node {}; give all founding nodes the same peers",
                written(&theirs),
                written(&self.config.peers),
                self.config.node_id,
            )));
        }
        let Founding { incarnation, attempt, .. } = *founding;
        let attempt = Attempt { founder: from, incarnation, number: attempt };
        self.take_part_in(attempt, founding.step())
    }

    /// Takes a step of an attempt to found a cluster with this fresh node.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if a cluster of its name knows the node. Else as [`FoundingClaim::claim_for_founding`].
    ///
    /// [`FoundingClaim::claim_for_founding`]: super::founding_claim::FoundingClaim::claim_for_founding
    pub(super) fn take_part_in(&self, attempt: Attempt, step: FoundingStep) -> Result<(), Status> {
        match step {
            FoundingStep::Unspecified => self.check_never_known(),
            FoundingStep::Claim => {
                self.check_never_known()?;
                self.check_has_listened()?;
                self.founding_claim.claim_for_founding(attempt, self.config.node_id)
            }
            FoundingStep::LetGo => {
                self.founding_claim.let_go(attempt);
                Ok(())
            }
        }
    }

    /// Refuses to found a cluster with this fresh node if a cluster of its name knows the node.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if a member took this node for one with another data directory.
    fn check_never_known(&self) -> Result<(), Status> {
        let Some(member) = self.group.taken_for_another_by() else {
            return Ok(());
        };
        let me = self.config.node_id;
        Err(Status::failed_precondition(format!(
            "node {member} of cluster {:?} knows node {me} with another data directory, so this cluster was founded before: look \
             for that directory, or {}. If node {member} is left over from a cluster that is gone for good, stop it, start node \
             {me} again, and ask again",
            self.config.cluster,
            replacing(me)
        )))
    }

    /// Refuses to found a cluster with a node that was started just now: members of an earlier cluster may not have sent it
    /// anything yet.
    ///
    /// # Errors
    /// UNAVAILABLE.
    fn check_has_listened(&self) -> Result<(), Status> {
        match Instant::now() < self.listens_until {
            true => Err(refused(
                Reason::NotFounded,
                format!("node {} listens whether a cluster knows it", self.config.node_id),
            )),
            false => Ok(()),
        }
    }

    /// Asks who listens at `address`, expecting a fresh node `id`.
    ///
    /// # Errors
    /// UNAVAILABLE if nobody answers, FAILED_PRECONDITION if it is another node, has other timings or refuses,
    /// ALREADY_EXISTS if it belongs to a cluster.
    pub(super) async fn introduce(
        &self, id: NodeId, address: &str, purpose: Purpose,
    ) -> Result<Member, Status> {
        let founding = match purpose {
            Purpose::Found(attempt, step) => Some(Founding {
                founders: self.founders(),
                incarnation: attempt.incarnation,
                attempt: attempt.number,
                step: step.into(),
            }),
            Purpose::Add => None,
        };
        let adds = purpose == Purpose::Add;
        let request = HelloRequest { founding, adds, ..self.greeting_to(id) };
        let hello = self.ask_who(id, address, request).await?;
        if hello.formed || hello.incarnation == 0 {
            return Err(Status::already_exists(format!(
                "node {id} at {address} belongs to a cluster already; {}",
                match purpose {
                    Purpose::Add =>
                        "start it with an empty data_dir and an id that was never used, or \
                         correct the address"
                            .to_owned(),
                    Purpose::Found(..) => format!(
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

    /// Refuses a peer that comes back with a shorter log than it acknowledged to this leader, or while another process
    /// acknowledges this leader's messages in its place.
    ///
    /// # Errors
    /// DATA_LOSS; the text says what to do.
    fn check_acknowledged(&self, from: NodeId, now: &Acknowledged) -> Result<(), Status> {
        let known = self.group.nodes().into_iter().find(|node| node.id == from);
        let Some(known) = known.filter(|node| node.member.incarnation == now.incarnation) else {
            return Ok(());
        };
        let before = known.log_index.unwrap_or(0);
        if before > now.log_index {
            return Err(Status::data_loss(format!(
                "the log of node {from} ends at {}, but it acknowledged entries up to {before} to node {}: its data directory \
                 is an older copy, or its disk lost what it had synced; {}",
                now.log_index,
                self.config.node_id,
                replacing(from)
            )));
        }
        let silent = Duration::from_millis(now.silent_ms);
        // Half of it: the clocks of two machines differ.
        match known.silence.filter(|heard| heard.in_term && heard.lasts < silent / 2) {
            Some(heard) => Err(Status::data_loss(format!(
                "another process answers as node {from} with the same data: it acknowledged a message that node {} sent it \
                 {} ms ago. One of the two data directories is a copy. Run the one that the other nodes know, never both; {}",
                self.config.node_id,
                heard.lasts.as_millis(),
                replacing(from)
            ))),
            None => Ok(()),
        }
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
