//! The client library when servers are lost, say nothing, break connections, or are wrong.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{
    HURRIED,
    cluster::Cluster,
    eventually, free_ports, others, own_ip,
    processes::Processes,
    rust_client::{assert_no_repeats, builder, client, create_with_format, take},
};
use futures::{StreamExt, stream::BoxStream};
use ratchet::proto::v1::{
    CurrentManyRequest, CurrentManyResponse, CurrentRequest, CurrentResponse, ExportRequest,
    ExportResponse, NextManyRequest, NextManyResponse, NextRequest, NextResponse, RaiseManyRequest,
    RaiseManyResponse, RaiseRequest, RaiseResponse, RaiseSectionsRequest, Route, WatchRouteRequest,
    sequencer_server::{Sequencer, SequencerServer},
};
use ratchet_client::{Code, Error};
use tokio::task::JoinSet;
use tonic::{Request, Response, Status, Streaming, transport::server::TcpIncoming};

#[tokio::test(flavor = "multi_thread")]
async fn numbers_go_on_growing_when_leaders_are_killed_and_come_back() {
    let mut cluster = Processes::start(3, &HURRIED).await;
    let client = client(cluster.addresses());
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
async fn a_call_to_a_server_that_says_nothing_is_answered_by_another_server() {
    let cluster = Processes::start(3, &HURRIED).await;
    let leader = cluster.leader().await;
    let mut addresses = cluster.addresses();
    addresses.rotate_left(leader as usize - 1);
    // The silent server costs a third of it.
    let client = builder(addresses).timeout(Duration::from_secs(60));
    let client = client.build().unwrap();
    let before = client.next("book", 1).await.expect("a number");
    cluster.pause(leader);
    let after = client.next("book", 1).await;
    cluster.resume(leader);
    assert!(after.expect("from another leader") > before);
}

/// A server that accepts each connection, reads the first bytes, and hangs up.
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
    // The order is drawn. The first server is asked first.
    let clients = std::iter::repeat_with(|| client(&servers));
    let mut clients = clients.filter(|client| client.servers()[0] == breaks);
    let reading = clients.next().expect("a client");
    assert_eq!(reading.status().await.expect("from the other").node, 1);
    // The change may have been made, so it is not repeated.
    let changing = clients.next().expect("a client");
    let changed = changing.transfer(Some(1)).await.unwrap_err();
    assert!(matches!(changed, Error::OutcomeUnknown { .. }), "{changed}");
    assert!(!changed.is_retryable() && changed.to_string().starts_with(&breaks), "{changed}");
    // The next one is asked of the other.
    create_with_format(&changing, "orders", "snowflake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_servers_are_all_gone_says_which_and_why_at_the_deadline() {
    let [nobody] = free_ports::<1>(own_ip());
    let client = builder([nobody]).timeout(Duration::from_millis(300));
    let client = client.build().unwrap();
    // On a busy machine the deadline may pass before the connection is refused.
    let error = eventually("a refusal", async || {
        let error = client.next("book", 1).await.expect_err("nobody can have answered");
        (error.code() != Some(Code::DeadlineExceeded)).then_some(error)
    });
    let error = error.await;
    assert_eq!(error.code(), Some(Code::Unavailable), "{error}");
    assert!(error.is_retryable());
    let said = error.to_string();
    assert!(said.starts_with(&nobody.to_string()), "{said}");
    assert!(!said.contains("stays"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_a_server_that_knows_no_leader_is_unavailable_at_the_deadline() {
    let mut cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let [alive, dead] = others(leader);
    cluster.crash(dead).await;
    cluster.crash(leader).await;
    let client = builder([cluster.address(alive)]).timeout(Duration::from_millis(500));
    let client = client.build().unwrap();
    // On a busy machine the client may give up before the server says it. A request that was sent to the leader when it
    // ended may be done.
    eventually("what the server says", async || {
        let error = client.next("book", 1).await.expect_err("nobody leads");
        let says = error.to_string().contains("leader");
        (says && error.code() == Some(Code::Unavailable)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_follow_the_leader_says_so_when_its_servers_are_gone() {
    let [nobody] = free_ports::<1>(own_ip());
    let client = builder([nobody]).timeout(Duration::from_millis(300));
    let client = client.follow_leader(false).build().unwrap();
    let number = client.next("book", 1).await.map(drop);
    let status = client.status().await.map(drop);
    for answer in [number, status] {
        let error = answer.expect_err("nobody can have answered").to_string();
        let says = format!("stays with the servers that it was given, {nobody}");
        assert!(error.contains(&says), "{error}");
    }
}

/// A server that hands out the same number again and again.
#[derive(Default)]
struct Broken {
    /// The cluster's id in the route, if its caller wants one.
    cluster_id: Option<&'static str>,
    /// The versions of the route that its callers knew.
    known: Arc<Mutex<Vec<u64>>>,
}

impl Broken {
    /// Serves until the answer is dropped. Answers its address, too.
    async fn serve(self) -> (String, JoinSet<()>) {
        let listener = tokio::net::TcpListener::bind((own_ip(), 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = tonic::transport::Server::builder()
            .add_service(SequencerServer::new(self))
            .serve_with_incoming(TcpIncoming::from(listener));
        let mut server = JoinSet::new();
        server.spawn(async move { serving.await.expect("it serves") });
        (address, server)
    }
}

#[tonic::async_trait]
impl Sequencer for Broken {
    type NextManyStream = BoxStream<'static, Result<NextManyResponse, Status>>;

    async fn next_many(
        &self, requests: Request<Streaming<NextManyRequest>>,
    ) -> Result<Response<Self::NextManyStream>, Status> {
        let (cluster_id, known) = (self.cluster_id, self.known.clone());
        let answers = requests.into_inner().map(move |request| {
            let request = request?;
            known.lock().unwrap().push(request.route_version);
            let wanted = cluster_id.filter(|_| request.route_version < 5);
            let route = |id: &str| {
                Box::new(Route { version: 5, cluster_id: id.to_owned(), ..Route::default() })
            };
            Ok(NextManyResponse {
                id: request.id,
                firsts: vec![7; request.ids.len()],
                increment: 1,
                route: wanted.map(route),
                ..NextManyResponse::default()
            })
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn next(&self, _: Request<NextRequest>) -> Result<Response<NextResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn current(
        &self, _: Request<CurrentRequest>,
    ) -> Result<Response<CurrentResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn raise(&self, _: Request<RaiseRequest>) -> Result<Response<RaiseResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn raise_many(
        &self, _: Request<RaiseManyRequest>,
    ) -> Result<Response<RaiseManyResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn raise_sections(
        &self, _: Request<RaiseSectionsRequest>,
    ) -> Result<Response<RaiseManyResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn current_many(
        &self, _: Request<CurrentManyRequest>,
    ) -> Result<Response<CurrentManyResponse>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    type ExportStream = BoxStream<'static, Result<ExportResponse, Status>>;

    async fn export(
        &self, _: Request<ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    type WatchRouteStream = BoxStream<'static, Result<Route, Status>>;

    async fn watch_route(
        &self, _: Request<WatchRouteRequest>,
    ) -> Result<Response<Self::WatchRouteStream>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_does_not_grow_becomes_an_error() {
    let (server, _serving) = Broken::default().serve().await;
    let client = client([&server]);
    assert_eq!(client.next("book", 1).await.expect("the first"), 7);
    assert_eq!(client.next("book", 2).await.expect("of another key"), 7);
    let again = client.next("book", 1).await;
    let Err(Error::Disorder { last, number, .. }) = &again else {
        panic!("handed on: {again:?}");
    };
    assert_eq!((*last, *number), (7, 7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_follow_the_leader_is_told_the_route_once() {
    const CLUSTER: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    let known = Arc::new(Mutex::default());
    let server = Broken { cluster_id: Some(CLUSTER), known: known.clone() };
    let (address, _serving) = server.serve().await;
    let client = builder([&address]).follow_leader(false).build().unwrap();
    for key in 1..=3 {
        assert_eq!(client.next("book", key).await.expect("a number"), 7);
    }
    assert_eq!(client.cluster_id().as_deref(), Some(CLUSTER), "from the first answer");
    assert_eq!(*known.lock().unwrap(), [0, u64::MAX, u64::MAX]);
}
