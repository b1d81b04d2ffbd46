//! Nodes that wait, and talk to one another over TLS: no stranger greets them, and none founds their cluster.

use std::{path::PathBuf, process::Output};

use ratchet::{
    consensus::Transport,
    node::Config,
    proto::peer::{HelloRequest, peer_client::PeerClient},
};
use tempfile::TempDir;
use tonic::Code;

use crate::common::{
    PATIENCE,
    certificates::Certificates,
    closed::{asking, next},
    eventually, in_time,
    links::{as_peer, listening_at},
    processes::{Processes, ratchet},
    unhurried, until,
};

/// How a command ends that is not let in.
const NOT_LET_IN: Option<i32> = Some(8);

/// Three nodes that wait, of which each has certificates for its peers, and as many flags more as `further` says.
async fn waiting(
    certificates: &Certificates, mode: &str, further: impl Fn(u64) -> Vec<String>,
) -> Processes {
    let mut cluster = Processes::configured(3, &[]);
    for id in 1..=3 {
        let host = cluster.places[&id].peer_listen.ip().to_string();
        certificates.node(id, &host, &[]);
        let flags = [certificates.peer_flags(id, mode), further(id)].concat();
        cluster.own_flags.insert(id, flags);
        cluster.spawn(id);
    }
    certificates.client("billing");
    for id in 1..=3 {
        let waits = async || cluster.client(id).status().await.ok().filter(|status| status.waits);
        eventually("the node waits", waits).await;
    }
    cluster
}

fn socket(cluster: &Processes, id: u64) -> PathBuf {
    cluster.dir.path().join(id.to_string()).join("admin.sock")
}

/// Runs `ratchet found` with these arguments to its end.
async fn found(args: &[&str]) -> Output {
    let mut command = ratchet();
    command.arg("found").args(args);
    let running = tokio::task::spawn_blocking(move || command.output().expect("it runs"));
    in_time("the end of a command", running).await.expect("no panic")
}

/// Sees that a founding is refused, and that the reason names the local socket, and not where the data of node 1 is.
fn assert_refused(cluster: &Processes, refused: &Output) {
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), NOT_LET_IN, "{told}");
    for part in ["ratchet found --server unix:DATA_DIR/admin.sock", "tls_client_ca"] {
        assert!(told.contains(part), "{part:?} is not in {told}");
    }
    let place = cluster.dir.path().display().to_string();
    assert!(!told.contains(&place), "{place} is in {told}");
}

async fn assert_waits(cluster: &Processes) {
    for id in 1..=3 {
        let status = cluster.client(id).status().await.expect("a status");
        assert!(status.waits && status.cluster_id.is_empty(), "{status:?}");
    }
}

