//! The commands of curl and redis-cli in docs/certificates.md and docs/access.md. `cluster/test` installs both. grpcurl is left
//! out: Debian has no package of it.

use std::{fs, path::Path};

use super::{
    page::{Here, Page},
    shell::{Shell, copy, only, without},
};
use crate::common::{certificates::Certificates, eventually, processes::Processes};

const SPEAK: &str = "Turn TLS on";
const SHOW: &str = "Show a token";

/// Starts the node again with these flags, and waits until this command is carried out.
async fn start_again(cluster: &mut Processes, flags: Vec<String>, shell: &Shell, command: &str) {
    assert!(cluster.terminate(1).await.success());
    cluster.own_flags.insert(1, flags);
    cluster.spawn(1);
    eventually(command, async || shell.run(command).await.status.success().then_some(())).await;
}

/// The number that curl prints.
fn over_http(printed: &str) -> u64 {
    let first = printed.split_once("\"first\":\"").and_then(|(_, rest)| rest.split_once('"'));
    first.and_then(|(first, _)| first.parse().ok()).unwrap_or_else(|| panic!("curl: {printed}"))
}

/// The number that redis-cli prints.
fn over_redis(printed: &str) -> u64 {
    printed.trim().parse().unwrap_or_else(|_| panic!("redis-cli: {printed}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_and_redis_cli_take_numbers_with_a_certificate_and_with_a_token_as_the_pages_say() {
    let mut cluster = Processes::start(1, &[]).await;
    let place = cluster.places[&1].clone();
    let shell = Shell::new(&place.listen.to_string());
    let certificates = Certificates::new();
    certificates.node(1, &place.listen.ip().to_string(), &[]);
    certificates.client("billing");
    let made = certificates.path(".");
    copy(
        Path::new(&made),
        &shell.file("."),
        &["ca.crt", "client-billing.crt", "client-billing.key"],
    );
    let mut here = Here::default();
    let server = "db-1.example.org:7600";
    here.put(&format!("{server},db-2.example.org:7600,db-3.example.org:7600"), place.listen);
    here.put("db-1.example.org:7603", place.http_listen);
    let (ip, port) = (place.resp_listen.ip(), place.resp_listen.port());
    here.put("-h db-1.example.org -p 7604", format!("-h {ip} -p {port}"));

    let mut page = Page::read("certificates.md", &[SPEAK]);
    let settings = page.next(SPEAK);
    assert!(settings.starts_with("tls = "), "{settings}");
    let speak = here.read(&without("grpcurl", &page.next(SPEAK)));
    let [curl, redis] = ["curl", "redis-cli"].map(|program| only(program, &speak));
    let others = without("redis-cli", &without("curl", &speak));
    let exports = without("ratchet", &others);
    shell.play(&exports).await;
    let ca = format!("--tls-client-ca={}", certificates.path("ca.crt"));
    let serves = certificates.client_flags(1, "require");
    let known = [serves.clone(), vec![ca]].concat();
    start_again(&mut cluster, known, &shell, "ratchet status").await;
    shell.play(&others).await;
    let first = over_http(&shell.play(&curl).await);
    let second = over_redis(&shell.play(&redis).await);
    assert!(second > first, "{second} after {first}");

    let mut page = Page::read("access.md", &[SHOW]);
    let [ratchet, rust, _grpcurl, http, redis, grant] = [(); 6].map(|()| page.next(SHOW));
    page.end();
    assert!(rust.starts_with("let token = "), "{rust}");
    start_again(&mut cluster, serves, &shell, "ratchet status").await;
    shell
        .play(
            "ratchet token create admin --grant all --file admin.token\n\
             ratchet token create ci --grant next:book --file ci.token --token-file admin.token\n\
             ratchet grant anonymous --nothing --token-file admin.token",
        )
        .await;
    let stranger = shell.run("ratchet next book 42").await;
    assert_eq!(stranger.status.code(), Some(8), "{stranger:?}");
    let third: u64 = shell.play(&ratchet).await.trim().parse().expect("a number");
    let fourth = over_http(&shell.play(&here.read(&http)).await);
    let fifth = over_redis(&shell.play(&here.read(&redis)).await);
    assert!(second < third && third < fourth && fourth < fifth, "{third}, {fourth}, {fifth}");
    let header = fs::metadata(shell.file("ci.header")).expect("a file");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&header.permissions()) & 0o077, 0);
    shell.play(&grant).await;
    here.end();
}
