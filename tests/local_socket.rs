//! The local socket: a user that may open a node's data directory is let in there, with or without tokens in the cluster.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Output,
};

use ratchet::{
    node::hash_of,
    proto::v1::{
        ListPrincipalsRequest, RevokeTokenRequest, StatusRequest, access_client::AccessClient,
        admin_client::AdminClient,
    },
};
use tempfile::TempDir;
use tokio::{io::AsyncReadExt, net::UnixStream};
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};

use crate::common::{
    Client,
    closed::{ADMIN, Asking, Closed, asking, asking_over, create, everything, next},
    cluster::Cluster,
    eventually, free_ports, in_time, other_than, own_ip,
    processes::{Process, Processes, ratchet, run},
    rust_client, until,
};

/// Where the local socket of a node is.
pub fn socket_in(data_dir: &Path) -> PathBuf {
    data_dir.join("admin.sock")
}

/// The address of a socket, as clients are given it.
fn server(socket: &Path) -> String {
    format!("unix:{}", socket.display())
}

/// A connection over the local socket of a node.
pub fn socket_of(cluster: &Cluster, node: u64) -> Channel {
    let socket = server(&socket_in(cluster.data_dir(node)));
    Endpoint::from_shared(socket).expect("an address").connect_lazy()
}

/// A caller that asks over the local socket of a node with a token, or without.
fn local(cluster: &Cluster, node: u64, token: Option<&str>) -> Asking {
    asking_over(socket_of(cluster, node), token)
}

async fn command(args: &'static [&str], server: String) -> Output {
    let running = move || run(&[args, &["--server", &server]].concat());
    tokio::task::spawn_blocking(running).await.expect("no panic")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_over_the_socket_needs_no_token_and_who_asks_over_the_network_does() {
    let closed = Closed::start().await;
    for node in 1..=3 {
        let nobody = asking(closed.cluster.address(node), None);
        let asked = AdminClient::new(nobody.clone()).status(StatusRequest {}).await;
        assert_eq!(asked.expect_err("not without a token").code(), Code::Unauthenticated);
        assert_eq!(next(&nobody, "book").await, Err(Code::Unauthenticated));
        // A token that is worth nothing may be the one that is to be replaced.
        for token in [None, Some("it is not known")] {
            let local = local(&closed.cluster, node, token);
            next(&local, "book").await.expect("a number");
            AdminClient::new(local.clone()).status(StatusRequest {}).await.expect("the status");
            let listed = AccessClient::new(local).list_principals(ListPrincipalsRequest {}).await;
            assert!(listed.expect("principals").into_inner().principals.len() > 1);
        }
    }
    // A client that may not ask the other nodes does not go there.
    let follower = other_than(closed.cluster.leader().await);
    let server = server(&socket_in(closed.cluster.data_dir(follower)));
    let client = rust_client::client([&server]);
    client.status().await.expect("the status");
    let first = client.next("book", 7).await.expect("a number");
    assert!(client.next("book", 7).await.expect("a number") > first);
    assert_eq!(client.servers(), std::slice::from_ref(&server));
    assert!(text(&command(&["namespace", "list"], server).await).contains("book"));
}

#[tokio::test(flavor = "multi_thread")]
pub async fn nobody_but_the_user_of_the_node_may_open_the_socket() {
    let cluster = Cluster::start(1, |_| {}).await;
    let about = fs::metadata(socket_in(cluster.data_dir(1))).expect("a socket");
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_admin_token_is_replaced_over_the_socket_of_a_follower() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let follower = other_than(leader);
    let mut at_follower = AccessClient::new(local(&closed.cluster, follower, None));
    let token = "it takes the place of the lost one";
    let made = create(&mut at_follower, token, "admin", everything()).await.expect("a token");
    assert_eq!(made.made_by.as_deref(), Some("local"));
    let mut admin = AccessClient::new(closed.at(leader, token));
    let id = Some(hash_of(ADMIN.as_bytes()).id());
    let revoke = RevokeTokenRequest { name: "admin".to_owned(), id };
    admin.revoke_token(revoke).await.expect("the lost one is worth nothing");
    for node in 1..=3 {
        let lost = closed.at(node, ADMIN);
        let is_refused =
            async || (next(&lost, "book").await == Err(Code::Unauthenticated)).then_some(());
        eventually("the node has heard of it", is_refused).await;
        next(&closed.at(node, token), "book").await.expect("a number");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_killed_starts_again_beside_its_socket_and_a_stop_removes_it() {
    let mut cluster = Processes::start(1, &[]).await;
    let socket = socket_in(&cluster.dir.path().join("1"));
    cluster.kill(1);
    assert!(socket.exists(), "nobody has removed it");
    cluster.spawn(1);
    let last = cluster.client(1).next_at_last(1).await;
    let taken = command(&["next", "book", "1"], server(&socket)).await;
    assert_eq!(text(&taken), format!("{}\n", last + 1));
    let exported = command(&["export", "book"], server(&socket)).await;
    assert!(!text(&exported).is_empty());
    assert!(cluster.terminate(1).await.success());
    assert!(!socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_connection_is_closed_and_silent_ones_end_when_the_node_stops() {
    const CONNECTIONS_MAX: usize = 16;
    let mut cluster = Cluster::start(1, |_| {}).await;
    let socket = socket_in(cluster.data_dir(1));
    let connect = async || UnixStream::connect(&socket).await.expect("a connection");
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        silent.push(connect().await);
    }
    let mut further = connect().await;
    let ended = in_time("the end of the further one", further.read(&mut [0])).await;
    assert_eq!(ended.expect("an end"), 0);
    silent.pop();
    eventually("there is room", async || next(&local(&cluster, 1, None), "book").await.ok()).await;
    let node = cluster.nodes.remove(&1).expect("a node");
    in_time("the end of the node", node.stop()).await;
    for mut one in silent {
        // The bytes before the end are the node's settings.
        in_time("the end of a silent one", one.read_to_end(&mut Vec::new())).await.expect("an end");
    }
    assert!(!socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_path_is_too_long_for_a_socket_runs_without_one_and_says_so_once() {
    let dir = TempDir::new().expect("a directory");
    let data_dir = dir.path().join("d".repeat(120));
    let [grpc, peer] = free_ports(own_ip());
    let log = dir.path().join("log");
    let mut start = ratchet();
    start.args([
        "start",
        "--dev",
        "--metrics-listen=off",
        "--http-listen=off",
        "--resp-listen=off",
    ]);
    start.args(["--listen", &grpc.to_string(), "--peer-listen", &peer.to_string()]);
    start.arg("--data-dir").arg(&data_dir);
    start.stderr(fs::File::create(&log).expect("a log"));
    let _node = Process(start.spawn().expect("it starts"));
    Client::new(grpc).next_at_last(1).await;
    let socket = socket_in(&data_dir);
    assert!(!socket.exists());
    let read = || fs::read_to_string(&log).expect("a log");
    until("its log says where it listens", || read().contains("listening")).await;
    let log = read();
    let told: Vec<&str> =
        log.lines().filter(|line| line.contains("there is no local socket")).collect();
    let [told] = told[..] else {
        panic!("{told:?}");
    };
    assert!(told.contains(&socket.display().to_string()), "{told}");
    assert!(told.contains("choose a shorter data_dir"), "{told}");
}
