//! Every port under a scanner: thousands of connections that send what is known to be bad, or what was drawn at random, without TLS
//! and over it. Nothing is held and nothing is told of what the cluster has, nobody panics, and numbers flow.

use std::{net::SocketAddr, sync::Arc};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet::{
    metrics::Interface,
    node::settings::{ClientTls, PeerTls},
    proto::v1::{
        CreateNamespaceRequest, KeyKind, NextRequest, admin_client::AdminClient,
        sequencer_client::SequencerClient,
    },
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::{Semaphore, watch},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::rustls::{ALL_VERSIONS, ClientConfig};

use crate::common::{
    certificates::{Certificates, connect_with},
    closed::{ADMIN, Asking, Closed, asking, create, grant, next},
    in_time, name, until, with_admin_port, with_metrics,
};

/// How many connections each port gets.
const OPENINGS: usize = 10_000;
/// How many of them at a time.
const AT_ONCE: usize = 48;
/// One of so many speaks TLS first.
const WITH_TLS: u32 = 16;
/// The name of a namespace, of a key in it, and of a token, of which nobody is told.
const HIDDEN: &str = "hidden-shelf";
const HIDDEN_KEY: &str = "hidden-drawer";
const HIDDEN_TOKEN: &str = "hidden-principal";

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
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET /v1/namespaces HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    b"GET /../../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
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
    b"PING\r\nHELLO 3\r\nINFO\r\nCOMMAND\r\nCLUSTER SLOTS\r\nCLUSTER MYID\r\nKEYS *\r\nCONFIG GET *\r\n",
    b"NOTHING\r\nLOLWUT\r\nACL WHOAMI\r\nCLIENT LIST\r\nSCAN 0\r\nGET book:1\r\n",
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

/// Sends `bytes`, and says that nothing follows. Adds what is answered to `told`: all of it, or nothing if the caller `hangs_up`
/// without reading.
async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8], hangs_up: bool,
    told: &mut Vec<u8>,
) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await?;
    if !hangs_up {
        stream.shutdown().await?;
        stream.read_to_end(told).await?;
    }
    Ok(())
}

/// Opens a connection, over TLS if it is said how, and sends `bytes`. Returns what was answered. A connection may break at any
/// time.
async fn scan(
    address: SocketAddr, tls: Option<Arc<ClientConfig>>, bytes: &[u8], hangs_up: bool,
) -> Vec<u8> {
    let mut told = Vec::new();
    let scanning = async {
        match tls {
            Some(tls) => {
                let stream = connect_with(&tls, address).await?;
                exchange(stream, bytes, hangs_up, &mut told).await
            }
            None => exchange(TcpStream::connect(address).await?, bytes, hangs_up, &mut told).await,
        }
    };
    // Whether it broke does not matter: it is over.
    let _ = in_time("the end of a connection", scanning).await;
    told
}

/// A connection of a Redis client.
struct Redis(BufReader<TcpStream>);

impl Redis {
    /// The reply to a command, of one line.
    async fn reply(&mut self, command: &str) -> String {
        let asking = async {
            self.0.write_all(format!("{command}\r\n").as_bytes()).await?;
            let mut reply = String::new();
            self.0.read_line(&mut reply).await?;
            Ok::<_, std::io::Error>(reply)
        };
        in_time("a reply", asking).await.expect("a reply")
    }
}

/// Somebody who takes numbers of one key all the time, over one connection to each of two ports. Each call is answered.
struct Caller {
    stop: watch::Sender<bool>,
    taking: JoinHandle<u64>,
}

impl Caller {
    fn start(grpc: Asking, redis: SocketAddr) -> Caller {
        let (stop, stopped) = watch::channel(false);
        let taking = tokio::spawn(async move {
            let stream = TcpStream::connect(redis).await.expect("a connection");
            let mut redis = Redis(BufReader::new(stream));
            assert_eq!(redis.reply(&format!("AUTH {ADMIN}")).await, "+OK\r\n");
            let mut last = next(&grpc, "book").await.expect("a number");
            while !*stopped.borrow() {
                let number = next(&grpc, "book").await.expect("a number");
                assert_eq!(number, last + 1, "somebody else has taken a number");
                assert_eq!(redis.reply("INCR book:1").await, format!(":{}\r\n", number + 1));
                last = number + 1;
            }
            last
        });
        Caller { stop, taking }
    }

    /// Ends. Returns the last number.
    async fn stop(self) -> u64 {
        self.stop.send_replace(true);
        in_time("the last number", self.taking).await.expect("each call was answered")
    }
}

/// A name in a namespace that nobody may see.
async fn hide(closed: &Closed, node: u64) {
    let asked = CreateNamespaceRequest {
        name: HIDDEN.to_owned(),
        key_kind: KeyKind::Name.into(),
        ..CreateNamespaceRequest::default()
    };
    let at_admin_port = asking(closed.cluster.admin_address(node), Some(ADMIN));
    AdminClient::new(at_admin_port).create_namespace(asked).await.expect("a namespace");
    let key = name(HIDDEN_KEY.as_bytes());
    let asked = NextRequest { namespace: HIDDEN.to_owned(), key, ..NextRequest::default() };
    let taken = SequencerClient::new(closed.at(node, ADMIN)).next(asked).await;
    taken.expect("a number");
    let grants = vec![grant("next:*")];
    create(&mut closed.admin(node), "unused", HIDDEN_TOKEN, grants).await.expect("a token");
}

/// What a scanner is told of nowhere, and what it may be told at the port for metrics alone.
struct Secrets {
    everywhere: Vec<String>,
    but_in_metrics: Vec<String>,
}

