//! How a client finds its way: who leads and who the members are, learnt from the answers; and how soon
//! it is back when servers are lost.

mod common;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{PATIENCE, free_ports, links::Cluster, own_ip, processes::Processes};
use parking_lot::Mutex;
use ratchet::proto::v1::{AddNodeRequest, NodeRequest, WatchRouteRequest};
use ratchet_client::Client;
use tokio::task::JoinSet;

/// How much later than the cluster a client may be back.
const LATENESS_MAX: Duration = Duration::from_millis(100);

fn client_of(cluster: &Cluster, nodes: &[u64]) -> Client {
    let servers: Vec<String> = nodes
        .iter()
        .map(|id| cluster.address(*id).to_string())
        .collect();
    Client::builder()
        .servers(&servers)
        .timeout(PATIENCE)
        .build()
        .expect("a client")
}

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
    let known = tokio::time::timeout(PATIENCE, taking).await;
    known.unwrap_or_else(|_| panic!("it knows {:?}, not {servers:?}", client.servers()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_was_given_the_leader_alone_survives_its_loss() {
    let mut cluster = Processes::start(3, &[]).await;
    let leader = cluster.leader().await;
    let servers = [cluster.places[&leader].listen.to_string()];
    let client = Client::builder()
        .servers(&servers)
        .timeout(Duration::from_secs(10))
        .build()
        .expect("a client");
    let before = client.next("book", 1).await.expect("a number");
    cluster.kill(leader);
    let after = client.next("book", 1).await;
    assert!(after.expect("from another leader") > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_membership_change_without_a_change_of_leader_reaches_the_client() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let follower = leader % 3 + 1;
    let client = client_of(&cluster, &[leader]);
    takes_until_it_knows(&client, &addresses(&cluster, &[1, 2, 3])).await;

    cluster.configure(4).join = true;
    cluster.start_node(4).await;
    let mut admin = cluster.client(leader).admin;
    let node = AddNodeRequest {
        id: 4,
        peer_address: cluster.configs[&4].peer_listen.to_string(),
    };
    admin.add_node(node).await.expect("added");
    admin
        .promote_node(NodeRequest {
            id: 4,
            force: false,
        })
        .await
        .expect("promoted");
    takes_until_it_knows(&client, &addresses(&cluster, &[1, 2, 3, 4])).await;

    let removed = NodeRequest {
        id: follower,
        force: false,
    };
    admin.remove_node(removed).await.expect("removed");
    let left: Vec<u64> = (1..=4).filter(|id| *id != follower).collect();
    takes_until_it_knows(&client, &addresses(&cluster, &left)).await;
    assert_eq!(cluster.leader().await, leader, "all in one term");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_outlives_every_server_that_it_was_given() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let given = cluster.leader().await;
    let client = client_of(&cluster, &[given]);
    let mut last = client.next("book", 1).await.expect("a number");
    for id in [4, 5] {
        cluster.configure(id).join = true;
        cluster.start_node(id).await;
        let leader = cluster.leader().await;
        let mut admin = cluster.client(leader).admin;
        let node = AddNodeRequest {
            id,
            peer_address: cluster.configs[&id].peer_listen.to_string(),
        };
        admin.add_node(node).await.expect("added");
        admin
            .promote_node(NodeRequest { id, force: false })
            .await
            .expect("promoted");
    }
    takes_until_it_knows(&client, &addresses(&cluster, &[1, 2, 3, 4, 5])).await;
    // The given one, and another founder.
    for gone in [given, given % 3 + 1] {
        cluster.crash(gone).await;
        let number = client
            .next("book", 1)
            .await
            .expect("from those that are left");
        assert!(number > last);
        last = number;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_nodes_come_back_at_other_addresses_those_that_were_given_are_asked_again() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let [moved] = free_ports::<1>(cluster.address(1).ip());
    let servers = [cluster.address(1).to_string(), moved.to_string()];
    let client = Client::builder()
        .servers(&servers)
        .timeout(PATIENCE)
        .build()
        .expect("a client");
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
    // A third of the client's patience, where it waits for the leader.
    assert!(slowest < PATIENCE / 6, "the slowest took {slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_tells_who_leads_while_the_leader_does_not_answer() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let follower = leader % 3 + 1;
    let mut client = cluster.client(follower);
    let watching = client.sequencer.watch_route(WatchRouteRequest {}).await;
    let mut routes = watching.expect("a stream").into_inner();
    let told = routes.message().await.expect("a route").expect("a route");
    let leaders = (told.leader, told.address.clone());
    assert_eq!(leaders, (leader, cluster.address(leader).to_string()));
    let members: BTreeSet<String> = told.members.iter().cloned().collect();
    assert_eq!(members, addresses(&cluster, &[1, 2, 3]));
    cluster.crash(leader).await;
    let next = tokio::time::timeout(PATIENCE, routes.message()).await;
    let next = next.expect("in time").expect("a route").expect("a route");
    assert!(next.version > told.version);
    assert_ne!(next.leader, leader);
}

/// Calls one after the other in many tasks; notes of each when the call began that was answered last.
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

    /// When all of them had an answer to a call that began after `since`.
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

/// When one of `nodes` first answered a caller that knows them all, and asks every few milliseconds
/// anew.
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

/// How much later than the cluster a client is back whose leader `fails`, in each of a few rounds.
async fn lateness(
    fails: impl Fn(&mut Processes, u64),
    comes_back: impl Fn(&mut Processes, u64),
) -> Vec<Duration> {
    let mut cluster = Processes::start(3, &[]).await;
    let leader = cluster.leader().await;
    let servers = [cluster.places[&leader].listen.to_string()];
    let client = Client::builder()
        .servers(&servers)
        .timeout(PATIENCE)
        .build()
        .expect("a client");
    let mut callers = Callers::start(&client, 64);
    let mut late = Vec::new();
    for _ in 0..5 {
        let leader = cluster.leader().await;
        callers.back(Instant::now()).await;
        fails(&mut cluster, leader);
        let failed = Instant::now();
        let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
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
