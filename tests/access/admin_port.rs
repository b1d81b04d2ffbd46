//! A port for administrators: methods that need the verb `namespaces` or `admin` are served there, and no longer at the
//! ports for clients.

use std::process::Output;

use ratchet::{
    node::settings::ClientTls,
    proto::v1::{
        CreateNamespaceRequest, StatusRequest, TransferLeadershipRequest, admin_client::AdminClient,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::{Code, Status};

use super::methods::{Case, cases};
use crate::common::{
    certificates::Certificates,
    closed::{ADMIN, Asking, Closed, VERBS, asking, next},
    cluster::Cluster,
    eventually, in_time, other_than, others,
    processes::run,
    rust_client, with_admin_port,
};

/// The verbs whose methods change the cluster for others. They stand last.
fn administrative() -> &'static [&'static str] {
    VERBS.last_chunk::<2>().expect("five verbs")
}

impl Case {
    fn is_administrative(&self) -> bool {
        self.verb.as_deref().is_some_and(|verb| administrative().contains(&verb))
    }
}

async fn create_namespace(asking: Asking, name: &str) -> Result<(), Status> {
    let asked = CreateNamespaceRequest { name: name.to_owned(), ..Default::default() };
    in_time("an answer", AdminClient::new(asking).create_namespace(asked)).await.map(drop)
}

/// Runs the command with these servers.
async fn command(args: &[&str], server: impl ToString) -> Output {
    let server = server.to_string();
    let args = [args, &["--server", &server]].concat();
    let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
    let running = move || run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(running).await.expect("no panic")
}

#[tokio::test(flavor = "multi_thread")]
pub async fn the_port_for_administrators_takes_clients_of_its_ca_alone() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    certificates.client("billing");
    others.client("billing");
    for end in ["crt", "key"] {
        let from = others.path(&format!("client-billing.{end}"));
        std::fs::copy(from, certificates.path(&format!("stranger.{end}"))).expect("copied");
    }
    let mut cluster = Cluster::configured(1, |config| {
        certificates.node(1, &config.listen.ip().to_string(), &[]);
        let path = |name: &str| Some(certificates.path(name).into());
        config.tls = ClientTls::Require;
        (config.tls_cert, config.tls_key, config.tls_client_ca) =
            (path("node-1.crt"), path("node-1.key"), path("ca.crt"));
        with_admin_port(config);
    });
    cluster.start_node(1).await;
    let address = cluster.nodes[&1].addresses().admin.expect("a port");
    let status = async |shown| {
        let mut admin = AdminClient::new(certificates.channel(address, shown));
        in_time("an answer", admin.status(StatusRequest {})).await.map(drop)
    };
    eventually("the status", async || status(Some("client-billing")).await.ok()).await;
    for shown in [None, Some("stranger")] {
        let refused = status(shown).await.expect_err("it has no certificate of the CA");
        // The library's error for the end of a connection depends on the moment of the end. A refusal of the node would
        // have details.
        assert!(refused.details().is_empty(), "{shown:?}: {refused:?}");
    }
    let mut plain = TcpStream::connect(address).await.expect("a connection");
    let mut told = Vec::new();
    let exchange = async {
        // The end that closes a connection may reset it.
        let _ = plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        let _ = plain.read_to_end(&mut told).await;
    };
    in_time("its end", exchange).await;
    assert_eq!(told, b"");
}

const REFUSED: [Code; 2] = [Code::Unauthenticated, Code::PermissionDenied];