/// Has a cluster founded by this command with an admin token, twice, and sees that nobody does anything without that.
async fn found_twice(cluster: &Processes, args: &[&str]) {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("admin.token");
    let file_arg = file.to_str().expect("UTF-8");
    let args = [&["--admin-token-file", file_arg], args].concat();
    // A peer may not listen yet.
    eventually("the cluster is founded", async || {
        found(&args).await.status.success().then_some(())
    })
    .await;
    let token = std::fs::read_to_string(&file).expect("a token");
    for _ in 0..2 {
        let again = found(&args).await;
        assert!(again.status.success(), "{again:?}");
        let told = String::from_utf8_lossy(&again.stdout);
        assert!(told.contains("was founded before"), "{told}");
        assert_eq!(std::fs::read_to_string(&file).expect("a token"), token, "it is overwritten");
    }
    for id in 1..=3 {
        let address = cluster.places[&id].listen;
        let admin = asking(address, Some(token.trim_end()));
        eventually("a number", async || next(&admin, "book").await.ok()).await;
        assert_eq!(next(&asking(address, None), "book").await, Err(Code::Unauthenticated));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_require_tls_of_peers_are_founded_at_a_local_socket_and_over_the_network_by_nobody()
 {
    let certificates = Certificates::new();
    let cluster = waiting(&certificates, "require", |_| Vec::new()).await;
    let server = cluster.places[&1].listen.to_string();
    assert_refused(&cluster, &found(&["--server", &server]).await);
    assert_waits(&cluster).await;
    until("there is a socket", || socket(&cluster, 1).exists()).await;
    let socket = format!("unix:{}", socket(&cluster, 1).display());
    found_twice(&cluster, &["--server", &socket]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_founding_over_the_network_with_an_admin_token_is_told_of_the_socket_and_goes_on_there() {
    let certificates = Certificates::new();
    let cluster = waiting(&certificates, "require", |_| Vec::new()).await;
    let server = cluster.places[&1].listen.to_string();
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("admin.token");
    let file = file.to_str().expect("UTF-8");
    let over_network = ["--server", &server, "--admin-token-file", file, "--timeout-ms", "60000"];
    // The second run takes the token from the file. A token of one's own is nobody's here.
    for further in [&[][..], &[], &["--token-file", file]] {
        assert_refused(&cluster, &found(&[&over_network[..], further].concat()).await);
    }
    assert_waits(&cluster).await;
    let drawn = std::fs::read_to_string(file).expect("a token");
    let socket = format!("unix:{}", socket(&cluster, 1).display());
    eventually("the cluster is founded", async || {
        let founded = found(&["--server", &socket, "--admin-token-file", file]).await;
        founded.status.success().then_some(())
    })
    .await;
    let admin = asking(cluster.places[&1].listen, Some(drawn.trim_end()));
    eventually("a number", async || next(&admin, "book").await.ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_require_tls_of_peers_are_founded_by_a_client_whose_certificate_is_of_their_ca()
{
    let certificates = Certificates::new();
    let cluster = waiting(&certificates, "require", |id| {
        let ca = format!("--tls-client-ca={}", certificates.path("ca.crt"));
        [certificates.client_flags(id, "accept"), vec![ca]].concat()
    })
    .await;
    let server = cluster.places[&1].listen.to_string();
    assert_refused(&cluster, &found(&["--server", &server]).await);
    assert_waits(&cluster).await;
    // Of another CA's client it is as of none.
    let others = Certificates::new();
    others.client("billing");
    let ca = certificates.path("ca.crt");
    let shows = |made: &Certificates| {
        let [certificate, key] =
            ["crt", "key"].map(|end| made.path(&format!("client-billing.{end}")));
        [
            ["--server".to_owned(), server.clone()],
            ["--tls-ca".to_owned(), ca.clone()],
            ["--tls-cert".to_owned(), certificate],
            ["--tls-key".to_owned(), key],
        ]
        .concat()
    };
    let strangers = shows(&others);
    let strangers: Vec<&str> = strangers.iter().map(String::as_str).collect();
    let refused = found(&[&strangers[..], &["--timeout-ms", "2000"]].concat()).await;
    assert!(!refused.status.success(), "{refused:?}");
    assert_waits(&cluster).await;
    let billing = shows(&certificates);
    let billing: Vec<&str> = billing.iter().map(String::as_str).collect();
    found_twice(&cluster, &billing).await;
}

fn greeting(from: u64, to: u64) -> HelloRequest {
    let mut times = Config::default();
    unhurried(&mut times);
    let election_timeout_ms = times.election_timeout_ms;
    HelloRequest { cluster: "test".to_owned(), from, to, election_timeout_ms, ..Default::default() }
}

/// Sees that a node which waits is greeted by other nodes alone. Without TLS it answers `plain`, if it answers at all.
async fn assert_no_stranger_greets(mode: &str, plain: Option<Code>) {
    let certificates = Certificates::new();
    let cluster = waiting(&certificates, mode, |_| Vec::new()).await;
    for id in 1..=3 {
        let peer = cluster.places[&id].peer_listen;
        let from = 1 + id % 3;
        let transport = as_peer();
        let address = peer.to_string();
        let told = transport.hello(listening_at(&address), greeting(from, id), PATIENCE).await;
        let refused = told.expect_err("it speaks no TLS");
        if let Some(plain) = plain {
            assert_eq!(refused.code(), plain, "{refused}");
            assert!(refused.message().contains("peer_tls = send or require"), "{refused}");
        }
        for shown in [None, Some("client-billing")] {
            let mut peers = PeerClient::new(certificates.channel(peer, shown));
            let told = in_time("an answer", peers.hello(greeting(from, id))).await;
            told.map(drop).expect_err("it is no node");
        }
        let node = format!("node-{from}");
        let mut peers = PeerClient::new(certificates.channel(peer, Some(&node)));
        in_time("an answer", peers.hello(greeting(from, id))).await.expect("it is a node");
        // A node may not greet in another one's name.
        let mut peers = PeerClient::new(certificates.channel(peer, Some(&node)));
        let told = in_time("an answer", peers.hello(greeting(1 + from % 3, id))).await;
        assert_eq!(told.map(drop).expect_err("it is another").code(), Code::FailedPrecondition);
    }
    assert_waits(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_waits_and_requires_tls_of_peers_is_greeted_by_nodes_alone() {
    assert_no_stranger_greets("require", None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_waits_and_takes_peers_without_tls_beside_others_is_greeted_by_nodes_alone() {
    assert_no_stranger_greets("send", Some(Code::Unauthenticated)).await;
}
