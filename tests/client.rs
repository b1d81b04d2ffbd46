//! The client library: coalescing, order, the way to the leader, retries, segments.

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use common::{PATIENCE, free_ports, id, links::Cluster, own_ip, processes::Processes};
use futures::{StreamExt, future::join_all, stream::BoxStream};
use ratchet::proto::v1::{
    CreateNamespaceRequest, CurrentRequest, CurrentResponse, KeyKind, NextManyRequest,
    NextManyResponse, NextRequest, NextResponse, Route, WatchRouteRequest,
    sequencer_server::{Sequencer, SequencerServer},
};
use ratchet_client::{self, Client, Error, Key};
use tokio::task::JoinSet;
use tonic::{Request, Response, Status, Streaming, transport::server::TcpIncoming};

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

/// Each of `tasks` tasks takes `each` numbers, one after the other, of one of `keys` keys; checks that
/// its own grow, and answers all numbers by key.
async fn take(client: &Client, tasks: u64, each: usize, keys: u64) -> BTreeMap<u64, Vec<u64>> {
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let client = client.clone();
        running.spawn(async move {
            let (key, mut taken) = (task % keys, Vec::new());
            for _ in 0..each {
                let number = client.next("book", key).await.expect("a number");
                assert!(taken.last().is_none_or(|last| *last < number));
                taken.push(number);
            }
            (key, taken)
        });
    }
    let mut all: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    while let Some(done) = running.join_next().await {
        let (key, taken) = done.expect("a task");
        all.entry(key).or_default().extend(taken);
    }
    all
}

