//! Exports: the last numbers of keys, and rows over HTTP. `import` shows that an export can be imported.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use crate::common::{
    PATIENCE,
    closed::{self, Closed, grant},
    cluster::Cluster,
    http, http_get, in_time, other_than,
    processes::{Processes, ratchet},
    rust_client::{self, client_of},
    with_http,
};
use futures::future::join_all;
use ratchet::{
    node::{Asker, hash_of},
    proto::v1::RevokeTokenRequest,
    sequence::{Credential, NO_NETWORK},
};
use ratchet_client::{Client, Key, api::CreateNamespaceRequest};
use tokio::time::Instant;

/// The rows of an exact export of books.
async fn export_exactly(processes: &Processes) -> BTreeMap<u64, u64> {
    let mut command = ratchet();
    let servers = processes.addresses()[0].to_string();
    command.args(["export", "book", "--exact", "--server", &servers]);
    let ended = tokio::task::spawn_blocking(move || command.output());
    let output = ended.await.expect("no panic").expect("the command runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("text");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let rows = text.lines().skip(1).map(|row| {
        let (key, last) = row.split_once(',').expect("a row");
        (number(key), number(last))
    });
    rows.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exact_export_has_the_last_numbers_and_none_that_came_before_it_is_greater() {
    const KEYS: u64 = 6_000;
    let processes = Processes::start(3, &[]).await;
    let client = rust_client::staying(processes.addresses());
    let take = (1..=KEYS).map(|key| client.next_range("book", key, key % 100 + 1));
    for numbers in join_all(take).await {
        numbers.expect("numbers");
    }
    let rows = export_exactly(&processes).await;
    for key in 1..=KEYS {
        assert_eq!(rows.get(&key), Some(&(key % 100 + 1)), "key {key}");
    }
    // While numbers are taken.
    let received = AtomicU64::new(0);
    let taking = async {
        loop {
            let number = client.next_range("book", 1, 100).await.expect("numbers");
            received.store(number.last, SeqCst);
        }
    };
    let exporting = async {
        for _ in 0..3 {
            let before = received.load(SeqCst);
            let rows = export_exactly(&processes).await;
            assert!(rows[&1] >= before, "{} after {before}", rows[&1]);
        }
    };
    tokio::select! {
        () = exporting => {}
        _ = taking => {}
    }
    assert!(received.load(SeqCst) > 200, "numbers were taken meanwhile");
}

