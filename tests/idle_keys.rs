//! Keys that nobody asks for are evicted from the leader's memory, and go on where they stood: nothing is skipped, repeated
//! or answered out of order.

use std::collections::HashMap;

use crate::common::{Client, cluster::Cluster, id, name, other_than, until};
use ratchet::{
    allocator::Footprint,
    metrics::{EvictionCause, Metrics, SetMetrics, SkipCause},
    node::Config,
    proto::v1::{CreateNamespaceRequest, KeyKind},
};

const KEYS: u64 = 300;

fn metrics(cluster: &Cluster, node: u64) -> &Metrics {
    &cluster.nodes[&node].context().metrics
}

fn set_metrics(cluster: &Cluster, node: u64) -> &SetMetrics {
    &cluster.nodes[&node].context().group.set_metrics
}

fn memory(cluster: &Cluster, leader: u64) -> Footprint {
    cluster.nodes[&leader].context().services.status.memory_footprint()
}

async fn until_idle_keys_are_gone(cluster: &Cluster, leader: u64) {
    let gone = || memory(cluster, leader).keys == 0;
    until("all keys are evicted", gone).await;
}

/// As [`until_idle_keys_are_gone`], and the log says how many numbers of each were used.
async fn until_idle_keys_are_evicted(cluster: &Cluster, leader: u64) {
    until_idle_keys_are_gone(cluster, leader).await;
    // They are counted once their release is applied.
    let released = || {
        let keys = &set_metrics(cluster, leader).evicted_keys;
        keys.get(EvictionCause::idle) >= KEYS
    };
    until("all are released", released).await;
}

/// A cluster that evicts keys soon, and its leader.
async fn forgetful(change: impl Fn(&mut Config)) -> (Cluster, u64) {
    let cluster = Cluster::start(3, |config| {
        // This is longer than a message takes on a busy machine.
        config.key_idle_ms = 300;
        change(config);
    })
    .await;
    let leader = cluster.leader().await;
    (cluster, leader)
}

/// The next number of each key.
async fn take_of_each(client: &mut Client) -> Vec<u64> {
    let all = client.next_of_each((0..KEYS).collect()).await;
    all.expect("numbers")
}

