//! Each alert fires in a cluster that is really broken, and is quiet once it is mended. The rules have shorter times here, so
//! that this takes seconds ([`hasty`](super::server::hasty)).

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use super::{
    dashboards, queries,
    server::{JOB, Prometheus},
};
use crate::common::{
    PATIENCE,
    certificates::{Certificates, connect_with},
    cluster::Cluster,
    disk::{Disk, Fsync, on_disks},
    eventually, http, http2, id, in_time, others,
    processes::{Processes, run},
    rust_client::{client_of, create_with_format},
    until, with_http, with_metrics,
    wrong_clock::restart_with_clock,
};
use futures::future::join_all;
use ratchet::{
    node::{Asker, CheckedRequest, Config, Origin},
    proto::v1::{CreateNamespaceRequest, NextManyRequest, UpdateNamespaceRequest},
};
use tempfile::TempDir;
use tokio::{io::AsyncReadExt, time::Instant};
use tokio_rustls::rustls::ALL_VERSIONS;
use tokio_util::task::AbortOnDropHandle;

/// Where the nodes of a cluster tell their metrics.
fn metrics(cluster: &Cluster) -> Vec<SocketAddr> {
    let nodes = cluster.nodes.values();
    nodes.map(|node| node.addresses().metrics.expect("a metrics port")).collect()
}

/// `n` nodes, each with a disk of its own, of which a gigabyte should stay free.
async fn with_room(n: u64, change: impl Fn(&mut Config)) -> (Cluster, BTreeMap<u64, Disk>) {
    on_disks(n, |config| {
        with_metrics(config);
        config.disk_reserve_mb = 1_000;
        change(config);
    })
    .await
}

/// Asks this node for numbers all the time, until the answer is dropped. No call waits for longer than some tenths of a second.
fn callers(at: SocketAddr) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let next = "POST /v1/namespaces/book/keys/1:next";
            http(at, next, "ratchet-timeout-ms: 300\r\n", "").await;
            // The machine has other things to do.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }))
}

