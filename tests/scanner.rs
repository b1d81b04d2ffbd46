//! Every port, and the local socket, under a scanner: thousands of connections that send bytes that are known to be bad, or
//! that were drawn at random, without TLS and over it. Nothing is held, no secret of the cluster is told, no task panics, and
//! numbers flow.

use std::{
    fs,
    io::Read,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    panic,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use ratchet::{
    metrics::{Interface, SkipCause},
    node::{
        Config, CountedKind, NodeContext,
        settings::{ClientTls, PeerTls},
    },
    proto::v1::{
        CreateNamespaceRequest, KeyKind, NextRequest, admin_client::AdminClient,
        sequencer_client::SequencerClient,
    },
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::{TcpStream, UnixStream},
    sync::{Semaphore, watch},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ALL_VERSIONS, ClientConfig},
};

use crate::{
    common::{
        certificates::{Certificates, connect_with},
        closed::{ADMIN, Asking, Closed, asking, asking_over, create, grant, next},
        eventually, in_time, name, other_than, until, with_admin_port, with_metrics,
    },
    local_socket::{socket_in, socket_of},
};

/// How many connections each port gets.
const OPENINGS: usize = 10_000;
/// How many of them at a time.
const AT_ONCE: usize = 48;
/// How many connections the local socket takes at a time. A further one is closed.
const LOCAL_CONNECTIONS_MAX: usize = 16;
/// How many of a scanner's it has at a time: a place is free a little after its connection has ended, and most are to be
/// served.
const LOCAL_AT_ONCE: usize = LOCAL_CONNECTIONS_MAX / 2;
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

/// The bytes that a connection sends: an opening that is known to be bad, also with some bytes changed or cut off, or random
/// bytes.
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

/// Sends `bytes`, and says that nothing follows. Adds the answer to `told`: all of it, or nothing if the caller `hangs_up`
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

/// Where a scanner connects.
#[derive(Debug, Clone)]
enum At {
    Port(SocketAddr),
    /// The local socket.
    Socket(PathBuf),
}

/// Opens a connection, over TLS if it is said how, and sends `bytes`. Returns the answer. A connection may break at any time.
async fn scan(at: At, tls: Option<Arc<ClientConfig>>, bytes: &[u8], hangs_up: bool) -> Vec<u8> {
    let mut told = Vec::new();
    let scanning = async {
        match (at, tls) {
            (At::Port(address), Some(tls)) => {
                let stream = connect_with(&tls, address).await?;
                exchange(stream, bytes, hangs_up, &mut told).await
            }
            (At::Port(address), None) => {
                exchange(TcpStream::connect(address).await?, bytes, hangs_up, &mut told).await
            }
            (At::Socket(path), Some(tls)) => {
                let (stream, name) = (UnixStream::connect(path).await?, Ipv4Addr::LOCALHOST);
                let stream = TlsConnector::from(tls).connect(IpAddr::from(name).into(), stream);
                exchange(stream.await?, bytes, hangs_up, &mut told).await
            }
            (At::Socket(path), None) => {
                exchange(UnixStream::connect(path).await?, bytes, hangs_up, &mut told).await
            }
        }
    };
    // Whether it broke does not matter: it is over.
    let _ = in_time("the end of a connection", scanning).await;
    told
}