/// How many numbers were skipped, for any reason.
fn skipped(cluster: &Cluster) -> u64 {
    let of = |node| &metrics(cluster, node).numbers_skipped;
    let causes = [
        SkipCause::leader_change,
        SkipCause::shared_section,
        SkipCause::fence,
        SkipCause::deadline,
    ];
    (1..=3).flat_map(|node| causes.map(|cause| of(node).get(cause))).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_evicted_goes_on_with_its_next_number() {
    let (cluster, leader) = forgetful(|_| {}).await;
    let mut client = cluster.client(leader);
    let names = CreateNamespaceRequest {
        name: "room".into(),
        key_kind: KeyKind::Name.into(),
        ..CreateNamespaceRequest::default()
    };
    client.admin.create_namespace(names).await.expect("created");
    for round in 1..=3 {
        assert_eq!(take_of_each(&mut client).await, vec![round; KEYS as usize]);
        let lobby = client.try_next("room", name(b"lobby"), 1).await;
        assert_eq!(lobby.expect("a number").first, round);
        until_idle_keys_are_gone(&cluster, leader).await;
        // Nothing is left in the memory: the answer comes from the table.
        assert_eq!(client.current("book", id(7)).await.expect("a number"), Some(round));
    }
    // The last one may be counted a moment later.
    let released = || {
        let keys = &set_metrics(&cluster, leader).evicted_keys;
        keys.get(EvictionCause::idle) >= 3 * KEYS
    };
    until("all are counted", released).await;
    assert_eq!(skipped(&cluster), 0);
}

/// A namespace whose ids share sections with 99 neighbours.
async fn create_members(client: &mut Client) {
    let members = CreateNamespaceRequest {
        name: "member".into(),
        section_size: Some(100),
        step: Some(1_000),
        ..CreateNamespaceRequest::default()
    };
    client.admin.create_namespace(members).await.expect("created");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_section_that_was_evicted_goes_on_above_the_highest_number_of_its_keys() {
    let (cluster, leader) = forgetful(|_| {}).await;
    let mut client = cluster.client(leader);
    create_members(&mut client).await;
    // There are two sections whose ids lie close together, and one with ids far apart.
    let keys: Vec<u64> = (0..200).chain((200..300).step_by(20)).collect();
    let counted = || metrics(&cluster, leader).numbers_skipped.get(SkipCause::shared_section);
    for round in 1..=3 {
        let numbers = client.next_of_each_in("member", keys.clone()).await;
        assert_eq!(numbers.expect("numbers"), vec![round; keys.len()]);
        until_idle_keys_are_gone(&cluster, leader).await;
        let current = client.current("member", id(7)).await.expect("a number");
        assert_eq!(current, Some(round));
    }
    assert_eq!(counted(), 0, "no key was ahead of its neighbours");
    let numbers = client.next_of_each_in("member", keys.clone()).await;
    assert_eq!(numbers.expect("numbers"), vec![4; keys.len()]);
    let ahead = client.try_next("member", id(107), 10).await;
    assert_eq!(ahead.expect("numbers").first, 5);
    until_idle_keys_are_gone(&cluster, leader).await;
    let current = client.current("member", id(108)).await.expect("a number");
    assert_eq!(current, Some(14));
    let numbers = client.next_of_each_in("member", keys.clone()).await;
    let expected: Vec<u64> =
        (keys.iter()).map(|key| if (100..200).contains(key) { 15 } else { 5 }).collect();
    assert_eq!(numbers.expect("numbers"), expected);
    until("what its neighbours skipped is counted", || counted() == 99 * 10).await;
    let gone = || set_metrics(&cluster, leader).evicted_shared_sections.get() >= 5 * 3;
    until("all sections are counted", gone).await;
    until("sections without keys are forgotten", || memory(&cluster, leader).sections == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_section_that_was_evicted_skips_nothing_when_the_leader_is_lost() {
    let (cluster, leader) = forgetful(|_| {}).await;
    let mut client = cluster.client(leader);
    create_members(&mut client).await;
    let keys: Vec<u64> = (0..KEYS).collect();
    let numbers = client.next_of_each_in("member", keys.clone()).await;
    assert_eq!(numbers.expect("numbers"), vec![1; KEYS as usize]);
    until_idle_keys_are_evicted(&cluster, leader).await;
    cluster.cut_off(leader);
    let seen_by = other_than(leader);
    let next = cluster.leader_seen_by(seen_by, |new| new != leader).await;
    let numbers = cluster.client(next).next_of_each_in("member", keys).await;
    cluster.mend();
    assert_eq!(numbers.expect("numbers"), vec![2; KEYS as usize]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_shared_sections_that_come_and_go_under_load_and_through_handovers_only_grow() {
    let (cluster, leader) = forgetful(|config| config.key_idle_ms = 1).await;
    create_members(&mut cluster.client(leader)).await;
    let mut callers = Vec::new();
    for caller in 0..4 {
        let mut client = cluster.client(1 + caller % 3);
        callers.push(tokio::spawn(async move {
            // The caller has keys of its own, in three sections that all callers share.
            let mut last = HashMap::new();
            for round in 0..400 {
                let key = caller + 4 * (round % 60);
                // A call that fails may have taken numbers.
                if let Ok(numbers) = client.next_of_each_in("member", vec![key]).await {
                    let before = last.insert(key, numbers[0]);
                    assert!(before < Some(numbers[0]), "{key}: {before:?}, {numbers:?}");
                }
            }
            assert!(last.len() > 50, "too few calls were answered");
        }));
    }
    for _ in 0..3 {
        let to = other_than(cluster.leader().await);
        cluster.lead(to).await;
    }
    for caller in callers {
        caller.await.expect("no panic");
    }
    let gone = (1..=3).map(|node| set_metrics(&cluster, node).evicted_shared_sections.get());
    assert!(gone.sum::<u64>() > 10, "too few sections were evicted to show anything");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_evicted_skips_nothing_when_the_leader_is_lost() {
    let (cluster, leader) = forgetful(|_| {}).await;
    assert_eq!(take_of_each(&mut cluster.client(leader)).await, vec![1; KEYS as usize]);
    until_idle_keys_are_evicted(&cluster, leader).await;
    cluster.cut_off(leader);
    let seen_by = other_than(leader);
    let next = cluster.leader_seen_by(seen_by, |new| new != leader).await;
    let firsts = take_of_each(&mut cluster.client(next)).await;
    cluster.mend();
    assert_eq!(firsts, vec![2; KEYS as usize]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_come_and_go_under_load_and_through_handovers_have_no_gap() {
    let (cluster, _) = forgetful(|config| config.key_idle_ms = 1).await;
    let mut callers = Vec::new();
    for caller in 0..4 {
        let mut client = cluster.client(1 + caller % 3);
        callers.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            for round in 0..400 {
                let key = (round * 7 + caller) % 40;
                taken.push((key, client.next_at_last(key).await));
            }
            taken
        }));
    }
    for _ in 0..3 {
        let to = other_than(cluster.leader().await);
        cluster.lead(to).await;
    }
    let mut numbers = vec![Vec::new(); 40];
    for caller in callers {
        for (key, number) in caller.await.expect("no panic") {
            numbers[key as usize].push(number);
        }
    }
    let mut missing = 0;
    for (key, mut of_key) in numbers.into_iter().enumerate() {
        of_key.sort_unstable();
        assert!(of_key.windows(2).all(|pair| pair[0] < pair[1]), "key {key}: {of_key:?}");
        missing += of_key.last().copied().unwrap_or(0) - of_key.len() as u64;
    }
    // What an election skipped is counted once its key is evicted, or asked for again.
    let is_counted = || missing <= skipped(&cluster);
    until(&format!("the {missing} numbers that are missing are counted"), is_counted).await;
    let released =
        (1..=3).map(|node| set_metrics(&cluster, node).evicted_keys.get(EvictionCause::idle));
    assert!(released.sum::<u64>() > 100, "too few keys were evicted to show anything");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_that_is_full_takes_new_keys_for_idle_ones_and_stays_within_its_bound() {
    let (cluster, leader) = forgetful(|config| {
        config.key_idle_ms = 0;
        config.memory_max_mb = 1;
    })
    .await;
    let mut client = cluster.client(leader);
    let all = 100_000;
    for round in 1..=2 {
        for first in (0..all).step_by(5_000) {
            let keys = (first..first + 5_000).collect();
            let numbers = client.next_of_each(keys).await.expect("numbers");
            assert_eq!(numbers, vec![round; 5_000]);
            // Waiting requests take room, too: a message has 5 000 keys.
            let bytes = memory(&cluster, leader).bytes;
            assert!(bytes < 2 << 20, "{bytes}");
        }
    }
    assert!(set_metrics(&cluster, leader).evicted_keys.get(EvictionCause::room) > all);
    assert_eq!(skipped(&cluster), 0);
}
