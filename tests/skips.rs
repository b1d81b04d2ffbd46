//! Every number that is skipped is counted, with its cause.

mod common;

use common::{PATIENCE, cluster::Cluster, id, other_than, until};
use ratchet::{
    metrics::SkipCause,
    node::{Origin, config::FenceKind},
    proto::v1::{NextRequest, NextStreamRequest},
};
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn numbers_whose_caller_hangs_up_before_the_fence_has_answered_are_counted() {
    let cluster = Cluster::start(3, |config| config.fence = FenceKind::Quorum).await;
    let leader = cluster.leader().await;
    cluster.client(leader).next(7).await.expect("a warm key");
    let shared = cluster.nodes[&leader].shared();
    let cancelled = || shared.metrics.skipped(SkipCause::cancelled);
    assert_eq!(cancelled(), 0);
    // Nobody can confirm the leadership: a call that took numbers waits.
    cluster.cut_off(leader);
    let deadline = Instant::now() + PATIENCE;
    {
        let one = NextRequest {
            namespace: "book".into(),
            key: id(7),
            count: Some(30),
            route_version: 0,
            members_version: None,
        };
        let asking = std::pin::pin!(shared.ask(one, Origin::Client, deadline));
        assert!(futures::poll!(asking).is_pending());
    }
    assert_eq!(cancelled(), 30);
    {
        let many = NextStreamRequest {
            namespace: "book".into(),
            ids: vec![7, 7],
            counts: vec![2, 3],
            ..NextStreamRequest::default()
        };
        let asking = std::pin::pin!(shared.ask(many, Origin::Client, deadline));
        assert!(futures::poll!(asking).is_pending());
    }
    assert_eq!(cancelled(), 35);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_a_message_whose_caller_hangs_up_while_some_keys_wait_are_counted() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    cluster.client(leader).next(7).await.expect("a warm key");
    let shared = cluster.nodes[&leader].shared();
    {
        let many = NextStreamRequest {
            namespace: "book".into(),
            ids: vec![7, 1_000],
            counts: vec![5, 1],
            ..NextStreamRequest::default()
        };
        let deadline = Instant::now() + PATIENCE;
        let asking = std::pin::pin!(shared.ask(many, Origin::Client, deadline));
        assert!(
            futures::poll!(asking).is_pending(),
            "the second key is cold"
        );
    }
    assert_eq!(shared.metrics.skipped(SkipCause::cancelled), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_a_chunk_whose_caller_hung_up_is_counted_when_its_leader_is_lost() {
    const COUNT: u64 = 1_000_000;
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let shared = cluster.nodes[&leader].shared();
    let bumped = shared.metrics.bumps.get();
    let large = NextRequest {
        namespace: "book".into(),
        key: id(7),
        count: Some(COUNT),
        route_version: 0,
        members_version: None,
    };
    let (asked, gone) = (shared.clone(), tokio::sync::oneshot::channel::<()>());
    let (keep, mut dropped) = gone;
    let asking = tokio::spawn(async move {
        let deadline = Instant::now() + PATIENCE;
        tokio::select! {
            answer = asked.ask(large, Origin::Client, deadline) => answer.map_or(0, |range| range.last),
            _ = &mut dropped => 0,
        }
    });
    let is_proposed = || shared.metrics.bumps.get() > bumped;
    until("the bump is proposed", is_proposed).await;
    drop(keep);
    // It may have had its answer by then.
    let used = asking.await.expect("a caller");
    cluster.cut_off(leader);
    let other = other_than(leader);
    let next = cluster.leader_seen_by(other, |new| new != leader).await;
    let first = cluster.client(next).next_at_last(7).await;
    let skipped = cluster.nodes[&next]
        .shared()
        .metrics
        .skipped(SkipCause::leader_change);
    assert!(
        skipped >= first - 1 - used,
        "{skipped} counted, {first} follows {used}"
    );
    assert!(skipped <= COUNT + 20_000, "{skipped}");
}
