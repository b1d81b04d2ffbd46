//! A node says that it is ready exactly while it can serve requests.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::common::{
    channel,
    cluster::Cluster,
    disk::{Disk, Fsync},
    eventually, http_get, in_time, other_than, with_metrics,
};
use prost::Message;
use prost_types::{FileDescriptorProto, FileDescriptorSet, ServiceDescriptorProto};
use ratchet::{
    clock::{BootClock, Clock, Instant},
    node::Seams,
    proto::PUBLIC_DESCRIPTORS,
};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tonic::transport::Channel;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

/// Asks a node whether it is ready.
struct Probe {
    health: HealthClient<Channel>,
    metrics: SocketAddr,
}

impl Probe {
    fn of(cluster: &Cluster, id: u64) -> Probe {
        let addresses = cluster.nodes[&id].addresses();
        Probe {
            health: HealthClient::new(channel(addresses.client)),
            metrics: addresses.metrics.expect("a metrics port"),
        }
    }

    /// Whether the node is ready by gRPC, and its answer over HTTP: the status and the text.
    async fn ask(&mut self) -> (bool, u16, String) {
        let request = HealthCheckRequest { service: "ratchet.v1.Sequencer".into() };
        let answer = self.health.check(request).await.expect("an answer");
        let serving = answer.into_inner().status() == ServingStatus::Serving;
        let page = http_get(self.metrics, "/readyz").await;
        (serving, page.status, page.body)
    }

