//! How connections with TLS begin: the versions that are spoken, and the rights of a session that goes on over another
//! connection.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime},
};

use ratchet::proto::peer::{ForwardReplies, ForwardRequests, forward_reply::Reply};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType, string::Ia5String,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};
use tokio_rustls::{
    client::TlsStream,
    rustls::{
        ClientConfig, ClientConnection, HandshakeKind, SupportedProtocolVersion,
        version::{TLS12, TLS13},
    },
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::{
    H2, HTTP, Node, PING, client_flags, code_of,
    removed_node::{Speaker, cluster_with, incarnation, speaker},
    start_node, told,
};
use crate::common::{
    certificates::{Certificates, Pair, connect_with},
    eventually, free_ports, in_time, other_than, own_ip, until,
};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// A port, the certificate that is shown there, and the first bytes of a caller.
struct Port {
    name: &'static str,
    address: SocketAddr,
    shown: &'static str,
    says: &'static str,
    /// Whether a session may go on over another connection.
    resumes: bool,
}

/// A node that requires TLS at every port, and all of these.
async fn ports(certificates: &Certificates, dir: &TempDir) -> (Node, Vec<Port>) {
    let ip: IpAddr = own_ip();
    certificates.node(1, &ip.to_string(), &[]);
    certificates.client("billing");
    let [admin] = free_ports(ip);
    let flags = [
        client_flags(certificates, "require"),
        certificates.peer_flags(1, "require"),
        vec![format!("--admin-listen={admin}")],
    ];
    let node = start_node(dir.path(), ip, &flags.concat());
    let port =
        |name, address, says| Port { name, address, shown: "client-billing", says, resumes: true };
    let ports = vec![
        port("gRPC", node.grpc, H2),
        port("HTTP", node.http, HTTP.0),
        port("Redis", node.redis, PING.0),
        port("admin", admin, H2),
        Port { shown: "node-1", resumes: false, ..port("peer", node.peer, H2) },
    ];
    for port in &ports {
        let listens = async || TcpStream::connect(port.address).await.ok();
        eventually("the port listens", listens).await;
    }
    (node, ports)
}

/// Whether the other end answers over a connection.
async fn is_answered(stream: &mut TlsStream<TcpStream>, says: &str) -> bool {
    let answering = async {
        stream.write_all(says.as_bytes()).await?;
        stream.flush().await?;
        stream.read(&mut [0; 64]).await
    };
    in_time("an answer", answering).await.is_ok_and(|read| read > 0)
}

/// The first bytes of a client that speaks this version of TLS, and none above it.
fn hello(version: u16) -> Vec<u8> {
    let two = |number: usize| u16::try_from(number).expect("it is short").to_be_bytes();
    let extension = |kind: usize, body: &[u8]| [&two(kind)[..], &two(body.len()), body].concat();
    let extensions = [
        // The curve P-256, its points as they are, and signatures of ECDSA with SHA-256.
        extension(10, &[0, 2, 0, 0x17]),
        extension(11, &[1, 0]),
        extension(13, &[0, 2, 4, 3]),
    ]
    .concat();
    // The suites are of TLS 1.2, and of the versions before it.
    let suites: Vec<u8> = [0xc02b, 0xc02c, 0xc009, 0xc00a].into_iter().flat_map(two).collect();
    let body = [
        &version.to_be_bytes()[..],
        &[7; 32],
        &[0],
        &two(suites.len()),
        &suites,
        &[1, 0],
        &two(extensions.len()),
        &extensions,
    ]
    .concat();
    let handshake = [&[1, 0][..], &two(body.len()), &body].concat();
    [&[0x16, 3, 1][..], &two(handshake.len()), &handshake].concat()
}

/// The kind of the first record that is answered, and the content of an alert.
async fn answer(address: SocketAddr, says: &[u8]) -> (u8, Option<[u8; 2]>) {
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(says).await?;
        let mut told = [0; 7];
        stream.read_exact(&mut told).await?;
        Ok::<_, std::io::Error>(told)
    };
    let [kind, .., level, what] = in_time("a record", asking).await.expect("a record");
    (kind, (kind == ALERT).then_some([level, what]))
}

