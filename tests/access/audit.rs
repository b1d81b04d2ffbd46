//! The lines in the log of a node about administrative calls, and about callers that are not let in.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use ratchet::{
    node::hash_of,
    proto::v1::{
        AddNodeRequest, CreateNamespaceRequest, CreateTokenRequest, DeleteNamespaceRequest,
        ListPrincipalsRequest, NextRequest, PromoteNodeRequest, Quota, RemoveNodeRequest,
        RevokeTokenRequest, SetQuotasRequest, StatusRequest, TakeWorkerBackRequest,
        UpdateNamespaceRequest, access_client::AccessClient, admin_client::AdminClient,
        sequencer_client::SequencerClient,
    },
};
use ratchet_client::api::ids_client::IdsClient;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::rustls::ALL_VERSIONS;
use tonic::{Code, Request};

use super::methods::over_redis;
use crate::common::{
    certificates::{Certificates, Pair, connect_with},
    channel,
    closed::{ADMIN, Asking, asking, create, everything, grant, granting, next},
    eventually, http, http_get, in_time,
    openmetrics::{parse, value},
    other_than, others,
    processes::{Processes, ratchet},
    until,
};

/// The filter of the log says nothing of the audit.
const JSON: [&str; 4] = ["--log-format", "json", "--log", "error"];

/// The lines of the audit in the log of a node.
fn lines(cluster: &Processes, node: u64) -> Vec<Value> {
    let log = fs::read_to_string(cluster.log(node)).expect("a log");
    let lines = log.lines().filter_map(|line| serde_json::from_str(line).ok());
    lines.filter(|line: &Value| line["target"] == "ratchet::audit").collect()
}

/// The id of the caller's token, and the settings that the call changes.
fn more(line: &Value) -> [Option<&str>; 2] {
    ["shown", "change"].map(|name| line["fields"][name].as_str())
}

/// The level, the method, the caller, the object, the id of a token, and the outcome.
fn short(line: &Value) -> [String; 6] {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let fields = &line["fields"];
    let [method, who, on, token, outcome] =
        ["method", "who", "on", "token", "outcome"].map(|name| text(&fields[name]));
    [text(&line["level"]), method, who, on, token, outcome]
}

/// Waits until the audit of a node has so many lines, but for the lines of the founding.
async fn wait_for(cluster: &Processes, node: u64, count: usize) -> Vec<Value> {
    eventually("lines of the audit", async || {
        let is_founding = |line: &Value| line["fields"]["method"] == "ratchet.v1.Admin/Found";
        let lines: Vec<_> =
            lines(cluster, node).into_iter().filter(|line| !is_founding(line)).collect();
        (lines.len() >= count).then_some(lines)
    })
    .await
}

fn namespace(name: &str) -> CreateNamespaceRequest {
    CreateNamespaceRequest { name: name.to_owned(), ..CreateNamespaceRequest::default() }
}

/// How many logins were refused at an interface, because of a credential: a token, or a certificate.
async fn logins_refused(metrics: SocketAddr, interface: &str, kind: &str) -> f64 {
    let page = http_get(metrics, "/metrics").await;
    let labels = format!("interface=\"{interface}\",kind=\"{kind}\"");
    value(&parse(&page.body), &format!("ratchet_logins_refused_total{{{labels}}}"))
}

/// How many refused calls and connections the lines tell of, with the refusals that had no line.
fn refusals_told(lines: &[Value]) -> u64 {
    let left_out = lines.iter().filter_map(|line| line["fields"]["left_out"].as_u64());
    left_out.map(|left_out| left_out + 1).sum()
}

