//! A client learns the leader and the members from answers, and is back soon when servers are lost.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::common::{
    HURRIED, PATIENCE,
    cluster::Cluster,
    eventually, free_ports, in_time, other_than, others, own_ip,
    processes::Processes,
    rust_client::{builder, client, client_of, create_with_format},
};
use parking_lot::Mutex;
use ratchet::{metrics::Interface, proto::v1::WatchRouteRequest};
use ratchet_client::Client;
use tokio::task::JoinSet;

/// How much later than the cluster a client may be back, on a machine that is busy with other things: much less than the
/// share of its time that a silent server costs, which is a third of [`PATIENCE`].
const LATENESS_MAX: Duration = Duration::from_secs(PATIENCE.as_secs() / 10);

fn addresses(cluster: &Cluster, nodes: &[u64]) -> BTreeSet<String> {
    let addresses = nodes.iter().map(|id| cluster.address(*id).to_string());
    addresses.collect()
}

/// Takes numbers until the client knows exactly these servers.
async fn takes_until_it_knows(client: &Client, servers: &BTreeSet<String>) {
    let taking = async {
        while client.servers().into_iter().collect::<BTreeSet<_>>() != *servers {
            client.next("book", 1).await.expect("a number");
        }
    };
    in_time(&format!("a client that knows {servers:?}"), taking).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_was_given_the_leader_alone_survives_its_loss() {
    let mut cluster = Processes::start(3, &HURRIED).await;
    let leader = cluster.leader().await;
    let client = client([cluster.places[&leader].listen]);
    let before = client.next("book", 1).await.expect("a number");
    cluster.kill(leader);
    let after = client.next("book", 1).await;
    assert!(after.expect("from another leader") > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_membership_change_without_a_change_of_leader_reaches_the_client() {
    // On a slow machine the leader may be lost meanwhile: then it begins again.
    eventually("changes under one leader", async || {
        let mut cluster = Cluster::start(3, |_| {}).await;
        let leader = cluster.leader().await;
        let follower = other_than(leader);
        let client = client_of(&cluster, &[leader]);
        takes_until_it_knows(&client, &addresses(&cluster, &[1, 2, 3])).await;

        cluster.add_voter(leader, 4).await;
        takes_until_it_knows(&client, &addresses(&cluster, &[1, 2, 3, 4])).await;

        cluster.client(leader).remove_node(follower).await.unwrap();
        let left: Vec<u64> = (1..=4).filter(|id| *id != follower).collect();
        takes_until_it_knows(&client, &addresses(&cluster, &left)).await;
        (cluster.leader().await == leader).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_outlives_every_server_that_it_was_given() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let given = cluster.leader().await;
    let client = client_of(&cluster, &[given]);
    let mut last = client.next("book", 1).await.expect("a number");
    for id in [4, 5] {
        let leader = cluster.leader().await;
        cluster.add_voter(leader, id).await;
    }
    takes_until_it_knows(&client, &addresses(&cluster, &[1, 2, 3, 4, 5])).await;
    // The given node and another founder are gone.
    for gone in [given, other_than(given)] {
        cluster.crash(gone).await;
        let number = client.next("book", 1).await.expect("from those that are left");
        assert!(number > last);
        last = number;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_nodes_come_back_at_other_addresses_those_that_were_given_are_asked_again() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let [moved] = free_ports::<1>(cluster.address(1).ip());
    let client = client([cluster.address(1), moved]);
    let before = client.next("book", 1).await.expect("a number");
    for id in 1..=3 {
        cluster.crash(id).await;
    }
    for id in 1..=3 {
        let ip = cluster.address(id).ip();
        let [address] = free_ports::<1>(ip);
        let config = cluster.configs.get_mut(&id).expect("a node");
        config.listen = if id == 1 { moved } else { address };
        cluster.start_node(id).await;
    }
    let after = client.next("book", 1).await.expect("at the new address");
    assert!(after > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_be_reached_costs_nothing_while_others_forward() {
    // It lets connections in, and says nothing.
    let silent = std::net::TcpListener::bind((own_ip(), 0)).expect("a port");
    let elsewhere = silent.local_addr().expect("its address").to_string();
    let cluster = Cluster::start(3, |config| config.advertise = Some(elsewhere.clone())).await;
    let client = client_of(&cluster, &[1, 2, 3]);
    let mut slowest = Duration::ZERO;
    // Longer than such a leader is left alone for.
    let until = Instant::now() + Duration::from_millis(2_500);
    while Instant::now() < until {
        let asked = Instant::now();
        client.next("book", 1).await.expect("a number");
        slowest = slowest.max(asked.elapsed());
    }
    // The limit is a third of the client's patience where it waits for the leader.
    assert!(slowest < PATIENCE / 6, "the slowest took {slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_tells_who_leads_while_the_leader_does_not_answer() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let follower = other_than(leader);
    let mut client = cluster.client(follower);
    let watching = client.sequencer.watch_route(WatchRouteRequest {}).await;
    let mut routes = watching.expect("a stream").into_inner();
    let told = routes.message().await.expect("a route").expect("a route");
    let leaders = (told.leader, told.address.clone());
    assert_eq!(leaders, (leader, cluster.address(leader).to_string()));
    let members: BTreeSet<String> = told.members.iter().cloned().collect();
    assert_eq!(members, addresses(&cluster, &[1, 2, 3]));
    cluster.crash(leader).await;
    let next = in_time("another route", routes.message()).await;
    let next = next.expect("no error").expect("no end");
    assert!(next.version > told.version);
    assert_ne!(next.leader, leader);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_only_makes_ids_or_administers_outlives_the_server_that_it_was_given() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    create_with_format(&client_of(&cluster, &[2]), "order", "snowflake").await;
    let [admin, ids, worker] = [(); 3].map(|()| client_of(&cluster, &[1]));
    admin.list_namespaces().await.expect("all namespaces");
    ids.next_ids("order", None, 1, &[]).await.expect("an id");
    worker.lease_worker("order", "a holder").await.expect("a worker id");
    for client in [&admin, &ids, &worker] {
        let servers: BTreeSet<String> = client.servers().into_iter().collect();
        assert_eq!(servers, addresses(&cluster, &[1, 2, 3]));
    }
    cluster.crash(1).await;
    admin.list_namespaces().await.expect("from the others");
    admin.export("book").await.expect("from the leader");
    ids.next_ids("order", None, 1, &[]).await.expect("from the others");
    worker.lease_worker("order", "another").await.expect("from the others");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_client_that_does_not_follow_the_leader_go_round_the_servers_that_answer() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let servers: Vec<_> = (1..=3).map(|node| cluster.address(node)).collect();
    let client = builder(&servers).follow_leader(false).build().expect("a client");
    let asked = |cluster: &Cluster, node: u64| {
        cluster.nodes[&node].context().metrics.request_seconds.of(Interface::grpc).count()
    };
    let before: Vec<u64> = (1..=3).map(|node| asked(&cluster, node)).collect();
    for _ in 0..6 {
        client.current("book", 1).await.expect("an answer");
    }
    for node in 1..=3 {
        assert_eq!(asked(&cluster, node), before[node as usize - 1] + 2, "node {node}");
    }
    let gone = other_than(cluster.leader().await);
    cluster.crash(gone).await;
    let left = others(gone);
    let before: Vec<u64> = left.iter().map(|node| asked(&cluster, *node)).collect();
    for _ in 0..6 {
        client.current("book", 1).await.expect("from those that are left");
    }
    let each: Vec<u64> =
        left.iter().zip(before).map(|(node, before)| asked(&cluster, *node) - before).collect();
    assert_eq!(each.iter().sum::<u64>(), 6);
    assert!(each.iter().all(|calls| *calls >= 2), "{each:?}");
    let known = client.servers();
    assert_eq!(known.len(), 3, "it learns no others: {known:?}");
}

/// Many tasks that call one after the other. Records when the last answered call of each task began.
struct Callers {
    calls: Arc<Mutex<Vec<Instant>>>,
    running: JoinSet<()>,
}

impl Callers {
    fn start(client: &Client, tasks: usize) -> Callers {
        let calls = Arc::new(Mutex::new(vec![Instant::now(); tasks]));
        let mut running = JoinSet::new();
        for task in 0..tasks {
            let (client, calls) = (client.clone(), calls.clone());
            running.spawn(async move {
                loop {
                    let began = Instant::now();
                    let called = client.next("book", task as u64 % 4).await;
                    called.expect("a number");
                    calls.lock()[task] = began;
                }
            });
        }
        Callers { calls, running }
    }

    /// Answers when all tasks have had an answer to a call that began after `since`.
    async fn back(&mut self, since: Instant) -> Instant {
        let back = async {
            loop {
                if self.calls.lock().iter().all(|began| *began > since) {
                    return Instant::now();
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            back = back => back,
            ended = self.running.join_next() => panic!("a caller ended: {ended:?}"),
        }
    }
}

/// Answers when one of `nodes` first answers. All are asked again every few milliseconds.
async fn cluster_back(cluster: &Processes, nodes: &[u64]) -> Instant {
    let mut asking = JoinSet::new();
    let mut every = tokio::time::interval(Duration::from_millis(5));
    loop {
        tokio::select! {
            biased;
            Some(Ok(Some(answered))) = asking.join_next() => return answered,
            _ = every.tick() => for node in nodes {
                let mut client = cluster.client(*node);
                asking.spawn(async move {
                    let answered = client.next(99).await;
                    answered.ok().map(|_| Instant::now())
                });
            }
        }
    }
}

/// In each of a few rounds the leader `fails`. Answers how much later the client is back than the cluster.
async fn lateness(
    fails: impl Fn(&mut Processes, u64), comes_back: impl Fn(&mut Processes, u64),
) -> Vec<Duration> {
    let mut cluster = Processes::start(3, &HURRIED).await;
    let leader = cluster.leader().await;
    let client = client([cluster.places[&leader].listen]);
    let mut callers = Callers::start(&client, 64);
    let mut late = Vec::new();
    for _ in 0..5 {
        let leader = cluster.leader().await;
        callers.back(Instant::now()).await;
        fails(&mut cluster, leader);
        let failed = Instant::now();
        let others = others(leader);
        let (cluster_is, client_is) =
            tokio::join!(cluster_back(&cluster, &others), callers.back(failed));
        late.push(client_is.saturating_duration_since(cluster_is));
        comes_back(&mut cluster, leader);
        cluster.client(leader).next_at_last(u64::MAX).await;
    }
    late.sort();
    late
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_leader_was_killed_the_client_is_back_with_the_cluster() {
    let late = lateness(Processes::kill, Processes::spawn).await;
    println!("later than the cluster by {late:?}");
    assert!(late[late.len() / 2] <= LATENESS_MAX, "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_leader_fell_silent_the_client_is_back_with_the_cluster() {
    let pause = |cluster: &mut Processes, id| cluster.pause(id);
    let resume = |cluster: &mut Processes, id| cluster.resume(id);
    let late = lateness(pause, resume).await;
    println!("later than the cluster by {late:?}");
    assert!(late[late.len() / 2] <= LATENESS_MAX, "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_all_nodes_were_gone_the_client_is_back_with_the_cluster() {
    // Longer than it takes until the client rests as long as it ever does.
    const GONE: Duration = Duration::from_millis(1_500);
    let restart = |cluster: &mut Processes, _| {
        (1..=3).for_each(|id| cluster.kill(id));
        tokio::task::block_in_place(|| std::thread::sleep(GONE));
        (1..=3).for_each(|id| cluster.spawn(id));
    };
    let late = lateness(restart, |_, _| {}).await;
    println!("later than the cluster by {late:?}");
    assert!(late[late.len() / 2] <= LATENESS_MAX, "{late:?}");
}
