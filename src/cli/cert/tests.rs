//! The certificates that `ratchet cert` makes, and the requests that it refuses.

use std::{fs, os::unix::fs::PermissionsExt, sync::Arc};

use clap::Parser;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tempfile::TempDir;
use x509_parser::prelude::*;

use super::*;

/// A moment in 2026, with milliseconds.
const NOW_MS: u64 = 1_772_373_909_123;
const NOW: i64 = 1_772_373_909;
const DAY: i64 = 86_400;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    cert: CertArgs,
}

/// Runs `ratchet cert` with these words. The word DIR is the directory.
fn run_at(dir: &TempDir, words: &str, now_ms: u64) -> Result<Made, CommandError> {
    let place = dir.path().to_str().unwrap();
    let words = words.split(' ').map(|word| if word == "DIR" { place } else { word });
    match Line::try_parse_from(["cert"].into_iter().chain(words)).unwrap().cert.command {
        CertCommand::Ca(ca) => ca.make(now_ms),
        CertCommand::Node(node) => node.make(now_ms),
        CertCommand::Client(client) => client.make(now_ms),
    }
}

fn run(dir: &TempDir, words: &str) -> Result<Made, CommandError> {
    run_at(dir, words, NOW_MS)
}

fn refusal(dir: &TempDir, words: &str, says: &[&str]) {
    let refused = match run(dir, words) {
        Ok(_) => panic!("{words} is not refused"),
        Err(refused) => format!("{refused:?}").replace('\\', ""),
    };
    for part in says {
        assert!(refused.contains(part), "{part:?} is not in {refused}");
    }
}

const NODE: &str =
    "node --dir DIR --cluster orders --node-id 1 --host db-1.example.org,10.0.0.1,[::1]";
const CLIENT: &str = "client --dir DIR --cluster orders --name billing";

fn with_ca() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    run(&dir, "ca --dir DIR").unwrap();
    dir
}

fn text(dir: &TempDir, name: &str) -> String {
    fs::read_to_string(dir.path().join(name)).unwrap()
}

fn mode(dir: &TempDir, name: &str) -> u32 {
    fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777
}

fn ders(dir: &TempDir, name: &str) -> Vec<CertificateDer<'static>> {
    authority::certificates_in(&text(dir, name)).unwrap()
}

/// The names in a certificate, as they are written.
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    let written = names.value.general_names.iter().map(|name| match name {
        GeneralName::DNSName(name) => format!("DNS {name}"),
        GeneralName::URI(uri) => format!("URI {uri}"),
        GeneralName::IPAddress(octets) => format!("IP {octets:?}"),
        other => panic!("{other:?}"),
    });
    written.collect()
}

fn usages(certificate: &X509Certificate<'_>) -> (bool, bool, bool) {
    let usages = certificate.extended_key_usage().unwrap().unwrap().value;
    (usages.server_auth, usages.client_auth, usages.any || !usages.other.is_empty())
}

fn dates(certificate: &X509Certificate<'_>) -> (i64, i64) {
    let validity = certificate.validity();
    (validity.not_before.timestamp(), validity.not_after.timestamp())
}

/// Whether a client's certificate is one of a CA in `ca.crt`.
fn is_trusted(dir: &TempDir, name: &str) -> bool {
    let mut roots = RootCertStore::empty();
    for root in ders(dir, "ca.crt") {
        roots.add(root).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_millis(NOW_MS));
    let verifier = verifier.build().unwrap();
    verifier.verify_client_cert(&ders(dir, name)[0], &[], now).is_ok()
}

/// Whether a client that asks for `host` takes the certificate of a node.
fn serves(dir: &TempDir, name: &str, host: &str) -> bool {
    let certificate = ders(dir, name);
    let parsed = rustls::server::ParsedCertificate::try_from(&certificate[0]).unwrap();
    let host = ServerName::try_from(host.to_owned()).unwrap();
    rustls::client::verify_server_name(&parsed, &host).is_ok()
}

