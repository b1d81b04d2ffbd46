//! Calls go on while nodes read their certificates again and again, and while the CA is changed: none fails.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use arc_swap::ArcSwap;
use ratchet::proto::v1::sequencer_client::SequencerClient;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
};
use tokio_rustls::rustls::{ALL_VERSIONS, ClientConfig, HandshakeKind};

use super::{next, of_book};
use crate::common::{
    certificates::{Certificates, connect_with},
    processes::{Processes, ratchet},
    until,
};

/// How often every node reads its files again before the CA is changed.
const RELOADS: usize = 20;
const NODES: u64 = 3;

/// What the callers have seen so far.
#[derive(Default)]
struct Seen {
    /// Calls over connections that stay open, by node.
    unary: [AtomicU64; NODES as usize],
    /// Connections that began with a whole handshake, by node: one call each.
    whole: [AtomicU64; NODES as usize],
    /// Connections that went on with a session, by node: one call each.
    resumed: [AtomicU64; NODES as usize],
    failed: AtomicU64,
    stop: AtomicBool,
}

fn sum(counts: &[AtomicU64]) -> u64 {
    counts.iter().map(|count| count.load(SeqCst)).sum()
}

impl Seen {
    fn calls(&self) -> u64 {
        sum(&self.unary) + self.connections()
    }

    fn connections(&self) -> u64 {
        sum(&self.whole) + sum(&self.resumed)
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(SeqCst)
    }

    fn fails(&self, what: &str) {
        println!("{what}");
        self.failed.fetch_add(1, SeqCst);
    }

    /// Waits until each caller has made two more calls: the second one began after this was asked for.
    async fn goes_on_everywhere(&self) {
        let connections = |at: usize| self.whole[at].load(SeqCst) + self.resumed[at].load(SeqCst);
        let unary = |at: usize| self.unary[at].load(SeqCst);
        let nodes = 0..NODES as usize;
        let before: Vec<_> = nodes.clone().map(|at| (connections(at), unary(at))).collect();
        let is_further = |at: usize| {
            let (connected, called) = before[at];
            connections(at) >= connected + 2 && unary(at) >= called + 2
        };
        until("every caller goes on", || {
            nodes.clone().all(is_further) || self.failed.load(SeqCst) > 0
        })
        .await;
    }
}

/// Takes a number over a connection of its own, as a Redis client. Says whether it goes on with a session.
async fn over_own_connection(
    config: &Arc<ClientConfig>, address: std::net::SocketAddr,
) -> std::io::Result<bool> {
    let mut stream = connect_with(config, address).await?;
    let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
    stream.write_all(b"INCR book:1\r\n").await?;
    stream.flush().await?;
    let mut told = Vec::new();
    while !told.ends_with(b"\r\n") {
        if stream.read_buf(&mut told).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    match told.starts_with(b":") {
        true => Ok(resumed),
        false => Err(std::io::Error::other(String::from_utf8_lossy(&told).into_owned())),
    }
}

/// What every node is told.
async fn reload(cluster: &Processes) {
    for id in 1..=NODES {
        let mut command = ratchet();
        command.args(["reload", "--server", &cluster.socket(id)]);
        let running = tokio::task::spawn_blocking(move || command.output().expect("it runs"));
        let done = running.await.expect("no panic");
        assert!(done.status.success(), "node {id}: {done:?}");
    }
}

/// Begins to call all nodes: over connections that stay open, and over a new one for each call.
fn call_all(
    cluster: &Processes, certificates: &Certificates, config: &Arc<ArcSwap<ClientConfig>>,
    seen: &Arc<Seen>,
) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for (at, place) in cluster.places.values().enumerate() {
        let channel = certificates.channel(place.listen, Some("client-billing"));
        let (own, counted) = (SequencerClient::new(channel), seen.clone());
        callers.spawn(async move {
            while counted.goes_on() {
                match own.clone().next(of_book()).await {
                    Ok(_) => drop(counted.unary[at].fetch_add(1, SeqCst)),
                    Err(refused) => counted.fails(&format!("node {}: {refused}", at + 1)),
                }
            }
        });
        let (config, counted, address) = (config.clone(), seen.clone(), place.resp_listen);
        callers.spawn(async move {
            while counted.goes_on() {
                let config = config.load_full();
                match over_own_connection(&config, address).await {
                    Ok(true) => drop(counted.resumed[at].fetch_add(1, SeqCst)),
                    Ok(false) => drop(counted.whole[at].fetch_add(1, SeqCst)),
                    Err(error) => counted.fails(&format!("node {}: {error}", at + 1)),
                }
            }
        });
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
    let (calls, failed) = (seen.calls(), seen.failed.load(SeqCst));
    let reloads = RELOADS + 3;
    println!(
        "{calls} calls at {NODES} nodes through {reloads} reloads and a change of the CA: {failed} failed; \
         {} connections were made, {} of them with an earlier session",
        seen.connections(),
        sum(&seen.resumed)
    );
    assert_eq!(failed, 0);
    for (at, whole) in seen.whole.iter().enumerate() {
        // A reload makes new keys for tickets: no session of before it goes on.
        assert!(whole.load(SeqCst) > reloads as u64, "node {}", at + 1);
        assert!(seen.resumed[at].load(SeqCst) > 0, "node {}", at + 1);
    }
}
