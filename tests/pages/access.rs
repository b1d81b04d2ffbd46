//! docs/access.md: clusters are founded with a token; in a living one tokens are turned on, changed, turned off, and a lost one
//! is replaced.

use std::fs;

use ratchet::{
    node::hash_of,
    proto::v1::{CreateNamespaceRequest, access_client::AccessClient},
};
use ratchet_client::Client;
use tonic::Code;

use super::{
    page::{Here, Page},
    shell::Shell,
};
use crate::common::{
    certificates::Certificates,
    closed::{asking, create, everything, granting, next},
    eventually, http_get, openmetrics,
    processes::Processes,
    rust_client::{Load, builder, client},
};

const TURN_ON: &str = "Turn tokens on";
const TURN_OFF: &str = "Turn tokens off";
const CHANGE: &str = "Change a token";
const LOST: &str = "A lost admin token";

/// The id in the page in the place of an id that the reader's own cluster tells.
const ID: &str = "ba7816bf8f01";

fn shell_of(cluster: &Processes) -> Shell {
    let servers: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    Shell::new(&servers.join(","))
}

/// The local socket of node 1, for that in the page.
fn socket(here: &mut Here, cluster: &Processes) {
    let data_dir = cluster.dir.path().join("1");
    here.put("unix:/var/lib/ratchet/", format!("unix:{}/", data_dir.display()));
}

/// Plays commands until all succeed: nodes may not listen yet.
async fn play_at_last(shell: &Shell, commands: &str) {
    let played = async || shell.run(commands).await.status.success().then_some(());
    eventually(commands, played).await;
}

/// Sees that a stranger gets numbers of books from each node, or that it is refused there.
async fn assert_for_strangers(cluster: &Processes, is_open: bool) {
    for address in cluster.addresses() {
        let nobody = asking(address, None);
        eventually("the node has heard of it", async || match next(&nobody, "book").await {
            Ok(_) => is_open.then_some(()),
            Err(code) => (!is_open && code == Code::Unauthenticated).then_some(()),
        })
        .await;
    }
}

/// A client that shows the token in a file.
fn showing(cluster: &Processes, shell: &Shell, file: &str) -> Client {
    builder(cluster.addresses()).token(shell.token(file)).build().expect("a client")
}

