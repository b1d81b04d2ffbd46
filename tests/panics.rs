//! When a part of a node panics, the node stops and says which part it was.

use std::{
    backtrace::Backtrace,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::common::{cluster::Cluster, in_time, other_than};
use ratchet::{
    clock::{BootClock, Clock, Instant},
    node::{Node, Seams},
    storage::StoreOptions,
    tasks::Fault,
};

/// Panics once it is armed.
#[derive(Clone, Default)]
struct Bug(Arc<AtomicBool>);

impl Bug {
    fn arm(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_armed(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    fn bite(&self) {
        assert!(!self.is_armed(), "planted_bugs");
    }
}

/// A clock that panics on demand when the bumper reads it. Other parts of a node read it, too, now and then.
struct BuggyClock(Bug);

impl Clock for BuggyClock {
    fn now(&self) -> Instant {
        if self.0.is_armed() && Backtrace::force_capture().to_string().contains("bumper.rs") {
            self.0.bite();
        }
        BootClock.now()
    }

    fn wall_ms(&self) -> u64 {
        BootClock.wall_ms()
    }
}

/// Waits until the node fails, and checks that it names the part which panicked.
async fn assert_fails_by(node: &Node, part: &str) {
    let fault = in_time("the failure of the node", node.failed()).await;
    match &fault {
        Fault::Panic { task, message } => {
            assert_eq!(*task, part, "{fault}");
            assert!(message.contains("planted_bugs"), "{fault}");
        }
        Fault::NeedsRestart(_) | Fault::CannotGoOn(_) => panic!("another fault: {fault}"),
    }
}

/// Starts a cluster of one, and checks that it fails by `part` when a bump meets the bug.
async fn assert_a_bump_fails_it(mut cluster: Cluster, seams: Seams, bug: &Bug, part: &str) {
    cluster.start_node_with(1, seams).await;
    cluster.found().await;
    cluster.client(1).next_at_last(1).await;
    bug.arm();
    // A fresh key: its call waits for the bumper, and reads the clock only afterwards. It waits as long as the test does: a
    // call that is given up before the node begins with it asks for no bump.
    let mut client = cluster.client(1);
    let asked = tokio::spawn(async move { client.next(2).await });
    assert_fails_by(&cluster.nodes[&1], part).await;
    // The node still runs, as one of production would not, and nobody ends the call.
    asked.abort();
    if let Ok(answer) = asked.await {
        answer.expect_err("no number without a bump");
    }
    let mut client = cluster.client(1).patient(Duration::from_secs(1));
    client.next(2).await.expect_err("no number without a bump");
    cluster.crash(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_while_the_cluster_is_founded_fails_the_node() {
    let mut cluster = Cluster::configured(3, |_| {});
    let bug = Bug::default();
    bug.arm();
    let mut transport = cluster.transport(1);
    transport.on_greeting = Box::new(move |_| bug.bite());
    let seams = cluster.seams_with(transport);
    cluster.start_node_with(1, seams).await;
    let founded = cluster.client(1).found().await;
    assert_eq!(founded.expect_err("no answer").code(), tonic::Code::Internal);
    assert_fails_by(&cluster.nodes[&1], "founding").await;
    cluster.crash(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_one_of_rafts_own_tasks_fails_the_node_and_the_others_go_on() {
    let mut cluster = Cluster::configured(3, |_| {});
    let bugs: Vec<Bug> = (0..3).map(|_| Bug::default()).collect();
    for id in 1..=3 {
        let bug = bugs[id as usize - 1].clone();
        let mut transport = cluster.transport(id);
        transport.on_raft = Box::new(move || bug.bite());
        let seams = cluster.seams_with(transport);
        cluster.start_node_with(id, seams).await;
    }
    cluster.found().await;
    cluster.client(1).next_at_last(1).await;
    let leader = cluster.leader().await;
    bugs[leader as usize - 1].arm();
    assert_fails_by(&cluster.nodes[&leader], "raft").await;
    cluster.crash(leader).await;
    let other = other_than(leader);
    cluster.client(other).next_at_last(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_bumper_fails_the_node() {
    let cluster = Cluster::configured(1, |_| {});
    let bug = Bug::default();
    let mut seams = cluster.seams(1);
    seams.clock = Arc::new(BuggyClock(bug.clone()));
    assert_a_bump_fails_it(cluster, seams, &bug, "bumper").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_writer_of_the_log_fails_the_node() {
    let cluster = Cluster::configured(1, |_| {});
    let bug = Bug::default();
    let mut seams = cluster.seams(1);
    let in_sync = bug.clone();
    seams.storage = StoreOptions {
        before_sync: Arc::new(move || {
            in_sync.bite();
            Box::pin(ready(Ok(())))
        }),
        ..seams.storage
    };
    assert_a_bump_fails_it(cluster, seams, &bug, "syncer of the log").await;
}
