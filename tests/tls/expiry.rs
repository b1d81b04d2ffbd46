//! The signs for an operator that a certificate ends, and that others can read a key.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    time::{SystemTime, UNIX_EPOCH},
};

use ratchet::node::{
    Config,
    settings::{ClientTls, PeerTls},
};
use tempfile::TempDir;

use super::start_node;
use crate::common::{
    Client,
    certificates::Certificates,
    cluster::Cluster,
    eventually, http_get,
    openmetrics::{parse, value},
    own_ip,
    processes::run,
    until, with_metrics,
};

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs_f64()
}

/// When a certificate ends, in seconds since 1970.
fn end_of(certificates: &Certificates, name: &str) -> f64 {
    let (chain, _) = certificates.pair(name);
    let (_, parsed) = x509_parser::parse_x509_certificate(&chain[0]).expect("a certificate");
    parsed.validity().not_after.timestamp() as f64
}

/// For how many seconds a node tells that its certificates are valid, of the ports for clients and for peers.
async fn told(cluster: &Cluster) -> [f64; 2] {
    let metrics = cluster.nodes[&1].addresses().metrics.expect("a port");
    let page = parse(&http_get(metrics, "/metrics").await.body);
    let of = |side| value(&page, &format!("ratchet_certificate_left_seconds{{side=\"{side}\"}}"));
    ["clients", "peers"].map(of)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metric_of_each_side_counts_down_to_the_end_of_the_certificate_in_use() {
    let certificates = Certificates::new();
    let before = now();
    let cluster = Cluster::start(1, |config: &mut Config| {
        with_metrics(config);
        let host = config.listen.ip().to_string();
        certificates.node(1, &host, &["--days", "20"]);
        fs::copy(certificates.path("node-1.crt"), certificates.path("peer.crt")).expect("copied");
        fs::copy(certificates.path("node-1.key"), certificates.path("peer.key")).expect("copied");
        certificates.node(1, &host, &["--days", "30", "--replace"]);
        let path = |name: &str| Some(certificates.path(name).into());
        (config.tls, config.peer_tls) = (ClientTls::Accept, PeerTls::Accept);
        (config.tls_cert, config.tls_key) = (path("node-1.crt"), path("node-1.key"));
        (config.peer_tls_cert, config.peer_tls_key) = (path("peer.crt"), path("peer.key"));
        config.peer_tls_ca = path("ca.crt");
    })
    .await;
    // The node has looked at the time since it began, in whole seconds.
    let fits = |left: f64, end: f64| left <= end - before + 1.0 && left >= end - now() - 1.0;
    let [clients, peers] = ["node-1", "peer"].map(|name| end_of(&certificates, name));
    assert!(clients - peers > 9.0 * 86_400.0, "they end on different days");
    let [left, of_peers] = eventually("the node tells", async || {
        Some(told(&cluster).await).filter(|told| told.iter().all(|left| *left != 0.0))
    })
    .await;
    assert!(fits(left, clients), "{left} s until {clients}");
    assert!(fits(of_peers, peers), "{of_peers} s until {peers}");
    // It follows the certificate in use.
    let host = cluster.configs[&1].listen.ip().to_string();
    certificates.node(1, &host, &["--days", "5", "--replace"]);
    let next = end_of(&certificates, "node-1");
    assert!(clients - next > 24.0 * 86_400.0, "it ends earlier");
    let [_, of_peers] = eventually("the new certificate is in use", async || {
        let [left, of_peers] = told(&cluster).await;
        assert!(fits(left, next) || fits(left, clients), "{left} s until {next} or {clients}");
        fits(left, next).then_some([left, of_peers])
    })
    .await;
    assert!(fits(of_peers, peers), "{of_peers} s until {peers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_others_can_read_is_warned_of_at_the_start_and_at_a_reload() {
    let certificates = Certificates::new();
    let dir = TempDir::new().expect("a directory");
    let ip = own_ip();
    certificates.node(1, &ip.to_string(), &[]);
    let peer_key = certificates.path("peer.key");
    fs::copy(certificates.path("node-1.key"), &peer_key).expect("copied");
    let set_mode = |path: &str, mode: u32| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode is set");
    };
    let key = certificates.path("node-1.key");
    set_mode(&key, 0o640);
    set_mode(&peer_key, 0o600);
    let ca = certificates.path("ca.crt");
    let flags = [
        certificates.client_flags(1, "accept"),
        vec![
            "--peer-tls=accept".to_owned(),
            format!("--peer-tls-cert={}", certificates.path("node-1.crt")),
            format!("--peer-tls-key={peer_key}"),
            format!("--peer-tls-ca={ca}"),
        ],
    ];
    let node = start_node(dir.path(), ip, &flags.concat());
    Client::new(node.grpc).next_at_last(1).await;
    let warned = |setting: &str, path: &str| {
        let log = fs::read_to_string(dir.path().join("log")).expect("a log");
        let line = format!("{setting} {path}: others than this user can read the key: chmod 600");
        log.matches(&line).count()
    };
    // A node writes its log beside its work.
    until("the key is warned of", || warned("tls_key", &key) == 1).await;
    assert_eq!(warned("peer_tls_key", &peer_key), 0, "nobody else can read it");
    set_mode(&key, 0o600);
    set_mode(&peer_key, 0o604);
    let server = format!("unix:{}", dir.path().join("data/admin.sock").display());
    let reload = || {
        let done = run(&["reload", "--server", &server]);
        assert!(done.status.success(), "{done:?}");
    };
    reload();
    until("the other key is warned of", || warned("peer_tls_key", &peer_key) == 1).await;
    // "peer_tls_key" ends as "tls_key" does, and the paths differ.
    assert_eq!(warned("tls_key", &key), 1, "nobody else can read it any more");
    set_mode(&peer_key, 0o600);
    reload();
    assert_eq!((warned("tls_key", &key), warned("peer_tls_key", &peer_key)), (1, 1));
}
