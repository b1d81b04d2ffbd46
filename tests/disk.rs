//! A node whose disk fails, hangs, or goes back in time does no harm, and names its fault.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use crate::common::{
    Client, PATIENCE,
    cluster::Cluster,
    disk::{Disk, Fsync, on_disks},
    eventually,
    history::Load,
    http, id, in_time, is_late, other_than,
    power::copy_all,
    until, with_http,
};
use ratchet::{
    allocator::{FenceKind, GaplessLimits, MemoryLimits, Term, TermOptions, Why},
    clock::BootClock,
    metrics::{HandoverEnd, Metrics},
    sequence::Key,
};

/// Three nodes, each with a disk of its own.
async fn cluster() -> (Cluster, BTreeMap<u64, Disk>) {
    on_disks(3, |_| {}).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_fsync_fails_stops_and_the_others_go_on() {
    let (cluster, disks) = cluster().await;
    let leader = cluster.leader().await;
    let other = other_than(leader);
    let load = Load::start(&[cluster.address(other)], 4, 2);
    load.answers(50).await;
    disks[&leader].set(Fsync::Fails);
    // A key that nobody has asked for needs a bump, and so the disk.
    let mut client = cluster.client(other);
    let asking = tokio::spawn(async move { client.next_at_last(4_711).await });
    let fault = in_time("the leader stops", cluster.nodes[&leader].failed()).await;
    let reason = fault.to_string();
    for part in ["000009.log", cluster.data_dir(leader).to_str().unwrap(), "must stop"] {
        assert!(reason.contains(part), "{part:?} is not in {reason}");
    }
    cluster.leader_seen_by(other, |new| new != leader).await;
    asking.await.unwrap();
    load.answers(50).await;
    load.finish().await.assert_strictly_increasing();
}

#[tokio::test(flavor = "multi_thread")]
async fn disks_that_hang_everywhere_hold_up_no_key_that_has_numbers_and_end_no_term() {
    let (cluster, disks) = cluster().await;
    let leader = cluster.leader().await;
    let other = other_than(leader);
    let mut warm = cluster.client(other);
    warm.next_at_last(1).await;
    let term = cluster.nodes[&leader].context().group.term();
    disks.values().for_each(|disk| disk.set(Fsync::Hangs));
    let mut client = cluster.client(other);
    let cold = tokio::spawn(async move { client.next_at_last(4_711).await });
    until("all disks hang", || disks.values().all(|disk| disk.hanging() > 0)).await;
    // A leader whose disk alone hangs is followed for 12 s with such timeouts.
    let hanging_since = Instant::now();
    while hanging_since.elapsed() < Duration::from_secs(15) {
        warm.next(1).await.expect("a number from memory");
        // So many numbers are enough; the step is to last.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!cold.is_finished(), "a bump waits for the disks");
    assert_eq!(cluster.nodes[&leader].context().group.term(), term);
    disks.values().for_each(|disk| disk.set(Fsync::Succeeds));
    in_time("the key that was cold", cold).await.unwrap();
    assert_eq!(cluster.leader().await, leader);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_namespace_that_the_disk_holds_up_is_told_to_go_on_before_its_deadline() {
    let (cluster, disks) = on_disks(1, with_http).await;
    let mut client = cluster.client(1);
    client.next_at_last(1).await;
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    disks[&1].set(Fsync::Hangs);
    for (what, body) in [
        ("POST /v1/namespaces", r#"{"name": "new"}"#),
        ("PATCH /v1/namespaces/book", r#"{"description": "of books"}"#),
        ("DELETE /v1/namespaces/book?confirm=book", ""),
    ] {
        let page = http(address, what, "ratchet-timeout-ms: 2000\r\n", body).await;
        assert_eq!(page.status, 504, "{what}: {}", page.body);
        assert!(page.body.contains("ONGOING"), "{what}: {}", page.body);
    }
    disks[&1].set(Fsync::Succeeds);
    eventually("the changes are made", async || {
        let is_there = async |name: &str| {
            http(address, &format!("GET /v1/namespaces/{name}"), "", "").await.status == 200
        };
        (is_there("new").await && !is_there("book").await).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_disk_hangs_hands_its_memory_to_one_whose_disk_is_quick() {
    let (cluster, disks) = cluster().await;
    let leader = cluster.leader().await;
    let other = other_than(leader);
    let metrics = &cluster.nodes[&leader].context().metrics;
    let before = metrics.of_set(1).handovers.get(HandoverEnd::memory);
    let load = Load::start(&[cluster.address(other)], 4, 2);
    load.answers(50).await;
    disks[&leader].set(Fsync::Hangs);
    let mut client = cluster.client(other);
    let asking = tokio::spawn(async move { client.next_at_last(4_711).await });
    cluster.leader_seen_by(other, |new| new != leader).await;
    assert_eq!(
        metrics.of_set(1).handovers.get(HandoverEnd::memory),
        before + 1,
        "no number is skipped"
    );
    asking.await.unwrap();
    load.answers(50).await;
    disks[&leader].set(Fsync::Succeeds);
    load.finish().await.assert_strictly_increasing();
    cluster.client(leader).next_at_last(4_711).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_disk_hangs_hands_over_and_stops_all_the_same() {
    let (mut cluster, disks) = cluster().await;
    let leader = cluster.leader().await;
    let mut client = cluster.client(leader);
    let hanging = disks[&leader].hang_then(Fsync::Succeeds);
    // A key that nobody has asked for needs a bump, and so the disk.
    let asking = tokio::spawn(async move { client.next(4_711).await });
    let health = cluster.nodes[&leader].context().this_node.store.health();
    until("a write hangs", || disks[&leader].hanging() > 0).await;
    let node = cluster.nodes.remove(&leader).expect("it runs");
    in_time("the end of the node", node.stop()).await;
    assert!(health.oldest_pending().is_some(), "its disk still hangs");
    cluster.client(other_than(leader)).next_at_last(4_711).await;
    drop(hanging);
    let _whatever_came_of_it = asking.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_in_a_term_fails_when_the_term_is_given_up_although_its_bump_hangs() {
    let (cluster, disks) = cluster().await;
    let leader = cluster.leader().await;
    let shared = cluster.nodes[&leader].context();
    let lease = shared.group.leadership().borrow().own.clone();
    let lease = lease.expect("it leads");
    let term = Term::open(
        shared.group.clone(),
        lease.clone(),
        1,
        None,
        TermOptions {
            fence: FenceKind::Lease,
            memory: MemoryLimits::default(),
            gapless: GaplessLimits { keep: Duration::from_secs(1), bytes_max: 1, count_max: 1_000 },
        },
        Arc::new(BootClock),
        Metrics::new(),
    );
    let namespace = shared.group.view.namespaces().by_name("book").cloned();
    let namespace = namespace.expect("a fresh cluster has books");
    disks.values().for_each(|disk| disk.set(Fsync::Hangs));
    let deadline = tokio::time::Instant::now() + 4 * PATIENCE;
    let mut waiting = std::pin::pin!(term.next(&namespace, Key::Id(4_711), 1, deadline));
    assert!(futures::poll!(&mut waiting).is_pending());
    lease.void();
    let told = in_time("an answer long before the deadline", waiting).await;
    assert!(matches!(told, Err(Why::AskLeader)), "{told:?}");
    disks.values().for_each(|disk| disk.set(Fsync::Succeeds));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_an_older_copy_of_its_directory_is_refused_and_harms_nobody() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let victim = other_than(leader);
    let dir = cluster.data_dir(victim).to_owned();
    let older = dir.with_file_name("older");

    cluster.crash(victim).await;
    copy_all(&dir, &older).unwrap();
    cluster.start_node(victim).await;
    // First touches of keys: each is an entry in the log.
    for key in 100..120 {
        cluster.client(victim).next_at_last(key).await;
    }
    cluster.caught_up(leader, victim).await;

    cluster.crash(victim).await;
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::rename(&older, &dir).unwrap();
    // On a slow machine a leader may be lost just then: the node tries again.
    let leader = eventually("a leader that leads on", async || {
        let leader = cluster.leader().await;
        let refused = cluster.try_start(victim, cluster.seams(victim)).await;
        let error = refused.err().expect("an older copy must not vote");
        let error = error.to_string();
        for named in ["older copy", "ratchet node remove", &format!("node {victim}")] {
            assert!(error.contains(named), "{error}");
        }
        (cluster.leader().await == leader).then_some(leader)
    })
    .await;
    cluster.client(leader).next_at_last(100).await;
}

#[test]
fn current_of_a_cold_key_waits_for_a_disk_that_hangs_and_holds_up_no_other_call() {
    const DISK_THREADS: usize = 2;
    let nodes = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(DISK_THREADS)
        .enable_all()
        .build()
        .unwrap();
    let cluster = nodes.block_on(Cluster::start(1, |_| {}));
    let callers = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let patient = callers.block_on(async { Client::new(cluster.address(1)) });
    let hurried = patient.clone().patient(Duration::from_millis(200));
    let first = callers.block_on(patient.clone().next(1)).unwrap();

    // Occupies every thread that may wait for the disk.
    let (is_there, there) = mpsc::channel();
    let waiting: Vec<mpsc::Sender<()>> = (0..DISK_THREADS)
        .map(|_| {
            let (let_go, wait) = mpsc::channel();
            let is_there = is_there.clone();
            nodes.spawn_blocking(move || {
                is_there.send(()).unwrap();
                // The wait ends with the sender.
                let _ = wait.recv();
            });
            let_go
        })
        .collect();
    for _ in 0..DISK_THREADS {
        there.recv_timeout(PATIENCE).unwrap();
    }
    let cold = callers.block_on(hurried.clone().current("book", id(2))).unwrap_err();
    assert!(is_late(&cold), "{cold}");
    let warm = callers.block_on(patient.clone().current("book", id(1)));
    assert_eq!(warm.unwrap(), Some(first));
    let next = callers.block_on(patient.clone().next(1));
    assert_eq!(next.unwrap(), first + 1);

    drop(waiting);
    let cold = callers.block_on(patient.clone().current("book", id(2)));
    assert_eq!(cold.unwrap(), None);
    nodes.block_on(async move { drop(cluster) });
}
