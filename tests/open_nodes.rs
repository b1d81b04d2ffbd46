//! Nodes that strangers reach: they do not start, are founded and are added to no cluster, where everybody may do something,
//! unless they are told to.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use ratchet::{
    node::{Config, StartError, hash_of},
    proto::{
        peer::{
            AdministerRequest, ForwardReplies, ForwardRequests, Founding, Header, HelloRequest,
            RaftMessage, peer_client::PeerClient,
        },
        v1::{
            AddNodeRequest, FoundRequest, MembershipResponse, StatusRequest, StatusResponse,
            access_client::AccessClient, admin_client::AdminClient,
        },
    },
    sequence::{AccessChange, Command, EntryOutcome, Grant, PRINCIPALS_MAX, PrincipalKey},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};

use crate::common::{
    append, channel,
    closed::{ADMIN, Asking, asking, create, everything, granting, next},
    cluster::Cluster,
    eventually, forwarded, free_ports, http_get, in_time, own_ip,
    processes::{Process, Processes, ratchet},
    until,
};

/// Where strangers reach a port: at all addresses of the machine. The system chooses the port.
const EVERYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// How that is told of the port for HTTP.
const TOLD: &str = "http_listen is 0.0.0.0:0";
/// How that is told of the port for peers.
const PEERS_TOLD: &str = "peer_listen is 0.0.0.0:0";
/// The grants that open a cluster.
const EVERYTHING: [&str; 5] = ["next:*", "read:*", "raise:*", "namespaces:*", "admin:*"];

fn with_http_everywhere(config: &mut Config) {
    config.http_listen = Some(EVERYWHERE);
}

type Change = fn(&mut Config);

/// The open ports of each member, in the order of their ids.
fn open_at_members(status: StatusResponse) -> Vec<String> {
    status.nodes.into_iter().map(|node| node.open).collect()
}

/// The open ports of each member, as `leader` tells them by way of node `asked`; `None` if another node answers. Another node
/// that leads hands over first: a slow machine may elect it at any time.
async fn told_by(cluster: &Cluster, leader: u64, asked: u64) -> Option<Vec<String>> {
    let leads = cluster.leader().await;
    if leads != leader {
        cluster.client(leads).transfer(leader).await.ok()?;
    }
    let status = cluster.client(asked).status().await.ok()?;
    (status.serving && status.node == leader).then(|| open_at_members(status))
}

