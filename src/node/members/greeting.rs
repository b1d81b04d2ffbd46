//! The greeting between nodes: which node, of which cluster, with which data directory, listens there, which release it runs,
//! and where its interfaces are. A node is greeted before it counts as a member, and a member that comes back greets its peers.
//!
//! A node greets every member until that member has answered. A node that was started again, as after an
//! upgrade, remembers nothing and greets anew. So all know what each runs now.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::join_all;

use super::{
    Members,
    founding_claim::Founder,
    introductions::{Introduction, this_build},
    not_met::NotMet,
};
use crate::{
    consensus::{Destination, Transport},
    node::{Config, access::is_open_to_strangers, config::check_address},
    ordered_watch,
    proto::{
        Code, Refusal,
        peer::{Founding, HelloRequest, HelloResponse},
        refusal, refuse,
    },
    sequence::{ClusterId, NodeId},
    storage::{Member, replacing},
};

/// How soon a member that did not answer is greeted again.
const RETRY: Duration = Duration::from_secs(5);

/// How long a greeting may take.
pub const HELLO_TIMEOUT: Duration = Duration::from_millis(1_000);

/// The purpose of a greeting to a fresh node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To found a cluster with it, which is claimed if the flag says so.
    Found(Founder, bool),
    /// To add it to the cluster that this node leads.
    Add,
}

/// A greeting of the node with this configuration to node `to`.
pub fn greeting(config: &Config, to: NodeId) -> HelloRequest {
    HelloRequest {
        cluster: config.cluster.clone(),
        from: config.node_id,
        to,
        election_timeout_ms: config.election_timeout_ms,
        build: Some(this_build()),
        ..HelloRequest::default()
    }
}

impl Members {
    /// A greeting of this node to node `to`.
    pub(super) fn greeting_to(&self, to: NodeId) -> HelloRequest {
        HelloRequest {
            resp_address: self.advertised.resp.clone(),
            http_address: self.advertised.http.clone(),
            cluster_id: id_bytes(self.cluster_id()),
            ..greeting(&self.config, to)
        }
    }

    /// Notes what a request says that names `peer` as its sender, and logs it if that node runs another release.
    pub(super) fn note_request(&self, peer: NodeId, told: &Introduction) {
        // A stranger may name any id.
        if self.group.membership.members().contains_key(&peer) {
            warn_of(peer, self.introductions.note_request(peer, told));
        }
    }