/// The id of the token in a file.
fn id_of(shell: &Shell, file: &str) -> String {
    hash_of(shell.token(file).as_bytes()).id()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_page_about_tokens_says_is_done_while_numbers_are_taken() {
    let mut page = Page::read("access.md", &[TURN_ON, TURN_OFF, CHANGE, LOST]);
    on_one_machine(&mut page).await;
    with_certificates(&mut page).await;
    in_a_living_cluster(&mut page).await;
    page.end();
}

async fn on_one_machine(page: &mut Page) {
    let cluster = Processes::unfounded(3, &[]);
    let shell = shell_of(&cluster);
    play_at_last(&shell, &page.next(TURN_ON)).await;
    let admin = asking(cluster.places[&2].listen, Some(&shell.token("admin.token")));
    eventually("a number", async || next(&admin, "book").await.ok()).await;
    assert_for_strangers(&cluster, false).await;
}

async fn with_certificates(page: &mut Page) {
    let certificates = Certificates::new();
    let mut cluster = Processes::configured(3, &[]);
    for id in 1..=3 {
        let host = cluster.places[&id].listen.ip().to_string();
        certificates.node(id, &host, &[]);
        let own = certificates.peer_flags(id, "require");
        let for_clients = certificates.client_flags(id, "require");
        cluster.own_flags.insert(id, [own, for_clients].concat());
        cluster.spawn(id);
    }
    let shell = shell_of(&cluster).with_sudo();
    fs::write(shell.file("ca.crt"), certificates.read("ca.crt")).expect("written");
    let mut here = Here::default();
    socket(&mut here, &cluster);
    here.put("db-1.example.org:7600", cluster.places[&1].listen);
    play_at_last(&shell, &here.read(&page.next(TURN_ON))).await;
    play_at_last(&shell, &here.read(&page.next(TURN_ON))).await;
    here.end();
    shell.end();
}

async fn in_a_living_cluster(page: &mut Page) {
    let cluster = Processes::start(3, &[]).await;
    let shell = shell_of(&cluster).with_sudo();
    let strange = client(cluster.addresses());
    let invoices = CreateNamespaceRequest { name: "invoice".to_owned(), ..Default::default() };
    strange.create_namespace(invoices).await.expect("a namespace");
    let mut books = Load::start(strange.clone(), "book");
    let mut bills = Load::start(strange, "invoice");
    turn_on(page, &cluster, &shell, [&mut books, &mut bills]).await;
    change(page, &cluster, &shell, &mut bills).await;

    shell.play(&page.next(TURN_OFF)).await;
    assert_for_strangers(&cluster, true).await;
    // Callers stop showing theirs.
    books.with(client(cluster.addresses())).await;

    lose(page, &cluster, &shell).await;
    for load in [books, bills] {
        load.stop().await;
    }
    shell.end();
}

async fn turn_on(
    page: &mut Page, cluster: &Processes, shell: &Shell, [books, bills]: [&mut Load; 2],
) {
    let mut next = || page.next(TURN_ON);
    let printed = shell.play(&next()).await;
    assert!(printed.contains(&id_of(shell, "admin.token")), "{printed}");
    let printed = shell.play(&next()).await;
    for file in ["billing.token", "ci.token"] {
        assert!(printed.contains(&id_of(shell, file)), "{file}: {printed}");
    }
    bills.with(showing(cluster, shell, "billing.token")).await;
    // While the cluster is open, strangers can make tokens and grants.
    let strangers = "it-is-of-a-stranger";
    let mut access = AccessClient::new(asking(cluster.places[&1].listen, None));
    create(&mut access, strangers, "stranger", everything()).await.expect("a token");
    let certificate = "ratchet://orders/client/stranger";
    access.set_grants(granting(certificate, None, &["next:*"])).await.expect("granted");

    let of_administrators = next();
    let without_token = of_administrators.replace(" --token-file admin.token", "");
    assert_ne!(without_token, of_administrators);
    let refused = shell.run(&without_token).await;
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    shell.play(&of_administrators).await;
    // Callers that take numbers do not notice.
    books.goes_on().await;

    let list = next();
    let listed = shell.play(&list).await;
    let row = |name: &str| {
        let row = listed.lines().find(|line| line.split_whitespace().next() == Some(name));
        row.unwrap_or_else(|| panic!("no {name} in {listed}")).to_owned()
    };
    assert!(row("admin").contains(" anonymous "), "{listed}");
    for name in ["billing", "ci"] {
        assert!(row(name).contains(" admin "), "{listed}");
    }
    assert!(row("stranger").contains(" anonymous ") && listed.contains(certificate), "{listed}");
    let mut here = Here::default();
    here.put("NAME --id ID", format!("stranger --id {}", hash_of(strangers.as_bytes()).id()));
    shell.play(&here.read(&next())).await;
    here.end();
    let listed = shell.play(&list).await;
    assert!(!listed.contains("stranger"), "{listed}");

    books.with(showing(cluster, shell, "ci.token")).await;
    let close = next();
    shell.play(&close).await;
    assert_for_strangers(cluster, false).await;
    let metrics = http_get(cluster.places[&1].metrics_listen, "/metrics").await;
    let refused = r#"ratchet_errors_total{interface="grpc",code="UNAUTHENTICATED"}"#;
    assert!(openmetrics::value(&openmetrics::parse(&metrics.body), refused) > 0.0);
    shell.play(&next()).await;
    assert_for_strangers(cluster, true).await;
    shell.play(&close).await;
    assert_for_strangers(cluster, false).await;
    for load in [books, bills] {
        load.goes_on().await;
    }
}

async fn change(page: &mut Page, cluster: &Processes, shell: &Shell, bills: &mut Load) {
    let old = shell.token("billing.token");
    let commands = page.next(CHANGE);
    let (revoke, before): (Vec<&str>, Vec<&str>) =
        commands.lines().partition(|line| line.starts_with("ratchet token revoke"));
    let printed = shell.play(&before.join("\n")).await;
    for file in ["billing.token", "billing-2.token"] {
        assert!(printed.contains(&id_of(shell, file)), "{file}: {printed}");
    }
    bills.goes_on().await;
    bills.with(showing(cluster, shell, "billing-2.token")).await;
    let mut here = Here::default();
    here.put(ID, id_of(shell, "billing.token"));
    shell.play(&here.read(&revoke.join("\n"))).await;
    here.end();
    let revoked = asking(cluster.places[&2].listen, Some(&old));
    eventually("the node has heard of it", async || {
        (next(&revoked, "invoice").await == Err(Code::Unauthenticated)).then_some(())
    })
    .await;
    bills.goes_on().await;
}

async fn lose(page: &mut Page, cluster: &Processes, shell: &Shell) {
    let lost = shell.token("admin.token");
    shell.play("export RATCHET_TOKEN_FILE=admin.token").await;
    let mut here = Here::default();
    socket(&mut here, cluster);
    here.put(ID, id_of(shell, "admin.token"));
    let listed = shell.play(&here.read(&page.next(LOST))).await;
    here.end();
    assert!(listed.contains(&id_of(shell, "admin-2.token")), "{listed}");
    let lost = asking(cluster.places[&2].listen, Some(&lost));
    eventually("the node has heard of it", async || {
        (next(&lost, "book").await == Err(Code::Unauthenticated)).then_some(())
    })
    .await;
    let found = asking(cluster.places[&2].listen, Some(&shell.token("admin-2.token")));
    eventually("a number", async || next(&found, "book").await.ok()).await;
}
