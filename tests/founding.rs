//! A cluster is founded once, by a command to running nodes. A node whose data is gone waits, and founds nothing.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::common::{
    Client, PATIENCE,
    cluster::{Cluster, have_it_found, start_at_last},
    eventually, free_ports, http, http_get, in_time,
    links::{as_peer, listening_at},
    own_ip,
    processes::{Process, ratchet, run},
    until, with_http, with_metrics,
};
use ratchet::{
    consensus::Transport,
    node::{Config, Node, Seams},
    proto::{peer::HelloRequest, v1::FoundResponse},
};
use serde_json::Value;
use tokio::{sync::Notify, task::JoinHandle, time::Instant};
use tonic::{Code, Status};

/// Asks a node to found the cluster.
async fn found(cluster: &Cluster, id: u64) -> Result<bool, Status> {
    let answer = cluster.client(id).found().await?;
    let voters: Vec<u64> = cluster.configs[&id].peers.keys().copied().collect();
    assert_eq!(answer.voters, voters);
    let known = cluster.nodes[&id].context().services.members.cluster_id().expect("it has an id");
    assert_eq!(answer.cluster_id, known.to_string());
    Ok(answer.founded)
}

/// Three nodes that wait.
async fn waiting() -> Cluster {
    let mut cluster = Cluster::configured(3, |config| {
        with_metrics(config);
        with_http(config);
    });
    for id in 1..=3 {
        cluster.start_node(id).await;
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_without_data_wait_and_say_so_until_one_of_them_is_asked_to_found_the_cluster() {
    let cluster = waiting().await;
    for id in 1..=3 {
        let addresses = cluster.nodes[&id].addresses();
        let page = http_get(addresses.metrics.expect("a port"), "/readyz").await;
        assert_eq!(page.status, 503, "{}", page.body);
        for part in [
            "ratchet found --server unix:DATA_DIR/admin.sock --admin-token-file FILE",
            "ratchet node add",
        ] {
            assert!(page.body.contains(part), "{part:?} is not in {}", page.body);
        }
        let place = cluster.configs[&id].data_dir.display().to_string();
        assert!(!page.body.contains(&place), "strangers may read it: {}", page.body);
        let alive = http_get(addresses.metrics.expect("a port"), "/livez").await;
        assert_eq!(alive.status, 200, "a restart would not help");
        let status = cluster.client(id).status().await.expect("a status");
        assert!(status.waits && status.cluster_id.is_empty(), "{status:?}");
        let status = http_get(addresses.http.expect("a port"), "/v1/status").await;
        assert!(status.body.contains("\"waits\":true"), "{}", status.body);
        let mut client = cluster.client(id).patient(Duration::from_millis(300));
        eventually("why there are no numbers", async || {
            let none = client.next(1).await.expect_err("no numbers");
            none.message().contains("not founded yet").then_some(())
        })
        .await;
    }
    let server = cluster.address(2).to_string();
    let ask = |command: &'static str| {
        let server = server.clone();
        let asking =
            tokio::task::spawn_blocking(move || run(&[command, "--server", &server, "--json"]));
        async move { asking.await.expect("no panic") }
    };
    let status = ask("status").await;
    assert_eq!(status.status.code(), Some(5));
    let text = String::from_utf8_lossy(&status.stderr).into_owned();
    assert!(text.contains("with ratchet found"), "{text}");
    let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("JSON");
    let first = ask("found").await;
    assert!(first.status.success(), "{first:?}");
    let first = json(&first.stdout);
    assert_eq!((&first["founded"], &first["cluster"]), (&true.into(), &"test".into()));
    assert_eq!(first["voters"], serde_json::json!(["1", "2", "3"]));
    cluster.client(3).next_at_last(1).await;
    // It is asked to be founded again, in each way, and by way of each node.
    let again = ask("found").await;
    assert!(again.status.success(), "{again:?}");
    let again = json(&again.stdout);
    assert_eq!((&again["founded"], &again["cluster_id"]), (&false.into(), &first["cluster_id"]));
    for id in 1..=3 {
        assert!(!found(&cluster, id).await.expect("an answer"), "node {id}");
    }
    let page =
        http(cluster.nodes[&1].addresses().http.expect("a port"), "POST /v1/cluster:found", "", "");
    let page = page.await;
    assert_eq!(page.status, 200, "{}", page.body);
    assert_eq!(json(page.body.as_bytes())["cluster_id"], first["cluster_id"]);
    let status = cluster.client(1).status().await.expect("a status");
    assert!(!status.waits, "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_nodes_are_asked_at_once_one_cluster_is_founded() {
    let cluster = waiting().await;
    let asked = futures::future::join_all((1..=3).map(|id| found(&cluster, id))).await;
    // One that gave way may say that another belongs to a cluster already: the first one asked again says that all do.
    let founders = asked.iter().filter(|answer| matches!(answer, Ok(true))).count();
    assert_eq!(founders, 1, "{asked:?}");
    let id = cluster.nodes[&1].context().services.members.cluster_id();
    for node in 1..=3 {
        assert!(!found(&cluster, node).await.expect("an answer"));
        assert_eq!(cluster.nodes[&node].context().services.members.cluster_id(), id);
        cluster.client(node).next_at_last(1).await;
    }
}

/// Nodes start like the pods of a StatefulSet: one by one, and the command may come first.
#[tokio::test(flavor = "multi_thread")]
async fn the_founder_waits_for_nodes_that_start_later_in_any_order() {
    for order in [[1, 2, 3], [3, 2, 1]] {
        let mut cluster = Cluster::configured(3, |_| {});
        cluster.start_node(order[0]).await;
        let context = cluster.nodes[&order[0]].context().clone();
        let founding =
            tokio::spawn(async move { have_it_found(&context, Instant::now() + PATIENCE).await });
        for id in &order[1..] {
            assert!(!founding.is_finished(), "not all nodes run yet");
            cluster.start_node(*id).await;
        }
        let founded = founding.await.expect("no panic").expect("it is founded");
        assert_eq!((founded.founded, founded.voters), (true, vec![1, 2, 3]));
        cluster.client(order[2]).next_at_last(1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_founded_while_a_node_is_missing_or_says_otherwise() {
    let mut cluster = Cluster::configured(3, |_| {});
    cluster.configs.get_mut(&3).expect("a node").peers.remove(&2);
    for id in [1, 2] {
        cluster.start_node(id).await;
    }
    let context = cluster.nodes[&1].context().clone();
    let part = format!("node 3 at {}", cluster.configs[&3].peer_listen);
    // On a busy machine a short time may end before node 3 is asked.
    eventually("which node is missing", async || {
        let soon = Instant::now() + Duration::from_millis(500);
        let missing = have_it_found(&context, soon).await.expect_err("node 3 does not run");
        assert_eq!(missing.code(), Code::Unavailable, "{missing}");
        missing.message().contains(&part).then_some(())
    })
    .await;
    cluster.start_node(3).await;
    let stranger = cluster.start_joining(4, |config| {
        config.peers = [(1, "127.0.0.1:1".to_owned())].into();
    });
    stranger.await;
    let stranger = found(&cluster, 4).await.expect_err("it is no founder");
    assert_eq!(stranger.code(), Code::FailedPrecondition, "{stranger}");
    assert!(stranger.message().contains("not this one (node_id 4)"), "{stranger}");
    let other = found(&cluster, 1).await.expect_err("other peers");
    assert_eq!(other.code(), Code::FailedPrecondition, "{other}");
    assert!(other.message().contains("the same peers"), "{other}");
    for id in 1..=3 {
        assert!(!cluster.nodes[&id].context().group.is_formed(), "node {id}");
    }
}

/// Nodes 1 and 2 of three. Node 1 was asked to found the cluster, has met node 2, and waits for node 3.
async fn founding_that_waits() -> (Cluster, JoinHandle<Result<FoundResponse, Status>>) {
    let mut cluster = Cluster::configured(3, |_| {});
    cluster.start_node(2).await;
    let has_met = Arc::new(Notify::new());
    let mut transport = cluster.transport(1);
    let (met, second) = (has_met.clone(), cluster.configs[&2].peer_listen.to_string());
    transport.on_answer = Box::new(move |from, _| {
        if from == second {
            met.notify_one();
        }
    });
    let seams = cluster.seams_with(transport);
    cluster.start_node_with(1, seams).await;
    let context = cluster.nodes[&1].context().clone();
    let founding =
        tokio::spawn(async move { Ok(have_it_found(&context, Instant::now() + PATIENCE).await?) });
    in_time("node 2 is met", has_met.notified()).await;
    (cluster, founding)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_started_again_while_the_founder_waits_takes_part() {
    let (mut cluster, founding) = founding_that_waits().await;
    cluster.crash(2).await;
    for id in [2, 3] {
        cluster.start_node(id).await;
    }
    let founded = founding.await.expect("no panic").expect("it is founded");
    assert_eq!((founded.founded, founded.voters), (true, vec![1, 2, 3]));
    cluster.client(2).next_at_last(1).await;
    cluster.crash(3).await;
    cluster.client(2).next_at_last(1).await;
}

/// The state of a node that the founder heard may have changed by the time that it founds.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_founded_with_a_node_that_has_joined_another_cluster_meanwhile() {
    let mut other = Cluster::start(1, |_| {}).await;
    let (mut cluster, founding) = founding_that_waits().await;
    cluster.crash(2).await;
    cluster.start_node(2).await;
    let peer_address = cluster.configs[&2].peer_listen.to_string();
    other.client(1).add_node_at_last(2, peer_address).await;
    let group = cluster.nodes[&2].context().group.clone();
    until("node 2 belongs to the other cluster", || group.is_formed()).await;
    cluster.start_node(3).await;
    let refused = founding.await.expect("no panic").expect_err("node 2 is another's");
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    assert!(refused.message().contains("node 2 at"), "{refused}");
    for id in [1, 3] {
        assert!(!cluster.nodes[&id].context().group.is_formed(), "node {id}");
    }
    // Nobody is left claimed. While the other cluster lives, it would say that it knows node 2.
    drop(group);
    other.crash(1).await;
    cluster.crash(2).await;
    fs::remove_dir_all(cluster.data_dir(2)).expect("a directory");
    cluster.start_node(2).await;
    assert!(found(&cluster, 3).await.expect("it is founded"));
}

/// Three nodes and a twin of the first one: one of the two has founded the cluster, and the other one was refused. Neither of
/// them is known to the other: `peers` leads to one of them at most.
async fn found_by_twins() -> (Cluster, Node) {
    let mut cluster = Cluster::configured(3, |_| {});
    for id in 1..=3 {
        cluster.start_node(id).await;
    }
    let root = tempfile::tempdir().expect("a directory");
    let [listen, peer_listen] = free_ports(own_ip());
    let data_dir = root.path().join("data");
    let config = Config { data_dir, listen, peer_listen, ..cluster.configs[&1].clone() };
    let twin = start_at_last(&config, cluster.seams(1)).await.expect("it starts");
    let latest = Instant::now() + PATIENCE;
    let founders = [cluster.nodes[&1].context(), twin.context()];
    let asked =
        futures::future::join_all(founders.map(|founder| have_it_found(founder, latest))).await;
    let founded = asked.iter().filter(|answer| answer.as_ref().is_ok_and(|one| one.founded));
    assert_eq!(founded.count(), 1, "{asked:?}");
    let refused = asked.into_iter().find_map(Result::err).expect("one is refused");
    // The node at the twin's address is another one, or belongs to the cluster already.
    let expected = [Code::FailedPrecondition, Code::AlreadyExists];
    assert!(expected.contains(&refused.code()), "{refused}");
    assert!(refused.message().contains(&cluster.configs[&1].peers[&1]), "{refused}");
    (cluster, twin)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_with_the_same_id_one_founds_the_cluster() {
    found_by_twins().await.1.halt().await;
}

/// If the twin founded it and led, the others would look for their leader at the address of the first node.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_founded_beside_a_twin_hands_out_numbers() {
    let (cluster, twin) = found_by_twins().await;
    assert!(!twin.context().group.is_formed(), "nobody reaches it");
    cluster.client(2).next_at_last(1).await;
    twin.halt().await;
}

/// Nodes 1 to 3. Node 1 was asked to found the cluster, has claimed all nodes once, and was stopped before it claimed them
/// again: node 2 is not reached any more.
async fn founder_stopped_in_the_middle() -> Cluster {
    let mut cluster = Cluster::configured(3, |_| {});
    for id in [2, 3] {
        cluster.start_node(id).await;
    }
    let all_claimed = Arc::new(Notify::new());
    let mut transport = cluster.transport(1);
    let (claimed, links) = (all_claimed.clone(), cluster.links.clone());
    let peers = cluster.configs[&1].peers.clone();
    let (claims, third) = (Arc::new(AtomicBool::new(false)), peers[&3].clone());
    let asks = claims.clone();
    transport.on_greeting = Box::new(move |greeting| {
        let claims = greeting.founding.as_ref().is_some_and(|founding| founding.claims);
        asks.store(greeting.to == 3 && claims, Relaxed);
    });
    transport.on_answer = Box::new(move |from, answer| {
        if from == third && claims.load(Relaxed) && answer.not_yet.is_empty() {
            peers.values().for_each(|peer| links.cut(1, peer.clone()));
            claimed.notify_one();
        }
    });
    let seams = cluster.seams_with(transport);
    cluster.start_node_with(1, seams).await;
    let context = cluster.nodes[&1].context().clone();
    let founding =
        tokio::spawn(async move { have_it_found(&context, Instant::now() + PATIENCE).await });
    in_time("all nodes are claimed", all_claimed.notified()).await;
    cluster.crash(1).await;
    founding.await.expect("no panic").expect_err("its node has stopped");
    cluster.mend();
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_founder_that_was_stopped_in_the_middle_keeps_no_other_node_from_founding() {
    let mut cluster = founder_stopped_in_the_middle().await;
    cluster.start_node(1).await;
    // Node 1 lets its claims go in time. The answers until then depend on the moment.
    let asked = futures::future::join_all([2, 3].map(|id| found(&cluster, id))).await;
    let founders = asked.iter().filter(|answer| matches!(answer, Ok(true))).count();
    assert_eq!(founders, 1, "{asked:?}");
    for id in 1..=3 {
        assert!(!found(&cluster, id).await.expect("it is founded"));
        cluster.client(id).next_at_last(1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_a_leader_is_about_to_add_goes_to_no_other_cluster_until_that_is_given_up() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    let other = Cluster::start(1, |_| {}).await;
    let peer_address = cluster.start_joining(2, |_| {}).await;
    let other_id = other.nodes[&1].context().services.members.cluster_id().expect("it has an id");
    let request = HelloRequest {
        cluster: "test".into(),
        from: 1,
        to: 2,
        election_timeout_ms: cluster.configs[&2].election_timeout_ms,
        cluster_id: other_id.as_bytes().to_vec().into(),
        adds: true,
        ..HelloRequest::default()
    };
    let greeting = as_peer();
    // On a slow machine the node may not answer within the second that the leader waits. The claim lasts for ten, so it is made
    // again each time.
    let refused = eventually("what the node says", async || {
        let at = listening_at(&peer_address);
        let claimed = greeting.hello(at, request.clone(), PATIENCE).await.expect("it is free");
        let refused = cluster.client(1).add_node(2, &peer_address).await.expect_err("claimed");
        let names_other = refused.message().contains(&other_id.to_string());
        names_other.then_some((refused, claimed.incarnation))
    });
    let (refused, claimed) = refused.await;
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("ask again in"), "{refused}");
    assert_eq!(cluster.nodes[&2].context().this_node.store.incarnation(), claimed);
    let added = eventually("it is free again", async || {
        cluster.client(1).add_node(2, &peer_address).await.ok()
    });
    assert_eq!(added.await.learners, [2]);
    // Messages of the cluster that gave it up are for another directory.
    assert_ne!(cluster.nodes[&2].context().this_node.store.incarnation(), claimed);
    cluster.client(2).next_at_last(1).await;
}

/// The founder was alone at first, and names no other node in `peers`. The others lead now.
#[tokio::test(flavor = "multi_thread")]
async fn a_founder_that_lost_its_data_founds_nothing_while_members_live_that_it_does_not_know() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    for id in [2, 3] {
        cluster.add_voter(1, id).await;
    }
    cluster.client(1).transfer(2).await.expect("node 2 leads");
    let highest = cluster.client(2).next_at_last(7).await;
    cluster.crash(1).await;
    fs::remove_dir_all(cluster.data_dir(1)).expect("a directory");
    // As a node does by itself.
    let listens_before_founding = Seams::default().listens_before_founding;
    let listens = Seams { listens_before_founding, ..cluster.seams(1) };
    cluster.start_node_with(1, listens).await;
    let refused = found(&cluster, 1).await.expect_err("it was founded before");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    for part in ["founded before", "knows node 1", "ratchet node remove 1"] {
        assert!(refused.message().contains(part), "{part:?} is not in {refused}");
    }
    assert!(!cluster.nodes[&1].context().group.is_formed());
    assert!(cluster.client(2).next_at_last(7).await > highest);
}

/// The data of a whole cluster is gone, or not mounted. Its nodes must not begin at 1 again.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_whose_data_is_gone_waits_and_a_node_whose_data_is_gone_cannot_found_another() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let before = cluster.nodes[&1].context().services.members.cluster_id();
    for id in 1..=3 {
        cluster.crash(id).await;
        fs::rename(cluster.data_dir(id), cluster.data_dir(id).with_extension("away")).unwrap();
    }
    for id in 1..=3 {
        cluster.start_node(id).await;
    }
    for id in 1..=3 {
        let status = cluster.client(id).status().await.expect("a status");
        assert!(status.waits && status.leader.is_none(), "{status:?}");
    }
    // The volumes of two nodes are mounted again.
    for id in 1..=3 {
        cluster.crash(id).await;
    }
    cluster.start_node(1).await;
    for id in [2, 3] {
        fs::remove_dir_all(cluster.data_dir(id)).unwrap();
        fs::rename(cluster.data_dir(id).with_extension("away"), cluster.data_dir(id)).unwrap();
    }
    let context = cluster.nodes[&1].context().clone();
    // Not on the ports of members yet: they would stop the node, since they know it with another directory.
    let founding =
        tokio::spawn(async move { have_it_found(&context, Instant::now() + PATIENCE).await });
    for id in [2, 3] {
        cluster.start_node(id).await;
    }
    let refused = founding.await.expect("no panic").expect_err("they belong to a cluster");
    // Either the answer of a member or the end of the node comes first.
    assert!(matches!(refused.code(), Code::AlreadyExists | Code::Unavailable), "{refused}");
    cluster.client(2).next_at_last(1).await;
    assert_eq!(cluster.nodes[&2].context().services.members.cluster_id(), before);
    let fault = crate::common::in_time("the end of node 1", cluster.nodes[&1].failed()).await;
    assert!(fault.to_string().contains("another data directory"), "{fault}");
}

/// A node of one, for trying, as a process.
fn dev_node(dir: &std::path::Path, more: &[&str]) -> (Process, Client) {
    let [listen, peer_listen] = free_ports(own_ip());
    let mut command = ratchet();
    command
        .args(["start", "--metrics-listen=off", "--http-listen=off", "--resp-listen=off"])
        .args(["--listen", &listen.to_string()])
        .args(["--peer-listen", &peer_listen.to_string()])
        .arg("--data-dir")
        .arg(dir)
        .args(more)
        .stderr(fs::File::create(dir.with_extension("log")).expect("a log"));
    (Process(command.spawn().expect("the node starts")), Client::new(listen))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_for_trying_founds_itself_and_its_directory_and_others_are_not_mixed_up() {
    let root = tempfile::tempdir().unwrap();
    let (tried, waits) = (root.path().join("tried"), root.path().join("waits"));
    let (node, mut client) = dev_node(&tried, &["--dev"]);
    let first = client.next_at_last(7).await;
    drop(node);
    let (node, mut client) = dev_node(&tried, &["--dev"]);
    assert!(client.next_at_last(7).await > first, "the data was kept");
    let refused = client.add_node(2, "127.0.0.1:7601").await.expect_err("it would found again");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("for trying (--dev)"), "{refused}");
    drop(node);
    let log = |dir: &std::path::Path| fs::read_to_string(dir.with_extension("log")).unwrap();
    let (node, _) = dev_node(&tried, &[]);
    assert_eq!(node.ended().await.code(), Some(78));
    assert!(log(&tried).contains("Start it with --dev"), "{}", log(&tried));
    // Without the flag it waits, and is never founded by the flag afterwards.
    let (node, mut client) = dev_node(&waits, &[]);
    let status = eventually("a status", async || client.status().await.ok());
    assert!(status.await.waits);
    let found = format!("ratchet found --server unix:{}/admin.sock", waits.display());
    until("its log says so", || log(&waits).contains(&found)).await;
    drop(node);
    let (node, _) = dev_node(&waits, &["--dev"]);
    assert_eq!(node.ended().await.code(), Some(78));
    assert!(log(&waits).contains("Start without --dev"), "{}", log(&waits));
    // Its data is lost: only --dev founds again by itself.
    fs::remove_dir_all(&tried).unwrap();
    let (_node, mut client) = dev_node(&tried, &["--dev"]);
    assert_eq!(client.next_at_last(7).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_on_loopback_and_members_on_a_network_are_not_mixed() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    let elsewhere = |config: &mut ratchet::node::Config| {
        config.advertise = Some("ten.example:7600".to_owned());
    };
    let peer_address = cluster.start_joining(2, elsewhere).await;
    let mut client = cluster.client(1);
    let refused = client.why_not_added(2, &peer_address).await;
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    for part in ["node 1 tells clients", "ten.example:7600", "listen and advertise"] {
        assert!(refused.message().contains(part), "{part:?} is not in {refused}");
    }
    let status = client.status().await.expect("a status");
    assert_eq!(status.nodes.len(), 1, "nobody was added");
    // Nor are they founded together.
    let mut cluster = Cluster::configured(2, |_| {});
    elsewhere(cluster.configs.get_mut(&2).expect("a node"));
    for id in [1, 2] {
        cluster.start_node(id).await;
    }
    let refused = found(&cluster, 2).await.expect_err("refused");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(!cluster.nodes[&1].context().group.is_formed());
}