/// The content of chunks. Fails unless the last one has come.
fn unchunked(mut chunks: &str) -> String {
    let mut body = String::new();
    loop {
        let (length, rest) = chunks.split_once("\r\n").expect("a length");
        let length = usize::from_str_radix(length, 16).expect("a length");
        if length == 0 {
            return body;
        }
        body.push_str(&rest[..length]);
        chunks = &rest[length + 2..];
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_exports_over_http_what_import_reads_and_others_name_the_leader() {
    const KEYS: u64 = 10_000;
    let cluster = Cluster::start(3, with_http).await;
    let leader = cluster.leader().await;
    let client = client_of(&cluster, &[leader]);
    let floors = (1..=KEYS).map(|key| (Key::Id(key), key * 3));
    client.raise_many("book", floors).await.expect("floors");
    let port = |node: u64| cluster.nodes[&node].addresses().http.expect("a port");
    let page = http_get(port(leader), "/v1/namespaces/book/export").await;
    assert_eq!(page.status, 200, "{}", page.head);
    let head = page.head.to_lowercase();
    assert!(head.contains("content-type: text/csv"), "{head}");
    let text = unchunked(&page.body);
    let rows = text.strip_prefix("key,number\n").expect("a header");
    for (key, row) in (1..=KEYS).zip(rows.lines()) {
        assert_eq!(row, format!("{key},{}", key * 3));
    }
    // Each node was asked for a number of one more key when it started.
    assert!(rows.lines().count() as u64 > KEYS);

    let names = CreateNamespaceRequest {
        name: "tags".into(),
        key_kind: ratchet_client::api::KeyKind::Name.into(),
        ..Default::default()
    };
    client.create_namespace(names).await.expect("a namespace");
    client.raise("tags", "a,\"b\"", 5).await.expect("a floor");
    let page = http_get(port(leader), "/v1/namespaces/tags/export").await;
    assert_eq!(unchunked(&page.body), "key,number\n\"a,\"\"b\"\"\",5\n");

    let page = http_get(port(other_than(leader)), "/v1/namespaces/book/export").await;
    assert_eq!(page.status, 503, "{}", page.body);
    let says = format!("ask node {leader}");
    assert!(page.body.contains(&says), "{}", page.body);
    client.raise("uid", 100_007, 900).await.expect("a floor");
    let page = http_get(port(leader), "/v1/namespaces/uid/export").await;
    assert_eq!(unchunked(&page.body), "ids,number\n100000-199999,900\n");

    let page = http_get(port(leader), "/v1/namespaces/none/export").await;
    assert_eq!(page.status, 404, "{}", page.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_break_off_without_a_sign_is_not_exported() {
    let cluster = Cluster::start(1, with_http).await;
    let port = cluster.nodes[&1].addresses().http.expect("a port");
    // The version that follows is the value of a header.
    let what = "GET /v1/namespaces/book/export HTTP/1.0\r\nVersion:";
    let page = http(port, what, "", "").await;
    assert_eq!(page.status, 400, "{}", page.body);
    assert!(page.body.contains("proxy_http_version 1.1"), "{}", page.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_an_export_replaces_keeps_its_mode_and_what_is_no_file_is_not_replaced() {
    let cluster = Cluster::start(1, with_http).await;
    let dir = tempfile::TempDir::new().expect("a directory");
    let [new, usual, secret, link] =
        ["new", "usual", "secret", "link"].map(|name| dir.path().join(name));
    let mode = |file: &Path| {
        let about = fs::symlink_metadata(file).expect("a file");
        about.permissions().mode() & 0o777
    };
    fs::write(&usual, "").expect("a file");
    fs::write(&secret, "").expect("a file");
    fs::set_permissions(&secret, Permissions::from_mode(0o640)).expect("a mode");
    for (file, expected) in [(&new, mode(&usual)), (&secret, 0o640)] {
        let path = file.to_str().expect("a path");
        let (code, says) = run(&cluster, &["export", "book", "--output", path]).await;
        assert_eq!(code, Some(0), "{says}");
        assert!(fs::read_to_string(file).expect("rows").starts_with("key,number\n"));
        assert_eq!(mode(file), expected, "{path}");
    }
    symlink(&secret, &link).expect("a link");
    for path in [link.to_str().expect("a path"), "/dev/null"] {
        let (code, says) = run(&cluster, &["export", "book", "--output", path]).await;
        assert_eq!(code, Some(4), "{says}");
        assert!(says.contains("leave --output out"), "{says}");
    }
    assert!(link.is_symlink());
}

/// Runs the command with a cluster's servers, and returns its exit code and its output on standard error.
async fn run(cluster: &Cluster, arguments: &[&str]) -> (Option<i32>, String) {
    let servers: Vec<String> =
        (cluster.nodes.keys()).map(|id| cluster.address(*id).to_string()).collect();
    let mut command = ratchet();
    command.args(arguments);
    command.args(["--server", &servers.join(",")]);
    let ended = tokio::task::spawn_blocking(move || command.output());
    let output = ended.await.expect("no panic").expect("the command runs");
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), says)
}

const SECTION: u64 = 100_000;

/// Takes numbers of some ids of `uid`, and tells the greatest of each section.
async fn use_sections(client: &Client) -> BTreeMap<u64, u64> {
    let ids = (0..40).map(|id| id * 7 * SECTION / 3);
    let ids = ids.chain([SECTION - 1, SECTION, u64::MAX]);
    let mut greatest = BTreeMap::new();
    for (id, count) in ids.zip(1..) {
        let taken = client.next_range("uid", id, count * 300).await;
        let last = taken.expect("numbers").last;
        let of_section: &mut u64 = greatest.entry(id / SECTION).or_default();
        *of_section = last.max(*of_section);
    }
    greatest
}

/// Exports `uid` to a file, and answers the number of each section.
async fn export_sections(from: &Cluster, file: &str) -> BTreeMap<u64, u64> {
    let (code, says) = run(from, &["export", "uid", "--output", file]).await;
    assert_eq!(code, Some(0), "{says}");
    let rows = std::fs::read_to_string(file).expect("rows");
    let rows = rows.strip_prefix("ids,number\n").expect("a header");
    let row = |row: &str| {
        let (ids, ceiling) = row.split_once(',').expect("a row");
        let (first, last) = ids.split_once('-').expect("a range");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let first = number(first);
        assert_eq!(number(last), first.saturating_add(SECTION - 1));
        (first / SECTION, number(ceiling))
    };
    rows.lines().map(row).collect()
}

async fn create(client: &Client, namespace: &str, section_size: u64) {
    let create = CreateNamespaceRequest {
        name: namespace.into(),
        section_size: Some(section_size),
        ..Default::default()
    };
    client.create_namespace(create).await.expect("a namespace");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_of_sections_has_their_ceilings_and_is_never_exact() {
    let cluster = Cluster::start(1, with_http).await;
    let client = client_of(&cluster, &[1]);
    let dir = tempfile::TempDir::new().expect("a directory");
    let file = dir.path().join("uid.csv");
    let file = file.to_str().expect("a path");
    let (code, says) = run(&cluster, &["export", "uid", "--exact"]).await;
    assert_eq!(code, Some(4), "{says}");
    assert!(says.contains("export it without --exact"), "{says}");
    create(&client, "unused", 10).await;
    let (code, says) = run(&cluster, &["export", "unused", "--output", file]).await;
    assert_eq!(code, Some(0), "{says}");
    let rows = std::fs::read_to_string(file).expect("rows");
    assert_eq!(rows, "ids,number\n");
    let greatest = use_sections(&client).await;
    let exported = export_sections(&cluster, file).await;
    assert!(exported.keys().eq(greatest.keys()), "{exported:?}");
    for (section, number) in &exported {
        assert!(*number >= greatest[section], "section {section}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_exported_of_sections_is_imported_elsewhere_and_every_id_goes_on_above_what_it_had()
{
    let (from, to) = (Cluster::start(3, with_http).await, Cluster::start(1, with_http).await);
    let greatest = use_sections(&client_of(&from, &[from.leader().await])).await;
    let dir = tempfile::TempDir::new().expect("a directory");
    let file = dir.path().join("uid.csv");
    let file = file.to_str().expect("a path");
    let exported = export_sections(&from, file).await;
    assert!(exported.keys().eq(greatest.keys()), "{exported:?}");
    let other = client_of(&to, &[1]);
    // One of them stands higher there, and its section is asked for.
    let higher = other.next_range("uid", 5, 600_000).await;
    let higher = higher.expect("numbers").last;
    other.next("uid", 6).await.expect("a number");
    create(&other, "half", SECTION / 2).await;
    for namespace in ["uid", "half"] {
        let (code, says) = run(&to, &["import", namespace, file]).await;
        assert_eq!(code, Some(0), "{says}");
        for (section, number) in &exported {
            assert!(*number >= greatest[section]);
            // Some that had numbers, and some that nobody asked for.
            let first = section * SECTION;
            let ids = [0, 6, 49_999, 50_000, SECTION - 1].map(|place| first.saturating_add(place));
            for id in ids {
                let next = other.next(namespace, id).await.expect("a number");
                assert!(next > *number, "{namespace} {id}: {next} {number}");
            }
        }
        let next = other.next(namespace, 3 * SECTION + 1).await;
        let next = next.expect("a number");
        assert_eq!(next, 1, "no number of its section was exported");
    }
    assert_eq!(other.next("uid", 5).await.expect("a number"), higher + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_of_which_nothing_is_taken_ends_once_the_token_of_its_reader_is_revoked() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let mut admin = closed.admin(leader);
    let token = "a-token-of-who-exports";
    closed::create(&mut admin, token, "ci", vec![grant("read:*")]).await.expect("a token");
    let here = closed.cluster.nodes[&leader].context();
    let by = Asker::caller(Credential::Token(hash_of(token.as_bytes())), NO_NETWORK);
    let export = here.exports.begin("book", &by, Instant::now() + PATIENCE).await;
    let mut export = export.expect("an export");
    assert!(!export.end().is_cancelled());
    let revoke = RevokeTokenRequest { name: "ci".to_owned(), id: None };
    admin.revoke_token(revoke).await.expect("revoked");
    in_time("the end of the export", export.end().cancelled()).await;
    let refused = export.next().await.expect_err("its reader may not read on");
    assert_eq!(refused.code(), tonic::Code::Unauthenticated, "{refused}");
}
