//! The cost of a snapshot of ten million sections for callers that go on asking for numbers. It takes
//! minutes and gigabytes, so that it runs only when it is asked for:
//!
//!     cargo test --test scenarios snapshot_scale -- --ignored --nocapture

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::common::{Client, cluster::Cluster, id, scale::fill};
use hdrhistogram::Histogram;
use ratchet::proto::v1::CreateNamespaceRequest;
use tokio::task::JoinSet;

/// How many sections the table holds (`SECTIONS` in the environment says otherwise).
const SECTIONS: u64 = 10_000_000;
/// How long is measured where nothing else happens.
const QUIET: Duration = Duration::from_secs(15);

/// The bytes that this process has written, as the system counts them.
fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").expect("an account of this process");
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.expect("a figure").parse().expect("a figure")
}

/// Calls that go on until they are asked how long they took.
struct Callers {
    stop: Arc<AtomicBool>,
    took: Arc<Mutex<[Histogram<u64>; 2]>>,
    tasks: JoinSet<()>,
}

impl Callers {
    /// `Next` for keys whose chunk suffices, and for keys each number of which must be committed.
    fn start(client: &Client) -> Callers {
        let empty = || Histogram::new(3).expect("a histogram");
        let mut callers = Callers {
            stop: Arc::default(),
            took: Arc::new(Mutex::new([empty(), empty()])),
            tasks: JoinSet::new(),
        };
        for caller in 0..8u64 {
            let (mut client, stop, took) =
                (client.clone(), callers.stop.clone(), callers.took.clone());
            callers.tasks.spawn(async move {
                let (kind, namespace) = [(0, "book"), (1, "one")][(caller % 2) as usize];
                while !stop.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    let answer = client.try_next(namespace, id(caller), 1).await;
                    answer.expect("an answer, snapshot or not");
                    let micros = asked.elapsed().as_micros() as u64;
                    took.lock().expect("a histogram")[kind].record(micros).expect("in range");
                }
            });
        }
        callers
    }

    async fn finish(mut self, what: &str) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no call failed");
        }
        let took = self.took.lock().expect("a histogram");
        for (kind, took) in ["Next", "Next with a commit"].iter().zip(&*took) {
            println!(
                "{what}: {kind}: {} calls, p50 {} us, p99 {} us, longest {} us",
                took.len(),
                took.value_at_quantile(0.5),
                took.value_at_quantile(0.99),
                took.max()
            );
        }
    }
}

/// Adds a learner, and waits until it has all that the leader has; how long that took.
async fn add(cluster: &mut Cluster, to: &mut Client, id: u64) -> Duration {
    let peer_address = cluster.start_joining(id, |_| {}).await;
    let goal = cluster.nodes[&1].context().group.membership.nodes();
    let goal = goal.iter().find_map(|node| node.applied_index);
    let started = Instant::now();
    to.add_node(id, peer_address).await.expect("it is added");
    let group = cluster.nodes[&id].context().group.clone();
    while group.membership.nodes().iter().all(|node| node.applied_index < goal) {
        assert!(started.elapsed() < Duration::from_secs(600), "no snapshot came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes and gigabytes: cargo test --test scenarios snapshot_scale -- --ignored --nocapture"]
async fn a_snapshot_of_ten_million_sections_does_not_disturb_those_who_ask() {
    let sections = std::env::var("SECTIONS").map_or(SECTIONS, |n| n.parse().expect("a number"));
    let mut cluster = Cluster::start(1, |_| {}).await;
    // A node that stops leaves its sections to the next term: this one could write none.
    cluster.crash(1).await;
    let (started, before) = (Instant::now(), written());
    fill(&cluster.configs[&1], sections).await;
    println!(
        "{sections} sections filled in within {:.1?}, {} MB written",
        started.elapsed(),
        (written() - before) >> 20
    );
    cluster.start_node(1).await;
    let mut client = cluster.client(1);
    client.next_at_last(0).await;
    let one = CreateNamespaceRequest {
        name: "one".into(),
        step: Some(1),
        ..CreateNamespaceRequest::default()
    };
    client.admin.create_namespace(one).await.expect("a namespace");
    for node in [2, 3] {
        let took = add(&mut cluster, &mut client, node).await;
        println!("node {node}, empty, had all after {took:.1?}");
        client.promote_node(node).await.expect("it votes");
    }
    let term = cluster.nodes[&1].context().group.leadership().borrow().term;

    let bumps = || cluster.nodes[&1].context().metrics.of_set(1).bumps.get();
    let (callers, before, bumped) = (Callers::start(&client), written(), bumps());
    tokio::time::sleep(QUIET).await;
    callers.finish("without a snapshot").await;
    println!(
        "without a snapshot: {} bytes written for each bump and node",
        (written() - before) / (bumps() - bumped) / 3
    );

    let (callers, before) = (Callers::start(&client), written());
    let took = add(&mut cluster, &mut client, 4).await;
    callers.finish("while one is sent").await;
    println!("while one is sent: {} MB written", (written() - before) >> 20);
    let metrics = &cluster.nodes[&1].context().metrics;
    println!(
        "node 4, empty, had all after {took:.1?}: a snapshot of {} MB in {:.1} s",
        metrics.of_set(1).snapshot_bytes.get() >> 20,
        metrics.of_set(1).snapshot_seconds.get()
    );
    assert_eq!(metrics.of_set(1).snapshot_failures.get(), 0);
    let now = cluster.nodes[&1].context().group.leadership().borrow().term;
    assert_eq!(now, term, "the leadership was given up meanwhile");
}
