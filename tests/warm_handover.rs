//! A graceful handover leaves the leader's memory to its successor: no gap, no cold start, also where sections are
//! shared. A node that was left nothing begins above all that may have been used.

use crate::common::{Client, PATIENCE, cluster::Cluster, id, name, other_than};
use futures::stream;
use ratchet::{
    allocator::{MEMORY_FORMAT, MemoryHeader},
    consensus::send_memory,
    metrics::{FirstTouch, HandoverEnd, SetMetrics, SkipCause},
    node::Config,
    proto::v1::{CreateNamespaceRequest, Key, KeyKind},
    sequence::{Command, EntryOutcome, MemoryDigest, TermEnd},
};

const STEP: u64 = 10_000;

/// Keys of each kind: with a section of its own, a name, and with neighbours in one section.
fn keys() -> Vec<(&'static str, Option<Key>)> {
    let room = |n: u64| name(format!("room {n}").as_bytes());
    let each = |n: u64| [("book", id(n)), ("room", room(n)), ("uid", id(n))];
    (1..=100).flat_map(each).collect()
}

async fn create_rooms(client: &mut Client) {
    let room = CreateNamespaceRequest {
        name: "room".to_owned(),
        key_kind: KeyKind::Name.into(),
        ..CreateNamespaceRequest::default()
    };
    client.admin.create_namespace(room).await.expect("created");
}

/// Takes as many numbers of each key as its place says. Returns the first of each.
async fn take_of_each(client: &mut Client) -> Vec<u64> {
    let mut firsts = Vec::new();
    for ((namespace, key), count) in keys().into_iter().zip(1..) {
        let range = client.try_next(namespace, key, count).await;
        firsts.push(range.expect("numbers").first);
    }
    firsts
}

/// The next number of each key once [`take_of_each`] has answered `firsts`.
fn next_of_each(firsts: &[u64]) -> Vec<u64> {
    firsts.iter().zip(1..).map(|(first, count)| first + count).collect()
}

/// The keys with sections of their own go on with their next numbers. In shared sections, neighbours may have risen
/// to the section's ceiling.
fn assert_no_gap_in_own_sections(firsts: &[u64], expected: &[u64]) {
    for (((namespace, _), first), next) in keys().iter().zip(firsts).zip(expected) {
        match *namespace {
            "uid" => assert!(first >= next),
            _ => assert_eq!(first, next),
        }
    }
}

fn first_touches(metrics: &SetMetrics) -> u64 {
    let from = [FirstTouch::memory, FirstTouch::disk, FirstTouch::bump];
    from.iter().map(|from| metrics.first_touches.get(*from)).sum()
}

fn set_metrics(cluster: &Cluster, node: u64) -> &SetMetrics {
    &cluster.nodes[&node].context().group.set_metrics
}

/// A cluster that has handed out numbers of each key, and the next number of each.
async fn cluster_in_use(change: impl Fn(&mut Config)) -> (Cluster, Vec<u64>) {
    let cluster = Cluster::start(3, |config| {
        change(config);
    })
    .await;
    let mut client = cluster.client(cluster.leader().await);
    create_rooms(&mut client).await;
    let firsts = take_of_each(&mut client).await;
    (cluster, next_of_each(&firsts))
}

/// Hands over to another node, and returns it.
async fn transfer(cluster: &Cluster) -> u64 {
    let leader = cluster.leader().await;
    let to = other_than(leader);
    cluster.client(leader).transfer(to).await.expect("done");
    cluster.client(to).next_at_last(u64::MAX).await;
    to
}

