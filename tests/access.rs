//! Access of tokens, certificates, and callers that show neither.

mod admin_port;
mod attacks;
mod audit;
mod certificates;
mod clocks;
mod drop_in;
mod founding;
mod grants;
mod http;
mod leader;
pub mod methods;
mod page;
mod quotas;
mod redis;
mod shares;
mod silent;
mod strangers;
mod unknown_tokens;

use std::time::Duration;

use ratchet::{
    node::hash_of,
    proto::v1::{
        CreateTokenRequest, FoundRequest, ListNamespacesRequest, ListPrincipalsRequest,
        NextManyRequest, NextRequest, RevokeTokenRequest, StatusRequest, WatchRouteRequest,
        access_client::AccessClient, admin_client::AdminClient, sequencer_client::SequencerClient,
    },
};
use tonic::{Code, Request};

use self::methods::{COMMANDS, cases, over_redis};
use crate::common::{
    channel,
    closed::{ADMIN, Closed, asking, create, grant, granting, next, told},
    cluster::Cluster,
    eventually, id, in_time, other_than, others,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_good_at_every_node_at_once_and_for_nothing_once_it_is_revoked() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let follower = other_than(leader);
    // The follower may not have heard of a token that was made at the leader just now.
    for round in 0..20 {
        let token = format!("token-{round}");
        create(&mut closed.admin(leader), &token, "ci", vec![grant("next:book")])
            .await
            .expect("a token");
        told(&closed.at(follower, &token), "book").await.expect("a number");
    }
    let token = closed.at(follower, "token-7");
    assert_eq!(
        next(&token, "other").await,
        Err(Code::PermissionDenied),
        "whether it exists or not"
    );
    let stream =
        NextManyRequest { namespace: "book".to_owned(), ids: vec![1], ..Default::default() };
    let (messages, sent) = tokio::sync::mpsc::channel(1);
    let sent = tokio_stream::wrappers::ReceiverStream::new(sent);
    let mut sequencer = SequencerClient::new(token.clone());
    let answers = sequencer.next_many(sent).await.expect("a stream");
    let mut answers = answers.into_inner();
    let mut ask = async || {
        messages.send(stream.clone()).await.expect("sent");
        let answer =
            in_time("an answer", answers.message()).await.expect("an answer").expect("one");
        answer.failure.map(|failure| Code::from_i32(failure.code))
    };
    assert_eq!(ask().await, None);
    let mut routes =
        sequencer.watch_route(WatchRouteRequest {}).await.expect("a stream").into_inner();
    assert!(routes.message().await.expect("a route").is_some());
    let id = {
        let mut admin = closed.admin(leader);
        let listed = admin.list_principals(ListPrincipalsRequest {}).await;
        let principals = listed.expect("principals").into_inner().principals;
        let digits = hash_of(b"token-7").id();
        assert!(principals.iter().any(|one| one.name == "ci" && one.id.as_ref() == Some(&digits)));
        digits
    };
    let revoke = |id| RevokeTokenRequest { name: "ci".to_owned(), id };
    let several = closed.admin(follower).revoke_token(revoke(None)).await.expect_err("which one");
    assert_eq!(several.code(), Code::FailedPrecondition, "{several}");
    closed.admin(follower).revoke_token(revoke(Some(id.clone()))).await.expect("revoked");
    let again = closed.admin(follower).revoke_token(revoke(Some(id))).await.expect_err("gone");
    assert_eq!(again.code(), Code::NotFound);
    eventually("the stream is refused", async || {
        (ask().await == Some(Code::Unauthenticated)).then_some(())
    })
    .await;
    assert_eq!(next(&token, "book").await, Err(Code::Unauthenticated));
    let ended = in_time("the end of what is watched", async {
        loop {
            match routes.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status.code()),
            }
        }
    });
    assert_eq!(ended.await, Some(Code::Unauthenticated));
    assert!(next(&closed.at(follower, "token-8"), "book").await.is_ok(), "another of that name");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_wrong_are_refused_also_where_none_is_needed() {
    let cluster = Cluster::start(3, |_| {}).await;
    let address = cluster.address(other_than(cluster.leader().await));
    for token in ["unknown", "", "Bearer x"] {
        assert_eq!(told(&asking(address, Some(token)), "book").await, Err(Code::Unauthenticated));
    }
    next(&asking(address, None), "book").await.expect("a number");
    // Two are none.
    let mut call = Request::new(NextRequest {
        namespace: "book".to_owned(),
        key: id(1),
        ..Default::default()
    });
    for token in ["a", "b"] {
        call.metadata_mut().append("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let refused = SequencerClient::new(channel(address)).next(call).await.expect_err("two tokens");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    // A header for a proxy before the node says nothing.
    let mut call = Request::new(NextRequest {
        namespace: "book".to_owned(),
        key: id(1),
        ..Default::default()
    });
    call.metadata_mut().insert("authorization", "Basic eDp5".parse().unwrap());
    SequencerClient::new(channel(address)).next(call).await.expect("a number");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_takes_from_itself_what_it_needs_to_give_it_back() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let mut only_admin = AccessClient::new(closed.at(leader, closed.token("admin")));
    // Anonymous may do everything again, and then cannot take it from itself.
    let all: Vec<&str> = vec!["next:*", "read:*", "raise:*", "namespaces:*", "admin:*"];
    only_admin.set_grants(granting("anonymous", None, &all)).await.expect("granted");
    let nobody = asking(closed.cluster.address(leader), None);
    let mut for_nobody = AccessClient::new(nobody.clone());
    let refused = for_nobody.set_grants(granting("anonymous", None, &["next:*"]));
    let refused = refused.await.expect_err("it could not take it back");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    only_admin.set_grants(granting("anonymous", None, &["next:book"])).await.expect("granted");
    next(&nobody, "book").await.expect("a number");
    let mut admin = AdminClient::new(nobody);
    let listed = admin.list_namespaces(ListNamespacesRequest {}).await.expect_err("not granted");
    assert_eq!(listed.code(), Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_namespaces_has_those_that_may_be_read() {
    let closed = Closed::start().await;
    let node = other_than(closed.cluster.leader().await);
    create(&mut closed.admin(node), "a-reader", "reader", vec![grant("read:bo*")])
        .await
        .expect("a token");
    let names = async |token: &str| {
        let mut admin = AdminClient::new(closed.at(node, token));
        // A node that could not ask the leader about a token in time is asked again.
        let listed = eventually("a list", async || {
            match admin.list_namespaces(ListNamespacesRequest {}).await {
                Err(again) if again.code() == Code::Unavailable => None,
                listed => Some(listed.expect("a list")),
            }
        })
        .await;
        listed.into_inner().namespaces.into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    assert_eq!(names("a-reader").await, ["book"]);
    assert!(names(closed.token("read")).await.len() > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_granted_to_addresses_is_granted_to_no_others_at_the_leader_either() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let mut admin = closed.admin(leader);
    for (range, is_let_in) in [("10.0.0.0/8", false), ("127.0.0.0/8", true)] {
        admin
            .set_grants(granting("anonymous", Some(range), &["next:book"]))
            .await
            .expect("granted");
        for node in 1..=3 {
            let nobody = asking(closed.cluster.address(node), None);
            let as_expected =
                async || (next(&nobody, "book").await.is_ok() == is_let_in).then_some(());
            eventually("what is granted is heard of", as_expected).await;
            assert_eq!(next(&nobody, "order").await, Err(Code::Unauthenticated));
        }
        admin.set_grants(granting("anonymous", Some(range), &[])).await.expect("taken back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_do_what_outlives_a_leader_and_comes_with_a_snapshot() {
    let mut closed = Closed::with(|config| config.log_keep_bytes = 1_000).await;
    let leader = closed.cluster.leader().await;
    let away = other_than(leader);
    closed.cluster.crash(away).await;
    create(&mut closed.admin(leader), "made-meanwhile", "ci", vec![grant("next:book")])
        .await
        .expect("a token");
    let many = closed.at(leader, ADMIN);
    for _ in 0..50 {
        next(&many, "book").await.expect("a number");
    }
    closed.cluster.start_node(away).await;
    let ci = closed.at(away, "made-meanwhile");
    eventually("the node knows the token", async || next(&ci, "book").await.ok()).await;
    closed.cluster.crash(leader).await;
    eventually("the next leader knows it", async || next(&ci, "book").await.ok()).await;
    let nobody = asking(closed.cluster.address(away), None);
    assert_eq!(next(&nobody, "book").await, Err(Code::Unauthenticated));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_ends_by_the_leaders_clock() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let now_ms = closed.cluster.nodes[&leader].context().group.wall_ms();
    let (token, grants) = ("it-ends-soon", vec![grant("next:book")]);
    let asked = |expires_ms| CreateTokenRequest {
        name: "ci".to_owned(),
        sha256: hash_of(token.as_bytes()).0.to_vec().into(),
        grants: grants.clone(),
        expires_ms: Some(expires_ms),
    };
    let past =
        closed.admin(leader).create_token(asked(now_ms - 1)).await.expect_err("it has ended");
    assert_eq!(past.code(), Code::InvalidArgument, "{past}");
    // On a slow machine the two seconds may pass before it is made: then once more.
    eventually("a token", async || {
        let now_ms = closed.cluster.nodes[&leader].context().group.wall_ms();
        match closed.admin(leader).create_token(asked(now_ms + 2_000)).await {
            Err(late) if late.code() == Code::InvalidArgument => None,
            made => Some(made.expect("a token")),
        }
    })
    .await;
    let (at_leader, elsewhere) = (closed.at(leader, token), closed.at(other_than(leader), token));
    for ci in [at_leader, elsewhere] {
        let ended = async || (next(&ci, "book").await == Err(Code::Unauthenticated)).then_some(());
        eventually("it ends", ended).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_founded_with_a_token_hands_out_nothing_without_it_from_the_first_moment()
{
    let mut cluster = Cluster::configured(3, |_| {});
    for node in 1..=3 {
        cluster.start_node(node).await;
    }
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let addresses = cluster.addresses();
    let trying = tokio::spawn(async move {
        while !*stopped.borrow() {
            for address in &addresses {
                let taken = next(&asking(*address, None), "book").await;
                assert!(taken.is_err(), "a stranger got {taken:?}");
            }
        }
    });
    let hash = |token: &str| hash_of(token.as_bytes()).0.to_vec().into();
    let found = async |shown: Option<&str>, admin: &str| {
        let mut client = AdminClient::new(asking(cluster.address(1), shown));
        let asked = FoundRequest { admin_token_sha256: hash(admin) };
        client.found(asked).await.map(|answer| answer.into_inner().founded)
    };
    assert!(found(None, ADMIN).await.expect("founded"));
    for node in 1..=3 {
        let admin = asking(cluster.address(node), Some(ADMIN));
        eventually("a number", async || next(&admin, "book").await.ok()).await;
    }
    stop.send_replace(true);
    trying.await.expect("strangers get nothing");
    assert!(!found(Some(ADMIN), ADMIN).await.expect("the same token again"));
    let another = found(Some(ADMIN), "another").await.expect_err("it opens nothing");
    assert_eq!(another.code(), Code::FailedPrecondition, "{another}");
    let stranger = found(None, ADMIN).await.expect_err("nobody founds it again");
    assert_eq!(stranger.code(), Code::Unauthenticated, "{stranger}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_hears_of_no_leader_for_half_a_minute_tells_its_status_alone() {
    let mut closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let left = other_than(leader);
    let token = closed.token("next").to_owned();
    let asks = closed.at(left, &token);
    told(&asks, "book").await.expect("a number");
    for node in others(left) {
        closed.cluster.crash(node).await;
    }
    let why = "has heard for 30 s of no leader that has a majority";
    let refused = eventually("its principals are too old", async || {
        let message =
            NextRequest { namespace: "book".to_owned(), key: id(1), ..Default::default() };
        let mut call = Request::new(message);
        call.set_timeout(Duration::from_millis(500));
        let refused = SequencerClient::new(asks.clone()).next(call).await.expect_err("no leader");
        refused.message().contains(why).then_some(refused)
    })
    .await;
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let mut admin = AdminClient::new(closed.at(left, closed.token("read")));
    admin.status(StatusRequest {}).await.expect("the status");
    let unknown = AdminClient::new(asking(closed.cluster.address(left), None));
    let refused = unknown.clone().status(StatusRequest {}).await.expect_err("who shows nothing");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    // All other requests are made, over each interface, by callers that may make them.
    let addresses = closed.cluster.nodes[&left].addresses();
    let (grpc, http) = (addresses.client, addresses.http.expect("a port"));
    let watched = "/ratchet.v1.Sequencer/WatchRoute";
    let mut sequencer = SequencerClient::new(asks.clone());
    let watching = sequencer.watch_route(WatchRouteRequest {});
    in_time("a stream", watching).await.expect("a stream that waits for a leader");
    for case in cases().iter().filter(|case| case.name != watched) {
        let is_told = case.verb.is_none() || case.name == "/ratchet.v1.Admin/Status";
        let token = Some(closed.token(case.verb.as_deref().unwrap_or("next")));
        match case.try_over_grpc(grpc, token).await {
            Err(told) if !is_told => {
                assert_eq!(told.code(), Code::Unavailable, "{}: {told}", case.name);
                assert!(told.message().contains(why), "{}: {told}", case.name);
            }
            told => {
                let code = told.map_err(|refused| refused.code());
                assert!(is_told && code != Err(Code::Unavailable), "{}: {code:?}", case.name);
            }
        }
        if let Some(page) = case.page_over_http(http, token).await {
            let is_refused = page.status == 503 && page.body.contains(why);
            assert_eq!(is_refused, !is_told, "{}: {} {}", case.name, page.status, page.body);
        }
    }
    let redis = addresses.resp.expect("a port");
    for (command, verb) in COMMANDS {
        let token = Some(closed.token(verb.unwrap_or("next")));
        let told = over_redis(redis, token, command).await;
        let is_refused = told.starts_with("-CLUSTERDOWN ") && told.contains(why);
        assert_eq!(is_refused, verb.is_some(), "{command}: {told}");
    }
}
