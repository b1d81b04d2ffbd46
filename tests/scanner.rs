//! Every port under a scanner: thousands of connections that send what is known to be bad, or what was drawn at random. Nothing
//! is held and nothing is told of what the cluster has, nobody panics, and numbers flow.

use std::{net::SocketAddr, sync::Arc};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet::{
    metrics::Interface,
    node::settings::{ClientTls, PeerTls},
    proto::v1::{CreateNamespaceRequest, admin_client::AdminClient},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    task::JoinSet,
};

use crate::common::{
    certificates::Certificates,
    closed::{ADMIN, Closed, asking, next},
    in_time, until, with_admin_port, with_metrics,
};

/// How many connections each port gets.
const OPENINGS: usize = 10_000;
/// How many of them at a time.
const AT_ONCE: usize = 48;
/// What nobody is told of.
const HIDDEN: &str = "hidden-shelf";

/// The beginnings of protocols that are not the port's, or not whole.
const KNOWN_BAD: &[&[u8]] = &[
    b"",
    b"\0",
    b"\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/namespaces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n\r\n",
    b"GET /v1/principals HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"POST /v1/namespaces/hidden/keys/1:next HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{",
    b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x01\x05\0\0\0\x01",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x04\x08\0\0\0\0\0\0\0\0\0",
    b"INCR book:1\r\n",
    b"MULTI\r\nINCR book:1\r\nEXEC\r\n",
    b"AUTH x\r\nINCR book:1\r\n",
    b"*2\r\n$4\r\nINCR\r\n$6\r\nbook:1\r\n",
    b"*1000000000\r\n",
    b"*1\r\n$-7\r\n",
    b"HELLO 3 AUTH default x\r\nCLUSTER NODES\r\n",
    b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\nPING\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"EHLO x\r\n",
    b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x01\0\x08\0\x03\0\0\0",
    b"\x16\x03\x01\0\xa5\x01\0\0\xa1\x03\x03",
    b"\x16\x03\x01\xff\xff\x01\0\xff\xfb",
    b"\x16\x03\x01\0\0",
    b"\x15\x03\x03\0\x02\x02\x28",
    b"\x80\x2e\x01\0\x02\0\x15\0\0\0\x10",
];

/// What a connection sends: something that is known to be bad, also with some bytes changed or cut off, or random bytes.
fn opening(random: &mut StdRng) -> Vec<u8> {
    let mut bytes = KNOWN_BAD[random.random_range(0..KNOWN_BAD.len())].to_vec();
    match random.random_range(0..4) {
        0 => bytes = (0..random.random_range(1..600)).map(|_| random.random()).collect(),
        1 => bytes.truncate(random.random_range(0..=bytes.len())),
        2 => {
            for _ in 0..3 {
                let place = random.random_range(0..=bytes.len());
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = random.random();
                }
            }
        }
        _ => {}
    }
    bytes
}

/// Opens a connection, sends `bytes`, and says that nothing follows. Returns what was answered: all of it, or nothing if the
/// caller `hangs_up` without reading. A connection may break at any time.
async fn scan(address: SocketAddr, bytes: Vec<u8>, hangs_up: bool) -> Vec<u8> {
    let mut told = Vec::new();
    let scanning = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&bytes).await?;
        if !hangs_up {
            stream.shutdown().await?;
            stream.read_to_end(&mut told).await?;
        }
        Ok::<_, std::io::Error>(())
    };
    // Whether it broke does not matter: it is over.
    let _ = in_time("the end of a connection", scanning).await;
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scanner_learns_nothing_and_leaves_nothing_at_any_port() {
    let certificates = Certificates::new();
    certificates.make(&["client", "--cluster", "test", "--name", "unused"]);
    for node in 1..=3 {
        certificates.node(node, "127.0.0.1", &[]);
    }
    let file = |name: String| Some(certificates.path(&name).into());
    // Ports that take both: TLS and what is none are looked at on each.
    let closed = Closed::with(|config| {
        with_metrics(config);
        with_admin_port(config);
        let own = |end: &str| file(format!("node-{}.{end}", config.node_id));
        let (certificate, key, ca) = (own("crt"), own("key"), file("ca.crt".to_owned()));
        (config.tls, config.peer_tls) = (ClientTls::Accept, PeerTls::Accept);
        (config.tls_cert, config.tls_key) = (certificate.clone(), key.clone());
        (config.peer_tls_cert, config.peer_tls_key, config.peer_tls_ca) = (certificate, key, ca);
    })
    .await;
    let node = closed.cluster.leader().await;
    let context = closed.cluster.nodes[&node].context().clone();
    let admin = closed.at(node, ADMIN);
    let hidden = CreateNamespaceRequest { name: HIDDEN.to_owned(), ..Default::default() };
    let at_admin_port = asking(closed.cluster.admin_address(node), Some(ADMIN));
    AdminClient::new(at_admin_port).create_namespace(hidden).await.expect("a namespace");
    let before = next(&admin, "book").await.expect("a number");
    let addresses = closed.cluster.nodes[&node].addresses();
    let ports = [
        ("gRPC", Some(addresses.client)),
        ("peer", Some(addresses.peer)),
        ("metrics", addresses.metrics),
        ("HTTP", addresses.http),
        ("Redis", addresses.resp),
        ("admin", addresses.admin),
    ];
    let seed: u64 = rand::random();
    println!("the seed is {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for (port, address) in ports {
        let address = address.expect(port);
        let (places, mut scans) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
        for _ in 0..OPENINGS {
            let place = places.clone().acquire_owned().await.expect("a place");
            let (bytes, hangs_up) = (opening(&mut random), random.random_bool(0.5));
            scans.spawn(async move {
                let told = scan(address, bytes.clone(), hangs_up).await;
                drop(place);
                (bytes, told)
            });
            while let Some(done) = scans.try_join_next() {
                check(port, done.expect("a scan"));
            }
        }
        while let Some(done) = scans.join_next().await {
            check(port, done.expect("a scan"));
        }
    }
    let connections = [(Interface::grpc, 8), (Interface::http, 0), (Interface::redis, 0)];
    for (interface, own) in connections {
        let open = context.metrics.client_connections.of(interface);
        until("nobody holds a connection", || open.get() <= own).await;
    }
    until("nothing is held", || context.metrics.request_bytes.get() == 0).await;
    assert!(context.fault().is_none(), "{:?}", context.fault());
    assert_eq!(next(&admin, "book").await, Ok(before + 1), "nobody has taken a number");
}

/// What was answered tells nothing that the caller did not send.
fn check(port: &str, (sent, told): (Vec<u8>, Vec<u8>)) {
    let has = |part: &[u8]| told.windows(part.len()).any(|bytes| bytes == part);
    let shown = told.escape_ascii();
    assert!(!has(HIDDEN.as_bytes()), "{port} answers {shown} to {}", sent.escape_ascii());
    assert!(!told.starts_with(b":"), "{port} answers {shown} to {}", sent.escape_ascii());
}