/// A connection of a Redis client.
struct Redis<S>(BufReader<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Redis<S> {
    /// The reply to a command, of one line.
    async fn reply(&mut self, command: &str) -> String {
        let asking = async {
            self.0.write_all(format!("{command}\r\n").as_bytes()).await?;
            self.0.flush().await?;
            let mut reply = String::new();
            self.0.read_line(&mut reply).await?;
            Ok::<_, std::io::Error>(reply)
        };
        in_time("a reply", asking).await.expect("a reply")
    }
}

/// A caller that takes numbers of one key all the time, over one connection to each of two ports. Each call is answered.
struct Caller {
    stop: watch::Sender<bool>,
    taking: JoinHandle<(Known, u64)>,
}

/// What a node knew at a moment before a number was taken.
#[derive(Clone, Copy)]
struct Known {
    term: u64,
    /// How many numbers were taken and not answered, because the lease had run out meanwhile.
    fenced: u64,
}

impl Known {
    fn by(node: &NodeContext) -> Known {
        Known {
            term: node.group.leadership().borrow().term,
            fenced: node.metrics.skipped(SkipCause::fence),
        }
    }
}

/// Sees that nobody took a number between `last` and `number`, which came from this node. It knew `known` before `last` was
/// taken. On a slow machine a lease may run out while a number is taken: the next one is answered then. Another leader goes on
/// in another chunk.
fn assert_follows(node: &NodeContext, known: Known, last: u64, number: u64) {
    let now = Known::by(node);
    let most = match now.term == known.term {
        true => last + 1 + (now.fenced - known.fenced),
        false => u64::MAX,
    };
    assert!((last + 1..=most).contains(&number), "somebody else took one: {number} after {last}");
}

impl Caller {
    fn start(
        node: Arc<NodeContext>, grpc: Asking,
        redis: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Caller {
        let (stop, stopped) = watch::channel(false);
        let taking = tokio::spawn(async move {
            let mut redis = Redis(BufReader::new(redis));
            assert_eq!(redis.reply(&format!("AUTH {ADMIN}")).await, "+OK\r\n");
            let mut before = Known::by(&node);
            let mut last = next(&grpc, "book").await.expect("a number");
            while !*stopped.borrow() {
                let known = Known::by(&node);
                let number = next(&grpc, "book").await.expect("a number");
                assert_follows(&node, before, last, number);
                let reply = redis.reply("INCR book:1").await;
                let incremented = reply.strip_prefix(':').and_then(|text| text.trim().parse().ok());
                last = incremented.unwrap_or_else(|| panic!("{reply:?} is no number"));
                assert_follows(&node, known, number, last);
                before = known;
            }
            (before, last)
        });
        Caller { stop, taking }
    }

    /// Ends. Returns what the node knew before the last number was taken, and that number.
    async fn stop(self) -> (Known, u64) {
        self.stop.send_replace(true);
        in_time("the last number", self.taking).await.expect("each call was answered")
    }
}

/// The libraries that serve connections, by their directories among cargo's sources.
const SERVING: [&str; 7] =
    ["/h2-", "/hyper-", "/hyper-util-", "/rustls-", "/tokio-rustls-", "/tonic-", "/axum-"];

/// The panics of this process in our own code, and in the libraries that serve connections. Tests plant theirs in their own
/// files. A connection has a task of its own: that one panics shows nowhere else.
static PANICS: LazyLock<Arc<Mutex<Vec<String>>>> = LazyLock::new(|| {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (before, noted) = (panic::take_hook(), seen.clone());
    panic::set_hook(Box::new(move |panicked| {
        let place = panicked.location().map_or_else(String::new, ToString::to_string);
        let is_library = SERVING.iter().any(|library| place.contains(library));
        if place.starts_with("src/") || is_library {
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(panicked.to_string());
        }
        before(panicked);
    }));
    seen
});

/// Sees that nothing has panicked since [`PANICS`] was looked at first.
fn nothing_has_panicked() {
    let seen = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(seen.is_empty(), "{seen:?}");
}

/// How many sockets of this address the system has whose other end is gone, and which the node has not let go of.
fn left_open(address: SocketAddr) -> usize {
    /// The state of such a socket (`CLOSE_WAIT`), in /proc/net/tcp.
    const OTHER_END_IS_GONE: &str = "08";
    let IpAddr::V4(ip) = address.ip() else { panic!("{address}") };
    let own = format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port());
    let sockets = fs::read_to_string("/proc/net/tcp").expect("the sockets of the system");
    let is_left = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1) == Some(&&*own) && fields.get(3) == Some(&OTHER_END_IS_GONE)
    };
    sockets.lines().filter(is_left).count()
}