/// Makes the administrator's calls in turn: one call that reads, some that are carried out, and some that fail.
async fn administer(asking: &Asking) {
    let (mut access, mut admin) =
        (AccessClient::new(asking.clone()), AdminClient::new(asking.clone()));
    admin.status(StatusRequest {}).await.expect("the status");
    create(&mut access, ADMIN, "admin", everything()).await.expect("a token");
    create(&mut access, "x", "ci", vec![grant("next:book")]).await.expect("a token");
    let revoke = |name: &str| RevokeTokenRequest { name: name.to_owned(), id: None };
    access.revoke_token(revoke("ci")).await.expect("revoked");
    access.revoke_token(revoke("\u{1b}[2J\nci")).await.expect_err("there is none");
    let range = granting("anonymous", Some("10.1.0.0/16"), &["next:book"]);
    access.set_grants(range).await.expect("granted");
    access.list_principals(ListPrincipalsRequest {}).await.expect("a list");
    admin.create_namespace(namespace("chat")).await.expect("a namespace");
    admin.create_namespace(namespace("chat")).await.expect_err("it is there");
    let remove = RemoveNodeRequest { id: 99, force: false };
    admin.remove_node(remove).await.expect_err("there is none");
    next(asking, "book").await.expect("a number");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_administrative_call_is_a_line_at_the_node_that_was_asked_whatever_becomes_of_it() {
    let cluster = Processes::start(3, &JSON).await;
    let founded = ["INFO", "ratchet.v1.Admin/Found", "anonymous", "-", "-", "ok"];
    until("the founding is told", || lines(&cluster, 1).iter().any(|line| short(line) == founded))
        .await;
    let follower = other_than(cluster.leader().await);
    administer(&asking(cluster.places[&follower].listen, None)).await;
    let lines = wait_for(&cluster, follower, 9).await;
    let [admin, ci] = [ADMIN, "x"].map(|token| hash_of(token.as_bytes()).id());
    let expected = [
        ["Access/CreateToken", "admin", &admin, "ok"],
        ["Access/CreateToken", "ci", &ci, "ok"],
        ["Access/RevokeToken", "ci", &ci, "ok"],
        ["Access/RevokeToken", "\u{1b}[2J\nci", "-", "TOKEN_NOT_FOUND (NOT_FOUND)"],
        ["Access/SetGrants", "anonymous from 10.1.0.0/16", "-", "ok"],
        ["Access/ListPrincipals", "-", "-", "ok"],
        ["Admin/CreateNamespace", "chat", "-", "ok"],
        ["Admin/CreateNamespace", "chat", "-", "NAMESPACE_EXISTS (ALREADY_EXISTS)"],
        ["Admin/RemoveNode", "99", "-", "NODE_NOT_FOUND (NOT_FOUND)"],
    ];
    let expected = expected.map(|[method, on, token, outcome]| {
        let method = format!("ratchet.v1.{method}");
        ["INFO", &method, "anonymous", on, token, outcome].map(str::to_owned)
    });
    assert_eq!(lines.iter().map(short).collect::<Vec<_>>(), expected);
    for line in &lines {
        let fields = &line["fields"];
        assert!(fields["from"].as_str().is_some_and(|from| from.starts_with("127.")), "{line}");
        assert_eq!((&fields["interface"], &fields["node"]), (&"grpc".into(), &follower.into()));
    }
    // The lines of a node are in the order of its calls: before this one there was none.
    for other in others(follower) {
        let mut admin = AdminClient::new(asking(cluster.places[&other].listen, None));
        admin.create_namespace(namespace("chat")).await.expect_err("it is there");
        let lines = wait_for(&cluster, other, 1).await;
        let outcome = "NAMESPACE_EXISTS (ALREADY_EXISTS)";
        let expected =
            ["INFO", "ratchet.v1.Admin/CreateNamespace", "anonymous", "chat", "-", outcome];
        let told: Vec<_> = lines.iter().map(short).collect();
        assert_eq!(told, [expected.map(str::to_owned)], "node {other} was asked nothing else");
    }
}

/// Makes an administrator's changes in turn, with its token. Returns each call, the change in its line, and the token that the
/// line is about.
async fn set(asking: &Asking, ends_ms: u64) -> Vec<(&'static str, Option<String>, Option<String>)> {
    let (mut access, mut admin) =
        (AccessClient::new(asking.clone()), AdminClient::new(asking.clone()));
    let id = hash_of(b"of-ci").id();
    let made = CreateTokenRequest {
        name: "ci".to_owned(),
        sha256: hash_of(b"of-ci").0.to_vec().into(),
        grants: vec![grant("read:*"), grant("next:order*")],
        expires_ms: Some(ends_ms),
    };
    access.create_token(made.clone()).await.expect("a token");
    // Its grants cannot be read: they are the caller's words, and may be long.
    let unreadable = vec![grant("next:no such name")];
    access.create_token(CreateTokenRequest { grants: unreadable, ..made }).await.expect_err("why");
    let limits = vec![Quota {
        namespaces: "order*".to_owned(),
        calls_per_second: Some(100),
        burnt_per_day: Some(7),
        ..Quota::default()
    }];
    let quotas = |quotas| SetQuotasRequest {
        principal: "ci".to_owned(),
        id: Some(hash_of(b"of-ci").id()),
        addresses: None,
        quotas,
    };
    access.set_quotas(quotas(limits)).await.expect("quotas");
    access.set_quotas(quotas(Vec::new())).await.expect("none");
    access.set_grants(granting("anonymous", None, &["next:book"])).await.expect("granted");
    access.set_grants(granting("anonymous", None, &[])).await.expect("taken away");
    let peer_address = "127.0.0.1:1".to_owned();
    let add = AddNodeRequest { id: 0, peer_address: peer_address.clone() };
    admin.add_node(add).await.expect_err("no node has that id");
    let remove = RemoveNodeRequest { id: 99, force: true };
    admin.remove_node(remove).await.expect_err("no node has that id");
    let promote = PromoteNodeRequest { id: 99, force: false };
    admin.promote_node(promote).await.expect_err("no node has that id");
    let revoke = RevokeTokenRequest { name: "ci".to_owned(), id: None };
    access.revoke_token(revoke).await.expect("revoked");
    let text = |text: &str| Some(text.to_owned());
    let mut told = vec![
        (
            "Access/CreateToken",
            Some(format!("next:order* read:* until {ends_ms}")),
            Some(id.clone()),
        ),
        ("Access/CreateToken", None, Some(id.clone())),
        ("Access/SetQuotas", text("order*:calls=100,burnt=7"), Some(id.clone())),
        ("Access/SetQuotas", text("none"), Some(id.clone())),
        ("Access/SetGrants", text("next:book"), None),
        ("Access/SetGrants", text("nothing"), None),
        ("Admin/AddNode", Some(peer_address), None),
        ("Admin/RemoveNode", text("force=true"), None),
        ("Admin/PromoteNode", None, None),
        ("Access/RevokeToken", None, Some(id)),
    ];
    let of_namespaces = set_of_namespaces(&mut admin, &mut IdsClient::new(asking.clone())).await;
    told.extend(of_namespaces.map(|(method, change)| (method, change.map(str::to_owned), None)));
    told
}

/// Makes an administrator's changes of a namespace, from its creation to its end.
async fn set_of_namespaces(
    admin: &mut AdminClient<Asking>, ids: &mut IdsClient<Asking>,
) -> [(&'static str, Option<&'static str>); 6] {
    let name = || "order".to_owned();
    let created = CreateNamespaceRequest {
        step: Some(200),
        // The author of a description cannot have it taken for a setting.
        description: Some("of \"shops\" gapless=true".to_owned()),
        ..namespace("order")
    };
    admin.create_namespace(created).await.expect("a namespace");
    let raised = UpdateNamespaceRequest {
        namespace: name(),
        step: Some(400),
        keys_max: Some(0),
        redis_strings: Some(false),
        ..UpdateNamespaceRequest::default()
    };
    admin.update_namespace(raised).await.expect("a change");
    let two_lines = UpdateNamespaceRequest {
        namespace: name(),
        description: Some("two\nlines".to_owned()),
        ..UpdateNamespaceRequest::default()
    };
    admin.update_namespace(two_lines).await.expect_err("it is to be one line");
    let take_back =
        TakeWorkerBackRequest { namespace: name(), worker: 3, ceiling_ms: 70, vouched: true };
    ids.take_worker_back(take_back).await.expect_err("it has no workers");
    let delete = |forget| DeleteNamespaceRequest { namespace: name(), confirm: name(), forget };
    admin.delete_namespace(delete(false)).await.expect("it is gone");
    admin.delete_namespace(delete(true)).await.expect_err("nothing is left of it");
    [
        ("Admin/CreateNamespace", Some(r#"step=200 description="of \"shops\" gapless=true""#)),
        ("Admin/UpdateNamespace", Some("step=400 keys_max=0 redis_strings=false")),
        ("Admin/UpdateNamespace", Some(r#"description="two\nlines""#)),
        ("Ids/TakeWorkerBack", Some("worker=3 ceiling_ms=70")),
        ("Admin/DeleteNamespace", None),
        ("Admin/DeleteNamespace", Some("forget=true")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_tells_what_was_set_and_with_which_token_and_no_secret() {
    let cluster = Processes::start(1, &JSON).await;
    let listen = cluster.places[&1].listen;
    create(&mut AccessClient::new(asking(listen, None)), ADMIN, "admin", everything())
        .await
        .expect("a token");
    let before = wait_for(&cluster, 1, 1).await;
    let admin = hash_of(ADMIN.as_bytes()).id();
    let [shown, granted] = more(&before[0]);
    assert_eq!(shown, None, "the call that made the token showed none");
    assert!(granted.is_some_and(|granted| granted.contains("admin:*")), "{granted:?}");
    let ends_ms = 4_000_000_000_000;
    let expected = set(&asking(listen, Some(ADMIN)), ends_ms).await;
    let lines = wait_for(&cluster, 1, 1 + expected.len()).await;
    for (line, (method, change, token)) in lines[1..].iter().zip(&expected) {
        assert_eq!(line["fields"]["method"], format!("ratchet.v1.{method}"));
        assert_eq!(more(line), [Some(&*admin), change.as_deref()], "{line}");
        assert_eq!(line["fields"]["token"].as_str(), token.as_deref(), "{line}");
        assert_eq!(line["fields"]["who"], "admin");
    }
    // Two tokens of one name: a line tells which of them it was.
    let mut access = AccessClient::new(asking(listen, Some(ADMIN)));
    create(&mut access, "another-secret", "admin", everything()).await.expect("a token");
    let mut with_other = AccessClient::new(asking(listen, Some("another-secret")));
    with_other.list_principals(ListPrincipalsRequest {}).await.expect("a list");
    let lines = wait_for(&cluster, 1, lines.len() + 2).await;
    let last = lines.last().expect("a line");
    assert_eq!(last["fields"]["who"], "admin");
    assert_eq!(more(last), [Some(&*hash_of(b"another-secret").id()), None]);
    let log = fs::read_to_string(cluster.log(1)).expect("a log");
    for secret in [ADMIN, "of-ci", "another-secret"] {
        assert!(!log.contains(secret), "{secret}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_founding_is_told_with_the_id_of_the_token_that_it_makes() {
    let cluster = Processes::unfounded(1, &JSON);
    let file = cluster.dir.path().join("admin.token");
    eventually("the cluster is founded", async || {
        let mut found = ratchet();
        found.args(["found", "--server", &cluster.socket(1), "--admin-token-file"]).arg(&file);
        let running = tokio::task::spawn_blocking(move || found.output().expect("it runs"));
        running.await.expect("no panic").status.success().then_some(())
    })
    .await;
    let token = fs::read_to_string(&file).expect("a token");
    let id = hash_of(token.trim_end().as_bytes()).id();
    let expected = ["INFO", "ratchet.v1.Admin/Found", "local", "-", &id, "ok"];
    until("the founding is told", || lines(&cluster, 1).iter().any(|line| short(line) == expected))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_are_not_let_in_are_told_with_who_they_are_and_counted() {
    let cluster = Processes::start(1, &JSON).await;
    let place = &cluster.places[&1];
    let mut access = AccessClient::new(asking(place.listen, None));
    create(&mut access, ADMIN, "admin", everything()).await.expect("a token");
    create(&mut access, "of-ci", "ci", vec![grant("next:book")]).await.expect("a token");
    let mut access = AccessClient::new(asking(place.listen, Some(ADMIN)));
    access.set_grants(granting("anonymous", None, &[])).await.expect("tokens are needed");
    let before = wait_for(&cluster, 1, 3).await.len();

    let wrong = asking(place.listen, Some("wrong"));
    assert_eq!(next(&wrong, "book").await, Err(Code::Unauthenticated));
    let header = "authorization: Bearer wrong\r\n";
    assert_eq!(http(place.http_listen, "GET /v1/status", header, "").await.status, 401);
    for login in ["AUTH wrong", "AUTH other of-ci", "HELLO 3 AUTH ci wrong"] {
        let told = over_redis(place.resp_listen, None, login).await;
        assert!(told.starts_with("-WRONGPASS "), "{login}: {told}");
    }
    // Of several tokens nobody looks whose they are.
    let mut twice =
        Request::new(NextRequest { namespace: "book".to_owned(), ..Default::default() });
    for _ in 0..2 {
        twice.metadata_mut().append("authorization", "Bearer of-ci".parse().expect("a header"));
    }
    let refused = SequencerClient::new(channel(place.listen)).next(twice).await;
    assert_eq!(refused.expect_err("two tokens").code(), Code::Unauthenticated);
    let header = "authorization: Bearer of-ci\r\n";
    for (what, headers, body) in [
        ("GET /v1/status", header.repeat(2), ""),
        ("POST /login", header.to_owned(), "token=of-ci"),
    ] {
        assert_eq!(http(place.http_listen, what, &headers, body).await.status, 401, "{what}");
    }
    let ci = asking(place.listen, Some("of-ci"));
    assert_eq!(next(&ci, "order").await, Err(Code::PermissionDenied));
    let refused = AdminClient::new(ci).create_namespace(namespace("mine")).await;
    assert_eq!(refused.expect_err("not granted").code(), Code::PermissionDenied);
    // A caller that shows nothing may be mistaken: only an administrative call of it is told.
    let nobody = asking(place.listen, None);
    assert_eq!(next(&nobody, "book").await, Err(Code::Unauthenticated));
    let refused = AdminClient::new(nobody).create_namespace(namespace("mine")).await;
    assert_eq!(refused.expect_err("not granted").code(), Code::Unauthenticated);

    let lines = wait_for(&cluster, 1, before + 11).await;
    let told: Vec<_> = lines[before..]
        .iter()
        .map(|line| {
            assert_eq!((&line["level"], &line["fields"]["left_out"]), (&"WARN".into(), &0.into()));
            assert_eq!(line["fields"].get("change"), None, "{line}");
            let names = ["interface", "who", "needs", "outcome"];
            names.map(|name| line["fields"][name].as_str().expect(name).to_owned())
        })
        .collect();
    let wrong = hash_of(b"wrong").id();
    let [unknown, denied] =
        ["UNAUTHENTICATED (UNAUTHENTICATED)", "PERMISSION_DENIED (PERMISSION_DENIED)"];
    let expected = [
        ["grpc", &wrong, "next:book", unknown],
        ["http", &wrong, "read:*", unknown],
        ["redis", &wrong, "anything", unknown],
        ["redis", "ci", "anything", unknown],
        ["redis", &wrong, "anything", unknown],
        ["grpc", "several tokens", "anything", unknown],
        ["http", "several tokens", "anything", unknown],
        ["http", "several tokens", "anything", unknown],
        ["grpc", "ci", "next:order", denied],
        ["grpc", "ci", "namespaces:mine", denied],
        ["grpc", "anonymous", "namespaces:mine", unknown],
    ];
    assert_eq!(told, expected.map(|row| row.map(str::to_owned)));
    for (interface, count) in [("grpc", 2.0), ("http", 3.0), ("redis", 3.0)] {
        let refused = logins_refused(place.metrics_listen, interface, "token").await;
        assert_eq!(refused, count, "{interface}");
        let refused = logins_refused(place.metrics_listen, interface, "certificate").await;
        assert_eq!(refused, 0.0, "{interface}");
    }
    // However many strangers come, a refused call of a known caller is told.
    for _ in 0..30 {
        assert_eq!(
            next(&asking(place.listen, Some("wrong")), "book").await,
            Err(Code::Unauthenticated)
        );
    }
    let ci = asking(place.listen, Some("of-ci"));
    assert_eq!(next(&ci, "crowded").await, Err(Code::PermissionDenied));
    let crowded = eventually("the line of a known caller", async || {
        self::lines(&cluster, 1).into_iter().find(|line| line["fields"]["on"] == "crowded")
    })
    .await;
    assert_eq!(crowded["fields"]["left_out"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_refused_logins_are_few_lines_that_tell_how_many_were_left_out() {
    let cluster = Processes::start(1, &JSON).await;
    let place = &cluster.places[&1];
    let mut access = AccessClient::new(asking(place.listen, None));
    create(&mut access, ADMIN, "admin", everything()).await.expect("a token");
    let refused = async || {
        let told = over_redis(place.resp_listen, None, "AUTH wrong").await;
        assert!(told.starts_with("-WRONGPASS "), "{told}");
    };
    for _ in 0..100 {
        refused().await;
    }
    // The number of lines that were left out is told by the first line of a later second.
    eventually("all are told", async || {
        refused().await;
        let refused = logins_refused(place.metrics_listen, "redis", "token").await;
        (refusals_told(&lines(&cluster, 1)) as f64 == refused).then_some(())
    })
    .await;
}

/// Opens a connection with TLS that shows this certificate, or none, and sees that it is refused.
async fn is_refused(certificates: &Certificates, shown: Option<Pair>, address: SocketAddr) {
    let config = Arc::new(certificates.config_showing(shown, ALL_VERSIONS));
    let opened = async {
        // With TLS 1.3 a client learns after its own part of the handshake that it is refused.
        let mut stream = connect_with(&config, address).await?;
        stream.read_to_end(&mut Vec::new()).await
    };
    in_time("the end of a connection", opened).await.expect_err("it is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_certificate_is_refused_is_a_refused_login_at_each_interface() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let mut cluster = Processes::configured(1, &JSON[..2]);
    let place = cluster.places[&1].clone();
    certificates.node(1, &place.listen.ip().to_string(), &[]);
    certificates.make(&["node", "--cluster", "prod", "--node-id", "5", "--host", "localhost"]);
    certificates.client("billing");
    others.client("billing");
    let ca = format!("--tls-client-ca={}", certificates.path("ca.crt"));
    let flags =
        [certificates.client_flags(1, "require"), vec![ca], certificates.peer_flags(1, "require")];
    cluster.own_flags.insert(1, flags.concat());
    cluster.spawn(1);
    let ports = [
        ("grpc", place.listen),
        ("http", place.http_listen),
        ("redis", place.resp_listen),
        ("peer", place.peer_listen),
    ];
    let none = (None, "no certificate", "peer sent no certificates");
    let of_others =
        (Some((&others, "client-billing")), "unknown certificate", "invalid peer certificate: ");
    let why = "which is no node of cluster \"test\"";
    let of_client = (Some((&certificates, "client-billing")), "ratchet://test/client/billing", why);
    // The certificate is of a node of another cluster.
    let of_node = (Some((&certificates, "node-5")), "ratchet://prod/5", why);
    // Each interface has a line in ten seconds, so all are looked at side by side.
    let looking = ports.map(async |(interface, address)| {
        let all = [none, of_others, of_client, of_node];
        let shown = if interface == "peer" { &all[..] } else { &all[..2] };
        for &(shown, who, why) in shown {
            // The node may not listen yet.
            let line = eventually("a line of the audit", async || {
                is_refused(&certificates, shown.map(|(of, name)| of.pair(name)), address).await;
                lines(&cluster, 1).into_iter().find(|line| {
                    let field = |name: &str| line["fields"][name].as_str().unwrap_or_default();
                    (field("interface"), field("who")) == (interface, who)
                        && field("outcome").contains(why)
                })
            })
            .await;
            assert_eq!(line["level"], "WARN", "{line}");
            let from = line["fields"]["from"].as_str().map(str::parse::<IpAddr>);
            assert!(matches!(from, Some(Ok(_))), "{line}");
            assert_eq!(line["fields"].get("method"), None, "{line}");
        }
        // All are counted. The number of lines that were left out is told by the next line.
        let counted = async || logins_refused(place.metrics_listen, interface, "certificate").await;
        let before = counted().await;
        let told = eventually("all are told", async || {
            is_refused(&certificates, None, address).await;
            let lines = lines(&cluster, 1).into_iter();
            let at_it = lines.filter(|line| line["fields"]["interface"] == interface);
            let told = refusals_told(&at_it.collect::<Vec<_>>()) as f64;
            (told >= before).then_some(told)
        })
        .await;
        assert!(told <= counted().await, "{told} were told");
        assert_eq!(logins_refused(place.metrics_listen, interface, "token").await, 0.0);
    });
    join_all(looking).await;
    // Nothing else tells of them, and a connection that fails for another reason is not among them.
    assert_eq!(cluster.said(1, "no TLS handshake"), 0);
    let before = lines(&cluster, 1).len();
    let mut plain = TcpStream::connect(place.listen).await.expect("a connection");
    plain.write_all(b"PING\r\n").await.expect("sent");
    until("what speaks no TLS is told", || cluster.said(1, "it speaks no TLS") == 1).await;
    assert_eq!(lines(&cluster, 1).len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_hangs_up_before_the_answer_is_told_all_the_same() {
    let cluster = Processes::start(3, &JSON).await;
    let leader = cluster.leader().await;
    for other in others(leader) {
        cluster.pause(other);
    }
    // No majority: there is no answer.
    let mut admin = AdminClient::new(asking(cluster.places[&leader].listen, None));
    let line = eventually("a call that was left", async || {
        let creating = admin.create_namespace(namespace("left"));
        let _ = tokio::time::timeout(Duration::from_millis(200), creating).await;
        lines(&cluster, leader).into_iter().find(|line| line["fields"]["on"] == "left")
    })
    .await;
    assert_eq!(short(&line)[5], "CALLER_LEFT (CANCELLED)", "{line}");
    for other in others(leader) {
        cluster.resume(other);
    }
}