    /// Waits until both say that the node is ready, or that it is not; answers the text.
    async fn until(&mut self, ready: bool) -> String {
        let code = if ready { 200 } else { 503 };
        eventually("readiness by gRPC and HTTP", async || {
            let (serving, answered, text) = self.ask().await;
            (serving == ready && answered == code).then_some(text)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_does_not_hear_the_leader_is_not_ready() {
    let cluster = Cluster::start(3, with_metrics).await;
    let leader = cluster.leader().await;
    let follower = other_than(leader);
    let mut probe = Probe::of(&cluster, follower);
    probe.until(true).await;
    cluster.cut_off(follower);
    let why = probe.until(false).await;
    assert!(why.contains(&format!("node {follower} is not ready")), "{why}");
    let alive = http_get(probe.metrics, "/livez").await;
    assert_eq!(alive.status, 200, "a restart would not help");
    cluster.mend();
    probe.until(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_lease_has_run_out_is_not_ready() {
    let cluster = Cluster::start(3, with_metrics).await;
    let leader = cluster.leader().await;
    let mut probe = Probe::of(&cluster, leader);
    probe.until(true).await;
    cluster.cut_off(leader);
    probe.until(false).await;
    cluster.mend();
    probe.until(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_is_told_of_each_change_of_readiness() {
    let cluster = Cluster::start(3, with_metrics).await;
    let leader = cluster.leader().await;
    let follower = other_than(leader);
    let mut probe = Probe::of(&cluster, follower);
    probe.until(true).await;
    let mut health = probe.health;
    // The second watcher comes when the first one is gone.
    for _ in 0..2 {
        let request = HealthCheckRequest::default();
        let mut told = health.watch(request).await.unwrap().into_inner();
        let mut last = None;
        // On a slow machine the follower may not hear the leader for a moment, and is told of that as well.
        let mut next = async |wanted: ServingStatus| {
            while last != Some(wanted) {
                let said = in_time("a change of readiness", told.message()).await;
                let said = said.expect("no error").expect("no end").status();
                assert_ne!(last, Some(said), "it is no change");
                last = Some(said);
            }
        };
        next(ServingStatus::Serving).await;
        cluster.cut_off(follower);
        next(ServingStatus::NotServing).await;
        cluster.mend();
        next(ServingStatus::Serving).await;
    }
}

/// Counts how often it is read.
#[derive(Default)]
struct CountingClock(AtomicU64);

impl Clock for CountingClock {
    fn now(&self) -> Instant {
        self.0.fetch_add(1, Ordering::Relaxed);
        BootClock.now()
    }

    fn wall_ms(&self) -> u64 {
        BootClock.wall_ms()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_watchers_cost_no_more_than_one() {
    const WATCHERS: u64 = 200;
    let clock = Arc::new(CountingClock::default());
    let mut cluster = Cluster::configured(1, with_metrics);
    let seams = Seams { clock: clock.clone(), ..cluster.seams(1) };
    cluster.start_node_with(1, seams).await;
    cluster.found().await;
    cluster.client(1).next_at_last(1).await;
    let mut probe = Probe::of(&cluster, 1);
    probe.until(true).await;
    let health = probe.health;
    let mut watching = Vec::new();
    for _ in 0..WATCHERS {
        let told = health.clone().watch(HealthCheckRequest::default()).await.unwrap();
        let mut told = told.into_inner();
        let first = in_time("the first word", told.message()).await.unwrap().unwrap();
        assert_eq!(first.status(), ServingStatus::Serving);
        watching.push(told);
    }
    // The readiness is worked out from the clock, when the leader's silence ends it.
    let (before, began) = (clock.0.load(Ordering::Relaxed), BootClock.now());
    let heartbeat = Duration::from_millis(cluster.configs[&1].heartbeat_ms);
    tokio::time::sleep(heartbeat * 10).await;
    let reads = clock.0.load(Ordering::Relaxed) - before;
    // On a busy machine that took longer.
    let intervals = BootClock.now().since(began).as_secs_f64() / heartbeat.as_secs_f64();
    let each = reads as f64 / intervals;
    assert!(each < WATCHERS as f64 / 10.0, "{each} reads of the clock in a heartbeat interval");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_is_not_ready_before_it_hands_over() {
    let disk = Disk::default();
    let mut cluster = Cluster::configured(1, with_metrics);
    let mut seams = cluster.seams(1);
    seams.storage = disk.under(&seams.storage);
    cluster.start_node_with(1, seams).await;
    cluster.found().await;
    cluster.client(1).next_at_last(1).await;
    let mut probe = Probe::of(&cluster, 1);
    probe.until(true).await;
    // The node cannot complete its handover: its log entry does not reach the disk.
    disk.set(Fsync::Hangs);
    let node = cluster.nodes.remove(&1).unwrap();
    let shared = node.context().clone();
    let stopping = tokio::spawn(node.stop());
    let why = probe.until(false).await;
    assert!(why.contains("it stops"), "{why}");
    // A sole voter's lease never ends, so the lease is not the reason.
    assert!(shared.group.leadership().borrow().own.is_some());
    assert!(!stopping.is_finished(), "it still hands over");
    disk.set(Fsync::Succeeds);
    let stopped = in_time("the end of the node", stopping).await;
    stopped.expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_service_of_the_api_can_be_checked_and_an_unknown_one_is_told_their_names() {
    let cluster = Cluster::start(1, with_metrics).await;
    let mut health = Probe::of(&cluster, 1).health;
    let request = HealthCheckRequest { service: "book".into() };
    let refused = health.check(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::NotFound);
    let api = FileDescriptorSet::decode(PUBLIC_DESCRIPTORS).expect("the build wrote them");
    let of_file = |file: &FileDescriptorProto| {
        let name =
            |service: &ServiceDescriptorProto| format!("{}.{}", file.package(), service.name());
        file.service.iter().map(name).collect::<Vec<_>>()
    };
    let services: Vec<String> = api.file.iter().flat_map(of_file).collect();
    assert!(services.contains(&"ratchet.v1.Access".to_owned()), "{services:?}");
    for service in services {
        assert!(refused.message().contains(&service), "{service} is not in {refused}");
        health.check(HealthCheckRequest { service }).await.expect("an answer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_answered_however_many_connections_others_hold() {
    let cluster = Cluster::start(1, with_metrics).await;
    let at = cluster.nodes[&1].addresses().metrics.expect("a port");
    let mut held = Vec::new();
    for _ in 0..50 {
        for says in [&b""[..], b"GET /live", b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"] {
            let mut stream = TcpStream::connect(at).await.expect("a connection");
            // Some have made room for others already.
            let _ = stream.write_all(says).await;
            held.push(stream);
        }
    }
    for _ in 0..3 {
        assert_eq!(http_get(at, "/readyz").await.status, 200);
    }
}
