//! The members of the cluster: their addresses, and the leader among them.
//!
//! `formation.rs` is how a node without data comes into a cluster, and `founding_claim.rs` into which one. `claimed_node.rs`
//! keeps that claim. `rejoin.rs` is how a node with data comes back, and `lost_directory.rs` stops one whose data was lost.
//! `greeting.rs` asks other nodes who they are, `formation/hello.rs` answers, `not_met.rs` says whether to ask again, and
//! `introductions.rs` keeps what they said. `changes.rs` adds and removes members, and `reach.rs` sees that they reach each
//! other.
//!
//! Invariant: a caller whose route is up to date costs two comparisons and nothing else.

mod changes;
mod claimed_node;
pub(super) mod formation;
mod founding_claim;
pub(super) mod greeting;
pub(super) mod introductions;
pub(super) mod lost_directory;
mod not_met;
mod reach;
pub(super) mod rejoin;

use std::sync::Arc;

use futures::{Stream, stream};

use self::introductions::{Advertised, Introduction, Introductions, this_build};
use super::{Config, common::Common, config::host_of, seams::Addresses, way::search::leader_of};
use crate::{
    consensus::{Group, ThisNode, Transport, Voters},
    proto::{
        Refusal, refusal,
        v1::{self, Route},
    },
    sequence::{ClusterId, NodeId},
    storage::Member,
};

/// The version of the route that a caller tells who wants to be told none.
pub const ROUTE_UNWANTED: u64 = u64::MAX;

/// The route that a caller knows: what is newer comes back with its answer.
#[derive(Debug, Clone, Copy)]
pub struct KnownRoute {
    /// The version of the route; 0 for none.
    pub version: u64,
    /// The version of the members, 0 for none; `None` if the caller does not want them.
    pub members_version: Option<u64>,
}

/// The route for a caller that may see no address: it has the cluster's id alone.
pub fn without_addresses(route: Route) -> Route {
    Route { cluster_id: route.cluster_id, ..Route::default() }
}

/// A member that serves Redis clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespNode {
    /// Its id.
    pub id: NodeId,
    /// True for the one that clients are to ask first: the leader. If this node knows none, or it does not serve Redis clients:
    /// this node.
    pub is_first: bool,
    /// False if the leader has not heard it for a while.
    pub is_heard: bool,
    /// Its name or address.
    pub host: String,
    /// Its port for Redis clients.
    pub port: u16,
}

/// The members of the cluster, as this node knows them, and what it tells them of itself.
pub struct Members {
    config: Arc<Config>,
    this_node: Arc<ThisNode>,
    group: Arc<Group>,
    transport: Arc<dyn Transport>,
    advertised: Advertised,
    /// The introductions of the other members.
    introductions: Introductions,
}

impl Members {
    /// Those of the node's group. `addresses` are those at which this node listens.
    pub(super) fn new(
        common: &Common, transport: Arc<dyn Transport>, addresses: Addresses,
    ) -> Self {
        Members {
            advertised: Advertised::new(&common.config, addresses),
            config: common.config.clone(),
            this_node: common.this_node.clone(),
            group: common.group.clone(),
            transport,
            introductions: Introductions::default(),
        }
    }