fn assert_no_repeats(all: &BTreeMap<u64, Vec<u64>>) {
    for (key, numbers) in all {
        let distinct: BTreeSet<&u64> = numbers.iter().collect();
        assert_eq!(
            distinct.len(),
            numbers.len(),
            "a number of key {key} came twice"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tasks_send_few_messages_and_no_number_is_lost_or_repeated() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let client = client_of(&cluster, &[leader]);
    let requests = &cluster.nodes[&leader].context().metrics.request_seconds;
    let before = requests.count();
    let all = take(&client, 1_000, 20, 10).await;
    assert_no_repeats(&all);
    for (key, numbers) in &all {
        assert_eq!(numbers.iter().max(), Some(&2_000), "key {key} has no gap");
    }
    let messages = requests.count() - before;
    assert!(messages < 2_000, "{messages} messages for 20 000 numbers");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_together_for_one_key_get_one_range_in_the_order_of_asking() {
    let cluster = Cluster::start(1, |_| {}).await;
    let leader = cluster.leader().await;
    let client = client_of(&cluster, &[leader]);
    let requests = &cluster.nodes[&leader].context().metrics.request_seconds;
    let before = requests.count();
    // On a runtime of their own, where all of them wait before the client looks for the first time.
    let asking = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let asked = (0..500u64).map(|n| client.next_range("book", 5, 1 + n % 3));
        runtime.block_on(tokio::task::unconstrained(join_all(asked)))
    });
    let mut last = 0;
    for numbers in asking.await.expect("asked") {
        let numbers = numbers.expect("numbers");
        assert_eq!(numbers.first, last + 1);
        last = numbers.last;
    }
    assert_eq!(requests.count() - before, 1, "one message");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_that_are_left_go_to_as_many_of_the_merged_calls() {
    let cluster = Cluster::start(1, |_| {}).await;
    let leader = cluster.leader().await;
    let few = CreateNamespaceRequest {
        name: "few".into(),
        max: Some(50),
        ..CreateNamespaceRequest::default()
    };
    let mut admin = cluster.client(leader).admin;
    admin.create_namespace(few).await.expect("created");
    let client = client_of(&cluster, &[leader]);
    let all = join_all((0..60).map(|_| client.next("few", 7))).await;
    let numbers: BTreeSet<u64> = (all.iter().flatten().copied()).collect();
    assert_eq!(numbers, (1..=50).collect());
    for refused in all.iter().filter_map(|answer| answer.as_ref().err()) {
        let Error::Server {
            code,
            message: says,
            ..
        } = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!(*code, ratchet_client::Code::OutOfRange);
        assert!(
            says.contains("count is 1, and 0 numbers are left"),
            "{says}"
        );
        assert!(
            says.contains("ratchet namespace update few --max"),
            "{says}"
        );
    }
    assert_eq!(all.iter().filter(|answer| answer.is_err()).count(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_goes_straight_to_the_leader_once_it_knows_it_and_one_that_stays_does_not() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let follower = leader % 3 + 1;
    let forwards = &cluster.nodes[&follower].context().metrics.forwards;
    let client = client_of(&cluster, &[follower]);
    client.next("book", 1).await.expect("a number");
    assert!(forwards.get() > 0, "the first went by way of the follower");
    let straight = async {
        // Until the leader has taken a stream, the follower forwards.
        loop {
            let before = forwards.get();
            client.next("book", 1).await.expect("a number");
            if forwards.get() == before {
                return before;
            }
        }
    };
    let straight = tokio::time::timeout(PATIENCE, straight);
    let before = straight.await.expect("straight to the leader");
    assert_no_repeats(&take(&client, 8, 20, 2).await);
    assert_eq!(forwards.get(), before);
    let servers = [cluster.address(follower).to_string()];
    let staying = Client::builder()
        .servers(&servers)
        .timeout(PATIENCE)
        .follow_leader(false)
        .build()
        .expect("a client");
    assert_no_repeats(&take(&staying, 8, 20, 2).await);
    assert!(forwards.get() > before);
    assert_eq!(staying.servers(), servers);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_go_on_growing_when_leaders_are_killed_and_come_back() {
    let mut cluster = Processes::start(3, &[]).await;
    let servers: Vec<String> = cluster
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    let client = Client::builder()
        .servers(&servers)
        .timeout(PATIENCE)
        .build()
        .expect("a client");
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let leader = cluster.leader().await;
        let taking = {
            let client = client.clone();
            tokio::spawn(async move { take(&client, 100, 200, 4).await })
        };
        cluster.kill(leader);
        rounds.push(taking.await.expect("all got their numbers"));
        cluster.spawn(leader);
    }
    let mut all: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for round in rounds {
        for (key, numbers) in round {
            let before = all.entry(key).or_default();
            let (last, first) = (before.iter().max().copied(), numbers.iter().min());
            assert!(first > last.as_ref(), "key {key}: {first:?} after {last:?}");
            before.extend(numbers);
        }
    }
    assert_no_repeats(&all);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_is_passed_over() {
    let cluster = Processes::start(3, &[]).await;
    let leader = cluster.leader().await;
    let mut addresses = cluster.addresses();
    addresses.rotate_left(leader as usize - 1);
    let servers: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let client = Client::builder()
        .servers(&servers)
        .timeout(Duration::from_secs(6))
        .build()
        .expect("a client");
    let before = client.next("book", 1).await.expect("a number");
    cluster.pause(leader);
    let after = client.next("book", 1).await;
    cluster.resume(leader);
    assert!(after.expect("from another leader") > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_request_fails_alone_among_those_that_it_travels_with() {
    let cluster = Cluster::start(1, |_| {}).await;
    let client = client_of(&cluster, &[cluster.leader().await]);
    let good = (0..50).map(|id| client.next_range("book", Key::Id(id), 1));
    let bad = [
        (Key::Id(1), 0, "count is 0"),
        (Key::Id(2), 2_000_000, "count is 2000000"),
        (Key::from("x"), 1, "takes keys of kind id"),
        (Key::from(""), 1, "the key is empty"),
    ];
    let wrong = (bad.iter()).map(|(key, count, _)| client.next_range("book", key.clone(), *count));
    let all = join_all(good.chain(wrong)).await;
    let (good, wrong) = all.split_at(50);
    for answer in good {
        assert_eq!(answer.as_ref().expect("numbers").first, 1);
    }
    for (answer, (_, _, says)) in wrong.iter().zip(&bad) {
        let Err(Error::Server { code, message, .. }) = answer else {
            panic!("{says}: {answer:?}");
        };
        assert_eq!(*code, ratchet_client::Code::InvalidArgument);
        assert!(message.contains(says), "{message}");
    }
    let unknown = client.next("film", 1).await;
    assert!(unknown.unwrap_err().to_string().contains("\"film\""));
}

/// Somebody who accepts one connection after the other, reads what is said first, and hangs up.
async fn hangs_up() -> (String, JoinSet<()>) {
    let listener = tokio::net::TcpListener::bind((own_ip(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut hanging_up = JoinSet::new();
    hanging_up.spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            connection.readable().await.unwrap();
        }
    });
    (address, hanging_up)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_connection_breaks_goes_to_another_server_and_a_change_does_not() {
    let cluster = Cluster::start(1, |_| {}).await;
    cluster.leader().await;
    let (breaks, _hanging_up) = hangs_up().await;
    let servers = [breaks.clone(), cluster.address(1).to_string()];
    let client = || {
        let builder = Client::builder().servers(&servers).timeout(PATIENCE);
        builder.build().expect("a client")
    };
    assert_eq!(client().status().await.expect("from the other").node, 1);
    // It may have been made.
    let changed = client().transfer(Some(1)).await.unwrap_err();
    assert_eq!(
        changed.code(),
        Some(ratchet_client::Code::Unavailable),
        "{changed}"
    );
    assert!(changed.to_string().starts_with(&breaks), "{changed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_servers_are_all_gone_says_which_and_why_at_the_deadline() {
    let [nobody] = free_ports::<1>(own_ip());
    let client = Client::builder()
        .servers(&[nobody.to_string()])
        .timeout(Duration::from_millis(300))
        .build()
        .expect("a client");
    let asked = tokio::time::timeout(PATIENCE, client.next("book", 1)).await;
    let Err(error @ Error::Server { .. }) = asked.expect("in time") else {
        panic!("nobody can have answered");
    };
    assert_eq!(error.code(), Some(ratchet_client::Code::Unavailable));
    assert!(error.is_retryable());
    let said = error.to_string();
    assert!(said.starts_with(&nobody.to_string()), "{said}");
    assert!(!said.contains("stays"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stays_says_so_when_its_servers_are_gone() {
    let [nobody] = free_ports::<1>(own_ip());
    let servers = [nobody.to_string()];
    let client = Client::builder()
        .servers(&servers)
        .timeout(Duration::from_millis(300))
        .follow_leader(false)
        .build()
        .expect("a client");
    let number = client.next("book", 1).await.map(drop);
    let status = client.status().await.map(drop);
    for answer in [number, status] {
        let error = answer.expect_err("nobody can have answered").to_string();
        let says = format!("stays with the servers that it was given, {nobody}");
        assert!(error.contains(&says), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_are_disjoint_and_most_of_their_numbers_cost_no_request() {
    let cluster = Cluster::start(1, |_| {}).await;
    let leader = cluster.leader().await;
    let client = client_of(&cluster, &[leader]);
    let requests = &cluster.nodes[&leader].context().metrics.request_seconds;
    let before = requests.count();
    let segments = [(); 2].map(|()| client.segment("book", 3, 100));
    let mut seen = BTreeSet::new();
    let mut last = [0; 2];
    for _ in 0..1_000 {
        for (segment, last) in segments.iter().zip(&mut last) {
            let number = segment.next().await.expect("a number");
            assert!(number > *last, "within a segment's holder numbers grow");
            assert!(seen.insert(number), "{number} came twice");
            *last = number;
        }
    }
    let asked = requests.count() - before;
    // Two of them may travel together.
    assert!(
        (10..=26).contains(&asked),
        "{asked} requests for 2 x 1000 numbers"
    );
    let highest = cluster.client(leader).current("book", id(3)).await.unwrap();
    assert!(highest >= seen.last().copied());
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_long_names_at_once_fit_the_messages_at_the_leader_and_through_a_follower() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let room = CreateNamespaceRequest {
        name: "room".into(),
        key_kind: KeyKind::Name.into(),
        ..CreateNamespaceRequest::default()
    };
    let mut admin = cluster.client(leader).admin;
    admin.create_namespace(room).await.expect("created");
    for (node, number) in [(leader, 1), (leader % 3 + 1, 2)] {
        let servers = [cluster.address(node).to_string()];
        let client = Client::builder()
            .servers(&servers)
            .timeout(PATIENCE)
            .follow_leader(false)
            .build()
            .expect("a client");
        let names = (0..12_000).map(|n| format!("{n:0>256}"));
        let asked = names.map(|name| client.next("room", name));
        for answer in join_all(asked).await {
            assert_eq!(answer.expect("a number"), number);
        }
    }
}

/// A server that hands out the same number again and again.
struct Broken;

#[tonic::async_trait]
impl Sequencer for Broken {
    type NextManyStream = BoxStream<'static, Result<NextManyResponse, Status>>;

    async fn next_many(
        &self,
        requests: Request<Streaming<NextManyRequest>>,
    ) -> Result<Response<Self::NextManyStream>, Status> {
        let answers = requests.into_inner().map(|request| {
            let request = request?;
            Ok(NextManyResponse {
                id: request.id,
                firsts: vec![7; request.ids.len()],
                increment: 1,
                ..NextManyResponse::default()
            })
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn next(&self, _: Request<NextRequest>) -> Result<Response<NextResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn current(
        &self,
        _: Request<CurrentRequest>,
    ) -> Result<Response<CurrentResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    type WatchRouteStream = BoxStream<'static, Result<Route, Status>>;

    async fn watch_route(
        &self,
        _: Request<WatchRouteRequest>,
    ) -> Result<Response<Self::WatchRouteStream>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_does_not_grow_is_not_handed_on() {
    let listener = tokio::net::TcpListener::bind((own_ip(), 0)).await.unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let serving = tonic::transport::Server::builder()
        .add_service(SequencerServer::new(Broken))
        .serve_with_incoming(TcpIncoming::from(listener));
    let serving = tokio::spawn(serving);
    let client = Client::builder()
        .servers(std::slice::from_ref(&server))
        .timeout(PATIENCE)
        .build()
        .expect("a client");
    assert_eq!(client.next("book", 1).await.expect("the first"), 7);
    assert_eq!(client.next("book", 2).await.expect("of another key"), 7);
    let again = client.next("book", 1).await;
    let Err(Error::Disorder { last, number, .. }) = &again else {
        panic!("handed on: {again:?}");
    };
    assert_eq!((*last, *number), (7, 7));
    serving.abort();
}
