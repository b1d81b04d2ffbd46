//! The answer to a greeting: who greets may be a peer, a founder, a leader that adds this node, or a stranger. A fresh node
//! tells its data directory to a stranger, and may be claimed by one founder or leader at a time. A member tells nobody.

use tokio::time::Instant;

use super::Formation;
use crate::{
    clock,
    node::{
        access::{check_founding, check_joining, check_peer_port, read_hash},
        members::{
            founding_claim::{Claim, Founder},
            introductions::{Introduction, this_build},
            not_met::NotMet,
        },
    },
    proto::{
        Refusal,
        peer::{self, Acknowledged, HelloRequest, HelloResponse},
        refusal, refuse,
    },
    sequence::{ClusterId, NodeId},
    storage::replacing,
};

impl Formation {
    /// Answers a greeting. The caller may be a stranger: a fresh node tells the founding node, or the leader that
    /// adds it, which data directory it has. A member tells nobody, since a stranger who knew it could speak to
    /// this node as a member; its peers know it from the membership. A fresh node that takes no part yet answers that.
    ///
    /// # Errors
    /// FAILED_PRECONDITION or DATA_LOSS: `check_greeting` says when. Else as `be_claimed`, but for what is not yet.
    pub async fn hello(&self, request: &HelloRequest) -> Result<HelloResponse, Refusal> {
        self.check_greeting(request)?;
        if !self.group.is_formed() {
            match self.be_claimed(request).await {
                Ok(()) => {}
                Err(NotMet::NotYet(why)) => {
                    let not_yet = why.message().to_owned();
                    return Ok(HelloResponse { not_yet, ..HelloResponse::default() });
                }
                Err(NotMet::Refused(why)) => return Err(why),
            }
        }
        // An entry of the cluster may have come meanwhile.
        let formed = self.group.is_formed();
        let told =
            Introduction::told(request.build.clone(), &request.resp_address, &request.http_address);
        self.members.note_request(request.from, &told);
        let me = self.members.as_member();
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
            resp_address: self.members.advertised.resp.clone(),
            http_address: self.members.advertised.http.clone(),
            not_yet: String::new(),
        })
    }

    /// Sees that the caller means this node, that both may be members of one cluster, and that the caller's data is whole.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the caller expects another node or directory, belongs to another cluster, or has another
    /// election timeout; or if its cluster has, or is to have, tokens, and strangers pass for nodes here.
    /// DATA_LOSS if the caller's log is shorter than what it acknowledged, or another process answers with its data.
    fn check_greeting(&self, request: &HelloRequest) -> Result<(), Refusal> {
        let config = &self.config;
        if request.cluster != config.cluster || request.to != config.node_id {
            refuse!(
                WrongState,
                "this is node {} of cluster {:?}, not node {} of cluster {:?}; check the address",
                config.node_id,
                config.cluster,
                request.to,
                request.cluster
            );
        }
        let known = (self.members.cluster_id(), ClusterId::from_bytes(&request.cluster_id));
        if let (Some(mine), Some(theirs)) = known
            && mine != theirs
        {
            refuse!(
                WrongState,
                "node {} belongs to the cluster {:?} with the id {mine}, and node {}, which asks, to one of that name with the \
                 id {theirs}; check the address",
                config.node_id,
                config.cluster,
                request.from
            );
        }
        if request.election_timeout_ms != config.election_timeout_ms {
            refuse!(
                WrongState,
                "election_timeout_ms is {} on node {} and {} on node {}; all nodes must agree",
                config.election_timeout_ms,
                config.node_id,
                request.election_timeout_ms,
                request.from
            );
        }
        let own = self.this_node.store.incarnation();
        if request.to_incarnation != 0 && request.to_incarnation != own {
            refuse!(
                WrongState,
                "node {} has another data directory there than the one that the cluster knows; if \
                 that one was lost, {}",
                config.node_id,
                replacing(config.node_id)
            );
        }
        if request.needs_peer_tls {
            check_peer_port(config)?;
        }
        if let Some(acknowledged) = &request.acknowledged {
            self.check_acknowledged(request.from, acknowledged)?;
        }
        Ok(())
    }

    /// Lets this fresh node be met or claimed by a founder, or by the leader that is about to add it.
    ///
    /// # Errors
    /// [`NotMet::NotYet`] if the leader does not know its cluster's id yet; FAILED_PRECONDITION if strangers reach this node,
    /// and strangers are granted something in the cluster. Else as [`Formation::be_met`] and `ClaimedNode::be_held_by`.
    async fn be_claimed(&self, request: &HelloRequest) -> Result<(), NotMet> {
        if request.adds {
            let cluster = ClusterId::from_bytes(&request.cluster_id).ok_or_else(|| {
                let from = request.from;
                NotMet::NotYet(refusal!(
                    NotFounded,
                    "node {from} does not know its cluster's id yet"
                ))
            })?;
            if request.is_open_to_strangers {
                check_joining(&self.config)?;
            }
            return self.claimed_node.be_held_by(Claim::Cluster(cluster)).await;
        }
        match &request.founding {
            Some(founding) => self.be_met(request.from, founding).await,
            None => Ok(()),
        }
    }

    /// Answers the founder `from`.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if the founder's `peers` differs from this node's. Else as [`Formation::take_part_in`].
    async fn be_met(&self, from: NodeId, founding: &peer::Founding) -> Result<(), NotMet> {
        if founding.founders != self.config.peers {
            refuse!(
                WrongState,
                "peers is {:?} on node {from} and {:?} on node {}; give all founding nodes the same peers",
                founding.founders,
                self.config.peers,
                self.config.node_id,
            );
        }
        let admin = match founding.admin_token_sha256.is_empty() {
            true => None,
            false => Some(read_hash(&founding.admin_token_sha256)?),
        };
        let founder = Founder { id: from, incarnation: founding.incarnation, admin };
        self.take_part_in(founder, founding.claims).await
    }

    /// Lets the founder meet this fresh node, or claim it.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if a cluster of its name knows the node; if strangers reach it, and the founder has no token; or if
    /// strangers pass for nodes here, and the founder has one. [`NotMet::NotYet`] if the node was started just now. Else as
    /// `ClaimedNode::be_held_by`.
    pub(super) async fn take_part_in(&self, founder: Founder, claims: bool) -> Result<(), NotMet> {
        self.check_never_known()?;
        match founder.admin {
            Some(_) => check_peer_port(&self.config)?,
            None => check_founding(&self.config)?,
        }
        if claims {
            self.check_has_listened()?;
            self.claimed_node.be_held_by(Claim::Founder(founder)).await?;
        }
        Ok(())
    }

    /// Refuses to found a cluster with this fresh node if a cluster of its name knows the node.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if a member took this node for one with another data directory.
    fn check_never_known(&self) -> Result<(), Refusal> {
        let Some(member) = *self.this_node.taken_for_another().borrow() else {
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
    /// [`NotMet::NotYet`].
    fn check_has_listened(&self) -> Result<(), NotMet> {
        match Instant::now() < self.listens_until {
            true => Err(NotMet::NotYet(refusal!(
                NotFounded,
                "node {} listens whether a cluster knows it",
                self.config.node_id
            ))),
            false => Ok(()),
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
        // Before the nodes are looked at: a node that leads no more knows nothing of them.
        let term = self.group.term();
        let known = self.group.membership.nodes().into_iter().find(|node| node.id == from);
        let Some(known) = known.filter(|node| node.member.incarnation == told.incarnation) else {
            return Ok(());
        };
        let before = known.log_index.unwrap_or(0);
        // The leader of a later term may have cut the log since. A copy from before the acknowledgement knows of no later term:
        // a node that has heard of one acknowledges nothing in this term.
        if before > told.log_index && told.vote_term <= term {
            refuse!(
                DataLoss,
                "the log of node {from} ends at {}, but it acknowledged entries up to {before} to node {}: its data directory \
                 is an older copy, or its disk lost what it had synced; {}",
                told.log_index,
                self.config.node_id,
                replacing(from)
            );
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
