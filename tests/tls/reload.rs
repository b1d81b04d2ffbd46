//! Calls go on while nodes read their certificates again and again, and while the CA is changed: none fails.

use std::{
    fs, io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use arc_swap::ArcSwap;
use ratchet::proto::v1::{
    NextManyRequest, NextManyResponse, access_client::AccessClient,
    sequencer_client::SequencerClient,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    task::JoinSet,
};
use tokio_rustls::{
    client::TlsStream,
    rustls::{ALL_VERSIONS, ClientConfig, HandshakeKind},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use super::{next, of_book};
use crate::common::{
    certificates::{Certificates, connect_with},
    closed::{self, Asking, asking_over, create, everything, granting},
    eventually, is_whole,
    processes::{Place, Processes, ratchet},
    until,
};

/// How often every node reads its files again before the CA is changed.
const RELOADS: usize = 20;
const NODES: u64 = 3;
/// The token that all callers show.
const TOKEN: &str = "a-token-of-all-callers";

/// How a caller asks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// Calls over gRPC, over a connection that stays open.
    Unary,
    /// Messages on one stream.
    Stream,
    /// Requests over HTTP, each over a new connection.
    Http,
    /// Commands of Redis, each over a new connection.
    Redis,
}

/// How many there are.
const WAYS: usize = 4;

/// The counts of the callers of one node so far.
#[derive(Default)]
struct SeenAtNode {
    /// Numbers, by the way in which they were asked for.
    numbers: [AtomicU64; WAYS],
    /// Connections that began with a whole handshake.
    whole: AtomicU64,
    /// Connections that went on with a session.
    resumed: AtomicU64,
}

impl SeenAtNode {
    fn numbers(&self) -> [u64; WAYS] {
        self.numbers.each_ref().map(|count| count.load(SeqCst))
    }
}

/// The counts of all callers so far.
#[derive(Default)]
struct Seen {
    at: [SeenAtNode; NODES as usize],
    failed: AtomicU64,
    stop: AtomicBool,
}

impl Seen {
    fn goes_on(&self) -> bool {
        !self.stop.load(SeqCst) && self.failed.load(SeqCst) == 0
    }

    fn fails(&self, what: &str) {
        println!("{what}");
        self.failed.fetch_add(1, SeqCst);
    }

    /// Waits until each caller has got two more numbers: the second one was asked for after this was.
    async fn goes_on_everywhere(&self) {
        let before = self.at.each_ref().map(SeenAtNode::numbers);
        let is_further = |(now, before): (&SeenAtNode, &[u64; WAYS])| {
            now.numbers().iter().zip(before).all(|(now, before)| *now >= before + 2)
        };
        until("every caller goes on", || {
            self.at.iter().zip(&before).all(is_further) || self.failed.load(SeqCst) > 0
        })
        .await;
    }
}

/// A caller that takes numbers of a node, one after the other, until all are to stop.
struct Caller {
    node: usize,
    way: Way,
    seen: Arc<Seen>,
    last: u64,
}

impl Caller {
    /// Counts a number, which has to be greater than the one before.
    fn told(&mut self, told: Result<u64, String>) {
        let Caller { node, way, .. } = *self;
        match told {
            Ok(number) if number > self.last => {
                self.last = number;
                self.seen.at[node].numbers[way as usize].fetch_add(1, SeqCst);
            }
            told => {
                let (node, last) = (node + 1, self.last);
                self.seen.fails(&format!("{way:?} at node {node}: {told:?} after {last}"));
            }
        }
    }

    async fn calls(mut self, mut own: SequencerClient<Asking>) {
        while self.seen.goes_on() {
            let taken = own.next(of_book()).await;
            let taken = taken.map(|taken| taken.into_inner().last);
            self.told(taken.map_err(|status| status.to_string()));
        }
    }

    async fn sends_messages(mut self, mut own: SequencerClient<Asking>) {
        let (messages, sent) = mpsc::channel(1);
        let opened = own.next_many(ReceiverStream::new(sent)).await;
        let mut answers = opened.expect("a stream").into_inner();
        while self.seen.goes_on() {
            self.told(on_stream(&messages, &mut answers).await);
        }
    }

    async fn connects(mut self, config: Arc<ArcSwap<ClientConfig>>, address: SocketAddr) {
        while self.seen.goes_on() {
            let told = match connected(&config, address, &self.seen.at[self.node]).await {
                Err(error) => Err(error.to_string()),
                Ok(stream) if self.way == Way::Http => over_http(stream, address).await,
                Ok(stream) => over_redis(stream).await,
            };
            self.told(told);
        }
    }
}

/// A connection that begins so, which is counted once it has begun.
async fn connected(
    config: &Arc<ArcSwap<ClientConfig>>, address: SocketAddr, seen: &SeenAtNode,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = connect_with(&config.load_full(), address).await?;
    match stream.get_ref().1.handshake_kind() {
        Some(HandshakeKind::Resumed) => seen.resumed.fetch_add(1, SeqCst),
        _ => seen.whole.fetch_add(1, SeqCst),
    };
    Ok(stream)
}

/// The answer to `asked`, once it is whole.
async fn answered(
    mut stream: TlsStream<TcpStream>, asked: &str, is_whole: impl Fn(&[u8]) -> bool,
) -> io::Result<String> {
    stream.write_all(asked.as_bytes()).await?;
    stream.flush().await?;
    let mut told: Vec<u8> = Vec::new();
    while !is_whole(&told) {
        if stream.read_buf(&mut told).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(String::from_utf8_lossy(&told).into_owned())
}

/// The number that a Redis client is told.
async fn over_redis(stream: TlsStream<TcpStream>) -> Result<u64, String> {
    let asked = format!("AUTH {TOKEN}\r\nINCR book:1\r\n");
    let is_whole = |told: &[u8]| told.iter().filter(|byte| **byte == b'\n').count() == 2;
    let told = answered(stream, &asked, is_whole).await.map_err(|error| error.to_string())?;
    let number = told.strip_prefix("+OK\r\n:").and_then(|number| number.trim_end().parse().ok());
    number.ok_or(told)
}

/// The number that a client is told over HTTP.
async fn over_http(stream: TlsStream<TcpStream>, address: SocketAddr) -> Result<u64, String> {
    let asked = format!(
        "POST /v1/namespaces/book/keys/1:next HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Authorization: Bearer {TOKEN}\r\nContent-Length: 0\r\n\r\n"
    );
    let told = answered(stream, &asked, is_whole).await.map_err(|error| error.to_string())?;
    let body = told.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    let body: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let number = body.and_then(|body| body["last"].as_str()?.parse().ok());
    number.ok_or(told)
}

/// The number on a stream in the answer to a message.
async fn on_stream(
    messages: &mpsc::Sender<NextManyRequest>, answers: &mut Streaming<NextManyResponse>,
) -> Result<u64, String> {
    let asked =
        NextManyRequest { namespace: "book".to_owned(), ids: vec![1], ..Default::default() };
    messages.send(asked).await.map_err(|_| "the stream has ended".to_owned())?;
    let answer = answers.message().await.map_err(|status| status.to_string())?;
    let answer = answer.ok_or("the stream has ended")?;
    answer.firsts.first().copied().ok_or_else(|| format!("{answer:?}"))
}

/// Tells every node to read its files again.
async fn reload(cluster: &Processes) {
    for id in 1..=NODES {
        let mut command = ratchet();
        command.args(["reload", "--server", &cluster.socket(id)]);
        let running = tokio::task::spawn_blocking(move || command.output().expect("it runs"));
        let done = running.await.expect("no panic");
        assert!(done.status.success(), "node {id}: {done:?}");
    }
}

/// A caller that asks a node with the certificate of all callers, and with a token or without.
fn asking(certificates: &Certificates, place: &Place, token: Option<&str>) -> Asking {
    asking_over(certificates.channel(place.listen, Some("client-billing")), token)
}

/// Lets nobody do anything without the token. Returns once all nodes have heard of it.
async fn require_the_token(cluster: &Processes, certificates: &Certificates) {
    let at_first = |token| AccessClient::new(asking(certificates, &cluster.places[&1], token));
    create(&mut at_first(None), TOKEN, "callers", everything()).await.expect("a token");
    let nothing = granting("anonymous", None, &[]);
    at_first(Some(TOKEN)).set_grants(nothing).await.expect("tokens are needed");
    for place in cluster.places.values() {
        let [with, without] = [Some(TOKEN), None].map(|token| asking(certificates, place, token));
        eventually("the token is known", async || closed::next(&with, "book").await.ok()).await;
        eventually("the token is needed", async || {
            let refused = closed::next(&without, "book").await;
            (refused == Err(Code::PermissionDenied)).then_some(())
        })
        .await;
    }
}

/// Begins to take numbers of all nodes, in all ways.
fn call_all(
    cluster: &Processes, certificates: &Certificates, config: &Arc<ArcSwap<ClientConfig>>,
    seen: &Arc<Seen>,
) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for (node, place) in cluster.places.values().enumerate() {
        let caller = |way| Caller { node, way, seen: seen.clone(), last: 0 };
        let grpc = || SequencerClient::new(asking(certificates, place, Some(TOKEN)));
        callers.spawn(caller(Way::Unary).calls(grpc()));
        callers.spawn(caller(Way::Stream).sends_messages(grpc()));
        callers.spawn(caller(Way::Http).connects(config.clone(), place.http_listen));
        callers.spawn(caller(Way::Redis).connects(config.clone(), place.resp_listen));
    }
    callers
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_fails_while_certificates_are_read_again_and_the_ca_is_changed() {
    let certificates = Certificates::new();
    certificates.client("billing");
    let mut cluster = Processes::configured(NODES, &[]);
    let host = |cluster: &Processes, id: u64| cluster.places[&id].listen.ip().to_string();
    for id in 1..=NODES {
        certificates.node(id, &host(&cluster, id), &[]);
        let ca = format!("--tls-client-ca={}", certificates.path("ca.crt"));
        let flags = [
            certificates.client_flags(id, "require"),
            certificates.peer_flags(id, "require"),
            vec![ca],
        ];
        cluster.own_flags.insert(id, flags.concat());
        cluster.spawn(id);
    }
    cluster.found_at_socket().await;
    for place in cluster.places.values() {
        next(&certificates.channel(place.listen, Some("client-billing"))).await;
    }
    require_the_token(&cluster, &certificates).await;

    let connects_now =
        || Arc::new(certificates.client_config(Some("client-billing"), ALL_VERSIONS));
    let config = Arc::new(ArcSwap::new(connects_now()));
    let seen = Arc::new(Seen::default());
    let mut callers = call_all(&cluster, &certificates, &config, &seen);
    seen.goes_on_everywhere().await;
    for round in 0..RELOADS {
        // Every other time the files are the same.
        if round % 2 == 0 {
            for id in 1..=NODES {
                certificates.node(id, &host(&cluster, id), &["--replace"]);
            }
        }
        reload(&cluster).await;
        seen.goes_on_everywhere().await;
    }
    // A new CA beside the old one, then certificates that it has signed, then the new one alone.
    certificates.make(&["ca", "--add"]);
    reload(&cluster).await;
    config.store(connects_now());
    seen.goes_on_everywhere().await;
    for id in 1..=NODES {
        certificates.node(id, &host(&cluster, id), &["--replace"]);
    }
    let args = ["client", "--cluster", "test", "--name", "billing", "--replace"];
    certificates.make(&args);
    reload(&cluster).await;
    config.store(connects_now());
    seen.goes_on_everywhere().await;
    let both = String::from_utf8(certificates.read("ca.crt")).expect("PEM");
    let end = "-----END CERTIFICATE-----\n";
    let new = both.split_inclusive(end).next().expect("a certificate");
    assert!(new.len() < both.len(), "there were two");
    fs::write(certificates.path("ca.crt"), new).expect("written");
    reload(&cluster).await;
    config.store(connects_now());
    seen.goes_on_everywhere().await;

    seen.stop.store(true, SeqCst);
    while let Some(ended) = callers.join_next().await {
        ended.expect("no panic");
    }
    assert_eq!(seen.failed.load(SeqCst), 0);
    let reloads = RELOADS + 3;
    for (node, at) in seen.at.iter().enumerate() {
        let (node, numbers) = (node + 1, at.numbers());
        let [whole, resumed] = [&at.whole, &at.resumed].map(|count| count.load(SeqCst));
        println!(
            "node {node}, through {reloads} reloads and a change of the CA: {numbers:?} numbers by way, {whole} connections \
             with a whole handshake and {resumed} with an earlier session"
        );
        // A reload makes new keys for tickets: no session of before it goes on.
        assert!(whole > reloads as u64, "node {node}");
        assert!(resumed > 0, "node {node}");
    }
}
