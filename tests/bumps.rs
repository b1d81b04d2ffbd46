//! The log carries ceilings, not numbers.

use crate::common::{
    Client,
    cluster::Cluster,
    disk::{Fsync, on_disks},
    id, in_time, other_than, until,
};
use ratchet::{
    metrics::{FirstTouch, SkipCause},
    proto::v1::CreateNamespaceRequest,
};
use tokio::task::JoinSet;

fn counted(cluster: &Cluster, leader: u64) -> (u64, u64) {
    let metrics = &cluster.nodes[&leader].context().metrics;
    (metrics.of_set(1).bumps.get(), metrics.of_set(1).bump_entries.get())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_million_numbers_of_one_key_cost_at_most_110_log_entries() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let (_, before) = counted(&cluster, leader);
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let mut client = cluster.client(leader);
        callers.spawn(async move {
            for _ in 0..1_250 {
                client.try_next("book", id(1), 100).await.unwrap();
            }
        });
    }
    while let Some(done) = callers.join_next().await {
        done.unwrap();
    }
    let last = cluster.client(leader).current("book", id(1)).await.unwrap();
    assert_eq!(last, Some(1_000_000));
    let (_, after) = counted(&cluster, leader);
    println!("1 000 000 numbers of one key: {} bump entries", after - before);
    assert!(after - before <= 110, "{} bump entries", after - before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_whose_step_may_grow_is_bumped_seldom_and_a_crash_skips_at_most_its_greatest_step()
 {
    const STEP_MAX: u64 = 100_000;
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(leader);
    let hot = CreateNamespaceRequest {
        name: "hot".into(),
        step: Some(100),
        step_min: Some(10),
        step_max: Some(STEP_MAX),
        ..CreateNamespaceRequest::default()
    };
    let created = client.admin.create_namespace(hot).await.unwrap().into_inner();
    assert_eq!((created.step_min, created.step_max), (10, STEP_MAX));
    let (_, before) = counted(&cluster, leader);
    let (mut last, started) = (0, std::time::Instant::now());
    for _ in 0..5_000 {
        last = client.try_next("hot", id(1), 50).await.unwrap().last;
    }
    assert_eq!(last, 250_000);
    let (_, after) = counted(&cluster, leader);
    let entries = after - before;
    // A step of 100 all along would take 2 500 of them. Where calls are slow the step grows less: so that a chunk lasts for a
    // quarter of a second at least.
    let seconds = started.elapsed().as_secs();
    assert!(entries < (8 * seconds).max(500), "{entries} log entries within {seconds} s");
    cluster.cut_off(leader);
    let seen_by = other_than(leader);
    let next_leader = cluster.leader_seen_by(seen_by, |new| new != leader).await;
    let mut client = cluster.client(next_leader);
    client.next_at_last(u64::MAX).await;
    let first = client.try_next("hot", id(1), 1).await.unwrap().first;
    assert!(first > last && first <= last + STEP_MAX + 1, "{first} after {last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_counts_on_a_hot_key_take_their_turn_among_small_ones() {
    const LARGE: u64 = 50;
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let (mut client, stop) = (cluster.client(leader), stop.clone());
        callers.spawn(async move {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                client.try_next("book", id(1), 1).await.unwrap();
            }
        });
    }
    let (_, before) = counted(&cluster, leader);
    let mut client = cluster.client(leader);
    for _ in 0..LARGE {
        let range = client.try_next("book", id(1), 15_000).await.unwrap();
        assert_eq!(range.last - range.first, 14_999);
    }
    let (_, after) = counted(&cluster, leader);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    while let Some(done) = callers.join_next().await {
        done.unwrap();
    }
    println!("{LARGE} large counts: {} bump entries", after - before);
    // One bump is for the large count, and one for the calls that stood behind it.
    assert!(after - before <= 3 * LARGE, "{} entries", after - before);
}

/// All sections of the 2^32 uids.
const SECTIONS: u64 = 42_950;

async fn touch_all_sections(address: std::net::SocketAddr) {
    const CALLERS: u64 = 1_024;
    let clients: Vec<Client> = (0..8).map(|_| Client::new(address)).collect();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let mut client = clients[caller as usize % clients.len()].clone();
        callers.spawn(async move {
            for section in (caller..SECTIONS).step_by(CALLERS as usize) {
                client.try_next("uid", id(section * 100_000), 1).await.unwrap();
            }
        });
    }
    while let Some(done) = callers.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_leader_change_all_sections_of_32_bit_uids_are_handed_out_without_a_bump() {
    let cluster = Cluster::start(3, |config| {
        // A leader that hands over returns the numbers, section by section.
        (config.handover_timeout_ms, config.shutdown_timeout_ms) = (0, 60_000);
    })
    .await;
    let deposed = cluster.leader().await;
    touch_all_sections(cluster.address(deposed)).await;
    cluster.cut_off(deposed);
    let seen_by = other_than(deposed);
    let leader = cluster.leader_seen_by(seen_by, |new| new != deposed).await;
    cluster.client(leader).next_at_last(u64::MAX).await;
    let (bumps, _) = counted(&cluster, leader);
    let started = std::time::Instant::now();
    touch_all_sections(cluster.address(leader)).await;
    let took = started.elapsed();
    let (more_bumps, _) = counted(&cluster, leader);
    println!("{SECTIONS} sections used after a leader change in {took:?}");
    assert_eq!(more_bumps, bumps);
    let metrics = &cluster.nodes[&leader].context().metrics;
    let touched = |from| metrics.of_set(1).first_touches.get(from);
    assert!(touched(FirstTouch::memory) + touched(FirstTouch::disk) >= SECTIONS);
    cluster.client(leader).transfer(None).await.expect("handed over");
    let skipped = metrics.skipped(SkipCause::leader_change);
    assert!(skipped >= SECTIONS * 9_999, "every skipped number is counted: {skipped}");
    assert!(skipped <= (SECTIONS + 2) * 10_000, "at most a step per section: {skipped}");
}

/// After a change of the leader a million keys may ask at once. Small entries let a slow disk answer some of them soon.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_ask_while_the_disk_is_slow_are_bumped_in_entries_of_bounded_size() {
    const KEYS: u64 = 20_000;
    const ENTRY_KEYS: u64 = 8_192;
    let (cluster, disks) = on_disks(1, |_| {}).await;
    let mut client = cluster.client(1);
    client.next_at_last(1).await;
    let metrics = cluster.nodes[&1].context().metrics.of_set(1);
    let touched = || metrics.first_touches.get(FirstTouch::bump);
    let (before, (_, entries_before)) = (touched(), counted(&cluster, 1));
    disks[&1].set(Fsync::Hangs);
    let asking = tokio::spawn(async move { client.next_of_each((2..KEYS + 2).collect()).await });
    // An entry is under way, and the rest waits for it.
    until("all keys are touched", || touched() >= before + KEYS).await;
    disks[&1].set(Fsync::Succeeds);
    let firsts = in_time("numbers of all keys", asking).await.expect("no panic").expect("numbers");
    assert!(firsts.iter().all(|first| *first == 1), "each key had no number before");
    let entries = counted(&cluster, 1).1 - entries_before;
    assert!(entries >= KEYS.div_ceil(ENTRY_KEYS), "{entries} log entries for {KEYS} keys");
}