/// Sees that node 1 does not start, and which parts the reason has.
async fn assert_refused(cluster: &Cluster, parts: &[&str]) {
    let refused = cluster.try_start(1, cluster.seams(1)).await.err().expect("it is open");
    assert!(matches!(refused, StartError::Config(_)), "{refused:?}");
    let ways_out = ["set tls = require", "turn tokens on", "peer_tls = require", "insecure = true"];
    for part in parts.iter().chain(&ways_out) {
        assert!(refused.to_string().contains(part), "{part:?} is not in {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_strangers_reach_does_not_start_in_an_open_cluster() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    cluster.crash(1).await;
    let at_home = cluster.configs[&1].clone();
    let changes: [(&str, Change); 4] = [
        ("listen is 0.0.0.0:0", |config| {
            (config.listen, config.advertise) = (EVERYWHERE, Some("127.0.0.1:7600".to_owned()));
        }),
        (TOLD, with_http_everywhere),
        ("resp_listen is 0.0.0.0:0", |config| config.resp_listen = Some(EVERYWHERE)),
        ("admin_listen is 0.0.0.0:0", |config| config.admin_listen = Some(EVERYWHERE)),
    ];
    for (told, change) in changes {
        let config = cluster.configs.get_mut(&1).expect("a node");
        *config = at_home.clone();
        change(config);
        assert_refused(&cluster, &[told, "everybody is granted everything"]).await;
    }
    // Peers and Prometheus may reach it.
    let config = cluster.configs.get_mut(&1).expect("a node");
    *config =
        Config { peer_listen: EVERYWHERE, metrics_listen: Some(EVERYWHERE), ..at_home.clone() };
    cluster.start_node(1).await;
    let mut client = cluster.client(1);
    client.next_at_last(1).await;
    let status = client.status().await.expect("a status");
    assert_eq!(open_at_members(status), [""], "nobody else reaches it");
    cluster.crash(1).await;

    let config = cluster.configs.get_mut(&1).expect("a node");
    *config = Config { http_listen: Some(EVERYWHERE), insecure: true, ..at_home };
    cluster.start_node(1).await;
    let mut client = cluster.client(1);
    client.next_at_last(1).await;
    let open = open_at_members(client.status().await.expect("a status")).remove(0);
    let told =
        "node 1 is open to strangers: whoever reaches http_listen 0.0.0.0:0 is granted everything";
    assert!(open.contains(told), "{open}");
    let port = cluster.nodes[&1].addresses().http.expect("a port").port();
    let page = http_get((Ipv4Addr::LOCALHOST, port).into(), "/").await;
    assert!(page.body.contains(told), "{}", page.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_node_is_asked_and_whoever_leads_the_status_tells_what_of_each_member_is_open() {
    let mut cluster = Cluster::configured(3, |_| {});
    let config = cluster.configs.get_mut(&3).expect("a node");
    with_http_everywhere(config);
    config.insecure = true;
    for id in 1..=3 {
        cluster.start_node(id).await;
    }
    cluster.all_answer().await;
    let told =
        "node 3 is open to strangers: whoever reaches http_listen 0.0.0.0:0 is granted everything";
    for leader in [3, 2, 1] {
        for asked in 1..=3 {
            let open = eventually("the leader has heard node 3", async || {
                told_by(&cluster, leader, asked).await.filter(|open| !open[2].is_empty())
            })
            .await;
            assert_eq!(open[..2], ["", ""]);
            assert!(open[2].starts_with(told), "{open:?}");
        }
    }
    cluster.crash(3).await;
    let config = cluster.configs.get_mut(&3).expect("a node");
    (config.http_listen, config.insecure) = (None, false);
    cluster.start_node(3).await;
    for asked in 1..=3 {
        eventually("nothing is open any more", async || {
            let open = told_by(&cluster, 1, asked).await;
            open.filter(|open| open.iter().all(String::is_empty))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_let_a_node_start_that_strangers_reach_and_it_is_not_opened_while_it_leads() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    let mut nobody = AccessClient::new(asking(cluster.address(1), None));
    create(&mut nobody, ADMIN, "admin", everything()).await.expect("a token");
    let address = cluster.address(1);
    let grant = async |addresses, grants: &[&str]| {
        let mut admin = AccessClient::new(asking(address, Some(ADMIN)));
        admin.set_grants(granting("anonymous", addresses, grants)).await.map(drop)
    };
    grant(None, &[]).await.expect("tokens are needed");
    cluster.crash(1).await;
    with_http_everywhere(cluster.configs.get_mut(&1).expect("a node"));
    cluster.start_node(1).await;
    let with_token = asking(address, Some(ADMIN));
    eventually("a number", async || next(&with_token, "book").await.ok()).await;
    let refused = grant(None, &["next:*"]).await.expect_err("it is open");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    for part in [TOLD, "everybody would be granted next:*", "insecure = true"] {
        assert!(refused.message().contains(part), "{part:?} is not in {refused}");
    }
    let nobody = asking(cluster.address(1), None);
    assert_eq!(next(&nobody, "book").await, Err(Code::Unauthenticated), "nothing was changed");
    // The callers at some addresses are not everybody.
    grant(Some("127.0.0.0/8"), &["next:*"]).await.expect("granted");
    cluster.crash(1).await;
    cluster.start_node(1).await;
    eventually("a number", async || next(&nobody, "book").await.ok()).await;
    let open = async || {
        let mut admin = AdminClient::new(asking(address, Some(ADMIN)));
        let status = admin.status(StatusRequest {}).await.expect("a status").into_inner();
        open_at_members(status).remove(0)
    };
    let told = "node 1 is open to private addresses: whoever reaches http_listen 0.0.0.0:0 is granted next:* at 127.0.0.0/8";
    assert!(open().await.starts_with(told), "{}", open().await);
    cluster.crash(1).await;

    cluster.configs.get_mut(&1).expect("a node").insecure = true;
    cluster.start_node(1).await;
    eventually("a number", async || next(&nobody, "book").await.ok()).await;
    grant(None, &["next:*", "read:book"]).await.expect("granted");
    let open = open().await;
    assert!(open.contains("is granted next:*, read:book, without a token"), "{open}");
    cluster.crash(1).await;
    cluster.configs.get_mut(&1).expect("a node").insecure = false;
    assert_refused(&cluster, &[TOLD, "everybody is granted next:*, read:book"]).await;
}

/// Has the leader, node 1, grant that to everybody, as one does that does not know this node's settings: this one would refuse
/// it.
async fn grant_unchecked(cluster: &Cluster, grants: Vec<Grant>) {
    let group = cluster.nodes[&1].context().group.clone();
    let key = PrincipalKey::Anonymous(None);
    let change = AccessChange::Grant { key, grants, principals_max: PRINCIPALS_MAX };
    let term = group.leadership().borrow().term;
    let granted = group.propose(term, Command::ChangeAccess(change)).await;
    assert_eq!(granted.expect("applied"), EntryOutcome::Access(Ok(())));
}

/// A stream over which node 1 has answered a request of a member, which says that it is node 1, too.
async fn forwarding(
    cluster: &Cluster, peer: &mut PeerClient<Channel>,
) -> (mpsc::Sender<ForwardRequests>, Streaming<ForwardReplies>) {
    let incarnation = cluster.nodes[&1].context().this_node.store.incarnation();
    let header = Header {
        cluster: "test".to_owned(),
        set: 1,
        from: 1,
        to: 1,
        to_incarnation: incarnation,
        election_timeout_ms: cluster.configs[&1].election_timeout_ms,
        from_incarnation: incarnation,
    };
    let (messages, stream) = mpsc::channel(1);
    messages.send(forwarded(header)).await.expect("sent");
    let replies = peer.forward(ReceiverStream::new(stream)).await.expect("a stream");
    let mut replies = replies.into_inner();
    let reply = in_time("a reply", replies.message()).await.expect("a reply").expect("one");
    assert_eq!(reply.replies[0].id, 7, "{reply:?}");
    (messages, replies)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_runs_on_when_tokens_are_turned_on_takes_nothing_where_strangers_pass_for_nodes()
 {
    let mut cluster = Cluster::start(1, |_| {}).await;
    cluster.crash(1).await;
    cluster.configs.get_mut(&1).expect("a node").peer_listen = EVERYWHERE;
    cluster.start_node(1).await;
    cluster.client(1).next_at_last(1).await;
    let context = cluster.nodes[&1].context();
    assert_eq!(context.services.status.open(), "");
    let port = cluster.nodes[&1].addresses().peer.port();
    let mut peer = PeerClient::new(channel((Ipv4Addr::LOCALHOST, port).into()));
    let greeting = HelloRequest {
        cluster: "test".to_owned(),
        from: 2,
        to: 1,
        election_timeout_ms: cluster.configs[&1].election_timeout_ms,
        ..HelloRequest::default()
    };
    peer.hello(greeting.clone()).await.expect("everybody may do everything");
    let (messages, mut replies) = forwarding(&cluster, &mut peer).await;
    grant_unchecked(&cluster, Vec::new()).await;
    // Nothing more is sent over it.
    let ended = in_time("the end of the stream", replies.message()).await;
    assert!(matches!(ended, Ok(None) | Err(_)), "{ended:?}");
    drop(messages);
    let open = context.services.status.open();
    for part in [PEERS_TOLD, "node 1", "peer_tls = require", "takes no message of a peer"] {
        assert!(open.contains(part), "{part:?} is not in {open}");
    }
    for refused in [
        peer.hello(greeting).await.map(drop),
        peer.vote(RaftMessage::default()).await.map(drop),
        append(&mut peer, RaftMessage::default()).await.map(drop),
        peer.administer(AdministerRequest::default()).await.map(drop),
    ] {
        let refused = refused.expect_err("anybody could pretend to be a node");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("peer_tls = require"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_anybody_asked_for_is_not_made_once_the_cluster_has_tokens() {
    let mut cluster = Cluster::configured(1, |_| {});
    let asked = Arc::new(AtomicU32::default());
    let asks = asked.clone();
    let mut transport = cluster.transport(1);
    transport.on_greeting = Box::new(move |greeting| {
        asks.fetch_add(greeting.needs_peer_tls.into(), Relaxed);
    });
    let seams = cluster.seams_with(transport);
    cluster.start_node_with(1, seams).await;
    cluster.all_answer().await;
    cluster.add_learner(1, 2).await;
    // The leader waits a second for the answer of this member. A slow machine may close the cluster later than that.
    cluster.links.cut(1, cluster.configs[&2].peer_listen.to_string());
    let mut stranger = 0;
    eventually("the cluster is closed while a stranger's token is asked for", async || {
        stranger += 1;
        let (token, before) = (format!("stranger-{stranger}"), asked.load(Relaxed));
        let mut nobody = AccessClient::new(asking(cluster.address(1), None));
        let creating =
            tokio::spawn(async move { create(&mut nobody, &token, &token, everything()).await });
        until("the members are asked", || asked.load(Relaxed) > before).await;
        grant_unchecked(&cluster, Vec::new()).await;
        let told = creating.await.expect("no panic");
        grant_unchecked(&cluster, Grant::everything()).await;
        let refused = told.err()?;
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
        Some(())
    })
    .await;
}

/// Has a node tell its peers a name, which may lead elsewhere.
fn with_advertised_name(config: &mut Config) {
    config.peer_advertise = Some(format!("localhost:{}", config.peer_listen.port()));
}

/// Adds node 2, which listens for peers at `peer_address`, once the leader has an answer in time.
async fn add(asking: &Asking, peer_address: &str) -> Result<MembershipResponse, Status> {
    let asked = AddNodeRequest { id: 2, peer_address: peer_address.to_owned() };
    let mut admin = AdminClient::new(asking.clone());
    eventually("an answer", async || match admin.add_node(asked.clone()).await {
        Err(again) if again.code() == Code::Unavailable => None,
        added => Some(added.map(|answer| answer.into_inner())),
    })
    .await
}

fn assert_peers_refused(refused: &Status, node: u64) {
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let reach = format!("strangers reach node {node} without TLS");
    let advertised = "peer_advertise is localhost:";
    for part in ["nothing is changed", advertised, &reach, "peer_tls = require"] {
        assert!(refused.message().contains(part), "{part:?} is not in {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_refused_while_strangers_pass_for_nodes_at_any_member_that_answers() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    let nobody = asking(cluster.address(1), None);
    create(&mut AccessClient::new(nobody.clone()), ADMIN, "admin", everything())
        .await
        .expect("no other member");
    let peer_address = cluster.start_joining(2, with_advertised_name).await;
    add(&nobody, &peer_address).await.expect("without tokens it may be added");
    let mut admin = AccessClient::new(asking(cluster.address(1), Some(ADMIN)));
    let nothing = || granting("anonymous", None, &[]);
    let everything_again = || granting("anonymous", None, &EVERYTHING);
    // On a slow machine node 2 may not answer in time, and counts as away.
    let refused = eventually("node 2 answers", async || match admin.set_grants(nothing()).await {
        Ok(_) => {
            admin.set_grants(everything_again()).await.expect("the cluster is open again");
            None
        }
        Err(refused) => Some(refused),
    })
    .await;
    assert_peers_refused(&refused, 2);
    next(&nobody, "book").await.expect("nothing was changed");
    cluster.crash(2).await;
    admin.set_grants(nothing()).await.expect("tokens are needed");
    assert_eq!(next(&nobody, "book").await, Err(Code::Unauthenticated));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_where_strangers_pass_for_nodes_is_added_to_no_cluster_with_tokens() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    let mut access = AccessClient::new(asking(cluster.address(1), None));
    create(&mut access, ADMIN, "admin", everything()).await.expect("a token");
    let admin = asking(cluster.address(1), Some(ADMIN));
    let mut access = AccessClient::new(admin.clone());
    access.set_grants(granting("anonymous", None, &[])).await.expect("tokens are needed");
    let peer_address = cluster.start_joining(2, with_advertised_name).await;
    assert_peers_refused(&add(&admin, &peer_address).await.expect_err("the cluster has tokens"), 2);
    assert!(!cluster.nodes[&2].context().group.is_formed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_where_strangers_pass_for_nodes_is_founded_with_no_token() {
    let mut cluster = Cluster::configured(0, |_| {});
    cluster.start_joining(2, with_advertised_name).await;
    let mut node = PeerClient::new(channel(cluster.configs[&2].peer_listen));
    let mut greet = async |admin_token_sha256: Vec<u8>| {
        let founding = Founding {
            incarnation: 1,
            admin_token_sha256: admin_token_sha256.into(),
            ..Founding::default()
        };
        let greeting = HelloRequest {
            cluster: "test".to_owned(),
            from: 1,
            to: 2,
            election_timeout_ms: cluster.configs[&2].election_timeout_ms,
            founding: Some(founding),
            ..HelloRequest::default()
        };
        in_time("an answer", node.hello(greeting)).await.map(drop)
    };
    let refused = greet(hash_of(ADMIN.as_bytes()).0.to_vec()).await;
    assert_peers_refused(&refused.expect_err("anybody could pretend to be a node"), 2);
    greet(Vec::new()).await.expect("without a token it may be founded");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_strangers_reach_are_founded_with_a_token() {
    let mut cluster = Cluster::configured(2, |_| {});
    with_http_everywhere(cluster.configs.get_mut(&2).expect("a node"));
    for id in [1, 2] {
        cluster.start_node(id).await;
    }
    // The answer does not depend on the node that is asked.
    for asked in [2, 1] {
        let refused = cluster.client(asked).found().await.expect_err("it would be open");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        for part in [TOLD, "node 2", "--admin-token-file", "tls = require", "insecure = true"] {
            assert!(refused.message().contains(part), "{part:?} is not in {refused}");
        }
        assert!(cluster.nodes.values().all(|node| !node.context().group.is_formed()));
    }
    let admin_token_sha256 = hash_of(ADMIN.as_bytes()).0.to_vec().into();
    let asked = FoundRequest { admin_token_sha256 };
    let founded = cluster.client(2).admin.found(asked).await.expect("founded").into_inner();
    assert!(founded.founded, "{founded:?}");
    for node in [1, 2] {
        let admin = asking(cluster.address(node), Some(ADMIN));
        eventually("a number", async || next(&admin, "book").await.ok()).await;
        let nobody = asking(cluster.address(node), None);
        assert_eq!(next(&nobody, "book").await, Err(Code::Unauthenticated));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_strangers_reach_may_be_founded_open_if_it_is_told_to() {
    let mut cluster = Cluster::configured(1, |config| {
        with_http_everywhere(config);
        config.insecure = true;
    });
    cluster.start_node(1).await;
    cluster.all_answer().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_strangers_reach_is_added_to_no_open_cluster() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    let peer_address = cluster.start_joining(2, with_http_everywhere).await;
    let mut client = cluster.client(1);
    // The leader waits a second for the node's answer.
    let mut add = async || {
        eventually("an answer", async || match client.add_node(2, peer_address.clone()).await {
            Err(again) if again.code() == Code::Unavailable => None,
            added => Some(added),
        })
        .await
    };
    let refused = add().await.expect_err("it would be open");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    for part in [TOLD, "node 2", "set tls = require", "insecure = true", "turn tokens on"] {
        assert!(refused.message().contains(part), "{part:?} is not in {refused}");
    }
    cluster.crash(2).await;
    cluster.configs.get_mut(&2).expect("a node").insecure = true;
    cluster.start_node(2).await;
    let added = add().await.expect("it may be open");
    assert_eq!(added.learners, [2]);
}

/// How often a node has warned of ports that are open to strangers.
fn warnings(cluster: &Processes) -> usize {
    let log = fs::read_to_string(cluster.log(1)).expect("a log");
    log.matches("node 1 is open to strangers").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_ends_with_78_or_warns_once_at_each_start() {
    let mut cluster = Processes::start(1, &[]).await;
    assert!(cluster.terminate(1).await.success());
    cluster.places.get_mut(&1).expect("a node").http_listen = EVERYWHERE;
    cluster.spawn(1);
    let node = cluster.running.remove(&1).expect("it was started");
    assert_eq!(node.ended().await.code(), Some(78));
    let log = fs::read_to_string(cluster.log(1)).expect("a log");
    assert!(log.contains(TOLD) && log.contains("insecure = true"), "{log}");
    assert_eq!(warnings(&cluster), 0);
    cluster.own_flags.insert(1, vec!["--insecure".to_owned()]);
    for start in 1..=2 {
        cluster.spawn(1);
        cluster.client(1).next_at_last(1).await;
        until("the node warns", || warnings(&cluster) >= start).await;
        let server = cluster.places[&1].listen.to_string();
        let shown = ratchet().args(["status", "--server", &server]).output().expect("it runs");
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let told = "node 1 is open to strangers: whoever reaches http_listen 0.0.0.0:0 is granted everything";
        assert!(shown.contains(told), "{shown}");
        assert!(cluster.terminate(1).await.success());
        assert_eq!(warnings(&cluster), start);
    }
}

#[tokio::test]
async fn a_cluster_for_trying_is_not_open_to_strangers_either() {
    let dir = tempfile::tempdir().expect("a directory");
    let [listen, peer_listen] = free_ports(own_ip()).map(|address| address.to_string());
    let log = dir.path().join("log");
    let mut command = ratchet();
    command
        .args(["start", "--dev", "--metrics-listen=off", "--resp-listen=off"])
        .args(["--listen", &listen, "--peer-listen", &peer_listen, "--http-listen=0.0.0.0:0"])
        .arg("--data-dir")
        .arg(dir.path().join("data"))
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).expect("a log"));
    let node = Process(command.spawn().expect("it starts"));
    assert_eq!(node.ended().await.code(), Some(78));
    let told = fs::read_to_string(log).expect("a log");
    assert!(told.contains(TOLD), "{told}");
}
