//! A new leader hands out numbers of the keys that were in use, without raising their ceilings first, and skips no
//! more than the promise allows.

use crate::common::{Client, cluster::Cluster, id, other_than, others, until};
use ratchet::{
    metrics::FirstTouch,
    proto::v1::{CreateNamespaceRequest, UpdateNamespaceRequest},
    sequence::{EPOCHS_LIVE, SectionRecord},
};
use tonic::Code;

const KEYS: u64 = 200;
const STEP: u64 = 10_000;

/// Cuts the leader off until another one leads, and lets it come back. Returns the new leader.
async fn lose_the_leader(cluster: &Cluster) -> u64 {
    let deposed = cluster.leader().await;
    cluster.cut_off(deposed);
    let seen_by = other_than(deposed);
    let leader = cluster.leader_seen_by(seen_by, |new| new != deposed).await;
    cluster.client(leader).next_at_last(u64::MAX).await;
    cluster.mend();
    cluster.caught_up(leader, deposed).await;
    leader
}

async fn take_of_each_key(client: &mut Client) -> Vec<u64> {
    let mut numbers = Vec::new();
    for key in 0..KEYS {
        numbers.push(client.next(key).await.expect("a number"));
    }
    numbers
}

/// The record of a book's section in a node's table.
fn record(cluster: &Cluster, node: u64, key: u64) -> SectionRecord {
    let view = &cluster.nodes[&node].context().group.view;
    let book = view.namespaces().by_name("book").cloned().expect("books");
    let section = book.section_of(ratchet::sequence::Key::Id(key));
    view.section(&section).expect("a table that can be read")
}

/// How many epochs have begun, as a node's table says.
fn epochs(cluster: &Cluster, node: u64) -> u64 {
    let view = &cluster.nodes[&node].context().group.view;
    view.ledger().expect("a table that can be read").epoch
}

/// Waits until a node has the records of all keys in memory.
async fn until_in_memory(cluster: &Cluster, node: u64) {
    let view = &cluster.nodes[&node].context().group.view;
    let all = || view.recent_records().len() >= KEYS as usize;
    until("the records of all keys are in memory", all).await;
}

/// Uses every key, loses the leader, and uses every key again, as [`assert_next_leader_is_warm`] does.
async fn assert_warm(cluster: &Cluster, from: FirstTouch) {
    let leader = cluster.leader().await;
    take_of_each_key(&mut cluster.client(leader)).await;
    assert_next_leader_is_warm(cluster, from).await;
}