#[test]
fn a_ca_may_sign_nodes_and_clients_and_no_further_ca() {
    let dir = with_ca();
    let der = &ders(&dir, "ca.crt")[0];
    let (_, ca) = parse_x509_certificate(der).unwrap();
    assert_eq!(ca.subject().to_string(), "CN=Ratchet CA 2026-03-01T14:05:09.123Z");
    assert_eq!(ca.subject().as_raw(), ca.issuer().as_raw());
    let constraints = ca.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca);
    assert_eq!(constraints.value.path_len_constraint, Some(0));
    let usage = ca.key_usage().unwrap().unwrap().value;
    assert!(usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
    assert_eq!(dates(&ca), (NOW - 3_600, NOW + 3_650 * DAY));
    assert_eq!((mode(&dir, "ca.key"), mode(&dir, "ca.crt") & 0o600), (0o600, 0o600));
}

#[test]
fn a_certificate_of_a_node_has_its_hosts_and_its_uri_and_serves_both_ways() {
    let dir = with_ca();
    let (value, told) = run(&dir, NODE).unwrap();
    let der = &ders(&dir, "node-1.crt")[0];
    let (_, node) = parse_x509_certificate(der).unwrap();
    assert_eq!(node.subject().to_string(), "CN=node 1 of orders");
    let ip6 = "IP [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]";
    let expected = ["DNS db-1.example.org", "IP [10, 0, 0, 1]", ip6, "URI ratchet://orders/1"];
    assert_eq!(names(&node), expected);
    assert_eq!(usages(&node), (true, true, false));
    assert!(!node.is_ca());
    assert_eq!(dates(&node), (NOW - 3_600, NOW + 825 * DAY));
    assert_eq!(mode(&dir, "node-1.key"), 0o600);
    assert!(is_trusted(&dir, "node-1.crt"));
    for host in ["db-1.example.org", "10.0.0.1", "::1"] {
        assert!(serves(&dir, "node-1.crt", host), "{host}");
    }
    assert!(!serves(&dir, "node-1.crt", "localhost"));
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for line in [
        format!("tls_cert = {:?}", path("node-1.crt")),
        format!("peer_tls_key = {:?}", path("node-1.key")),
        format!("peer_tls_ca = {:?}", path("ca.crt")),
    ] {
        assert!(told.lines().any(|told| told == line), "{line} is not in {told}");
    }
    assert_eq!(value["settings"]["tls_key"], *path("node-1.key"));
    // No value of these fits all clusters.
    for setting in ["tls", "peer_tls"] {
        let line = format!("{setting} = ");
        assert!(!told.lines().any(|told| told.starts_with(&line)), "{told}");
        assert_eq!(value["settings"][setting], Value::Null);
    }
    let (_, renewed) = run(&dir, &format!("{NODE} --replace")).unwrap();
    assert!(!renewed.contains("settings"), "the node has them: {renewed}");
    assert_eq!((&value["node_id"], &value["uri"]), (&json!("1"), &json!("ratchet://orders/1")));
    let key = PrivateKeyDer::from_pem_slice(text(&dir, "node-1.key").as_bytes()).unwrap();
    assert!(matches!(key, PrivateKeyDer::Pkcs8(_)));
    assert!(!told.contains("PRIVATE") && !value.to_string().contains("PRIVATE"));
}

#[test]
fn a_certificate_of_a_client_is_for_a_client_alone() {
    let dir = with_ca();
    run(&dir, CLIENT).unwrap();
    let der = &ders(&dir, "client-billing.crt")[0];
    let (_, client) = parse_x509_certificate(der).unwrap();
    assert_eq!(names(&client), ["URI ratchet://orders/client/billing"]);
    assert_eq!(usages(&client), (false, true, false));
    assert!(is_trusted(&dir, "client-billing.crt"));
    assert_eq!(mode(&dir, "client-billing.key"), 0o600);
}