/// Cuts the leader off until `successor` leads. The third node cannot reach the successor, so that it is not elected.
async fn lose_the_leader_to(cluster: &Cluster, successor: u64) {
    let deposed = cluster.leader().await;
    let group = &cluster.nodes[&deposed].context().group;
    // Otherwise the third node may not vote for it.
    assert!(group.has_whole_log(successor, PATIENCE).await, "the successor lags");
    let third = 1 + 2 + 3 - deposed - successor;
    let successor_address = cluster.configs[&successor].peer_listen.to_string();
    cluster.links.cut(third, successor_address);
    cluster.cut_off(deposed);
    cluster.leader_seen_by(successor, |new| new == successor).await;
    cluster.client(successor).next_at_last(u64::MAX).await;
    cluster.mend();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_key_goes_on_with_its_next_number_without_a_first_touch() {
    let (cluster, mut expected) = cluster_in_use(|_| {}).await;
    for _ in 0..3 {
        let leader = transfer(&cluster).await;
        let metrics = set_metrics(&cluster, leader);
        let (touched, bumps) = (first_touches(metrics), metrics.bumps.get());
        let firsts = take_of_each(&mut cluster.client(leader)).await;
        assert_eq!(firsts, expected);
        assert_eq!((first_touches(metrics), metrics.bumps.get()), (touched, bumps));
        expected = next_of_each(&firsts);
    }
    let handovers = |node| set_metrics(&cluster, node).handovers.get(HandoverEnd::memory);
    assert_eq!((1..=3).map(handovers).sum::<u64>(), 3);
    for node in [1, 2, 3] {
        let skipped = &cluster.nodes[&node].context().metrics.numbers_skipped;
        assert_eq!(skipped.get(SkipCause::shared_section), 0);
        assert_eq!(skipped.get(SkipCause::leader_change), 0);
    }
}

/// Transfers under a configuration with which no memory is sent.
async fn assert_a_transfer_gives_the_numbers_back(change: impl Fn(&mut Config)) {
    let (cluster, expected) = cluster_in_use(change).await;
    let old = cluster.leader().await;
    let leader = transfer(&cluster).await;
    let handovers = &set_metrics(&cluster, old).handovers;
    assert_eq!(handovers.get(HandoverEnd::returned), 1);
    let metrics = set_metrics(&cluster, leader);
    let touched = first_touches(metrics);
    let firsts = take_of_each(&mut cluster.client(leader)).await;
    assert!(first_touches(metrics) >= touched + 200, "it begins with an empty memory");
    assert_no_gap_in_own_sections(&firsts, &expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_without_room_for_the_memory_gets_the_numbers_back_and_no_key_of_its_own_section_a_gap()
 {
    assert_a_transfer_gives_the_numbers_back(|config| config.memory_max_mb = 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_told_to_send_no_memory_gives_the_numbers_back_to_the_wanted_node() {
    assert_a_transfer_gives_the_numbers_back(|config| config.handover_timeout_ms = 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_that_is_cut_off_meanwhile_costs_no_key_of_its_own_section_a_gap() {
    let (cluster, expected) = cluster_in_use(|_| {}).await;
    let leader = cluster.leader().await;
    let successor = other_than(leader);
    let successor_address = cluster.configs[&successor].peer_listen.to_string();
    // The leader heard of it a moment ago, so that it chooses it.
    cluster.links.cut(leader, successor_address);
    let _ = cluster.client(leader).transfer(successor).await;
    let new = cluster.leader_seen_by(successor, |new| new != leader).await;
    cluster.mend();
    let firsts = take_of_each(&mut cluster.client(new)).await;
    assert_no_gap_in_own_sections(&firsts, &expected);
    let handovers = &set_metrics(&cluster, leader).handovers;
    let whole = handovers.get(HandoverEnd::memory) + handovers.get(HandoverEnd::returned);
    assert_eq!((whole, handovers.get(HandoverEnd::skipped)), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_that_holds_no_memory_any_more_begins_above_what_was_used() {
    let (cluster, _) = cluster_in_use(|_| {}).await;
    let leader = cluster.leader().await;
    let successor = other_than(leader);
    let digest = MemoryDigest { parts: 3, checksum: 7 };
    // As if the successor had been restarted since.
    let group = &cluster.nodes[&leader].context().group;
    let term = group.leadership().borrow().term;
    let hand_off = Command::EndTerm(TermEnd::HandOff { successor, digest });
    let handed_off = group.propose(term, hand_off).await.expect("logged");
    assert_eq!(handed_off, EntryOutcome::TermEnded);
    lose_the_leader_to(&cluster, successor).await;
    let number = cluster.client(successor).next_at_last(1).await;
    assert!(number > STEP, "{number}: the old term may have used its chunk to the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_that_was_sent_and_not_handed_off_is_not_taken_over() {
    let (cluster, _) = cluster_in_use(|_| {}).await;
    let leader = cluster.leader().await;
    let successor = other_than(leader);
    let group = &cluster.nodes[&leader].context().group;
    let term = group.leadership().borrow().term;
    // An empty memory. If a term took it over, each key would begin anew.
    let header = MemoryHeader { term, seed: 1, format: MEMORY_FORMAT };
    let sent = send_memory(group, term, successor, header, stream::empty()).await;
    assert_eq!(sent.expect("it has arrived").parts, 0);
    lose_the_leader_to(&cluster, successor).await;
    let number = cluster.client(successor).next_at_last(1).await;
    assert!(number > STEP, "{number}");
}
