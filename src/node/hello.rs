//! The greeting between nodes: which node, of which cluster, with which data directory, listens there.
//!
//! A node is greeted before it counts as a member, and a member that comes back greets its peers.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    Config, NodeContext,
    config::check_address,
    founding_claim::{Claim, Founder},
    introductions::{Introduction, this_build},
};
use crate::{
    clock,
    proto::{
        Code, Refusal,
        peer::{Acknowledged, Founding, HelloRequest, HelloResponse},
        refusal,
    },
    sequence::{ClusterId, NodeId},
    storage::{Member, replacing},
    tasks::Fault,
};

/// How long a greeting may take.
pub const HELLO_TIMEOUT: Duration = Duration::from_millis(1_000);

/// What a fresh node is greeted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To found a cluster with it, which is claimed if the flag says so.
    Found(Founder, bool),
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
            incarnation: self.group.store().incarnation(),
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
    pub async fn hello(&self, request: &HelloRequest) -> Result<HelloResponse, Refusal> {
        let config = &self.config;
        if request.cluster != config.cluster || request.to != config.node_id {
            return Err(refusal!(
                WrongState,
                "this is node {} of cluster {:?}, not node {} of cluster {:?}; check the address",
                config.node_id,
                config.cluster,
                request.to,
                request.cluster
            ));
        }
        let known = (self.cluster_id(), ClusterId::from_bytes(&request.cluster_id));
        if let (Some(mine), Some(theirs)) = known
            && mine != theirs
        {
            return Err(refusal!(
                WrongState,
                "node {} belongs to the cluster {:?} with the id {mine}, and node {}, which asks, to one of that name with the \
                 id {theirs}; check the address",
                config.node_id,
                config.cluster,
                request.from
            ));
        }
        if request.election_timeout_ms != config.election_timeout_ms {
            return Err(refusal!(
                WrongState,
                "election_timeout_ms is {} on node {} and {} on node {}; all nodes must agree",
                config.election_timeout_ms,
                config.node_id,
                request.election_timeout_ms,
                request.from
            ));
        }
        let own = self.group.store().incarnation();
        if request.to_incarnation != 0 && request.to_incarnation != own {
            return Err(refusal!(
                WrongState,
                "node {} has another data directory there than the one that the cluster knows; if \
                 that one was lost, {}",
                config.node_id,
                replacing(config.node_id)
            ));
        }
        if let Some(acknowledged) = &request.acknowledged {
            self.check_acknowledged(request.from, acknowledged)?;
        }
        if !self.group.is_formed() {
            self.be_claimed(request).await?;
        }
        // An entry of the cluster may have come meanwhile.
        let formed = self.group.is_formed();
        let told =
            Introduction::told(request.build.clone(), &request.resp_address, &request.http_address);
        self.note_claim(request.from, &told);
        let me = self.as_member();
        let leader = self.group.leadership().borrow().leader.clone();
        let (leader, at) = leader.map(|(id, at)| (id, at.peer_address)).unwrap_or_default();
        Ok(HelloResponse {
            leader,
            leader_address: at,
            clock_ns: self.group.now().as_nanos(),
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
    /// UNAVAILABLE if the leader does not know its cluster's id yet. Else as [`NodeContext::be_met`] and
    /// [`NodeContext::be_held_by`].
    async fn be_claimed(&self, request: &HelloRequest) -> Result<(), Refusal> {
        if request.adds {
            let cluster = ClusterId::from_bytes(&request.cluster_id).ok_or_else(|| {
                refusal!(NotFounded, "node {} does not know its cluster's id yet", request.from)
            })?;
            return self.be_held_by(Claim::Cluster(cluster)).await;
        }
        match &request.founding {
            Some(founding) => self.be_met(request.from, founding).await,
            None => Ok(()),
        }
    }

    /// Answers the founder `from`.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the founder's `peers` differs from this node's. Else as [`NodeContext::take_part_in`].
    async fn be_met(&self, from: NodeId, founding: &Founding) -> Result<(), Refusal> {
        if founding.founders != self.config.peers {
            return Err(refusal!(
                WrongState,
                "peers is {:?} on node {from} and {:?} on node {}; give all founding nodes the same peers",
                founding.founders,
                self.config.peers,
                self.config.node_id,
            ));
        }
        let founder = Founder { id: from, incarnation: founding.incarnation };
        self.take_part_in(founder, founding.claims).await
    }

    /// Lets this fresh node be held by whoever makes `claim`. If an earlier claim has run out, the node takes another
    /// incarnation first: whoever held it does not reach it any more. The claim counts once that is on the disk, and what has
    /// begun goes on to its end even if the caller leaves.
    ///
    /// # Errors
    /// As [`FoundingClaim::claim`]; FAILED_PRECONDITION if a message of a cluster has reached the node; INTERNAL if the disk
    /// fails, and the node stops.
    ///
    /// [`FoundingClaim::claim`]: super::founding_claim::FoundingClaim::claim
    async fn be_held_by(&self, claim: Claim) -> Result<(), Refusal> {
        let mut held = self.founding_claim.clone().lock_owned().await;
        let (group, me) = (self.group.clone(), self.config.node_id);
        let claiming = async move {
            let mut claimed = held.clone();
            let renews = claimed.claim(claim, me, Instant::now())?;
            match group.be_claimed(renews).await {
                Ok(true) => {
                    *held = claimed;
                    Ok(())
                }
                Ok(false) => Err(refusal!(
                    WrongState,
                    "a message of a cluster has reached node {me} already; see ratchet status there"
                )),
                Err(error) => {
                    group.tasks().fail(Fault::CannotGoOn(error.to_string()));
                    Err(refusal!(Internal, "{error}"))
                }
            }
        };
        let claiming = tokio::spawn(self.group.tasks().watched("a claim", claiming));
        claiming.await.unwrap_or_else(|error| Err(refusal!(Internal, "{error}")))
    }

    /// Lets the founder meet this fresh node, or claim it.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if a cluster of its name knows the node. Else as [`NodeContext::be_held_by`].
    pub(super) async fn take_part_in(&self, founder: Founder, claims: bool) -> Result<(), Refusal> {
        self.check_never_known()?;
        if claims {
            self.check_has_listened()?;
            self.be_held_by(Claim::Founder(founder)).await?;
        }
        Ok(())
    }

    /// Refuses to found a cluster with this fresh node if a cluster of its name knows the node.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if a member took this node for one with another data directory.
    fn check_never_known(&self) -> Result<(), Refusal> {
        let Some(member) = self.group.taken_for_another_by() else {
            return Ok(());
        };
        let me = self.config.node_id;
        Err(refusal!(
            WrongState,
            "node {member} of cluster {:?} knows node {me} with another data directory, so this cluster was founded before: look \
             for that directory, or {}. If node {member} is left over from a cluster that is gone for good, stop it, start node \
             {me} again, and ask again",
            self.config.cluster,
            replacing(me)
        ))
    }

    /// Refuses to found a cluster with a node that was started just now: members of an earlier cluster may not have sent it
    /// anything yet.
    ///
    /// # Errors
    /// UNAVAILABLE.
    fn check_has_listened(&self) -> Result<(), Refusal> {
        match Instant::now() < self.listens_until {
            true => Err(refusal!(
                NotFounded,
                "node {} listens whether a cluster knows it",
                self.config.node_id
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
    ) -> Result<Member, Refusal> {
        let founding = match purpose {
            Purpose::Found(founder, claims) => Some(Founding {
                founders: self.config.peers.clone(),
                incarnation: founder.incarnation,
                claims,
            }),
            Purpose::Add => None,
        };
        let adds = purpose == Purpose::Add;
        let request = HelloRequest { founding, adds, ..self.greeting_to(id) };
        let member = self.ask_who(id, address, request).await?;
        // A member does not tell.
        if member.incarnation == 0 {
            return Err(refusal!(
                NodeExists,
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
            ));
        }
        Ok(member)
    }

    /// Asks whether the member `id`, with the data directory that `known` names, listens at `address`. Returns the
    /// member with its addresses there.
    ///
    /// # Errors
    /// UNAVAILABLE if nobody answers, FAILED_PRECONDITION if it is another node or directory.
    pub async fn find(&self, id: NodeId, known: &Member, address: &str) -> Result<Member, Refusal> {
        let request = HelloRequest { to_incarnation: known.incarnation, ..self.greeting_to(id) };
        let member = self.ask_who(id, address, request).await?;
        Ok(Member { incarnation: known.incarnation, ..member })
    }

    /// Greets node `id` at `address`. Returns the member that it would be, with an incarnation of 0 if it is one.
    async fn ask_who(
        &self, id: NodeId, address: &str, request: HelloRequest,
    ) -> Result<Member, Refusal> {
        check_address("peer_address", address)
            .map_err(|invalid| refusal!(InvalidRequest, "{invalid}"))?;
        match self.transport.hello(address, request, HELLO_TIMEOUT).await {
            Ok(hello) => Ok(Member {
                peer_address: address.to_owned(),
                client_address: hello.client_address,
                incarnation: hello.incarnation,
            }),
            Err(refused) => {
                let why = format!("node {id} at {address}: {refused}");
                Err(match refused.code() {
                    Code::FailedPrecondition | Code::InvalidArgument => refused.retold(why),
                    _ => refusal!(NotHeardYet, "{why}"),
                })
            }
        }
    }

    /// Refuses a peer that comes back with a shorter log than it acknowledged to this leader, or while another process
    /// acknowledges this leader's messages in its place.
    ///
    /// # Errors
    /// DATA_LOSS; the text says what to do.
    fn check_acknowledged(&self, from: NodeId, told: &Acknowledged) -> Result<(), Refusal> {
        let asked_first = clock::Instant::from_nanos(told.silent_since_ns);
        let silent = self.group.now().since(asked_first);
        let known = self.group.nodes().into_iter().find(|node| node.id == from);
        let Some(known) = known.filter(|node| node.member.incarnation == told.incarnation) else {
            return Ok(());
        };
        let before = known.log_index.unwrap_or(0);
        if before > told.log_index {
            return Err(refusal!(
                DataLoss,
                "the log of node {from} ends at {}, but it acknowledged entries up to {before} to node {}: its data directory \
                 is an older copy, or its disk lost what it had synced; {}",
                told.log_index,
                self.config.node_id,
                replacing(from)
            ));
        }
        let asks_again = told.silent_since_ns > 0;
        match known.silence.filter(|heard| asks_again && heard.in_term && heard.lasts < silent) {
            Some(heard) => Err(refusal!(
                DataLoss,
                "another process answers as node {from} with the same data: it acknowledged a message that node {} sent it \
                 {} ms ago. One of the two data directories is a copy. Run the one that the other nodes know, never both; {}",
                self.config.node_id,
                heard.lasts.as_millis(),
                replacing(from)
            )),
            None => Ok(()),
        }
    }
}

/// A cluster's id as a greeting carries it. Empty if it is not known.
fn id_bytes(id: Option<ClusterId>) -> Bytes {
    id.map(|id| Bytes::copy_from_slice(id.as_bytes())).unwrap_or_default()
}
