//! The harm that callers may do to a node by connecting, keeping silent, and hanging up.

use std::{
    net::SocketAddr,
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{
    Client, PATIENCE, channel,
    cluster::Cluster,
    eventually, free_ports, id, in_time, own_ip,
    processes::{Process, Processes},
    until, with_admin_port,
};
use ratchet::{
    metrics::Interface,
    proto::v1::{CreateNamespaceRequest, NextManyRequest},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    time::Instant,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest,
};

/// "I speak HTTP/2", and no settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A connection over which nothing else is sent.
async fn connection(address: SocketAddr, says: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(says).await.expect("a few bytes");
    stream
}

/// Waits until the other side has ended the connection.
async fn ended(mut stream: TcpStream) {
    let reading = async {
        let mut said = [0; 1_024];
        while stream.read(&mut said).await.is_ok_and(|read| read > 0) {}
    };
    in_time("the end of the connection", reading).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_end_and_those_with_a_call_under_way_stay() {
    let cluster = Cluster::start(1, |config| config.connection_idle_ms = 2_000).await;
    let shared = cluster.nodes[&1].context().clone();
    let request =
        NextManyRequest { namespace: "book".into(), ids: vec![1], ..NextManyRequest::default() };
    // A call that is quiet for longer than a connection may be idle. On a slow machine the client's own connection may end
    // before its first call.
    let (messages, mut answers, first) = eventually("a call under way", async || {
        let (messages, stream) = mpsc::channel(1);
        messages.send(request.clone()).await.ok()?;
        let answers = cluster.client(1).sequencer.next_many(ReceiverStream::new(stream)).await;
        let mut answers = answers.ok()?.into_inner();
        let first = answers.message().await.ok()??.firsts[0];
        Some((messages, answers, first))
    })
    .await;
    let config = &cluster.configs[&1];
    let mut silent = Vec::new();
    for says in [&b""[..], b"PRI", PREFACE] {
        for _ in 0..50 {
            silent.push(connection(config.listen, says).await);
        }
        silent.push(connection(config.peer_listen, says).await);
    }
    for stream in silent {
        ended(stream).await;
    }
    let others_are_gone = || shared.metrics.client_connections.of(Interface::grpc).get() <= 1;
    until("places are free again", others_are_gone).await;
    messages.send(request).await.unwrap();
    let second = in_time("an answer", answers.message()).await;
    assert!(second.unwrap().expect("an answer").firsts[0] > first);
}

/// Each of them connects anew, perhaps to another node, and loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_too_old_ends_its_streams_and_is_told_to_begin_no_call() {
    let cluster = Cluster::start(1, |config| config.connection_age_max_ms = 100).await;
    let mut client = cluster.client(1);
    let request =
        NextManyRequest { namespace: "book".into(), ids: vec![1], ..NextManyRequest::default() };
    let mut last = eventually("a stream that is answered and then ended", async || {
        let (messages, stream) = mpsc::channel(1);
        messages.send(request.clone()).await.ok()?;
        let answers = client.clone().sequencer.next_many(ReceiverStream::new(stream)).await;
        let mut answers = answers.ok()?.into_inner();
        let first = answers.message().await.ok()??.firsts[0];
        let end = in_time("the end of the stream", answers.message()).await.ok()?;
        end.is_none().then_some(first)
    })
    .await;
    // Calls go on, over connections that end in turn.
    let connections = &cluster.nodes[&1].context().metrics.client_connections;
    for _ in 0..3 {
        let number = client.next_at_last(1).await;
        assert!(number > last, "{number}");
        last = number;
        until("the connection is gone", || connections.of(Interface::grpc).get() == 0).await;
    }
}

/// How many connections of gRPC clients the only node has.
fn open_connections(cluster: &Cluster) -> i64 {
    cluster.nodes[&1].context().metrics.client_connections.of(Interface::grpc).get()
}

/// Opens as many connections as the only node has left, beside the one that the test has.
async fn all_connections(cluster: &Cluster) -> Vec<TcpStream> {
    // The connections by which the cluster was started end a moment later.
    until("no other connection is open", || open_connections(cluster) == 1).await;
    let most = i64::try_from(cluster.configs[&1].client_connections_max).expect("a few");
    let mut held = Vec::new();
    while open_connections(cluster) < most {
        held.push(connection(cluster.address(1), PREFACE).await);
        tokio::task::yield_now().await;
    }
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_beyond_the_limit_are_refused_until_one_leaves() {
    let cluster = Cluster::start(1, |config| {
        config.client_connections_max = 4;
        config.client_share_percent = 100;
    })
    .await;
    let address = cluster.address(1);
    let metrics = &cluster.nodes[&1].context().metrics;
    let mut client = cluster.client(1);
    client.next(1).await.unwrap();
    let held = all_connections(&cluster).await;
    ended(connection(address, b"").await).await;
    assert!(metrics.client_connections_refused.get(Interface::grpc) > 0);
    client.next(1).await.expect("who is connected does not notice");
    drop(held);
    cluster.client(1).next_at_last(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_ports_for_clients_keep_no_administrator_out_and_idle_connections_make_room_for_one() {
    let cluster = Cluster::start(1, |config| {
        with_admin_port(config);
        config.client_connections_max = 4;
        config.client_calls_max = 1;
        config.client_share_percent = 100;
    })
    .await;
    let (address, admin) = (cluster.address(1), cluster.admin_address(1));
    // These are all calls, and all connections.
    let (_messages, stream) = mpsc::channel(1);
    let mut client = cluster.client(1);
    let answers = client.sequencer.next_many(ReceiverStream::new(stream));
    let _answers = in_time("a stream", answers).await.expect("the only call");
    let refused = client.next(1).await.expect_err("a second one");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let _held = all_connections(&cluster).await;
    ended(connection(address, b"").await).await;
    // More than the port for administrators has.
    let mut idle = Vec::new();
    for round in 0..40 {
        idle.push(connection(admin, if round % 2 == 0 { PREFACE } else { b"" }).await);
    }
    for round in 0..3 {
        let mut administrator = Client::new(admin);
        administrator.status().await.expect("the status");
        let name = format!("order-{round}");
        let asked = CreateNamespaceRequest { name, ..CreateNamespaceRequest::default() };
        administrator.admin.create_namespace(asked).await.expect("a namespace");
        administrator.next(1).await.expect("a number");
    }
    for stream in idle.drain(..20) {
        ended(stream).await;
    }
    assert_eq!(open_connections(&cluster), 4, "they do not count");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_connections_that_say_nothing() {
    let mut cluster = Cluster::start(1, |config| config.shutdown_timeout_ms = 600_000).await;
    let config = &cluster.configs[&1];
    let _silent = connection(config.listen, b"").await;
    let _half = connection(config.listen, b"PRI").await;
    let _idle = connection(config.listen, PREFACE).await;
    let _peer = connection(config.peer_listen, PREFACE).await;
    let node = cluster.nodes.remove(&1).unwrap();
    in_time("the end of the node", node.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_whose_deadlines_pass_while_a_node_stalls_leave_the_connection_to_the_others() {
    let cluster = Processes::start(1, &[]).await;
    let mut client = cluster.client(1);
    client.next(1).await.unwrap();
    cluster.pause(1);
    let mut patient = client.clone();
    let waits = tokio::spawn(async move { patient.next(1).await });
    // Nearly twice as many as one connection may have under way.
    for _ in 0..2 {
        let calls = (0..1_000).map(|_| {
            let mut hasty = client.clone().patient(Duration::from_millis(100));
            async move { hasty.next(1).await }
        });
        for call in futures::future::join_all(calls).await {
            call.expect_err("nobody answers while the node stalls");
        }
    }
    cluster.resume(1);
    let answer = waits.await.unwrap();
    answer.expect("the connection is still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_leader_is_refused_after_the_longest_time_that_is_configured() {
    let mut cluster = Cluster::configured(3, |config| {
        config.request_timeout_ms = 200;
        config.request_timeout_max_ms = 200;
    });
    // Alone it has no leader.
    cluster.start_node(2).await;
    let asked = Instant::now();
    let mut client = cluster.client(2);
    let unary = client.next(1).await.unwrap_err();
    let streamed = client.next_by_stream(1).await.unwrap_err();
    for refused in [unary, streamed] {
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    }
    assert!(asked.elapsed() < PATIENCE / 2, "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_no_leader_could_answer_is_refused_without_waiting_for_one() {
    let mut cluster = Cluster::configured(3, |_| {});
    cluster.start_node(2).await;
    let mut client = cluster.client(2);
    for name in ["", "a b", &"n".repeat(65)] {
        let refused = client.try_next(name, id(1), 1).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_who_may_ask_again_what_the_api_is() {
    let mut cluster = Cluster::start(1, |config| config.shutdown_timeout_ms = 600_000).await;
    let (messages, stream) = mpsc::channel(1);
    let services = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..ServerReflectionRequest::default()
    };
    messages.send(services).await.unwrap();
    let mut client = ServerReflectionClient::new(channel(cluster.address(1)));
    let answers = client.server_reflection_info(ReceiverStream::new(stream)).await;
    let mut answers = answers.unwrap().into_inner();
    in_time("an answer", answers.message()).await.unwrap().expect("an answer");
    let node = cluster.nodes.remove(&1).expect("a node");
    in_time("the end of the node", node.stop()).await;
}

/// A sole node that may open at most `files` files.
fn node_with_files(files: u32, dir: &TempDir, [listen, peer_listen]: [SocketAddr; 2]) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_ratchet"))
        .args(["start", "--metrics-listen=off", "--http-listen=off", "--resp-listen=off"])
        .args(["--dev", "--log-keep-bytes", "1000"])
        .args(["--listen", &listen.to_string()])
        .args(["--peer-listen", &peer_listen.to_string()])
        .arg("--data-dir")
        .arg(dir.path().join("data"))
        .stdin(Stdio::null());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn more_clients_than_there_are_files_leave_the_disk_the_files_that_it_needs() {
    let dir = TempDir::new().unwrap();
    let [listen, peer_listen] = free_ports(own_ip());
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let mut command = node_with_files(600, &dir, [listen, peer_listen]);
    let _node = Process(command.stderr(log).spawn().unwrap());
    let mut client = Client::new(listen);
    client.next_at_last(1).await;
    // A node writes its log beside its work.
    until("the node says how many clients it takes", || {
        let said = std::fs::read_to_string(dir.path().join("log")).unwrap();
        said.contains("only 88 client connections")
    })
    .await;
    let mut held = Vec::new();
    for _ in 0..700 {
        held.push(connection(listen, b"PRI").await);
    }
    // Each fresh key is a log entry.
    for key in 2..100 {
        client.next(key).await.expect("the node goes on");
    }
}

#[test]
fn a_node_that_may_open_too_few_files_says_so_and_does_not_start() {
    let dir = TempDir::new().unwrap();
    let ended = node_with_files(300, &dir, free_ports(own_ip())).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(78), "{said}");
    for part in ["may open 300 files", "512", "LimitNOFILE"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}
