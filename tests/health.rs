//! A node says that it is ready exactly while requests are well sent to it.

mod common;

use std::{
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use common::{PATIENCE, http_get, links::Cluster};
use ratchet::{node::Config, storage::StoreOptions};
use tonic::transport::Channel;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

fn with_probes(config: &mut Config) {
    config.metrics_listen = Some((config.listen.ip(), 0).into());
}

/// What asks a node how it does.
struct Probe {
    health: HealthClient<Channel>,
    metrics: SocketAddr,
}

impl Probe {
    fn of(cluster: &Cluster, id: u64) -> Probe {
        let addresses = cluster.nodes[&id].addresses();
        Probe {
            health: HealthClient::new(common::channel(addresses.client)),
            metrics: addresses.metrics.expect("a metrics port"),
        }
    }

    /// Whether the node is ready, by gRPC and by HTTP; and the text of the latter.
    async fn ask(&mut self) -> (bool, u16, String) {
        let request = HealthCheckRequest {
            service: "ratchet.v1.Sequencer".into(),
        };
        let answer = self.health.check(request).await.expect("an answer");
        let serving = answer.into_inner().status() == ServingStatus::Serving;
        let (code, text) = http_get(self.metrics, "/readyz").await;
        (serving, code, text)
    }

    /// Waits until both say that the node is ready, or that it is not; answers why.
    async fn until(&mut self, ready: bool) -> String {
        let code = if ready { 200 } else { 503 };
        let asking = async {
            loop {
                let (serving, answered, text) = self.ask().await;
                if serving == ready && answered == code {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asking)
            .await
            .expect("readiness")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_does_not_hear_the_leader_is_not_ready() {
    let cluster = Cluster::start(3, with_probes).await;
    let leader = cluster.leader().await;
    let follower = leader % 3 + 1;
    let mut probe = Probe::of(&cluster, follower);
    probe.until(true).await;
    cluster.cut_off(follower);
    let why = probe.until(false).await;
    assert!(
        why.contains(&format!("node {follower} is not ready")),
        "{why}"
    );
    let (code, _) = http_get(probe.metrics, "/livez").await;
    assert_eq!(code, 200, "it is not to be restarted for that");
    cluster.mend();
    probe.until(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_lease_has_run_out_is_not_ready() {
    let cluster = Cluster::start(3, with_probes).await;
    let leader = cluster.leader().await;
    let mut probe = Probe::of(&cluster, leader);
    probe.until(true).await;
    cluster.cut_off(leader);
    probe.until(false).await;
    cluster.mend();
    probe.until(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_is_told_of_each_change() {
    let cluster = Cluster::start(3, with_probes).await;
    let leader = cluster.leader().await;
    let follower = leader % 3 + 1;
    let mut health = Probe::of(&cluster, follower).health;
    let request = HealthCheckRequest::default();
    let mut told = health.watch(request).await.unwrap().into_inner();
    let mut next = async || {
        let said = tokio::time::timeout(PATIENCE, told.message()).await;
        let said = said.expect("in time").expect("a stream");
        said.expect("it goes on").status()
    };
    assert_eq!(next().await, ServingStatus::Serving);
    cluster.cut_off(follower);
    assert_eq!(next().await, ServingStatus::NotServing);
    cluster.mend();
    assert_eq!(next().await, ServingStatus::Serving);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_is_not_ready_before_it_hands_over() {
    // Nothing it logs gets to its disk any more, so that it cannot get on with giving back.
    let hangs = Arc::new((Mutex::new(false), Condvar::new()));
    let set = |hanging: bool| {
        *hangs.0.lock().unwrap() = hanging;
        hangs.1.notify_all();
    };
    let mut cluster = Cluster::configured(1, with_probes);
    let mut seams = cluster.seams(1);
    let disk = hangs.clone();
    seams.storage = StoreOptions {
        before_sync: Arc::new(move || {
            let hanging = disk.0.lock().unwrap();
            drop(disk.1.wait_while(hanging, |hanging| *hanging).unwrap());
            Box::pin(std::future::ready(Ok(())))
        }),
        ..seams.storage
    };
    let config = cluster.configs[&1].clone();
    let node = ratchet::server::start(config, seams).await.unwrap();
    cluster.nodes.insert(1, node);
    cluster.client(1).next_at_last(1).await;
    let mut probe = Probe::of(&cluster, 1);
    probe.until(true).await;
    set(true);
    let node = cluster.nodes.remove(&1).unwrap();
    let shared = node.context().clone();
    let stopping = tokio::spawn(node.stop());
    let why = probe.until(false).await;
    assert!(why.contains("it stops"), "{why}");
    // A sole voter's lease never ends: it is not for want of one that the node is not ready.
    assert!(shared.group.leadership().borrow().own.is_some());
    assert!(!stopping.is_finished(), "it still hands over");
    set(false);
    tokio::time::timeout(PATIENCE, stopping)
        .await
        .expect("it stops")
        .expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_an_unknown_service_is_told_which_there_are() {
    let cluster = Cluster::start(1, with_probes).await;
    let request = HealthCheckRequest {
        service: "book".into(),
    };
    let refused = Probe::of(&cluster, 1).health.check(request).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::NotFound);
    assert!(
        refused.message().contains("ratchet.v1.Sequencer"),
        "{refused}"
    );
}