/// Waits until nobody has a place at the local socket: as many as it takes at a time are served.
async fn until_all_places_are_free(socket: &Path) {
    eventually("all places of the local socket are free", async || {
        let mut served = Vec::new();
        for _ in 0..LOCAL_CONNECTIONS_MAX {
            let mut stream = UnixStream::connect(socket).await.ok()?;
            // A caller that has a place is told the settings of HTTP/2 at once.
            let read = in_time("settings, or the end", stream.read(&mut [0])).await;
            read.ok().filter(|bytes| *bytes > 0)?;
            served.push(stream);
        }
        Some(())
    })
    .await;
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

/// The texts that a scanner is told nowhere, and the texts that it may be told at the port for metrics alone.
struct Secrets {
    everywhere: Vec<String>,
    but_in_metrics: Vec<String>,
}

impl Secrets {
    /// The secrets of a cluster whose node `asked` is scanned. Its own id and its cluster's name are no secrets: its
    /// certificate, which it shows to every caller that connects, names both. Every answer over HTTP names the cluster by its
    /// id, so that no caller takes it for another one.
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
const LOCAL: &str = "local";

/// A node, its ports, and the secrets of the cluster.
struct Scanned {
    ports: [(&'static str, At); 7],
    secrets: Secrets,
    /// Peers want a certificate: a scanner has none.
    tls: Arc<ClientConfig>,
    /// Whether each port takes TLS alone, but the one for metrics, and the local socket.
    requires_tls: bool,
}

/// How many scans were answered: at the ports without TLS, and over it, and at the local socket.
#[derive(Debug, Default)]
struct Answered {
    plain: usize,
    over_tls: usize,
    local: usize,
}

/// The bytes that one connection has sent, whether over TLS, and the answer.
type Scan = (Vec<u8>, bool, Vec<u8>);

impl Scanned {
    fn new(closed: &Closed, certificates: &Certificates, node: u64) -> Scanned {
        let at = closed.cluster.nodes[&node].addresses();
        let port = |address: Option<SocketAddr>| At::Port(address.expect("a port"));
        Scanned {
            ports: [
                ("gRPC", At::Port(at.client)),
                ("peer", At::Port(at.peer)),
                (METRICS, port(at.metrics)),
                ("HTTP", port(at.http)),
                ("Redis", port(at.resp)),
                ("admin", port(at.admin)),
                (LOCAL, At::Socket(socket_in(closed.cluster.data_dir(node)))),
            ],
            secrets: Secrets::of(closed, certificates, node),
            tls: Arc::new(certificates.client_config(None, ALL_VERSIONS)),
            requires_tls: closed.cluster.configs[&node].tls == ClientTls::Require,
        }
    }

    /// Sees that a scan was told nothing that it may not know, and counts it if it was answered.
    fn check(&self, port: &str, (sent, over_tls, told): &Scan, answered: &mut Answered) {
        let count = match (port, over_tls) {
            (LOCAL, _) => &mut answered.local,
            (_, true) => &mut answered.over_tls,
            (_, false) => &mut answered.plain,
        };
        *count += usize::from(!told.is_empty());
        self.secrets.check(port, sent, told);
        // The answer to bytes that begin as a handshake does names their fault.
        let is_handshake = *over_tls || sent.first() == Some(&0x16);
        if self.requires_tls && ![METRICS, LOCAL].contains(&port) && !is_handshake {
            assert!(told.is_empty(), "{port} tells without TLS: {}", told.escape_ascii());
        }
    }

    /// Scans all ports, one after the other.
    async fn scan(&self, random: &mut StdRng) -> Answered {
        let mut answered = Answered::default();
        for (port, at) in &self.ports {
            let at_once = if *port == LOCAL { LOCAL_AT_ONCE } else { AT_ONCE };
            let (places, mut scans) = (Arc::new(Semaphore::new(at_once)), JoinSet::new());
            for _ in 0..OPENINGS {
                let place = places.clone().acquire_owned().await.expect("a place");
                let (bytes, hangs_up) = (opening(random), random.random_bool(0.5));
                let tls = random.random_ratio(1, WITH_TLS).then(|| self.tls.clone());
                let at = at.clone();
                scans.spawn(async move {
                    let over_tls = tls.is_some();
                    let told = scan(at, tls, &bytes, hangs_up).await;
                    drop(place);
                    (bytes, over_tls, told)
                });
                while let Some(done) = scans.try_join_next() {
                    self.check(port, &done.expect("a scan"), &mut answered);
                }
            }
            while let Some(done) = scans.join_next().await {
                self.check(port, &done.expect("a scan"), &mut answered);
            }
        }
        answered
    }

    /// Waits until a node holds nothing of the scans: no connection, in any state (a handshake is part of one), no call, and
    /// no memory. One connection of a caller may be open at the port for gRPC.
    async fn until_nothing_is_held(&self, context: &NodeContext) {
        let held = |kind| context.callers.held(kind);
        until("no client holds a connection", || held(CountedKind::Connection) <= 1).await;
        for kind in [
            CountedKind::Call,
            CountedKind::Probe,
            CountedKind::Export,
            CountedKind::Page,
            CountedKind::AdminConnection,
            CountedKind::AdminCall,
        ] {
            until(&format!("nobody holds a {kind:?}"), || held(kind) == 0).await;
        }
        for (interface, own) in [(Interface::grpc, 1), (Interface::http, 0), (Interface::redis, 0)]
        {
            let open = context.metrics.client_connections.of(interface);
            until("no connection is counted", || open.get() <= own).await;
        }
        for (port, at) in &self.ports {
            match at {
                At::Port(address) => until(port, || left_open(*address) == 0).await,
                At::Socket(path) => until_all_places_are_free(path).await,
            }
        }
        until("no memory is held", || context.metrics.request_bytes.get() == 0).await;
        until("no stream is counted", || context.metrics.streams.get() == 0).await;
    }
}

/// Has a node scanned while somebody takes numbers there, over gRPC and as a Redis client.
async fn is_scanned(
    closed: &Closed, certificates: &Certificates, node: u64, grpc: Asking,
    redis: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Answered {
    nothing_has_panicked();
    let context = closed.cluster.nodes[&node].context().clone();
    let scanned = Scanned::new(closed, certificates, node);
    let before = next(&grpc, "book").await.expect("a number");
    let caller = Caller::start(context.clone(), grpc.clone(), redis);
    let seed: u64 = rand::random();
    println!("the seed is {seed}");
    let answered = scanned.scan(&mut StdRng::seed_from_u64(seed)).await;
    let (known, last) = caller.stop().await;
    println!("{answered:?}, and {} numbers were taken beside them", last - before);
    assert!(last > before + 1, "no numbers flow");
    scanned.until_nothing_is_held(&context).await;
    assert!(context.fault().is_none(), "{:?}", context.fault());
    let after = next(&grpc, "book").await.expect("a number");
    assert_follows(&context, known, last, after);
    let local = asking_over(socket_of(&closed.cluster, node), None);
    // The callers that were served last at the local socket may be there for another moment.
    let number = eventually("a number", async || next(&local, "book").await.ok()).await;
    assert_follows(&context, known, after, number);
    assert!(answered.local > OPENINGS / 4, "{answered:?}");
    nothing_has_panicked();
    answered
}

/// Has a node take connections with and without TLS, at each port.
fn accepts_tls(config: &mut Config, certificates: &Certificates) {
    with_metrics(config);
    with_admin_port(config);
    let host = config.listen.ip().to_string();
    certificates.node(config.node_id, &host, &[]);
    let own = |end: &str| Some(certificates.path(&format!("node-{}.{end}", config.node_id)).into());
    let (certificate, key) = (own("crt"), own("key"));
    (config.tls, config.peer_tls) = (ClientTls::Accept, PeerTls::Accept);
    (config.tls_cert, config.tls_key) = (certificate.clone(), key.clone());
    (config.peer_tls_cert, config.peer_tls_key) = (certificate, key);
    config.peer_tls_ca = Some(certificates.path("ca.crt").into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scanner_learns_nothing_and_leaves_nothing_at_any_port_while_numbers_flow() {
    let certificates = Certificates::new();
    let closed = Closed::with(|config| accepts_tls(config, &certificates)).await;
    let node = closed.cluster.leader().await;
    hide(&closed, node).await;
    let redis = closed.cluster.nodes[&node].addresses().resp.expect("a port");
    let redis = TcpStream::connect(redis).await.expect("a connection");
    let grpc = closed.at(node, ADMIN);
    let answered = is_scanned(&closed, &certificates, node, grpc, redis).await;
    assert!(answered.plain > OPENINGS / 2 && answered.over_tls > 100, "{answered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scanner_learns_nothing_and_leaves_nothing_at_ports_that_require_tls() {
    let certificates = Certificates::new();
    let mut closed = Closed::with(|config| accepts_tls(config, &certificates)).await;
    hide(&closed, 1).await;
    // From now on nobody is spoken with without TLS, by the nodes among themselves either.
    for id in 1..=3 {
        closed.cluster.crash(id).await;
        let config = closed.cluster.configs.get_mut(&id).expect("a node");
        (config.tls, config.peer_tls) = (ClientTls::Require, PeerTls::Require);
    }
    for id in 1..=3 {
        closed.cluster.start_node_of_production(id).await;
    }
    let over_tls = |node: u64| {
        let address = closed.cluster.address(node);
        asking_over(certificates.channel(address, None), Some(ADMIN))
    };
    let answers = async |node| {
        eventually("a number", async || next(&over_tls(node), "book").await.ok()).await
    };
    for node in 1..=3 {
        answers(node).await;
    }
    let node = closed.cluster.leader().await;
    let at = closed.cluster.nodes[&node].addresses();
    let tls = Arc::new(certificates.client_config(None, ALL_VERSIONS));
    let redis = connect_with(&tls, at.resp.expect("a port")).await.expect("a connection");
    let answered = is_scanned(&closed, &certificates, node, over_tls(node), redis).await;
    assert!(answered.over_tls > 100, "{answered:?}");
    answers(other_than(node)).await;
}

#[test]
fn a_socket_that_a_process_does_not_let_go_of_is_seen() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let client = std::net::TcpStream::connect(address).expect("a connection");
    let (held, _) = listener.accept().expect("a connection");
    assert_eq!(left_open(address), 0, "its other end is there");
    drop(client);
    let mut nothing = [0];
    assert_eq!((&held).read(&mut nothing).expect("its end"), 0);
    assert_eq!(left_open(address), 1);
    drop(held);
    assert_eq!(left_open(address), 0);
}