#[test]
fn what_is_there_is_kept_unless_it_is_to_be_replaced() {
    let dir = with_ca();
    refusal(&dir, "ca --dir DIR", &["ca.crt exists already", "--add", "INVALID_ARGUMENT"]);
    run(&dir, CLIENT).unwrap();
    let before = ["client-billing.crt", "client-billing.key"].map(|name| text(&dir, name));
    refusal(&dir, CLIENT, &["client-billing.crt exists already", "--replace"]);
    fs::remove_file(dir.path().join("client-billing.crt")).unwrap();
    refusal(&dir, CLIENT, &["client-billing.key exists already", "--replace"]);
    run(&dir, &format!("{CLIENT} --replace")).unwrap();
    let after = ["client-billing.crt", "client-billing.key"].map(|name| text(&dir, name));
    assert!(before[0] != after[0] && before[1] != after[1]);
    assert!(is_trusted(&dir, "client-billing.crt"));
    fs::remove_file(dir.path().join("ca.crt")).unwrap();
    refusal(&dir, "ca --dir DIR", &["ca.key exists already, without", "move the key away"]);
    refusal(&dir, CLIENT, &["--replace"]);
    refusal(&dir, &format!("{CLIENT} --replace"), &["cannot read", "ca.crt", "ratchet cert ca"]);
}

#[test]
fn a_ca_that_is_added_signs_and_what_the_old_one_signed_stays_valid() {
    let dir = with_ca();
    run(&dir, NODE).unwrap();
    let old_key = text(&dir, "ca.key");
    let (value, _) = run_at(&dir, "ca --dir DIR --add", NOW_MS + 1).unwrap();
    assert!(value["old_key"].as_str().unwrap().ends_with("ca.key.old-1"));
    assert_eq!(text(&dir, "ca.key.old-1"), old_key);
    assert_eq!(mode(&dir, "ca.key.old-1"), 0o600);
    assert_ne!(text(&dir, "ca.key"), old_key);
    run(&dir, CLIENT).unwrap();
    assert!(is_trusted(&dir, "node-1.crt") && is_trusted(&dir, "client-billing.crt"));
    let issuer = |name: &str| {
        let der = &ders(&dir, name)[0];
        parse_x509_certificate(der).unwrap().1.issuer().to_string()
    };
    let cas = ders(&dir, "ca.crt");
    assert_eq!(cas.len(), 2);
    let (_, newest) = parse_x509_certificate(&cas[0]).unwrap();
    assert_eq!(newest.subject().to_string(), issuer("client-billing.crt"));
    assert_ne!(issuer("node-1.crt"), issuer("client-billing.crt"));
    // The run was cut short after the new certificate and before the new key.
    fs::copy(dir.path().join("ca.key.old-1"), dir.path().join("ca.key")).unwrap();
    run(&dir, &format!("{CLIENT} --replace")).unwrap();
    assert_eq!(issuer("node-1.crt"), issuer("client-billing.crt"));
    assert!(is_trusted(&dir, "client-billing.crt"));
    // The key is kept elsewhere.
    fs::remove_file(dir.path().join("ca.key")).unwrap();
    refusal(&dir, NODE, &["node-1.crt exists"]);
    refusal(&dir, &format!("{NODE} --replace"), &["cannot read", "ca.key", "bring the key"]);
    run(&dir, "ca --dir DIR --add").unwrap();
    assert_eq!(ders(&dir, "ca.crt").len(), 3);
    // The oldest one is removed, as the page says: its block is the last.
    let all = text(&dir, "ca.crt");
    let last = all.rfind("-----BEGIN CERTIFICATE-----").unwrap();
    fs::write(dir.path().join("ca.crt"), &all[..last]).unwrap();
    assert!(!is_trusted(&dir, "node-1.crt"));
}