impl Secrets {
    /// Those of a cluster whose node `asked` is scanned. Its own id and its cluster's name are no secrets: its certificate, which it
    /// shows to whoever connects, names both. Every answer over HTTP names the cluster by its id, so that no caller takes it for
    /// another one.
    fn of(closed: &Closed, certificates: &Certificates, asked: u64) -> Secrets {
        let mut everywhere = vec![
            HIDDEN_KEY.to_owned(),
            HIDDEN_TOKEN.to_owned(),
            ADMIN.to_owned(),
            certificates.path("").trim_end_matches('/').to_owned(),
        ];
        let mut but_in_metrics = vec![HIDDEN.to_owned(), env!("CARGO_PKG_VERSION").to_owned()];
        for (id, config) in &closed.cluster.configs {
            everywhere.push(config.data_dir.display().to_string());
            everywhere.push(format!(
                "{:x}",
                closed.cluster.nodes[id].context().this_node.store.incarnation()
            ));
            if *id != asked {
                everywhere.push(format!("{}:", config.listen.ip()));
                but_in_metrics.push(format!("node {id}"));
            }
        }
        Secrets { everywhere, but_in_metrics }
    }

    /// Sees that an answer tells nothing that the caller did not send.
    fn check(&self, port: &str, sent: &[u8], told: &[u8]) {
        let has = |bytes: &[u8], part: &str| {
            bytes.windows(part.len()).any(|window| window == part.as_bytes())
        };
        let hidden = match port {
            METRICS => [&self.everywhere[..], &[]].concat(),
            _ => [&self.everywhere[..], &self.but_in_metrics].concat(),
        };
        let shown = || format!("{port} answers {} to {}", told.escape_ascii(), sent.escape_ascii());
        for part in hidden {
            assert!(!has(told, &part) || has(sent, &part), "{part:?}: {}", shown());
        }
        assert!(!told.starts_with(b":"), "{}", shown());
    }
}

const METRICS: &str = "metrics";

#[tokio::test(flavor = "multi_thread")]
async fn a_scanner_learns_nothing_and_leaves_nothing_at_any_port_while_numbers_flow() {
    let certificates = Certificates::new();
    let file = |name: String| Some(certificates.path(&name).into());
    // Ports that take both: TLS and what is none are looked at on each.
    let closed = Closed::with(|config| {
        with_metrics(config);
        with_admin_port(config);
        certificates.node(config.node_id, &config.listen.ip().to_string(), &[]);
        let own = |end: &str| file(format!("node-{}.{end}", config.node_id));
        let (certificate, key, ca) = (own("crt"), own("key"), file("ca.crt".to_owned()));
        (config.tls, config.peer_tls) = (ClientTls::Accept, PeerTls::Accept);
        (config.tls_cert, config.tls_key) = (certificate.clone(), key.clone());
        (config.peer_tls_cert, config.peer_tls_key, config.peer_tls_ca) = (certificate, key, ca);
    })
    .await;
    let node = closed.cluster.leader().await;
    let context = closed.cluster.nodes[&node].context().clone();
    hide(&closed, node).await;
    let secrets = Secrets::of(&closed, &certificates, node);
    let addresses = closed.cluster.nodes[&node].addresses();
    let admin = closed.at(node, ADMIN);
    let redis = addresses.resp.expect("a port");
    let before = next(&admin, "book").await.expect("a number");
    let caller = Caller::start(admin.clone(), redis);
    let ports = [
        ("gRPC", Some(addresses.client)),
        ("peer", Some(addresses.peer)),
        (METRICS, addresses.metrics),
        ("HTTP", addresses.http),
        ("Redis", addresses.resp),
        ("admin", addresses.admin),
    ];
    // Peers want a certificate: a scanner has none.
    let tls = Arc::new(certificates.client_config(None, ALL_VERSIONS));
    let seed: u64 = rand::random();
    println!("the seed is {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut answered = 0;
    for (port, address) in ports {
        let address = address.expect(port);
        let (places, mut scans) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
        let mut check = |(sent, told): (Vec<u8>, Vec<u8>)| {
            answered += usize::from(!told.is_empty());
            secrets.check(port, &sent, &told);
        };
        for _ in 0..OPENINGS {
            let place = places.clone().acquire_owned().await.expect("a place");
            let (bytes, hangs_up) = (opening(&mut random), random.random_bool(0.5));
            let tls = random.random_ratio(1, WITH_TLS).then(|| tls.clone());
            scans.spawn(async move {
                let told = scan(address, tls, &bytes, hangs_up).await;
                drop(place);
                (bytes, told)
            });
            while let Some(done) = scans.try_join_next() {
                check(done.expect("a scan"));
            }
        }
        while let Some(done) = scans.join_next().await {
            check(done.expect("a scan"));
        }
    }
    let last = caller.stop().await;
    println!(
        "{answered} connections were answered, and {} numbers taken beside them",
        last - before
    );
    assert!(answered > OPENINGS / 2, "only {answered} connections were answered");
    let connections = [(Interface::grpc, 8), (Interface::http, 0), (Interface::redis, 0)];
    for (interface, own) in connections {
        let open = context.metrics.client_connections.of(interface);
        until("nobody holds a connection", || open.get() <= own).await;
    }
    until("nothing is held", || context.metrics.request_bytes.get() == 0).await;
    assert!(context.fault().is_none(), "{:?}", context.fault());
    assert_eq!(next(&admin, "book").await, Ok(last + 1), "nobody has taken a number");
}
