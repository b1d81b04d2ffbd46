//! A limit that waiting does not lift: nobody is told to come again, and nobody tries again by itself.

use std::{fs, path::Path, process::Output};

use crate::common::{
    cluster::Cluster,
    http, id, in_time, other_than,
    processes::ratchet,
    rust_client::{client_of, staying_at},
    with_http, with_resp,
};
use ratchet::{
    metrics::Interface,
    node::Config,
    proto::{
        Refusal, retry_after_ms,
        v1::{CreateNamespaceRequest, Failure, NextManyRequest, RaiseRequest, Reason},
    },
};
use ratchet_client::{Code, Key};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::Status;

/// The parts of each refusal's text.
const SAYS: [&str; 3] = ["\"few\"", "keys_max 2", "namespace update few --keys-max N"];

fn quiet(config: &mut Config) {
    with_http(config);
    with_resp(config);
}

/// A namespace of two keys, 1 and 2.
async fn with_a_full_namespace() -> Cluster {
    let cluster = Cluster::start(3, quiet).await;
    let few = CreateNamespaceRequest {
        name: "few".to_owned(),
        keys_max: Some(2),
        ..CreateNamespaceRequest::default()
    };
    let mut client = cluster.client(cluster.leader().await);
    let created = client.admin.create_namespace(few).await;
    created.expect("created");
    for key in [1, 2] {
        client.try_next("few", id(key), 1).await.expect("a number");
    }
    cluster
}

/// How many calls of gRPC clients were refused so far.
fn refused(cluster: &Cluster) -> u64 {
    let nodes = cluster.nodes.values();
    nodes
        .map(|node| {
            let errors = node.context().metrics.errors.of(Interface::grpc);
            errors.get(tonic::Code::FailedPrecondition)
        })
        .sum()
}

fn assert_says(text: &str) {
    for says in SAYS {
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_beyond_keys_max_is_refused_once_without_a_time_to_come_again() {
    let cluster = with_a_full_namespace().await;
    let leader = cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let mut client = cluster.client(node);
        let next = client.try_next("few", id(3), 1).await;
        let raise = RaiseRequest {
            namespace: "few".to_owned(),
            key: id(3),
            at_least: 7,
            ..RaiseRequest::default()
        };
        let raised = client.sequencer.raise(raise).await.map(drop);
        for status in [next.map(drop), raised].map(|answer| answer.expect_err("it is refused")) {
            assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status}");
            assert_says(status.message());
            let pushback = status.metadata().get("grpc-retry-pushback-ms");
            assert_eq!(pushback, None, "{status}");
        }
        let many = NextManyRequest {
            namespace: "few".to_owned(),
            ids: vec![1, 3],
            ..NextManyRequest::default()
        };
        let stream = client.sequencer.next_many(tokio_stream::once(many)).await;
        let answer = stream.expect("a stream").into_inner().message().await;
        let answer = answer.expect("an answer").expect("an answer");
        let failure = answer.refused[0].failure.as_ref().expect("why");
        assert_eq!(failure.retry_after_ms, None);

        // Another member would be asked as well if the answer took long.
        let client = staying_at(&cluster, node);
        // It learns that the namespace knows no request ids, which is a refusal, too.
        client.next("few", 1).await.expect("a number");
        let before = refused(&cluster);
        let next = client.next("few", 3).await.map(drop);
        let raise = client.raise("few", 3, 7).await.map(drop);
        let many = client.raise_many("few", [(Key::Id(3), 7)]).await.map(drop);
        for error in [next, raise, many].map(|answer| answer.expect_err("it is refused")) {
            assert_eq!(error.code(), Some(Code::FailedPrecondition), "{error}");
            assert!(!error.is_retryable());
            assert_says(&error.to_string());
        }
        assert_eq!(refused(&cluster), before + 3, "each was asked for once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_and_redis_clients_are_not_told_to_come_again_either() {
    let cluster = with_a_full_namespace().await;
    let addresses = cluster.nodes[&1].addresses();
    let port = addresses.http.expect("a port");
    for what in
        ["POST /v1/namespaces/few/keys/3:next", "POST /v1/namespaces/few/keys/3:raise?at_least=7"]
    {
        let page = http(port, what, "", "").await;
        assert_eq!(page.status, 409, "{}", page.body);
        assert!(page.body.contains("keys_max 2"), "{}", page.body);
        let head = page.head.to_lowercase();
        assert!(!head.contains("retry-after"), "{head}");
    }
    let port = addresses.resp.expect("a port");
    let mut socket = TcpStream::connect(port).await.expect("a connection");
    for command in ["INCR few:3", "SET few:3 7"] {
        let line = format!("{command}\r\n");
        socket.write_all(line.as_bytes()).await.expect("sent");
        let mut reply = vec![0; 1_024];
        let read = in_time("a reply", socket.read(&mut reply)).await;
        let reply = String::from_utf8_lossy(&reply[..read.expect("a reply")]).into_owned();
        assert!(reply.starts_with("-ERR namespace"), "{command}: {reply}");
        assert_says(&reply);
    }
}

#[test]
fn a_node_that_is_busy_says_when_to_come_again_also_inside_of_messages() {
    let refused = |reason| Refusal::new(reason, "many wait".to_owned());
    let carried = |refusal: Refusal| {
        let told = Status::from(Refusal::from(Failure::from(refusal)));
        (retry_after_ms(&told), Refusal::from(told).retry_after_ms)
    };
    assert_eq!(carried(refused(Reason::Busy).retry_after(100)), (Some(100), Some(100)));
    assert_eq!(carried(refused(Reason::KeysMaxReached)), (None, None));
}

async fn import(cluster: &Cluster, file: &Path) -> Output {
    let servers: Vec<String> = (cluster.addresses().iter()).map(ToString::to_string).collect();
    let mut command = ratchet();
    command.args(["import", "few"]).arg(file);
    command.args(["--server", &servers.join(",")]);
    let ended = tokio::task::spawn_blocking(move || command.output());
    ended.await.expect("no panic").expect("the command runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_beyond_keys_max_ends_at_once_and_says_how_to_raise_it() {
    let cluster = with_a_full_namespace().await;
    let client = client_of(&cluster, &[1]);
    let dir = tempfile::TempDir::new().expect("a temporary directory");
    let file = dir.path().join("numbers.csv");
    // More keys than `keys_max` allows: nothing is asked for.
    fs::write(&file, "1,50\n2,60\n3,70\n").expect("a file");
    let output = import(&cluster, &file).await;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert_says(&text);
    assert!(text.contains("nothing was raised"), "{text}");
    assert!(text.contains("the file needs 3 at least"), "{text}");
    assert_eq!(refused(&cluster), 0);
    let last = client.current("few", 1).await.expect("an answer");
    assert_eq!(last, Some(1));
    // There would be room, were there no other keys.
    fs::write(&file, "1,50\n3,70\n").expect("a file");
    let output = import(&cluster, &file).await;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert_says(&text);
    assert!(text.contains("0 of 2 rows are raised"), "{text}");
    assert_eq!(refused(&cluster), 1, "the message was sent once: {text}");
}