#[test]
fn no_certificate_outlives_its_ca_and_an_ended_ca_signs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    run(&dir, "ca --dir DIR --days 10").unwrap();
    let (value, _) = run(&dir, CLIENT).unwrap();
    assert_eq!(value["valid_until"], "2026-03-11T14:05:09.000Z");
    let der = &ders(&dir, "client-billing.crt")[0];
    assert_eq!(dates(&parse_x509_certificate(der).unwrap().1).1, NOW + 10 * DAY);
    let late = run_at(&dir, &format!("{CLIENT} --replace"), NOW_MS + 11 * 86_400_000);
    let refused = format!("{:?}", late.err().unwrap());
    assert!(refused.contains("ended at 2026-03-11 14:05:09 UTC"), "{refused}");
    assert!(refused.contains("--add"), "{refused}");
}

#[test]
fn a_clock_that_is_far_off_panics_nothing() {
    for now_ms in [0, 252_000_000_000_000, u64::MAX] {
        let dir = tempfile::tempdir().unwrap();
        run_at(&dir, "ca --dir DIR --days 36500", now_ms).unwrap();
        // It is refused if the clock is past all that a certificate can say.
        let _ = run_at(&dir, NODE, now_ms);
    }
}

#[test]
fn what_no_certificate_can_say_is_refused_with_what_to_write() {
    let dir = with_ca();
    let node = |cluster: &str, host: &str| {
        format!("node --dir DIR --cluster {cluster} --node-id 1 --host {host}")
    };
    refusal(&dir, &node("a/b", "x"), &["cluster is \"a/b\"", "A-Z a-z 0-9 . _ -"]);
    refusal(&dir, &node("a", "10.0.0.1:7600"), &["10.0.0.1:7600", "has a port; write 10.0.0.1:"]);
    refusal(&dir, &node("a", "db-1:7600"), &["write db-1"]);
    refusal(&dir, &node("a", "[::1]:7600"), &["write [::1]"]);
    for host in ["x,", "10.0.0.300", "[10.0.0.1]", "*.example.org", "http://x"] {
        refusal(&dir, &node("a", host), &["is no DNS name and no IP address"]);
    }
    let plain = SanType::DnsName("example.org".try_into().unwrap());
    assert_eq!(host("example.org.").unwrap(), plain);
    refusal(&dir, "client --dir DIR --cluster a --name b/c", &["name is \"b/c\""]);
    let words = ["cert", "node", "--dir=x", "--cluster=a", "--node-id=0", "--host=x"];
    assert!(Line::try_parse_from(words).unwrap_err().to_string().contains("--node-id"));
    for days in ["0", "36501"] {
        let words = ["cert", "ca", "--dir=x", "--days", days];
        assert!(Line::try_parse_from(words).unwrap_err().to_string().contains("1..=36500"));
    }
    assert!(!dir.path().join("node-1.crt").exists());
}

#[test]
fn a_ca_that_cannot_sign_is_refused_with_the_reason() {
    let dir = with_ca();
    let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let (certificate, key) = (text(&dir, "ca.crt"), text(&dir, "ca.key"));
    put("ca.key", "no key");
    refusal(&dir, CLIENT, &["ca.key holds no private key"]);
    put("ca.key", &key);
    put("ca.crt", "no certificate");
    refusal(&dir, CLIENT, &["ca.crt holds no certificates"]);
    refusal(&dir, "ca --dir DIR --add", &["ca.crt holds no certificates"]);
    put("ca.crt", &certificate);
    let other = with_ca();
    put("ca.crt", &text(&other, "ca.crt"));
    refusal(&dir, CLIENT, &["no certificate in", "is of the key in"]);
    put("ca.crt", &certificate);
    run(&dir, CLIENT).unwrap();
    put("ca.crt", &text(&dir, "client-billing.crt"));
    put("ca.key", &text(&dir, "client-billing.key"));
    refusal(&dir, &format!("{CLIENT} --replace"), &["is not a CA's"]);
}
