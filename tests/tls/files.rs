//! Files of certificates as orchestrators change them, and certificates that are made for another host.

use std::{fs, os::unix::fs::symlink, path::Path};

use tempfile::TempDir;

use super::{seen, start_node};
use crate::common::{
    Client, certificates::Certificates, eventually, own_ip, processes::run, until,
};

/// Writes the files of a node's certificate into a new directory, as Kubernetes does with the files of a volume, and has the
/// link `..data` lead there, at once.
fn publish(volume: &Path, name: &str, certificates: &Certificates) {
    fs::create_dir(volume.join(name)).expect("a directory");
    for (file, from) in [("tls.crt", "node-1.crt"), ("tls.key", "node-1.key")] {
        fs::write(volume.join(name).join(file), certificates.read(from)).expect("written");
    }
    symlink(name, volume.join("..data_tmp")).expect("a link");
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).expect("in its place");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_leads_elsewhere_as_in_kubernetes_is_noticed_without_a_reload() {
    let certificates = Certificates::new();
    let dir = TempDir::new().expect("a directory");
    let volume = TempDir::new().expect("a directory");
    let (ip, volume) = (own_ip(), volume.path());
    certificates.node(1, &ip.to_string(), &[]);
    certificates.client("billing");
    publish(volume, "..2026_01", &certificates);
    for file in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(file), volume.join(file)).expect("a link");
    }
    let flag = |flag: &str, file: &str| format!("--{flag}={}", volume.join(file).display());
    let flags =
        ["--tls=accept".to_owned(), flag("tls-cert", "tls.crt"), flag("tls-key", "tls.key")];
    let node = start_node(dir.path(), ip, &flags);
    Client::new(node.grpc).next_at_last(1).await;
    let shown = async || {
        let connection = certificates.connect(node.redis, "client-billing", &[]).await;
        seen(&connection.expect("a handshake"))
    };
    let before = shown().await;
    certificates.node(1, &ip.to_string(), &["--replace"]);
    publish(volume, "..2026_02", &certificates);
    fs::remove_dir_all(volume.join("..2026_01")).expect("removed");
    eventually("the new certificate is shown", async || (shown().await != before).then_some(()))
        .await;
    let log = || fs::read_to_string(dir.path().join("log")).expect("a log");
    until("the log says so", || log().contains("changed files are in use")).await;
    assert!(!log().contains("stays in use"), "{}", log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_host_is_named_at_the_start_and_at_a_reload() {
    let certificates = Certificates::new();
    let dir = TempDir::new().expect("a directory");
    let ip = own_ip();
    certificates.node(1, "elsewhere.example", &[]);
    let node = start_node(dir.path(), ip, &certificates.client_flags(1, "accept"));
    Client::new(node.grpc).next_at_last(1).await;
    let named = || {
        let log = fs::read_to_string(dir.path().join("log")).expect("a log");
        let file = certificates.path("node-1.crt");
        let begins = format!("tls_cert {file}: clients that reach this node by {ip} refuse it (");
        let lines = log.lines().filter(|line| line.contains(&begins));
        lines.filter(|line| line.contains("); make it for that host, too")).count()
    };
    until("the log names it", || named() == 1).await;
    let server = format!("unix:{}", dir.path().join("data/admin.sock").display());
    for (host, times) in [(ip.to_string(), 1), ("elsewhere.example".to_owned(), 2)] {
        certificates.node(1, &host, &["--replace"]);
        let read = run(&["reload", "--server", &server]);
        assert!(read.status.success(), "{read:?}");
        until("the log names each once", || named() == times).await;
    }
    assert_eq!(named(), 2, "one that fits is not named");
}