/// Takes numbers of keys that nobody asked for before, so that each needs a log entry, until the answer is dropped.
fn new_keys(cluster: &Cluster, node: u64) -> AbortOnDropHandle<()> {
    let mut client = cluster.client(node);
    AbortOnDropHandle::new(tokio::spawn(async move {
        for key in 1_000_000.. {
            client.next(key).await.expect("a number");
        }
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_killed_and_a_leader_that_is_stopped_are_told_until_all_run_again() {
    let one_is_gone = ["RatchetNodeDown", "RatchetMemberSilent", "RatchetMajorityAtRisk"];
    let nobody_leads = ["RatchetNoLeader", "RatchetNoNumbers", "RatchetCallsFail"];
    let mut cluster = Processes::start(3, &[]).await;
    let nodes: Vec<_> = cluster.places.values().map(|place| place.metrics_listen).collect();
    let prometheus = Prometheus::start(nodes).await;
    prometheus.are_quiet(&one_is_gone).await;
    prometheus.are_quiet(&nobody_leads).await;

    let killed = others(cluster.leader().await)[0];
    cluster.kill(killed);
    prometheus.fire("one of three nodes is killed", &one_is_gone).await;
    let panels = queries(&dashboards()["ratchet.json"]);
    let (_, query) = panels.iter().find(|(panel, _)| panel == "Alerts").expect("a panel");
    for alert in one_is_gone {
        eventually(&format!("{alert} is shown"), async || {
            let shown = prometheus.query(&query.replace("$job", JOB)).await.expect("an answer");
            shown.contains_key(&format!("{{\"alertname\":\"{alert}\"}}")).then_some(())
        })
        .await;
    }

    let leader = cluster.leader().await;
    let asked = others(leader).into_iter().find(|node| *node != killed).expect("the third node");
    let asking = callers(cluster.places[&asked].http_listen);
    cluster.pause(leader);
    prometheus.fire("the leader of the two nodes that are left is stopped", &nobody_leads).await;

    cluster.resume(leader);
    prometheus.are_quiet(&nobody_leads).await;
    drop(asking);
    cluster.spawn(killed);
    prometheus.are_quiet(&one_is_gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leadership_that_goes_from_node_to_node_is_told_until_it_stays() {
    let cluster = Processes::start(3, &[]).await;
    let nodes: Vec<_> = cluster.places.values().map(|place| place.metrics_listen).collect();
    let prometheus = Prometheus::start(nodes).await;
    prometheus.are_quiet(&["RatchetLeaderFlaps"]).await;
    let transfer = async || {
        // On a slow machine the other node may take over too late: then once more.
        let _ = cluster.client(cluster.leader().await).transfer(None).await;
    };
    let cause = "the leadership is handed over again and again";
    prometheus.fires_while(cause, "RatchetLeaderFlaps", transfer).await;
    prometheus.are_quiet(&["RatchetLeaderFlaps"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_slow_and_one_that_hangs_are_told_until_they_are_quick() {
    // In memory: the disk of a busy machine is slow by itself.
    let memory = TempDir::new_in("/dev/shm").expect("a directory in memory");
    let in_memory = |config: &mut Config| {
        config.data_dir = memory.path().join(config.node_id.to_string());
    };
    let (cluster, disks) = with_room(3, in_memory).await;
    let prometheus = Prometheus::start(metrics(&cluster)).await;
    prometheus.are_quiet(&["RatchetSlowDisk", "RatchetMemberFallsBehind"]).await;
    let leader = cluster.leader().await;
    let [slow, hung] = others(leader);
    let _load = new_keys(&cluster, leader);

    let slow_down = async || {
        let hanging = disks[&slow].hang_then(Fsync::Succeeds);
        // So long an fsync takes.
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(hanging);
        until("the fsync ends", || disks[&slow].hanging() == 0).await;
    };
    let cause = "each fsync of a follower takes 0.3 s";
    prometheus.fires_while(cause, "RatchetSlowDisk", slow_down).await;
    prometheus.are_quiet(&["RatchetSlowDisk"]).await;

    let hanging = disks[&hung].hang_then(Fsync::Succeeds);
    prometheus.fire("the disk of a follower hangs", &["RatchetMemberFallsBehind"]).await;
    drop(hanging);
    prometheus.are_quiet(&["RatchetMemberFallsBehind"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fills_up_is_told_until_it_has_room() {
    let full = ["RatchetDiskNearlyFull", "RatchetNewKeysRefused", "RatchetLogOutgrowsDisk"];
    let (cluster, disks) = with_room(1, |_| {}).await;
    let prometheus = Prometheus::start(metrics(&cluster)).await;
    prometheus.are_quiet(&full).await;
    // Twice as much should be free.
    disks[&1].set_free_mb(1_500);
    prometheus.fire("a disk has one and a half times its reserve left", &full[..1]).await;
    disks[&1].set_free_mb(0);
    prometheus.fire("a disk is full", &full).await;
    disks[&1].set_free_mb(1 << 20);
    prometheus.are_quiet(&full).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_differ_are_told_until_they_agree() {
    let wrong_clocks = ["RatchetClockDoubted", "RatchetClocksDiffer"];
    let mut cluster = Cluster::start(3, with_metrics).await;
    let nodes = others(cluster.leader().await).map(|node| (node, Arc::new(AtomicI64::new(0))));
    for (node, off) in &nodes {
        restart_with_clock(&mut cluster, *node, off).await;
        cluster.all_answer().await;
    }
    let orders = client_of(&cluster, &[1, 2, 3]);
    create_with_format(&orders, "orders", "bits zero:1=0 time-ms:48 worker:1 sequence:12").await;
    let prometheus = Prometheus::start(metrics(&cluster)).await;
    prometheus.are_quiet(&wrong_clocks).await;
    prometheus.are_quiet(&["RatchetIdsRefused"]).await;
    // All three show other times: nobody is believed.
    let [(wrong, off), (_, other_off)] = &nodes;
    off.store(86_400_000, Ordering::SeqCst);
    other_off.store(3_600_000, Ordering::SeqCst);
    tokio::join!(
        cluster.lead(*wrong),
        prometheus.fire("the clocks of three nodes show three times", &wrong_clocks)
    );
    let ask_for_a_worker_id = async || {
        orders.lease_worker("orders", "a").await.expect_err("no time is believed");
    };
    let cause = "callers ask such nodes for a worker id";
    prometheus.fires_while(cause, "RatchetIdsRefused", ask_for_a_worker_id).await;
    off.store(0, Ordering::SeqCst);
    other_off.store(0, Ordering::SeqCst);
    let [doubted, differ] = wrong_clocks;
    prometheus.are_quiet(&[doubted, differ, "RatchetIdsRefused"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_ends_soon_is_told_until_it_is_renewed() {
    let certificates = Certificates::new();
    let mut cluster = Processes::configured(1, &[]);
    let host = cluster.places[&1].listen.ip().to_string();
    certificates.node(1, &host, &["--days", "1"]);
    cluster.own_flags.insert(1, certificates.client_flags(1, "accept"));
    cluster.spawn(1);
    let mut client = cluster.client(1);
    eventually("the cluster is founded", async || client.found().await.ok()).await;
    let prometheus = Prometheus::start([cluster.places[&1].metrics_listen]).await;
    prometheus.fire("a certificate ends within a day", &["RatchetCertificateEndsSoon"]).await;

    certificates.node(1, &host, &["--replace"]);
    let reloaded = run(&["reload", "--server", &cluster.socket(1)]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    prometheus.are_quiet(&["RatchetCertificateEndsSoon"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_are_refused_are_told_until_they_are_not() {
    let cluster = Cluster::start(1, |config| {
        with_metrics(config);
        with_http(config);
        (config.memory_max_mb, config.client_connections_max) = (1, 64);
    })
    .await;
    let refused = [
        "RatchetCallsRefused",
        "RatchetConnectionsRefused",
        "RatchetLoginsRefused",
        "RatchetWorkerIdsRunOut",
        "RatchetKeyMemoryFull",
    ];
    let prometheus = Prometheus::start(metrics(&cluster)).await;
    prometheus.are_quiet(&refused).await;

    let mut client = cluster.client(1);
    let ask_for_nothing = async || {
        client.try_next("none", id(1), 1).await.expect_err("there is no such namespace");
    };
    let cause = "callers ask for a namespace that is not there";
    prometheus.fires_while(cause, "RatchetCallsRefused", ask_for_nothing).await;
    // The next cause may have an earlier alert fire again. So each is seen to be quiet while the next cause begins.

    let address = cluster.address(1);
    let connect_often =
        async || drop(join_all((0..64).map(|_| http2::connect_from_elsewhere(address))).await);
    let cause = "there are more connections than places for them";
    tokio::join!(
        prometheus.are_quiet(&["RatchetCallsRefused"]),
        prometheus.fires_while(cause, "RatchetConnectionsRefused", connect_often)
    );

    let at = cluster.nodes[&1].addresses().http.expect("a port");
    let show_a_token = async || {
        let answer = http(at, "GET /v1/namespaces", "Authorization: Bearer none\r\n", "").await;
        assert_eq!(answer.status, 401, "{}", answer.body);
    };
    let cause = "a caller shows a token that is worth nothing";
    tokio::join!(
        prometheus.are_quiet(&["RatchetConnectionsRefused"]),
        prometheus.fires_while(cause, "RatchetLoginsRefused", show_a_token)
    );

    let orders = client_of(&cluster, &[1]);
    create_with_format(&orders, "orders", "bits zero:1=0 time-ms:48 worker:1 sequence:12").await;
    for holder in ["a", "b"] {
        orders.lease_worker("orders", holder).await.expect("a worker id");
    }
    let lease_a_third = async || {
        // The two leases end if the machine is slow. Then it gets one, and there is none for a while again.
        let _ = orders.lease_worker("orders", "c").await;
    };
    let cause = "a third caller asks for one of two worker ids";
    tokio::join!(
        prometheus.are_quiet(&["RatchetLoginsRefused"]),
        prometheus.fires_while(cause, "RatchetWorkerIdsRunOut", lease_a_third)
    );

    let mut client = cluster.client(1);
    let mut first = 0;
    let fill_the_memory = async || {
        // It may be refused as well.
        let _ = client.next_of_each((first..first + 10_000).collect()).await;
        first += 10_000;
    };
    let cause = "callers ask for more keys than fit into the memory";
    tokio::join!(
        prometheus.are_quiet(&["RatchetWorkerIdsRunOut"]),
        prometheus.fires_while(cause, "RatchetKeyMemoryFull", fill_the_memory)
    );

    prometheus.are_quiet(&refused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_refused_at_the_port_for_peers_are_told_until_none_is() {
    let certificates = Certificates::new();
    let mut cluster = Processes::configured(1, &[]);
    let place = cluster.places[&1].clone();
    certificates.node(1, &place.peer_listen.ip().to_string(), &[]);
    cluster.own_flags.insert(1, certificates.peer_flags(1, "require"));
    cluster.spawn(1);
    let prometheus = Prometheus::start([place.metrics_listen]).await;
    prometheus.are_quiet(&["RatchetLoginsRefused"]).await;
    let shows_none = Arc::new(certificates.client_config(None, ALL_VERSIONS));
    let connect = async || {
        let opened = async {
            // With TLS 1.3 a client learns after its own part of the handshake that it is refused.
            let mut stream = connect_with(&shows_none, place.peer_listen).await?;
            stream.read_to_end(&mut Vec::new()).await
        };
        in_time("the end of a connection", opened).await.expect_err("it is refused");
    };
    let cause = "connections without a certificate come to the port for peers";
    prometheus.fires_while(cause, "RatchetLoginsRefused", connect).await;
    prometheus.are_quiet(&["RatchetLoginsRefused"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_memory_to_wait_in_are_told_until_there_is_some() {
    // Two of three founding nodes are missing: requests wait.
    let mut cluster = Cluster::configured(3, |config| {
        with_metrics(config);
        config.memory_requests_max_mb = 16;
    });
    cluster.start_node(2).await;
    let prometheus = Prometheus::start(metrics(&cluster)).await;
    prometheus.are_quiet(&["RatchetRequestMemoryFull"]).await;
    let sequencer = cluster.client(2).sequencer;
    let ask_for_much = async || {
        let asked = (0..48).map(async |_| {
            let request = NextManyRequest {
                namespace: "book".into(),
                ids: (0..1 << 16).collect(),
                timeout_ms: 500,
                ..NextManyRequest::default()
            };
            let answers = sequencer.clone().next_many(tokio_stream::once(request)).await;
            let answer = answers.expect("a stream").into_inner().message().await.expect("no error");
            answer.expect("an answer").failure.expect("nobody leads");
        });
        join_all(asked).await;
    };
    let cause = "large requests wait for a leader";
    prometheus.fires_while(cause, "RatchetRequestMemoryFull", ask_for_much).await;
    prometheus.are_quiet(&["RatchetRequestMemoryFull"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_are_skipped_without_a_crash_are_told_until_none_is() {
    let (cluster, disks) = with_room(1, |_| {}).await;
    let prometheus = Prometheus::start(metrics(&cluster)).await;
    prometheus.are_quiet(&["RatchetNumbersSkipped"]).await;
    let mut client = cluster.client(1).patient(Duration::from_millis(300));
    cluster.client(1).next(1).await.expect("a number");
    let mut new = 2..;
    let give_up_half_way = async || {
        let _hanging = disks[&1].hang_then(Fsync::Succeeds);
        // Key 1 has numbers; a new key needs the disk.
        let key = new.next().expect("a key");
        let answer = client.next_of_each(vec![1, key]).await;
        answer.expect_err("the deadline comes first");
    };
    let cause = "calls reach their deadlines while the disk hangs";
    prometheus.fires_while(cause, "RatchetNumbersSkipped", give_up_half_way).await;
    prometheus.are_quiet(&["RatchetNumbersSkipped"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_whose_callers_hang_up_are_told_until_none_does() {
    let cluster = Cluster::start(1, with_metrics).await;
    cluster.client(1).next(1).await.expect("a number");
    let prometheus = Prometheus::start(metrics(&cluster)).await;
    prometheus.are_quiet(&["RatchetNumbersSkipped"]).await;
    let node = cluster.nodes[&1].context();
    let mut new = 2..;
    let hang_up = async || {
        loop {
            // Key 1 has numbers; a new key needs a log entry.
            let asked = NextManyRequest {
                namespace: "book".into(),
                ids: vec![1, new.next().expect("a key")],
                ..NextManyRequest::default()
            };
            let asked = CheckedRequest::new(asked, Asker::node(1)).expect("a request");
            let deadline = Instant::now() + PATIENCE;
            let answer = pin!(node.numbers.serve(&asked, Origin::Client, deadline));
            // On a slow machine the entry may be on the disk before this looks at the answer.
            if futures::poll!(answer).is_pending() {
                break;
            }
        }
    };
    let cause = "callers hang up before all their keys have numbers";
    prometheus.fires_while(cause, "RatchetNumbersSkipped", hang_up).await;
    prometheus.are_quiet(&["RatchetNumbersSkipped"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_that_do_not_arrive_are_told_until_they_do() {
    let short_log = |config: &mut Config| {
        with_metrics(config);
        config.log_keep_bytes = 1_000;
    };
    let mut cluster = Cluster::start(1, short_log).await;
    let mut client = cluster.client(1);
    for key in 0..200 {
        client.next(key).await.expect("a number");
    }
    let group = cluster.nodes[&1].context().group.clone();
    until("the log is purged", || group.purged_index() > Some(100)).await;
    let prometheus = Prometheus::start(metrics(&cluster)).await;
    prometheus.are_quiet(&["RatchetSnapshotFails"]).await;

    cluster.links.damage_snapshots(u32::MAX);
    let peer_address = cluster.start_joining(2, short_log).await;
    let damaged = async {
        prometheus.fire("snapshots are damaged on their way", &["RatchetSnapshotFails"]).await;
        cluster.links.damage_snapshots(0);
    };
    tokio::join!(client.add_node_at_last(2, peer_address), damaged);
    prometheus.are_quiet(&["RatchetSnapshotFails"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_are_used_up_soon_are_told_until_there_are_more() {
    let cluster = Cluster::start(1, with_metrics).await;
    let prometheus = Prometheus::start(metrics(&cluster)).await;
    let mut client = cluster.client(1);
    let few = CreateNamespaceRequest {
        name: "few".into(),
        max: Some(1_000_000_000),
        ..CreateNamespaceRequest::default()
    };
    client.admin.create_namespace(few).await.expect("created");
    prometheus.are_quiet(&["RatchetNumbersRunOut"]).await;
    let mut taking = cluster.client(1);
    let take_many = async || {
        taking.try_next("few", id(1), 10_000).await.expect("numbers");
    };
    let cause = "a caller takes ten thousand numbers at a time, of a thousand million";
    prometheus.fires_while(cause, "RatchetNumbersRunOut", take_many).await;
    let more = UpdateNamespaceRequest {
        namespace: "few".into(),
        max: Some(i64::MAX as u64),
        ..UpdateNamespaceRequest::default()
    };
    client.admin.update_namespace(more).await.expect("updated");
    prometheus.are_quiet(&["RatchetNumbersRunOut"]).await;
}
