//! TLS between the nodes of a cluster, and with clients.

mod expiry;
mod false_sender;
mod files;
mod handshakes;
mod probes;
mod reload;
mod removed_node;

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use crate::common::{
    HURRIED, PATIENCE, append,
    certificates::Certificates,
    closed::{asking, create, grant},
    eventually, free_ports, in_time,
    links::listening_at,
    own_ip,
    processes::{Process, Processes, ratchet, run},
    rust_client::{Load, client},
    until,
};
use ratchet::{
    consensus::Transport,
    proto::{
        peer::{AdministerRequest, Header, HelloRequest, RaftMessage, peer_client::PeerClient},
        v1::{
            FoundRequest, NextRequest, access_client::AccessClient, admin_client::AdminClient,
            sequencer_client::SequencerClient,
        },
    },
    server::GrpcTransport,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::client::TlsStream;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use crate::common::id as key;

fn greeting(from: u64, to: u64) -> HelloRequest {
    let election_timeout_ms = HURRIED[1].parse().expect("milliseconds");
    HelloRequest { cluster: "test".to_owned(), from, to, election_timeout_ms, ..Default::default() }
}

/// Starts node `id` of a living cluster again, and waits until it answers.
async fn restart(cluster: &mut Processes, id: u64) {
    cluster.terminate(id).await;
    cluster.spawn(id);
    cluster.client(id).next_at_last(u64::MAX).await;
}

/// Changes the files of the nodes, and waits until all use the changed files.
async fn change(cluster: &Processes, what: impl FnOnce()) {
    let in_use = |id| cluster.said(id, "changed files are in use");
    let before = [1, 2, 3].map(in_use);
    what();
    for id in 1..=3 {
        let in_use = || in_use(id) > before[id as usize - 1];
        until("the changed files are in use", in_use).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
pub async fn a_living_cluster_turns_tls_between_its_nodes_on_node_by_node_and_changes_its_ca() {
    let mut cluster = Processes::start(3, &HURRIED).await;
    let certificates = Certificates::new();
    let hosts: Vec<String> =
        cluster.places.values().map(|place| place.peer_listen.ip().to_string()).collect();
    for id in 1..=3 {
        certificates.node(id, &hosts[id as usize - 1], &[]);
    }
    let taking = Load::start(client(cluster.addresses()), "book");
    for mode in ["accept", "send", "require"] {
        for id in 1..=3 {
            cluster.own_flags.insert(id, certificates.peer_flags(id, mode));
            restart(&mut cluster, id).await;
        }
    }
    // A new CA: the nodes trust both, then have new certificates, then trust the new one alone.
    change(&cluster, || certificates.make(&["ca", "--add"])).await;
    change(&cluster, || {
        for id in 1..=3 {
            certificates.node(id, &hosts[id as usize - 1], &["--replace"]);
        }
    })
    .await;
    change(&cluster, || {
        let both = String::from_utf8(certificates.read("ca.crt")).expect("PEM");
        let end = "-----END CERTIFICATE-----\n";
        let new = both.split_inclusive(end).next().expect("a certificate");
        assert!(new.len() < both.len(), "there were two");
        fs::write(certificates.path("ca.crt"), new).expect("written");
    })
    .await;
    // All connections begin anew.
    for id in 1..=3 {
        restart(&mut cluster, id).await;
    }
    assert!(taking.stop().await > 0);
    strangers_are_refused(&cluster, &certificates).await;
}

/// Nodes do not speak with a peer that has no certificate of a node, or another node's.
async fn strangers_are_refused(cluster: &Processes, certificates: &Certificates) {
    let peer = cluster.places[&1].peer_listen;
    let plain = GrpcTransport::default();
    let address = peer.to_string();
    let refused = plain.hello(listening_at(&address), greeting(2, 1), PATIENCE).await;
    refused.expect_err("it speaks no TLS");
    certificates.client("billing");
    // The CA of another cluster has signed for its node 2, and this one's CA for a node of another cluster.
    let others = Certificates::new();
    others.node(2, "localhost", &[]);
    for end in ["crt", "key"] {
        let [from, to] = [format!("node-2.{end}"), format!("stranger.{end}")];
        fs::copy(others.path(&from), certificates.path(&to)).expect("copied");
    }
    certificates.make(&["node", "--cluster", "prod", "--node-id", "5", "--host", "localhost"]);
    let other = Some(Code::FailedPrecondition);
    for (shown, from, refused_as) in [
        (None, 2, Some(Code::Unavailable)),
        (Some("client-billing"), 2, Some(Code::Unavailable)),
        (Some("stranger"), 2, Some(Code::Unavailable)),
        (Some("node-5"), 5, Some(Code::Unavailable)),
        (Some("node-2"), 3, other),
        (Some("node-2"), 2, None),
    ] {
        let mut peers = PeerClient::new(certificates.channel(peer, shown));
        let greeted = in_time("an answer", peers.hello(greeting(from, 1))).await;
        assert_eq!(code_of(&greeted), refused_as, "greeting from {from} with {shown:?}");
        let header = Header { cluster: "test".to_owned(), from, to: 1, ..Header::default() };
        let message = RaftMessage { header: Some(header), ..RaftMessage::default() };
        let appended = in_time("an answer", append(&mut peers, message)).await;
        // The header does not name the directory, which only members know.
        let refused_as = refused_as.or(other);
        assert_eq!(code_of(&appended), refused_as, "append from {from} with {shown:?}");
        if refused_as == other {
            let told = appended.expect_err("refused").message().to_owned();
            assert_eq!(told.contains("whose certificate is node 2's"), from == 3, "{told}");
        }
    }
    // A node that is no member, as one that was removed, may ask for the members, and for nothing on behalf of others.
    certificates.node(4, "localhost", &[]);
    let mut peers = PeerClient::new(certificates.channel(peer, Some("node-4")));
    in_time("an answer", peers.hello(greeting(4, 1))).await.expect("it is told");
    let header = Header { cluster: "test".to_owned(), from: 4, to: 1, ..Header::default() };
    let asked = AdministerRequest { header: Some(header), ..AdministerRequest::default() };
    let refused = in_time("an answer", peers.administer(asked)).await.expect_err("no member");
    assert!(refused.message().contains("node 4 is no member"), "{refused}");
}

/// The code of a failure. A connection that ends is as one that is refused.
fn code_of<T>(answered: &Result<T, Status>) -> Option<Code> {
    let code = answered.as_ref().err()?.code();
    let is_broken = [Code::Unknown, Code::Cancelled, Code::Internal].contains(&code);
    Some(if is_broken { Code::Unavailable } else { code })
}

/// A node of one, for trying, with these flags.
struct Node {
    process: Process,
    grpc: SocketAddr,
    peer: SocketAddr,
    http: SocketAddr,
    redis: SocketAddr,
}

fn start_node(dir: &Path, ip: IpAddr, flags: &[String]) -> Node {
    let [grpc, peer, http, redis] = free_ports(ip);
    let mut command = ratchet();
    command.args(["start", "--dev", "--cluster=test", "--metrics-listen=off"]);
    for (flag, address) in [
        ("--listen", grpc),
        ("--peer-listen", peer),
        ("--http-listen", http),
        ("--resp-listen", redis),
    ] {
        command.args([flag, &address.to_string()]);
    }
    command.arg("--data-dir").arg(dir.join("data")).args(flags);
    command.stderr(fs::File::create(dir.join("log")).expect("a log"));
    Node { process: Process(command.spawn().expect("it starts")), grpc, peer, http, redis }
}

fn of_book() -> NextRequest {
    NextRequest { namespace: "book".to_owned(), key: key(1), ..NextRequest::default() }
}

/// The next number of a key, once the node listens.
async fn next(channel: &Channel) -> u64 {
    let mut client = SequencerClient::new(channel.clone());
    let taken = eventually("a number", async || client.next(of_book()).await.ok()).await;
    taken.into_inner().first
}

/// The beginning of a server's answer to `asked`, as long as `expected`.
async fn exchange(
    mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, asked: &str, expected: &str,
) {
    stream.write_all(asked.as_bytes()).await.expect("sent");
    let mut read = vec![0; expected.len()];
    in_time("an answer", stream.read_exact(&mut read)).await.expect("an answer");
    assert_eq!(String::from_utf8_lossy(&read), expected);
}

const PING: (&str, &str) = ("PING\r\n", "+PONG\r\n");
/// The beginning of a client of HTTP/2: the preface, and its empty settings. A server answers with its own.
const H2: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0";
const HTTP: (&str, &str) =
    ("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 OK\r\n");

/// The flags of a node with these files for clients, in this mode, and that takes clients of this CA alone.
fn client_flags(certificates: &Certificates, mode: &str) -> Vec<String> {
    let own = format!("--tls-client-ca={}", certificates.path("ca.crt"));
    [certificates.client_flags(1, mode), vec![own]].concat()
}

/// The answer on a stream that sends these bytes, until it ends.
async fn told(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, asked: &str) -> Vec<u8> {
    let mut read = Vec::new();
    let exchange = async {
        // The end that closes a connection may reset it.
        let _ = stream.write_all(asked.as_bytes()).await;
        let _ = stream.read_to_end(&mut read).await;
    };
    in_time("the end of a connection", exchange).await;
    read
}

#[tokio::test(flavor = "multi_thread")]
pub async fn each_interface_speaks_tls_with_clients_of_its_ca_and_with_nobody_else() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let dir = TempDir::new().expect("a directory");
    let ip = own_ip();
    certificates.node(1, &ip.to_string(), &[]);
    certificates.client("billing");
    others.client("billing");
    let node = start_node(dir.path(), ip, &client_flags(&certificates, "require"));
    let grpc = certificates.channel(node.grpc, Some("client-billing"));
    let first = next(&grpc).await;
    let shown = "client-billing";
    let http =
        certificates.connect(node.http, shown, &["h2", "http/1.1"]).await.expect("a handshake");
    assert_eq!(http.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    exchange(http, HTTP.0, HTTP.1).await;
    let redis = certificates.connect(node.redis, shown, &[]).await.expect("a handshake");
    let answers = format!(":{}\r\n+PONG\r\n", first + 1);
    exchange(redis, "INCR book:1\r\nPING\r\n", &answers).await;
    let h2 = certificates.connect(node.grpc, shown, &["h2"]).await.expect("a handshake");
    assert_eq!(h2.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let no_h2 = certificates.connect(node.grpc, shown, &["http/1.1"]).await;
    no_h2.expect_err("the port speaks HTTP/2 alone");
    // The node lets in neither another CA's client, nor one without TLS.
    for end in ["crt", "key"] {
        let [from, to] = [format!("client-billing.{end}"), format!("stranger.{end}")];
        fs::copy(others.path(&from), certificates.path(&to)).expect("copied");
    }
    for (address, asked) in [(node.grpc, H2), (node.http, HTTP.0), (node.redis, "PING\r\n")] {
        if let Ok(stranger) = certificates.connect(address, "stranger", &[]).await {
            assert_eq!(told(stranger, asked).await, b"");
        }
        let plain = TcpStream::connect(address).await.expect("a connection");
        assert_eq!(told(plain, asked).await, b"");
    }
    for shown in [None, Some("stranger")] {
        let mut client = SequencerClient::new(certificates.channel(node.grpc, shown));
        let refused = in_time("an answer", client.next(of_book())).await.map(drop);
        assert_eq!(code_of(&refused), Some(Code::Unavailable), "{shown:?}: {refused:?}");
    }
    assert_eq!(next(&grpc).await, first + 2, "nobody else took one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_may_take_both_and_takes_a_new_certificate_while_connections_go_on() {
    let certificates = Certificates::new();
    let dir = TempDir::new().expect("a directory");
    let ip = own_ip();
    certificates.node(1, &ip.to_string(), &[]);
    certificates.client("billing");
    let node = start_node(dir.path(), ip, &client_flags(&certificates, "accept"));
    next(&certificates.channel(node.grpc, Some("client-billing"))).await;
    for (address, asked, answer) in [(node.http, HTTP.0, HTTP.1), (node.redis, PING.0, PING.1)] {
        exchange(TcpStream::connect(address).await.expect("a connection"), asked, answer).await;
    }
    crate::common::Client::new(node.grpc).next_at_last(1).await;
    let shown = "client-billing";
    let mut access = AccessClient::new(asking(node.grpc, None));
    create(&mut access, "a token", "viewer", vec![grant("read:*")]).await.expect("a token");
    let log_in = "POST /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 13\r\n\r\n\
                  token=a+token";
    let tls = certificates.connect(node.http, shown, &[]).await.expect("a handshake");
    let plain = TcpStream::connect(node.http).await.expect("a connection");
    for (answer, is_secure) in [(told(tls, log_in).await, true), (told(plain, log_in).await, false)]
    {
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 303 "), "{answer}");
        assert_eq!(answer.contains("; Secure\r\n"), is_secure, "{answer}");
    }
    let mut before = certificates.connect(node.redis, shown, &[]).await.expect("a handshake");
    let first = seen(&before);
    certificates.node(1, &ip.to_string(), &["--replace"]);
    eventually("the new certificate", async || {
        let connection = certificates.connect(node.redis, shown, &[]).await.ok()?;
        (seen(&connection) != first).then_some(())
    })
    .await;
    exchange(&mut before, PING.0, PING.1).await;
    let log = || fs::read_to_string(dir.path().join("log")).expect("a log");
    until("its log says so", || log().contains("changed files are in use")).await;
}

/// The certificate at the other end of a connection.
fn seen(connection: &TlsStream<TcpStream>) -> Vec<u8> {
    let chain = connection.get_ref().1.peer_certificates().expect("a certificate");
    chain[0].as_ref().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reload_new_certificates_are_shown_at_once_and_the_old_ones_if_those_are_broken() {
    let certificates = Certificates::new();
    let dir = TempDir::new().expect("a directory");
    let ip = own_ip();
    certificates.node(1, &ip.to_string(), &[]);
    certificates.client("billing");
    let node = start_node(dir.path(), ip, &client_flags(&certificates, "accept"));
    crate::common::Client::new(node.grpc).next_at_last(1).await;
    let server = format!("unix:{}", dir.path().join("data/admin.sock").display());
    let reload = || run(&["reload", "--server", &server, "--json"]);
    let shown = async || {
        let connection = certificates.connect(node.redis, "client-billing", &[]).await;
        seen(&connection.expect("a handshake"))
    };
    let first = shown().await;
    certificates.node(1, &ip.to_string(), &["--replace"]);
    let read = reload();
    assert!(read.status.success(), "{read:?}");
    let second = shown().await;
    assert_ne!(second, first);
    let read: serde_json::Value = serde_json::from_slice(&read.stdout).expect("JSON");
    let files = read["files"].as_array().expect("files");
    let named: Vec<_> = files.iter().map(|file| (&file["setting"], &file["path"])).collect();
    let path = |name: &str| serde_json::Value::from(certificates.path(name));
    let [certificate, key, ca] = ["node-1.crt", "node-1.key", "ca.crt"].map(path);
    assert_eq!(
        named,
        [
            (&"tls_cert".into(), &certificate),
            (&"tls_key".into(), &key),
            (&"tls_client_ca".into(), &ca)
        ]
    );
    fs::write(certificates.path("node-1.crt"), "it is none").expect("written");
    let refused = reload();
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    let told = String::from_utf8_lossy(&refused.stderr);
    let named = format!("tls_cert {}: it holds no certificate", certificates.path("node-1.crt"));
    assert!(told.contains("FAILED_PRECONDITION") && told.contains(&named), "{told}");
    assert!(told.contains("what was read before stays in use"), "{told}");
    assert_eq!(shown().await, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_does_not_fit_leaves_the_pair_in_place_and_is_told_in_one_line() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let dir = TempDir::new().expect("a directory");
    let ip = own_ip();
    certificates.node(1, &ip.to_string(), &[]);
    others.node(1, &ip.to_string(), &[]);
    certificates.client("billing");
    let node = start_node(dir.path(), ip, &client_flags(&certificates, "accept"));
    crate::common::Client::new(node.grpc).next_at_last(1).await;
    let shown = async || {
        let connection = certificates.connect(node.redis, "client-billing", &[]).await;
        seen(&connection.expect("a handshake"))
    };
    let before = shown().await;
    let key = certificates.read("node-1.key");
    fs::write(certificates.path("node-1.key"), others.read("node-1.key")).expect("written");
    let line = format!(
        "tls_key {}: it is not the key of tls_cert {}; give both of one pair; what was read before stays in use",
        certificates.path("node-1.key"),
        certificates.path("node-1.crt")
    );
    let server = format!("unix:{}", dir.path().join("data/admin.sock").display());
    // The log tells it once, however often it is looked at.
    for _ in 0..2 {
        let refused = run(&["reload", "--server", &server]);
        assert_eq!(refused.status.code(), Some(4), "{refused:?}");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(told.contains(&line) && told.trim_end().lines().count() == 1, "{told}");
    }
    let log = || fs::read_to_string(dir.path().join("log")).expect("a log");
    until("the log tells it", || log().contains(&line)).await;
    assert_eq!(log().matches("it is not the key of").count(), 1, "{}", log());
    assert_eq!(shown().await, before);
    fs::write(certificates.path("node-1.key"), key).expect("written");
    let read = run(&["reload", "--server", &server]);
    assert!(read.status.success(), "{read:?}");
    assert_eq!(shown().await, before);
}

/// `peer_tls = send` stands between taking both and requiring TLS: a peer that speaks none is not spoken with.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_sends_with_tls_says_nothing_without_to_a_peer_that_speaks_none() {
    /// The first byte of a handshake.
    const HANDSHAKE: u8 = 0x16;
    let mut cluster = Processes::configured(2, &[]);
    let certificates = Certificates::new();
    certificates.node(1, &cluster.places[&1].peer_listen.ip().to_string(), &[]);
    cluster.own_flags.insert(1, certificates.peer_flags(1, "send"));
    // The listener stands in the place of node 2.
    let peer = TcpListener::bind(cluster.places[&2].peer_listen).await.expect("a port");
    cluster.spawn(1);
    let socket = Endpoint::from_shared(cluster.socket(1)).expect("an address");
    let mut admin = AdminClient::new(socket.connect_lazy());
    let answers: [&[u8]; 5] = [
        b"",
        // The settings of HTTP/2, without TLS.
        b"\0\0\0\x04\0\0\0\0\0",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        // The handshake fails; the version of TLS is refused.
        b"\x15\x03\x03\0\x02\x02\x28",
        b"\x15\x03\x01\0\x02\x02\x46",
    ];
    let greeted = async {
        for answer in answers.into_iter().cycle().take(2 * answers.len()) {
            let (mut stream, _) =
                in_time("a connection", peer.accept()).await.expect("a connection");
            let first = in_time("its first byte", stream.read_u8()).await.expect("a byte");
            assert_eq!(first, HANDSHAKE, "it speaks without TLS");
            // It may have ended the connection by now.
            let _ = stream.write_all(answer).await;
        }
    };
    // It greets node 2 time after time.
    let found = async || admin.found(FoundRequest::default()).await.ok();
    tokio::select! {
        biased;
        () = greeted => {}
        _ = eventually("a cluster", found) => panic!("it cannot be founded"),
    }
}

#[tokio::test]
async fn a_node_whose_certificate_is_another_nodes_does_not_start_and_says_why() {
    let certificates = Certificates::new();
    certificates.node(2, "localhost", &[]);
    let dir = TempDir::new().expect("a directory");
    let node = start_node(dir.path(), own_ip(), &certificates.peer_flags(2, "require"));
    assert_eq!(node.process.ended().await.code(), Some(78));
    let told = fs::read_to_string(dir.path().join("log")).expect("a log");
    assert!(told.contains("peer_tls_cert ") && told.contains("it names node 2"), "{told}");
    assert!(!dir.path().join("data").exists(), "nothing was made");
}
