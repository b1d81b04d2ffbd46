//! Every number that is skipped is counted, with its cause.

use std::cell::Cell;

use crate::common::{PATIENCE, cluster::Cluster, eventually, id, other_than, until};
use ratchet::{
    metrics::SkipCause,
    node::{Asker, CheckedRequest, Origin, config::FenceKind},
    proto::v1::{GapsRequest, NextManyRequest, NextRequest},
};
use tokio::time::Instant;

/// A request for numbers of a key.
fn next(book: u64, count: u64) -> CheckedRequest<NextRequest> {
    let next = NextRequest {
        namespace: "book".into(),
        key: id(book),
        count: Some(count),
        ..NextRequest::default()
    };
    CheckedRequest::new(next, Asker::node(1)).expect("a request")
}

/// How many numbers the `leader` has counted that leaders before it left, once it has checkpointed so many sections.
async fn once_checkpointed(cluster: &Cluster, leader: u64, sections: u64) -> u64 {
    let metrics = &cluster.nodes[&leader].context().metrics;
    until("the log tells", || metrics.of_set(1).checkpointed_sections.get() >= sections).await;
    metrics.skipped(SkipCause::leader_change)
}

/// A request for numbers of many keys.
fn next_many<const N: usize>(ids: [u64; N], counts: [u64; N]) -> CheckedRequest<NextManyRequest> {
    let next = NextManyRequest {
        namespace: "book".into(),
        ids: ids.into(),
        counts: counts.into(),
        ..NextManyRequest::default()
    };
    CheckedRequest::new(next, Asker::node(1)).expect("a request")
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_whose_caller_hangs_up_before_the_fence_has_answered_are_counted() {
    let cluster = Cluster::start(3, |config| config.fence = FenceKind::Quorum).await;
    let leader = cluster.leader().await;
    cluster.client(leader).next(7).await.expect("a warm key");
    let shared = cluster.nodes[&leader].context();
    let cancelled = || shared.metrics.skipped(SkipCause::cancelled);
    assert_eq!(cancelled(), 0);
    // Nobody can confirm the leadership: a call that took numbers waits.
    cluster.cut_off(leader);
    let deadline = Instant::now() + PATIENCE;
    {
        let next = next(7, 30);
        let asking = std::pin::pin!(shared.numbers.serve(&next, Origin::Client, deadline));
        assert!(futures::poll!(asking).is_pending());
    }
    assert_eq!(cancelled(), 30);
    {
        let many = next_many([7, 7], [2, 3]);
        let asking = std::pin::pin!(shared.numbers.serve(&many, Origin::Client, deadline));
        assert!(futures::poll!(asking).is_pending());
    }
    assert_eq!(cancelled(), 35);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_a_message_whose_caller_hangs_up_while_some_keys_wait_are_counted() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    cluster.client(leader).next(7).await.expect("a warm key");
    let shared = cluster.nodes[&leader].context();
    {
        let many = next_many([7, 1_000], [5, 1]);
        let deadline = Instant::now() + PATIENCE;
        let asking = std::pin::pin!(shared.numbers.serve(&many, Origin::Client, deadline));
        assert!(futures::poll!(asking).is_pending(), "the second key is cold");
    }
    assert_eq!(shared.metrics.skipped(SkipCause::cancelled), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_a_chunk_whose_caller_hung_up_is_counted_when_its_leader_is_lost() {
    const COUNT: u64 = 1_000_000;
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let shared = cluster.nodes[&leader].context();
    let bumped = shared.metrics.of_set(1).bumps.get();
    let large = next(7, COUNT);
    let (asked, gone) = (shared.clone(), tokio::sync::oneshot::channel::<()>());
    let (keep, mut dropped) = gone;
    let asking = tokio::spawn(async move {
        let deadline = Instant::now() + PATIENCE;
        tokio::select! {
            answered = asked.numbers.serve(&large, Origin::Client, deadline) => {
                answered.map_or(0, |answered| answered.last)
            }
            _ = &mut dropped => 0,
        }
    });
    let is_proposed = || shared.metrics.of_set(1).bumps.get() > bumped;
    until("the bump is proposed", is_proposed).await;
    drop(keep);
    // It may have had its answer by then.
    let used = asking.await.expect("a caller");
    cluster.cut_off(leader);
    let other = other_than(leader);
    let next = cluster.leader_seen_by(other, |new| new != leader).await;
    let first = cluster.client(next).next_at_last(7).await;
    let skipped = once_checkpointed(&cluster, next, 1).await;
    assert!(skipped >= first - 1 - used, "{skipped} counted, {first} follows {used}");
    assert!(skipped <= COUNT + 20_000, "{skipped}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_two_crashes_in_a_row_skip_is_counted_once_as_the_accounts_have_it() {
    let cluster = Cluster::start(3, |_| {}).await;
    let mut leader = cluster.leader().await;
    let term_of = |node: u64| cluster.nodes[&node].context().group.term();
    let first_term = term_of(leader);
    cluster.client(leader).next(7).await.expect("a number");
    for _ in 0..2 {
        let deposed = leader;
        cluster.mend();
        cluster.cut_off(deposed);
        // A node that was cut off before may still take itself for the leader. Its term is an earlier one.
        leader = eventually("another leader", async || {
            let latest = cluster.leader().await;
            (latest != deposed).then_some(latest)
        })
        .await;
        // The call comes at once, so that the first of them writes nothing down.
        cluster.client(leader).next_at_last(7).await;
    }
    cluster.mend();
    // On a slow machine yet another node may lead by now. It writes the section down once it is asked for the key.
    let asked = Cell::new(leader);
    let leader = eventually("the log tells", async || {
        let latest = cluster.leader().await;
        if asked.replace(latest) != latest {
            cluster.client(latest).next_at_last(7).await;
        }
        let metrics = &cluster.nodes[&latest].context().metrics;
        (metrics.of_set(1).checkpointed_sections.get() > 0).then_some(latest)
    })
    .await;
    let nodes = cluster.nodes.values();
    let counted: u64 =
        nodes.map(|node| node.context().metrics.skipped(SkipCause::leader_change)).sum();
    let asked = GapsRequest { namespace: "book".into(), days: 0 };
    let told = cluster.client(leader).admin.gaps(asked).await.expect("the accounts").into_inner();
    let skipped = told.days.into_iter().flat_map(|day| day.skipped);
    let accounted = skipped.filter(|skipped| skipped.cause == "leader_change");
    assert_eq!(counted, accounted.map(|skipped| skipped.numbers).sum::<u64>());
    // The skipped numbers are the rest of the first chunk, and the rest of the step that the first new leader had. A further
    // term may have left a step as well.
    let terms = term_of(leader) - first_term;
    assert!((2 * 10_000..=terms * 10_000).contains(&counted), "{counted} in {terms} terms");
}
