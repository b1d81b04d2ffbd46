//! A cluster in which nobody may do anything without a token.

use std::{collections::BTreeMap, net::SocketAddr};

use ratchet::{
    node::{Config, hash_of},
    proto::v1::{
        CreateTokenRequest, Grant, NextRequest, Principal, SetGrantsRequest, Verb,
        access_client::AccessClient, sequencer_client::SequencerClient,
    },
};
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use super::{channel, cluster::Cluster, eventually, id, in_time, with_http, with_resp};

/// The verbs, in the order of their numbers.
pub const VERBS: [&str; 5] = ["next", "read", "raise", "namespaces", "admin"];
/// A token that may do everything.
pub const ADMIN: &str = "a-token-that-may-do-everything";

/// Shows a token with every call.
#[derive(Clone)]
pub struct Shows(Option<MetadataValue<Ascii>>);

impl Interceptor for Shows {
    fn call(&mut self, mut call: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            call.metadata_mut().insert("authorization", value.clone());
        }
        Ok(call)
    }
}

/// A connection whose calls show a token, or none.
pub type Asking = InterceptedService<Channel, Shows>;

/// A caller that asks at `address` with a token, or without.
pub fn asking(address: SocketAddr, token: Option<&str>) -> Asking {
    asking_over(channel(address), token)
}

/// A caller that asks over a connection with a token, or without.
pub fn asking_over(channel: Channel, token: Option<&str>) -> Asking {
    let value = token.map(|token| format!("Bearer {token}").parse().expect("a header"));
    InterceptedService::new(channel, Shows(value))
}

pub fn grant(text: &str) -> Grant {
    let (verb, namespaces) = text.split_once(':').expect("a grant");
    let verb = Verb::from_str_name(&format!("VERB_{}", verb.to_uppercase())).expect("a verb");
    Grant { verb: verb.into(), namespaces: namespaces.to_owned() }
}

pub fn everything() -> Vec<Grant> {
    VERBS.iter().map(|verb| grant(&format!("{verb}:*"))).collect()
}

pub fn granting(principal: &str, addresses: Option<&str>, grants: &[&str]) -> SetGrantsRequest {
    SetGrantsRequest {
        principal: principal.to_owned(),
        addresses: addresses.map(str::to_owned),
        grants: grants.iter().map(|text| grant(text)).collect(),
    }
}

pub async fn create(
    access: &mut AccessClient<Asking>, token: &str, name: &str, grants: Vec<Grant>,
) -> Result<Principal, Status> {
    let sha256 = hash_of(token.as_bytes()).0.to_vec().into();
    let asked = CreateTokenRequest { name: name.to_owned(), sha256, grants, expires_ms: None };
    access.create_token(asked).await.map(|answer| answer.into_inner())
}

pub async fn next(asking: &Asking, namespace: &str) -> Result<u64, Code> {
    let asked = NextRequest { namespace: namespace.to_owned(), key: id(1), ..Default::default() };
    let taken = SequencerClient::new(asking.clone()).next(asked).await;
    taken.map(|answer| answer.into_inner().last).map_err(|status| status.code())
}

/// As [`next`], of a token that the node may not know: it is asked again if it could not ask the leader in time.
pub async fn told(asking: &Asking, namespace: &str) -> Result<u64, Code> {
    eventually("an answer", async || match next(asking, namespace).await {
        Err(Code::Unavailable) => None,
        told => Some(told),
    })
    .await
}

/// A cluster in which nobody may do anything without a token. Each verb has a token of its own, on all namespaces.
pub struct Closed {
    pub cluster: Cluster,
    tokens: BTreeMap<&'static str, String>,
}

impl Closed {
    pub async fn start() -> Closed {
        Closed::with(|_| {}).await
    }

    pub async fn with(change: impl Fn(&mut Config)) -> Closed {
        let cluster = Cluster::start(3, |config| {
            with_http(config);
            with_resp(config);
            change(config);
        })
        .await;
        let mut access = AccessClient::new(asking(cluster.admin_address(1), None));
        create(&mut access, ADMIN, "admin", everything()).await.expect("a token");
        let tokens = VERBS.map(|verb| (verb, format!("a-token-to-{verb}")));
        for (verb, token) in &tokens {
            let grants = vec![grant(&format!("{verb}:*"))];
            create(&mut access, token, verb, grants).await.expect("a token");
        }
        let mut access = AccessClient::new(asking(cluster.admin_address(1), Some(ADMIN)));
        access.set_grants(granting("anonymous", None, &[])).await.expect("tokens are needed");
        let closed = Closed { cluster, tokens: tokens.into() };
        // The leader refuses requests that a follower passes on, so no answer to such a call tells whether the follower has
        // heard of it.
        for node in closed.cluster.nodes.values() {
            let has_heard = node.context().group.view.until_principals(|known| !known.is_open());
            in_time("the node has heard of it", has_heard).await;
        }
        closed
    }

    pub fn token(&self, verb: &str) -> &str {
        &self.tokens[verb]
    }

    /// A token for each verb, on these namespaces alone. All nodes know them.
    pub async fn tokens_on(&self, namespaces: &str) -> BTreeMap<&'static str, String> {
        let mut tokens = BTreeMap::new();
        for verb in VERBS {
            let name = format!("{verb}-{}", namespaces.trim_end_matches('*'));
            let token = format!("a-token-to-{name}");
            let grants = vec![grant(&format!("{verb}:{namespaces}"))];
            create(&mut self.admin(1), &token, &name, grants).await.expect("a token");
            for node in self.cluster.nodes.keys() {
                // A node that does not know it asks the leader, and knows it by the answer.
                let told = told(&self.at(*node, &token), "book").await;
                assert_ne!(told, Err(Code::Unauthenticated), "{name} at node {node}");
            }
            tokens.insert(verb, token);
        }
        tokens
    }

    /// Waits until a node has heard that the token of this name was revoked. No answer to a call that goes to the leader shows
    /// it: the leader may have refused it.
    pub async fn has_no_token(&self, node: u64, name: &str) {
        let view = &self.cluster.nodes[&node].context().group.view;
        let is_gone = view.until_principals(|known| known.tokens_named(name).next().is_none());
        in_time("the node has heard that the token is gone", is_gone).await;
    }

    pub fn admin(&self, node: u64) -> AccessClient<Asking> {
        AccessClient::new(asking(self.cluster.admin_address(node), Some(ADMIN)))
    }

    pub fn at(&self, node: u64, token: &str) -> Asking {
        asking(self.cluster.address(node), Some(token))
    }
}