#[tokio::test(flavor = "multi_thread")]
async fn administrative_methods_are_served_at_the_port_for_administrators_alone() {
    let closed = Closed::with(with_admin_port).await;
    let cases = cases();
    for verb in administrative() {
        assert!(cases.iter().any(|case| case.verb.as_deref() == Some(verb)), "{verb}");
    }
    let leader = closed.cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let addresses = closed.cluster.nodes[&node].addresses();
        let (grpc, http) = (addresses.client, addresses.http.expect("a port"));
        let admin = addresses.admin.expect("a port");
        for case in &cases {
            let name = format!("{} at node {node}", case.name);
            let token = Some(case.verb.as_deref().map_or(ADMIN, |verb| closed.token(verb)));
            if case.is_administrative() {
                // Each caller is refused, whether it has the grant or not.
                for shown in [token, Some(ADMIN), Some("it is not known"), None] {
                    let told = case.over_grpc(grpc, shown).await;
                    assert_eq!(told, Code::PermissionDenied, "{name} with {shown:?}");
                    let told = case.over_http(http, shown).await;
                    assert!(told.is_none_or(|status| status == 403), "{name}: {told:?}");
                }
            } else {
                let told = case.over_grpc(grpc, token).await;
                assert!(!REFUSED.contains(&told), "{name}: {told:?}");
                let told = case.over_http(http, token).await;
                assert!(
                    told.is_none_or(|status| ![401, 403].contains(&status)),
                    "{name}: {told:?}"
                );
            }
            let told = case.over_grpc(admin, token).await;
            assert!(!REFUSED.contains(&told), "{name}: {told:?}");
            for verb in VERBS {
                if case.verb.as_deref().is_some_and(|wanted| wanted != verb) {
                    let told = case.over_grpc(admin, Some(closed.token(verb))).await;
                    assert_eq!(told, Code::PermissionDenied, "{name} with {verb}");
                }
            }
            for worthless in [Some("it is not known"), None] {
                // A node that could not ask the leader about a token in time is asked again.
                let told = eventually("an answer", async || {
                    let told = case.over_grpc(admin, worthless).await;
                    (told != Code::Unavailable).then_some(told)
                })
                .await;
                assert_eq!(told, Code::Unauthenticated, "{name} with {worthless:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_at_a_port_for_clients_says_where_to_ask_without_an_address() {
    let closed = Closed::with(with_admin_port).await;
    let addresses = closed.cluster.nodes[&1].addresses();
    let refused = create_namespace(closed.at(1, ADMIN), "order").await.expect_err("another port");
    assert_eq!(refused.code(), Code::PermissionDenied);
    for part in ["node 1", "verb namespaces", "admin_listen", "local socket"] {
        assert!(refused.message().contains(part), "{part:?} is not in {refused}");
    }
    let port = addresses.admin.expect("a port").port().to_string();
    assert!(!refused.message().contains(&port), "{refused}");
}

/// The port at which a call reaches the cluster counts, and not the node that carries it out.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_port_serves_everything_also_if_the_leader_has_one() {
    const WITH: u64 = 2;
    let closed = Closed::with(|config| {
        if config.node_id == WITH {
            with_admin_port(config);
        }
    })
    .await;
    let [one, other] = others(WITH);
    for (round, leader) in [WITH, one].into_iter().enumerate() {
        let admin = asking(closed.cluster.admin_address(WITH), Some(ADMIN));
        if closed.cluster.leader().await != leader {
            let to = TransferLeadershipRequest { to: Some(leader) };
            AdminClient::new(admin.clone()).transfer_leadership(to).await.expect("a new leader");
            for node in [WITH, one, other] {
                closed.cluster.leader_seen_by(node, |seen| seen == leader).await;
            }
        }
        let at_clients_port = closed.at(WITH, ADMIN);
        let refused = create_namespace(at_clients_port, "order").await.expect_err("another port");
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        for (node, asking) in
            [(WITH, admin), (one, closed.at(one, ADMIN)), (other, closed.at(other, ADMIN))]
        {
            let name = format!("of-{node}-{round}");
            create_namespace(asking, &name).await.expect("it is passed on to the leader");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_port_for_administrators_stays_there() {
    let cluster = Cluster::start(3, with_admin_port).await;
    let follower = other_than(cluster.leader().await);
    let server = cluster.admin_address(follower).to_string();
    let client = rust_client::client([&server]);
    let create = async |name: &str| {
        let asked =
            CreateNamespaceRequest { name: name.to_owned(), ..CreateNamespaceRequest::default() };
        client.create_namespace(asked).await.expect("a namespace");
        assert_eq!(client.servers(), std::slice::from_ref(&server));
    };
    create("first").await;
    create("second").await;
    // A client that goes to the leader's port for clients learns the members there.
    let mut last = 0;
    for key in [7; 100] {
        let number = client.next("first", key).await.expect("a number");
        assert!(number > last, "{number} after {last}");
        last = number;
    }
    create("third").await;
    let at_client_port = rust_client::client([cluster.address(follower)]);
    assert!(at_client_port.list_namespaces().await.expect("a list").len() >= 3);
    assert_eq!(at_client_port.servers().len(), 3, "it learns the members");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_founded_and_administered_with_the_command_at_that_port() {
    let mut cluster = Cluster::configured(3, with_admin_port);
    for id in 1..=3 {
        cluster.start_node(id).await;
    }
    let refused = command(&["found"], cluster.address(1)).await;
    assert_eq!(refused.status.code(), Some(8), "{refused:?}");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("admin_listen"), "{why}");
    let servers = [1, 2, 3].map(|id| cluster.admin_address(id).to_string()).join(",");
    let done = async |args: &[&str]| {
        let output = command(args, &servers).await;
        assert!(output.status.success(), "{args:?}: {output:?}");
    };
    done(&["found"]).await;
    cluster.all_answer().await;
    let leader = cluster.leader().await;
    let to = other_than(leader).to_string();
    for args in [
        &["status"][..],
        &["next", "book", "7"],
        &["namespace", "create", "order"],
        &["namespace", "list"],
        &["token", "create", "ci", "--grant", "next:*"],
        &["token", "list"],
        &["grant", "anonymous", "all"],
        &["transfer", &to],
        &["token", "revoke", "ci"],
        &["namespace", "delete", "order", "--confirm", "order"],
    ] {
        done(args).await;
    }
    let status = asking(cluster.address(1), None);
    AdminClient::new(status.clone()).status(StatusRequest {}).await.expect("as before");
    assert!(next(&status, "book").await.is_ok(), "numbers as before");
}