const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;
/// The alert that ends the connection of a client that speaks another version.
const PROTOCOL_VERSION: [u8; 2] = [2, 70];

#[tokio::test(flavor = "multi_thread")]
async fn every_port_speaks_tls_1_2_and_1_3_and_nothing_older() {
    let (certificates, dir) = (Certificates::new(), TempDir::new().expect("a directory"));
    let (_node, ports) = ports(&certificates, &dir).await;
    for port in ports {
        for version in VERSIONS {
            let config = certificates.client_config(Some(port.shown), &[version]);
            let stream = connect_with(&Arc::new(config), port.address).await;
            let mut stream = stream.expect(port.name);
            assert_eq!(stream.get_ref().1.protocol_version(), Some(version.version));
            let is_answered = is_answered(&mut stream, port.says).await;
            assert!(is_answered, "{:?} at the {} port", version.version, port.name);
        }
        // The bytes are the same but for the version.
        for (version, told) in [
            (0x0303, (HANDSHAKE, None)),
            (0x0302, (ALERT, Some(PROTOCOL_VERSION))),
            (0x0301, (ALERT, Some(PROTOCOL_VERSION))),
            (0x0300, (ALERT, Some(PROTOCOL_VERSION))),
        ] {
            let answer = answer(port.address, &hello(version)).await;
            assert_eq!(answer, told, "{version:x} at the {} port", port.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_at_the_ports_for_clients_and_nothing_is_taken_before_the_handshake() {
    let (certificates, dir) = (Certificates::new(), TempDir::new().expect("a directory"));
    let (_node, ports) = ports(&certificates, &dir).await;
    for port in ports {
        for version in VERSIONS {
            let mut config = certificates.client_config(Some(port.shown), &[version]);
            config.enable_early_data = true;
            let config = Arc::new(config);
            let kinds = async || {
                let mut stream = connect_with(&config, port.address).await.expect(port.name);
                assert!(is_answered(&mut stream, port.says).await, "{}", port.name);
                stream.get_ref().1.handshake_kind()
            };
            let of_first = kinds().await;
            assert!(of_first.is_some_and(|kind| kind != HandshakeKind::Resumed), "{of_first:?}");
            let goes_on = kinds().await == Some(HandshakeKind::Resumed);
            assert_eq!(goes_on, port.resumes, "{:?} at {}", version.version, port.name);
            // The ticket of the node for the next connection does not allow it.
            let mut next = ClientConnection::new(config.clone(), port.address.ip().into())
                .expect("a connection");
            assert!(next.early_data().is_none(), "{:?} at {}", version.version, port.name);
        }
    }
}

/// A CA of the test's own: `ratchet cert` makes nothing that ends within a day.
type Ca = CertifiedIssuer<'static, KeyPair>;

fn ca() -> Ca {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA")
}

/// The parameters of a certificate that is valid until then.
fn valid_until(until: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = (until - Duration::from_secs(86_400)).into();
    params.not_after = until.into();
    params
}

/// The certificate of a client that is valid until then.
fn client_until(ca: &Ca, until: SystemTime) -> Pair {
    let key = KeyPair::generate().expect("a key");
    let params = valid_until(until);
    let certificate = params.signed_by(&key, ca).expect("a certificate");
    let key = key.serialize_der().try_into().expect("a key");
    (vec![certificate.der().clone()], key)
}

/// Whether a connection that begins so is answered, and how it began.
async fn ping(config: &Arc<ClientConfig>, redis: SocketAddr) -> Option<(HandshakeKind, bool)> {
    let stream = connect_with(config, redis).await.ok()?;
    let kind = stream.get_ref().1.handshake_kind()?;
    Some((kind, told(stream, "PING\r\nQUIT\r\n").await.starts_with(b"+PONG")))
}

/// A node whose clients need certificates of a CA of their own, and that CA.
async fn node_with_client_ca(certificates: &Certificates, dir: &TempDir) -> (Node, Ca) {
    let (ip, ca) = (own_ip(), ca());
    certificates.node(1, &ip.to_string(), &[]);
    fs::write(certificates.path("short.crt"), ca.pem()).expect("written");
    let own = format!("--tls-client-ca={}", certificates.path("short.crt"));
    let flags = [certificates.client_flags(1, "require"), vec![own]].concat();
    let node = start_node(dir.path(), ip, &flags);
    eventually("the port listens", async || TcpStream::connect(node.redis).await.ok()).await;
    (node, ca)
}

/// A client whose certificate is still valid, over a connection that was answered; its certificate, and when that ends.
async fn connected_for_a_moment(
    certificates: &Certificates, ca: &Ca, redis: SocketAddr,
) -> (TlsStream<TcpStream>, Pair, SystemTime) {
    // A busy machine may not get so far while a certificate is valid that lasts for a moment.
    for seconds in [3, 30, 240] {
        let ends = SystemTime::now() + Duration::from_secs(seconds);
        let (chain, key) = client_until(ca, ends);
        let shown = Some((chain.clone(), key.clone_key()));
        let config = Arc::new(certificates.config_showing(shown, &VERSIONS));
        if let Ok(mut stream) = connect_with(&config, redis).await
            && is_answered(&mut stream, PING.0).await
        {
            return (stream, (chain, key), ends);
        }
    }
    panic!("no connection while a certificate is valid")
}

/// Whether the audit tells of a certificate that is refused for this reason.
fn is_told(dir: &TempDir, why: &str) -> bool {
    let log = fs::read_to_string(dir.path().join("log")).expect("a log");
    log.lines().any(|line| line.contains("ratchet::audit: not let in") && line.contains(why))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_expires_ends_no_open_connection_and_begins_no_other() {
    let (certificates, dir) = (Certificates::new(), TempDir::new().expect("a directory"));
    let (node, ca) = node_with_client_ca(&certificates, &dir).await;
    let (mut open, shown, ends) = connected_for_a_moment(&certificates, &ca, node.redis).await;
    until("the certificate has expired", || SystemTime::now() > ends + Duration::from_secs(1))
        .await;
    assert!(is_answered(&mut open, PING.0).await, "the open connection goes on");
    // Without a session of before: this is a whole handshake.
    let config = Arc::new(certificates.config_showing(Some(shown), &VERSIONS));
    assert!(!ping(&config, node.redis).await.is_some_and(|(_, answered)| answered));
    assert!(is_answered(&mut open, PING.0).await, "nor does a refused one end it");
    let why = "invalid peer certificate: certificate expired";
    until("it is a refused login", || is_told(&dir, why)).await;
}

/// Has a node show a certificate that is valid until then.
fn node_until(ca: &Ca, shown: &Certificates, node: u64, until: SystemTime) {
    let key = KeyPair::generate().expect("a key");
    let mut params = valid_until(until);
    let uri = Ia5String::try_from(format!("ratchet://test/{node}")).expect("a URI");
    params.subject_alt_names = vec![SanType::URI(uri)];
    let certificate = params.signed_by(&key, ca).expect("a certificate");
    for (end, text) in [("crt", certificate.pem()), ("key", key.serialize_pem())] {
        fs::write(shown.path(&format!("node-{node}.{end}")), text).expect("written");
    }
}

/// A stream on which a member forwards requests for numbers.
struct Forwarding {
    of: Speaker,
    requests: mpsc::Sender<ForwardRequests>,
    replies: Streaming<ForwardReplies>,
}

impl Forwarding {
    /// Begins with a request, over a connection of its own.
    async fn begin(mut of: Speaker) -> Result<Forwarding, Status> {
        let (requests, sent) = mpsc::channel(1);
        requests.send(of.forwarded()).await.expect("sent");
        let opened = in_time("a stream", of.peer.forward(ReceiverStream::new(sent))).await?;
        let mut replies = opened.into_inner();
        in_time("a reply", replies.message()).await?.expect("a reply");
        Ok(Forwarding { of, requests, replies })
    }

    /// Takes a number. It is asked for again if the leader could not see in time that it leads.
    async fn takes_a_number(&mut self) {
        eventually("a number", async || {
            self.requests.send(self.of.forwarded()).await.expect("the stream goes on");
            let told = in_time("a reply", self.replies.message()).await.expect("no failure");
            let told = told.expect("the stream goes on");
            matches!(told.replies[0].reply, Some(Reply::Answer(_))).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_certificate_that_expires_ends_no_stream_of_a_peer_and_begins_no_other() {
    let (certificates, shown, ca) = (Certificates::new(), Certificates::new(), ca());
    // The nodes trust the test's CA, too.
    let both = [certificates.read("ca.crt"), ca.pem().into_bytes()].concat();
    for of in [&certificates, &shown] {
        fs::write(of.path("ca.crt"), &both).expect("written");
    }
    let (cluster, leader) = cluster_with(&certificates).await;
    let follower = other_than(leader);
    let begin = async || {
        let certified = (follower, incarnation(&cluster, follower));
        Forwarding::begin(speaker(&cluster, &shown, certified, leader, 0)).await
    };
    let mut begun = None;
    // A busy machine may not get so far while a certificate is valid that lasts for a moment.
    for seconds in [3, 30, 240] {
        let ends = SystemTime::now() + Duration::from_secs(seconds);
        node_until(&ca, &shown, follower, ends);
        if let Ok(stream) = begin().await {
            begun = Some((stream, ends));
            break;
        }
    }
    let (mut open, ends) = begun.expect("a stream begins while a certificate is valid");
    open.takes_a_number().await;
    until("the certificate has expired", || SystemTime::now() > ends + Duration::from_secs(1))
        .await;
    open.takes_a_number().await;
    let refused = begin().await;
    assert_eq!(code_of(&refused), Some(Code::Unavailable), "it begins with what has expired");
    open.takes_a_number().await;
    node_until(&ca, &shown, follower, SystemTime::now() + Duration::from_secs(86_400));
    begin().await.map(drop).expect("one that is valid is taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_does_not_go_on_once_the_certificate_of_its_beginning_has_expired() {
    let (certificates, dir) = (Certificates::new(), TempDir::new().expect("a directory"));
    let (node, ca) = node_with_client_ca(&certificates, &dir).await;
    for version in VERSIONS {
        let mut found = None;
        // A busy machine may not get so far while a certificate is valid that lasts for a moment.
        for seconds in [3, 30, 240] {
            let ends = SystemTime::now() + Duration::from_secs(seconds);
            let pair = client_until(&ca, ends);
            let config = Arc::new(certificates.config_showing(Some(pair), &[version]));
            let first = ping(&config, node.redis).await;
            let second = ping(&config, node.redis).await;
            let resumed = Some((HandshakeKind::Resumed, true));
            if first.is_some_and(|(_, answered)| answered) && second == resumed {
                found = Some((config, ends));
                break;
            }
        }
        let (config, ends) = found.expect("a session goes on while its certificate is valid");
        until("the certificate has expired", || SystemTime::now() > ends + Duration::from_secs(1))
            .await;
        let expired = ping(&config, node.redis).await;
        assert_eq!(expired, Some((HandshakeKind::Resumed, false)), "{:?}", version.version);
    }
    until("it is a refused login", || is_told(&dir, "its certificate: it has expired")).await;
    // The node goes on with callers whose certificates are valid.
    let lasts = client_until(&ca, SystemTime::now() + Duration::from_secs(86_400));
    let config = Arc::new(certificates.config_showing(Some(lasts), &VERSIONS));
    assert!(ping(&config, node.redis).await.is_some_and(|(_, answered)| answered));
}
