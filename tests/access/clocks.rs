//! Whether a token has ended is decided by the leader's clock, at the followers, too.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use ratchet::{node::hash_of, proto::v1::CreateTokenRequest, sequence::PrincipalKey};
use tonic::Code;

use crate::common::{
    closed::{ADMIN, Closed, grant, next},
    eventually, http, other_than,
    wrong_clock::restart_with_clock,
};

const HOUR_MS: i64 = 3_600_000;

/// Has a token made at the leader that ends so long after now, by the leader's clock.
async fn create(closed: &Closed, leader: u64, token: &str, lasts_ms: i64) {
    let sha256 = hash_of(token.as_bytes()).0.to_vec();
    // On a machine that is busy its end may come before it is made.
    eventually("a token", async || {
        let now_ms = closed.cluster.nodes[&leader].context().group.wall_ms();
        let asked = CreateTokenRequest {
            name: "ci".to_owned(),
            sha256: sha256.clone().into(),
            grants: vec![grant("next:book")],
            expires_ms: Some(now_ms.saturating_add_signed(lasts_ms)),
        };
        let made = closed.admin(leader).create_token(asked).await;
        match made {
            Err(late) if late.code() == Code::InvalidArgument => None,
            made => Some(made.expect("a token")),
        }
    })
    .await;
}

/// The status of a page that a node answers by itself: of a token that it knows nobody else is asked.
async fn own_page(address: SocketAddr, token: &str) -> u16 {
    let header = format!("Authorization: Bearer {token}\r\n");
    http(address, "GET /openapi.json", &header, "").await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_whose_clock_is_hours_off_takes_a_token_for_as_long_as_the_leader_does() {
    let mut closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let follower = other_than(leader);
    let off = Arc::new(AtomicI64::new(5 * HOUR_MS));
    restart_with_clock(&mut closed.cluster, follower, &off).await;
    let admin = closed.at(follower, ADMIN);
    eventually("the follower answers", async || next(&admin, "book").await.ok()).await;
    // On a slow machine another node may lead now. One whose clock is off hands over.
    let leader = eventually("a leader whose clock is right", async || {
        let leader = closed.cluster.leader().await;
        (leader != follower).then_some(leader)
    })
    .await;
    let page = closed.cluster.nodes[&follower].addresses().http.expect("a port");
    let own_ms = || closed.cluster.nodes[&follower].context().group.wall_ms();
    let leaders_ms = || closed.cluster.nodes[&leader].context().group.wall_ms();
    let is_off =
        |hours: i64| own_ms().saturating_add_signed(-hours * HOUR_MS).abs_diff(leaders_ms());
    assert!(is_off(5) < HOUR_MS as u64, "the follower's clock shows another time");

    // By the follower's clock it ended before it was made.
    create(&closed, leader, "good", HOUR_MS).await;
    let ci = closed.at(follower, "good");
    eventually("it is good at the follower", async || next(&ci, "book").await.ok()).await;
    assert_eq!(own_page(page, "good").await, 200);
    next(&closed.at(leader, "good"), "book").await.expect("it is good at the leader");

    // By the follower's clock it lasts for hours after it has ended.
    off.store(-5 * HOUR_MS, Ordering::SeqCst);
    create(&closed, leader, "ends", 1_000).await;
    let ci = closed.at(leader, "ends");
    let ended = async || (next(&ci, "book").await == Err(Code::Unauthenticated)).then_some(());
    eventually("it has ended at the leader", ended).await;
    let group = &closed.cluster.nodes[&follower].context().group;
    let key = PrincipalKey::Token(hash_of(b"ends"));
    let has_heard = async || group.view.principals().get(&key).is_some().then_some(());
    eventually("the follower has heard of it", has_heard).await;
    let ended = async || (own_page(page, "ends").await == 401).then_some(());
    eventually("it has ended at the follower", ended).await;
    let ci = closed.at(follower, "ends");
    assert_eq!(next(&ci, "book").await, Err(Code::Unauthenticated));
    assert!(is_off(-5) < HOUR_MS as u64, "its own clock shows a time before that");
    // The other one is good on.
    let good = async || (own_page(page, "good").await == 200).then_some(());
    eventually("it is good at the follower", good).await;
    next(&closed.at(follower, "good"), "book").await.expect("it is good at the follower");
}
