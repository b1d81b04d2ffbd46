//! The answers to strangers, and the headers that open nothing for them.

use prost::Message;
use ratchet::proto::v1::{
    NextRequest, Route, StatusRequest, admin_client::AdminClient, sequencer_client::SequencerClient,
};
use tonic::{Code, Request, metadata::MetadataMap};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::common::{
    closed::{ADMIN, Closed, VERBS, asking, granting, next, told},
    eventually, http_get, id, in_time, other_than,
};

/// Asks for the route with the answer, as a client that knows no members.
fn wants_route<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("ratchet-members-version", "0".parse().expect("a header"));
    request
}

/// The members in the metadata of an answer.
fn members_in(metadata: &MetadataMap) -> Vec<String> {
    let Some(route) = metadata.get_bin("ratchet-route-bin") else {
        return Vec::new();
    };
    let route = route.to_bytes().expect("bytes");
    Route::decode(route).expect("a route").members
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_members_are_is_told_with_the_health_to_those_alone_who_are_known() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let address = closed.cluster.address(node);
        for (token, is_known) in
            [(None, false), (Some("it is not known"), false), (Some(closed.token("next")), true)]
        {
            let asking = asking(address, token);
            let mut health = HealthClient::new(asking.clone());
            let asked = wants_route(HealthCheckRequest::default());
            let answer = in_time("an answer", health.check(asked)).await;
            // Any caller is told whether the node is ready.
            let answer = match is_known || token.is_none() {
                true => answer.expect("an answer").metadata().clone(),
                false => answer.map_or_else(
                    |status| status.metadata().clone(),
                    |answer| answer.metadata().clone(),
                ),
            };
            let members = members_in(&answer);
            assert_eq!(members.len(), if is_known { 3 } else { 0 }, "{token:?}: {members:?}");
            if is_known {
                continue;
            }
            // The route comes neither with a refusal nor with a watched stream.
            let asked =
                NextRequest { namespace: "book".to_owned(), key: id(1), ..Default::default() };
            let refused = SequencerClient::new(asking.clone()).next(wants_route(asked)).await;
            let refused = refused.expect_err("it is not let in");
            // It may not have been able to ask the leader about a token.
            let codes = [Code::Unauthenticated, Code::Unavailable];
            assert!(codes.contains(&refused.code()), "{refused}");
            assert_eq!(members_in(refused.metadata()), [""; 0]);
            let watching = health.watch(wants_route(HealthCheckRequest::default()));
            let told = match in_time("an answer", watching).await {
                Ok(watched) => watched.metadata().clone(),
                Err(refused) => refused.metadata().clone(),
            };
            assert_eq!(members_in(&told), [""; 0]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_granted_to_a_network_of_ipv6_opens_nothing_for_those_of_ipv4() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let mut admin = closed.admin(leader);
    let all = VERBS.map(|verb| format!("{verb}:*"));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    admin.set_grants(granting("anonymous", Some("::/64"), &all)).await.expect("granted");
    // Once a node has heard of this, it has heard of that.
    let later = granting("anonymous", Some("127.0.0.0/8"), &["next:other"]);
    admin.set_grants(later).await.expect("granted");
    for node in 1..=3 {
        let nobody = asking(closed.cluster.address(node), None);
        let has_heard =
            async || (next(&nobody, "other").await != Err(Code::Unauthenticated)).then_some(());
        eventually("the node has heard of both", has_heard).await;
        assert!(!closed.cluster.nodes[&node].context().group.view.principals().is_open());
        assert_eq!(next(&nobody, "book").await, Err(Code::Unauthenticated), "node {node}");
        let status = AdminClient::new(nobody).status(StatusRequest {}).await;
        let status = status.expect_err("it is not let in");
        assert_eq!(status.code(), Code::Unauthenticated, "node {node}: {status}");
        let http = closed.cluster.nodes[&node].addresses().http.expect("a port");
        assert_eq!(http_get(http, "/v1/status").await.status, 401, "node {node}");
        // A token is looked at as before.
        let wrong = asking(closed.cluster.address(node), Some("it is not known"));
        assert_eq!(told(&wrong, "book").await, Err(Code::Unauthenticated), "node {node}");
        let ci = closed.at(node, closed.token("read"));
        assert_eq!(next(&ci, "book").await, Err(Code::PermissionDenied), "node {node}");
        next(&closed.at(node, ADMIN), "book").await.expect("a number");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_that_has_every_address_is_refused() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let asked = granting("anonymous", Some("0.0.0.0/0"), &["next:book"]);
        let refused = closed.admin(node).set_grants(asked).await.expect_err("that is everybody");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains("0.0.0.0/0"), "{refused}");
    }
    for node in 1..=3 {
        let nobody = asking(closed.cluster.address(node), None);
        assert_eq!(next(&nobody, "book").await, Err(Code::Unauthenticated), "node {node}");
    }
}