/// Loses the leader, and uses every key again. Checks that no section is bumped, that all first chunks came `from`
/// there, and that each key skipped one step for each epoch at most.
async fn assert_next_leader_is_warm(cluster: &Cluster, from: FirstTouch) {
    let leader = lose_the_leader(cluster).await;
    let metrics = &cluster.nodes[&leader].context().metrics;
    let bumps = metrics.of_set(1).bumps.get();
    let numbers = take_of_each_key(&mut cluster.client(leader)).await;
    assert_eq!(metrics.of_set(1).bumps.get(), bumps);
    assert!(metrics.of_set(1).first_touches.get(from) >= KEYS);
    let epochs = epochs(cluster, leader) - 1;
    for number in numbers {
        assert!((STEP + 1..=epochs * STEP + 1).contains(&number), "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_were_in_use_cost_the_next_leader_no_bump_and_one_step_each() {
    let cluster = Cluster::start(3, |_| {}).await;
    assert_warm(&cluster, FirstTouch::memory).await;
}

/// Nobody uses the keys between the losses, so that it is as if no checkpointer were through before the next
/// leader is lost.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_were_in_use_cost_no_bump_either_when_five_leaders_are_lost_one_after_the_other()
{
    let cluster = Cluster::start(3, |_| {}).await;
    let mut leader = cluster.leader().await;
    take_of_each_key(&mut cluster.client(leader)).await;
    let written = record(&cluster, leader, 7).epoch;
    while epochs(&cluster, leader) < written + 4 {
        leader = lose_the_leader(&cluster).await;
    }
    assert_eq!(record(&cluster, leader, 7).epoch, written, "nobody wrote it again");
    assert_next_leader_is_warm(&cluster, FirstTouch::memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_come_twice_in_the_next_leaders_first_message_get_their_numbers_in_order() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    take_of_each_key(&mut cluster.client(leader)).await;
    let leader = lose_the_leader(&cluster).await;
    // Half of the keys are new to the cluster.
    let ids: Vec<u64> = (0..4 * KEYS).map(|place| place * 7 % (2 * KEYS)).collect();
    let mut client = cluster.client(leader);
    for _ in 0..2 {
        let firsts = client.next_of_each(ids.clone()).await.expect("numbers");
        let mut last = std::collections::HashMap::new();
        for (id, first) in ids.iter().zip(firsts) {
            let before = last.insert(id, first);
            assert!(before.is_none_or(|before| first == before + 1), "{id}: {before:?}, {first}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_section_whose_record_is_not_in_memory_is_read_from_the_disk_and_costs_no_bump() {
    let cluster = Cluster::start(3, |config| config.recent_records_mb = 0).await;
    assert_warm(&cluster, FirstTouch::disk).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_restarted_before_finds_the_records_in_memory() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    take_of_each_key(&mut cluster.client(leader)).await;
    for node in others(leader) {
        until_in_memory(&cluster, node).await;
        cluster.crash(node).await;
        cluster.start_node(node).await;
        until_in_memory(&cluster, node).await;
    }
    assert_next_leader_is_warm(&cluster, FirstTouch::memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_led_has_what_its_own_term_wrote_in_memory_soon_after() {
    let cluster = Cluster::start(3, |_| {}).await;
    let deposed = cluster.leader().await;
    take_of_each_key(&mut cluster.client(deposed)).await;
    lose_the_leader(&cluster).await;
    until_in_memory(&cluster, deposed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_leaves_no_gap_in_keys_that_were_used_or_not_and_costs_no_bump() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    take_of_each_key(&mut cluster.client(leader)).await;
    // In the first of these terms the keys are used, in the second and third they are not.
    for _ in 0..3 {
        let leader = cluster.leader().await;
        let to = other_than(leader);
        cluster.client(leader).transfer(to).await.expect("done");
    }
    let leader = cluster.leader().await;
    let metrics = &cluster.nodes[&leader].context().metrics;
    let bumps = metrics.of_set(1).bumps.get();
    let numbers = take_of_each_key(&mut cluster.client(leader)).await;
    assert_eq!(numbers, vec![2; KEYS as usize]);
    assert_eq!(metrics.of_set(1).bumps.get(), bumps);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_nobody_uses_skips_nine_steps_however_many_leaders_are_lost() {
    let cluster = Cluster::start(3, |_| {}).await;
    let mut leader = cluster.leader().await;
    assert_eq!(cluster.client(leader).next(7).await.expect("a number"), 1);
    let written = record(&cluster, leader, 7).epoch;
    while epochs(&cluster, leader) < written + EPOCHS_LIVE + 2 {
        leader = lose_the_leader(&cluster).await;
    }
    let mut client = cluster.client(leader);
    let current = client.current("book", id(7)).await.expect("an answer");
    assert_eq!(current, Some(9 * STEP), "the ceiling: nobody knows better");
    assert_eq!(client.next_at_last(7).await, 9 * STEP + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_section_in_use_that_is_never_bumped_is_written_down_and_stays_live() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    cluster.client(leader).next(7).await.expect("a number");
    let leader = lose_the_leader(&cluster).await;
    let used = cluster.client(leader).next_at_last(7).await;
    assert!(used > STEP);
    let metrics = &cluster.nodes[&leader].context().metrics;
    until("the section is written down", || {
        metrics.of_set(1).checkpointed_sections.get() > 0
            && record(&cluster, leader, 7).max_seq > STEP
    })
    .await;
    let checkpointed = record(&cluster, leader, 7);
    assert_eq!(checkpointed.epoch, epochs(&cluster, leader));
    assert!((checkpointed.floor..checkpointed.max_seq).contains(&used));
    let next = cluster.client(leader).next_at_last(7).await;
    assert_eq!(next, used + 1, "it costs no number");
}

/// Its step would use up all that a key has.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_of_few_numbers_has_some_left_after_its_leader_was_lost() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(leader);
    let seats = CreateNamespaceRequest {
        name: "seat".to_owned(),
        max: Some(9_999),
        ..CreateNamespaceRequest::default()
    };
    let created = client.admin.create_namespace(seats).await.expect("created").into_inner();
    assert_eq!((created.step, created.step_max, created.max), (9, 9, 9_999));
    client.try_next("seat", id(7), 1).await.expect("a number");
    let leader = lose_the_leader(&cluster).await;
    let next = cluster.client(leader).try_next("seat", id(7), 1).await.expect("a number");
    assert!((2..1_000).contains(&next.first), "{}", next.first);
}

#[tokio::test(flavor = "multi_thread")]
async fn max_limits_what_an_epoch_gives_and_current_never_answers_more() {
    const MAX: u64 = STEP + STEP / 2;
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(leader);
    let short = CreateNamespaceRequest {
        name: "short".to_owned(),
        max: Some(MAX),
        ..CreateNamespaceRequest::default()
    };
    client.admin.create_namespace(short).await.expect("created");
    // Fewer are left than a step has.
    client.try_next("short", id(7), MAX - 5).await.expect("numbers");
    let mut leader = leader;
    while epochs(&cluster, leader) < 3 {
        leader = lose_the_leader(&cluster).await;
    }
    let mut client = cluster.client(leader);
    let current = client.current("short", id(7)).await.expect("an answer");
    assert_eq!(current, Some(MAX));
    let refused = client.try_next("short", id(7), 1).await;
    assert_eq!(refused.expect_err("none is left").code(), Code::OutOfRange);
    let longer = UpdateNamespaceRequest {
        namespace: "short".to_owned(),
        max: Some(10 * STEP),
        ..UpdateNamespaceRequest::default()
    };
    client.admin.update_namespace(longer).await.expect("longer");
    let next = client.try_next("short", id(7), 1).await.expect("a number");
    assert!(next.first > MAX, "{}", next.first);
}