    /// The id of the cluster; `None` if this node belongs to none, or does not know it yet. One atomic load.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.group.view.cluster_id()
    }

    /// The id of the cluster as it is printed; empty if this node does not know it.
    pub fn printed_cluster_id(&self) -> String {
        self.cluster_id().map(|id| id.to_string()).unwrap_or_default()
    }

    /// True if browsers may ask this node by the name or address `host`.
    pub fn serves_browsers_as(&self, host: &str) -> bool {
        let advertised = host_of(&self.advertised.client);
        let mut listed = self.config.http_hosts.split(',').map(str::trim);
        host.parse::<std::net::IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || host.eq_ignore_ascii_case(advertised)
            || listed.any(|name| !name.is_empty() && host.eq_ignore_ascii_case(name))
    }

    /// This node, as the membership names it.
    pub(super) fn as_member(&self) -> Member {
        Member {
            peer_address: self.advertised.peer.clone(),
            client_address: self.advertised.client.clone(),
            incarnation: self.this_node.store.incarnation(),
        }
    }

    /// The introduction of a member, if it has told one.
    pub fn introduction_of(&self, node: NodeId) -> Option<Introduction> {
        if node != self.config.node_id {
            return self.introductions.of(node);
        }
        Some(Introduction {
            build: this_build(),
            resp_address: self.advertised.resp.clone(),
            http_address: self.advertised.http.clone(),
        })
    }

    /// The member `id`.
    pub(super) fn known(&self, id: NodeId) -> Result<Member, Refusal> {
        let mut members = self.group.membership.members();
        if let Some((member, _)) = members.remove(&id) {
            return Ok(member);
        }
        let ids: Vec<String> = members.keys().map(u64::to_string).collect();
        Err(refusal!(NodeNotFound, "node {id} is not a member; the members are {}", ids.join(", ")))
    }

    /// The members' ids.
    pub(super) fn membership(&self) -> v1::MembershipResponse {
        let members = self.group.membership.members();
        let (voters, learners) = members.keys().copied().partition(|id| members[id].1);
        v1::MembershipResponse { voters, learners }
    }

    /// The route for an answer of this node in its own `term`, if the one that the caller knows is older.
    pub(super) fn newer_route(&self, known: KnownRoute, term: u64) -> Option<Box<Route>> {
        let lacks_members =
            (known.members_version).is_some_and(|known| known < self.group.voters_version());
        (known.version < term || lacks_members).then(|| self.own_route(term, lacks_members))
    }

    #[cold]
    fn own_route(&self, term: u64, with_members: bool) -> Box<Route> {
        let me = (self.config.node_id, self.as_member());
        let route = match with_members {
            true => self.route(term, Some(&me), &self.group.voters().borrow()),
            false => self.route(term, Some(&me), &Voters::default()),
        };
        Box::new(route)
    }

    /// The route to the leader of `term`, if it is known, and to `voters`.
    fn route(&self, term: u64, leader: Option<&(NodeId, Member)>, voters: &Voters) -> Route {
        // For this node it is the present address, which may have changed since it became a member.
        let address_of = |(id, member): (&NodeId, &Member)| match *id == self.config.node_id {
            true => self.advertised.client.clone(),
            false => member.client_address.clone(),
        };
        Route {
            version: term,
            leader: leader.map_or(0, |(id, _)| *id),
            address: leader.map(|(id, at)| address_of((id, at))).unwrap_or_default(),
            cluster_id: self.printed_cluster_id(),
            members_version: voters.version,
            members: voters.members.iter().map(address_of).collect(),
        }
    }

    /// The route as this node knows it: at once if it knows a leader, and again after every change. The stream ends
    /// with the group.
    pub fn watch_route(self: Arc<Self>) -> impl Stream<Item = Route> + Send {
        let seen = (self.group.leadership(), self.group.voters(), None::<Route>);
        stream::unfold((self, seen), |(members, (mut leads, mut votes, told))| async move {
            loop {
                let now = leads.borrow_and_update().clone();
                let voters = votes.borrow_and_update().clone();
                let route = Some(members.route(now.term, now.leader.as_ref(), &voters));
                if now.leader.is_some() && route != told {
                    return Some((route.clone()?, (members, (leads, votes, route))));
                }
                tokio::select! {
                    biased;
                    changed = leads.changed() => changed.ok()?,
                    changed = votes.changed() => changed.ok()?,
                }
            }
        })
    }

    /// The route as this node knows it, if its members are newer than those of this version. Of the leader it says nothing
    /// if none is known.
    pub fn route_after(&self, members_version: u64) -> Option<Route> {
        (members_version < self.group.voters_version()).then(|| {
            let now = self.group.leadership().borrow().clone();
            self.route(now.term, now.leader.as_ref(), &self.group.voters().borrow())
        })
    }

    /// The members that serve Redis clients, as far as they have told: whom to ask first, and then the others by their ids.
    /// Without a leader, all count as heard: nobody knows better.
    pub fn resp_nodes(&self) -> Vec<RespNode> {
        let me = self.config.node_id;
        let leader = leader_of(&self.group.leadership().borrow());
        let unheard = self.group.unheard();
        let members = self.group.membership.members().into_keys();
        let mut nodes: Vec<RespNode> = members
            .filter_map(|id| {
                let address = self.introduction_of(id)?.resp_address;
                let (host, port) = address.rsplit_once(':')?;
                Some(RespNode {
                    id,
                    is_first: leader == Some(id),
                    is_heard: leader == Some(id) || id == me || !unheard.contains(&id),
                    host: host.trim_matches(['[', ']']).to_owned(),
                    port: port.parse().ok()?,
                })
            })
            .collect();
        if !nodes.iter().any(|node| node.is_first) {
            nodes.iter_mut().for_each(|node| node.is_first = node.id == me);
        }
        nodes.sort_by_key(|node| (!node.is_first, node.id));
        nodes
    }
}