    /// Greets every member until it has answered, also members that are added later: after each of the `changes`.
    pub(in crate::node) async fn greet_members(
        self: Arc<Self>, mut changes: ordered_watch::Receiver<u64>,
    ) {
        loop {
            changes.borrow_and_update();
            let members = self.group.membership.members().into_iter();
            let me = self.config.node_id;
            let asked =
                members.filter(|(id, _)| *id != me && self.introductions.is_to_be_asked(*id));
            let greeted = asked.map(async |(id, (member, _))| {
                let request = self.greeting_to(id);
                let to = Destination { node: id, address: &member.peer_address };
                match self.transport.hello(to, request, HELLO_TIMEOUT).await {
                    Ok(hello) => {
                        let (resp, http) = (&hello.resp_address, &hello.http_address);
                        let told = Introduction::told(hello.build, resp, http);
                        warn_of(id, self.introductions.note(id, told));
                    }
                    Err(refusal) => tracing::debug!(peer = id, %refusal, "no greeting"),
                }
            });
            join_all(greeted).await;
            tokio::select! {
                biased;
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    /// Asks who listens at `address`, expecting a fresh node `id`.
    /// Of an address that a caller names, nothing is told but what a node says that answers there.
    ///
    /// # Errors
    /// [`NotMet::NotYet`] if nobody answers, or the node takes no part yet; FAILED_PRECONDITION if it is another node, has
    /// other timings or refuses, ALREADY_EXISTS if it belongs to a cluster.
    pub(super) async fn introduce(
        &self, id: NodeId, address: &str, purpose: Purpose,
    ) -> Result<Member, NotMet> {
        let founding = match purpose {
            Purpose::Found(founder, claims) => Some(Founding {
                founders: self.config.peers.clone(),
                incarnation: founder.incarnation,
                claims,
                admin_token_sha256: founder
                    .admin
                    .map(|hash| Bytes::copy_from_slice(&hash.0))
                    .unwrap_or_default(),
            }),
            Purpose::Add => None,
        };
        let adds = purpose == Purpose::Add;
        let (is_open_to_strangers, needs_peer_tls) = {
            let principals = self.group.view.principals();
            (is_open_to_strangers(&principals), adds && !principals.is_open())
        };
        let request = HelloRequest {
            founding,
            adds,
            is_open_to_strangers,
            needs_peer_tls,
            ..self.greeting_to(id)
        };
        let answering = match purpose {
            Purpose::Add => self.ask_who_is_named(id, address, request).await?,
            Purpose::Found(..) => ask_who(&self.transport, id, address, request).await?,
        };
        if answering.is_formed {
            refuse!(
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
            );
        }
        // A fresh node tells it. 0 would stand for any directory.
        if answering.member.incarnation == 0 {
            return Err(NotMet::NotYet(refusal!(
                NotHeardYet,
                "node {id} at {address} does not tell which data directory it has; ask again"
            )));
        }
        Ok(answering.member)
    }

    /// Asks every other member whether strangers pass for nodes there, since a caller asks for tokens. A member that is away
    /// does not keep tokens from the cluster: once it hears of them, it takes nothing from strangers. The log names it.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if a member says so, or says that it is another node.
    pub(in crate::node) async fn ask_for_peer_tls(&self) -> Result<(), Refusal> {
        let me = self.config.node_id;
        let others = self.group.membership.members().into_iter().filter(|(id, _)| *id != me);
        let asked = others.map(async |(id, (member, _))| {
            let request = HelloRequest { needs_peer_tls: true, ..self.greeting_to(id) };
            ask_who(&self.transport, id, &member.peer_address, request).await.err()
        });
        for why in join_all(asked).await.into_iter().flatten() {
            match why {
                NotGreeted::Told(why) => return Err(why.into()),
                NotGreeted::NoAnswer(why) => tracing::warn!(
                    "it is not known whether a member has peer_tls = require, which it needs in a cluster with tokens: {why}"
                ),
            }
        }
        Ok(())
    }

    /// Asks whether the member `id`, with the data directory that `known` names, listens at `address`. Returns the
    /// member with its addresses there.
    ///
    /// # Errors
    /// UNAVAILABLE if nobody answers, FAILED_PRECONDITION if it is another node or directory.
    pub async fn find(&self, id: NodeId, known: &Member, address: &str) -> Result<Member, Refusal> {
        let request = HelloRequest { to_incarnation: known.incarnation, ..self.greeting_to(id) };
        let GreetedNode { member, .. } = self.ask_who_is_named(id, address, request).await?;
        Ok(Member { incarnation: known.incarnation, ..member })
    }

    /// As [`ask_who`], at an address that a caller names. A caller could name any, to learn from the answer what listens there:
    /// so it is told what a node says, and else always the same. The log tells the rest.
    async fn ask_who_is_named(
        &self, id: NodeId, address: &str, request: HelloRequest,
    ) -> Result<GreetedNode, NotMet> {
        let asked = ask_who(&self.transport, id, address, request).await;
        asked.map_err(|why| match why {
            NotGreeted::Told(why) => why,
            NotGreeted::NoAnswer(why) => {
                tracing::warn!("{why}");
                NotMet::NotYet(refusal!(
                    NotHeardYet,
                    "node {id} at {address}: no node of this cluster answers there; see that it runs and listens there, and \
                     that its certificate is good if nodes speak TLS with one another. The log of node {} tells what was wrong",
                    self.config.node_id
                ))
            }
        })
    }
}

/// A node that answers a greeting.
struct GreetedNode {
    /// It is a member of a cluster already.
    is_formed: bool,
    /// The member that it is, or would be. A member tells nobody its incarnation: it is 0.
    member: Member,
}

impl GreetedNode {
    /// The node `id` at `address`, as its answer tells.
    fn that_says(
        id: NodeId, address: &str, hello: HelloResponse,
    ) -> Result<GreetedNode, NotGreeted> {
        if !hello.not_yet.is_empty() {
            let why = refusal!(NotFounded, "node {id} at {address}: {}", hello.not_yet);
            return Err(NotGreeted::Told(NotMet::NotYet(why)));
        }
        Ok(GreetedNode {
            is_formed: hello.formed,
            member: Member {
                peer_address: address.to_owned(),
                client_address: hello.client_address,
                incarnation: hello.incarnation,
            },
        })
    }
}

/// Why no node has answered a greeting with what it is.
#[derive(Debug)]
enum NotGreeted {
    /// The node that answers there says so, or the address is none.
    Told(NotMet),
    /// No node answers there.
    NoAnswer(Refusal),
}

impl NotGreeted {
    /// As the failure of a greeting to node `id` at `address` says it.
    fn by(id: NodeId, address: &str, failure: Refusal) -> NotGreeted {
        let why = format!("node {id} at {address}: {failure}");
        // A node refuses with these codes. A failed connection, and a process that is no node, have others.
        match failure.code() {
            Code::FailedPrecondition | Code::InvalidArgument => {
                NotGreeted::Told(NotMet::Refused(failure.retold(why)))
            }
            _ => NotGreeted::NoAnswer(refusal!(NotHeardYet, "{why}")),
        }
    }
}

impl From<NotGreeted> for NotMet {
    fn from(why: NotGreeted) -> Self {
        match why {
            NotGreeted::Told(why) => why,
            NotGreeted::NoAnswer(refusal) => NotMet::NotYet(refusal),
        }
    }
}

/// Greets node `id` at `address`.
async fn ask_who(
    transport: &Arc<dyn Transport>, id: NodeId, address: &str, request: HelloRequest,
) -> Result<GreetedNode, NotGreeted> {
    check_address("peer_address", address)
        .map_err(|invalid| NotGreeted::Told(refusal!(InvalidRequest, "{invalid}").into()))?;
    match transport.hello(Destination { node: id, address }, request, HELLO_TIMEOUT).await {
        Ok(hello) => GreetedNode::that_says(id, address, hello),
        Err(failure) => Err(NotGreeted::by(id, address, failure)),
    }
}

/// Logs that a member runs another release.
fn warn_of(peer: NodeId, news: Option<String>) {
    if let Some(text) = news {
        tracing::warn!(peer, "{text}");
    }
}

/// A cluster's id as a greeting carries it. Empty if it is not known.
fn id_bytes(id: Option<ClusterId>) -> Bytes {
    id.map(|id| Bytes::copy_from_slice(id.as_bytes())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::v1::Reason;

    #[test]
    fn a_refusal_of_a_node_is_told_from_a_greeting_that_no_node_answers() {
        let by = |failure| NotGreeted::by(2, "a:1", failure);
        for refusal in [refusal!(WrongState, "no"), refusal!(InvalidRequest, "no")] {
            let reason = refusal.reason();
            let NotGreeted::Told(NotMet::Refused(told)) = by(refusal) else { panic!("{reason:?}") };
            assert_eq!((told.reason(), told.message()), (reason, "node 2 at a:1: no"));
        }
        let failures = [
            refusal!(Unspecified, "no"),
            refusal!(Unauthenticated, "no"),
            refusal!(NotFounded, "no"),
        ];
        for failure in failures {
            let reason = failure.reason();
            let NotGreeted::NoAnswer(told) = by(failure) else { panic!("{reason:?}") };
            assert_eq!((told.reason(), told.message()), (Reason::NotHeardYet, "node 2 at a:1: no"));
        }
    }

    #[test]
    fn a_node_that_takes_no_part_yet_is_asked_again_because_it_says_so() {
        let says = |not_yet: &str| {
            let hello = HelloResponse { not_yet: not_yet.to_owned(), ..HelloResponse::default() };
            GreetedNode::that_says(2, "a:1", hello).map_err(NotMet::from)
        };
        let Err(NotMet::NotYet(why)) = says("it is claimed") else { panic!("it takes no part") };
        assert_eq!(why.message(), "node 2 at a:1: it is claimed");
        assert_eq!(why.code(), Code::Unavailable);
        assert!(says("").is_ok());
    }
}
