//! The status page: in a browser through a change of the leader, without JavaScript, and while a node stops.

use std::time::Duration;

use crate::common::{
    Client, browser::Browser, cluster::Cluster, eventually, http_get, in_time, name, other_than,
    with_http,
};
use ratchet::proto::v1::{CreateNamespaceRequest, KeyKind};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

async fn start(n: u64) -> Cluster {
    Cluster::start(n, with_http).await
}

fn url(cluster: &Cluster, node: u64) -> String {
    let address = cluster.nodes[&node].addresses().http.expect("a port");
    format!("http://{address}/")
}

/// Takes numbers of a key until the set is dropped.
fn load(mut client: Client, key: u64) -> JoinSet<()> {
    let mut load = JoinSet::new();
    load.spawn(async move {
        loop {
            client.next_at_last(key).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    load
}

/// Waits until what is shown at `place` contains `text`.
async fn until_shown(browser: &Browser, place: &str, text: &str) {
    let what = format!("{text:?} in {place}");
    eventually(&what, async || {
        let shown = browser.evaluate(&format!("document.querySelector({place:?}).innerText")).await;
        let shown = shown.as_str().unwrap_or_default().replace('\u{a0}', " ");
        shown.contains(text).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_browser_it_follows_the_cluster_through_a_change_of_the_leader() {
    let cluster = start(3).await;
    let leader = cluster.leader().await;
    let next = other_than(leader);
    let _load = load(cluster.client(leader), 4_711);
    let browser = Browser::start().await;
    browser.look(1_280, 1_100, "light").await;
    browser.open(&url(&cluster, leader)).await;
    until_shown(&browser, "#state", &format!("Node {leader} leads")).await;
    until_shown(&browser, "#connection", "Live.").await;
    until_shown(&browser, "#hottest-table", "4711").await;
    let drawn = "document.querySelectorAll('.chart path')[0].getAttribute('d').includes('L')";
    eventually("a line", async || (browser.evaluate(drawn).await == json!(true)).then_some(()))
        .await;
    // Whatever the page loads anew has no mark.
    browser.evaluate("document.body.dataset.mark = 'kept'").await;
    browser.picture("status-light").await;

    let moved = cluster.client(leader).transfer(next).await;
    assert_eq!(moved.expect("a transfer").leader, next);
    until_shown(&browser, "#state", &format!("Node {next} leads")).await;
    until_shown(&browser, "#state", "The leader's page").await;
    until_shown(&browser, "#hottest-table", "The leader knows them.").await;
    let mark = browser.evaluate("document.body.dataset.mark").await;
    assert_eq!(mark, json!("kept"), "it was not loaded anew");

    browser.evaluate("document.querySelector('#state a').click()").await;
    let title = format!("test, node {next} - Ratchet");
    eventually("the leader's page", async || {
        (browser.evaluate("document.title").await == json!(title)).then_some(())
    })
    .await;
    browser.look(390, 844, "dark").await;
    until_shown(&browser, "#members-table", "follower").await;
    let fits = "document.documentElement.scrollWidth <= window.innerWidth";
    assert_eq!(browser.evaluate(fits).await, json!(true), "on a phone");
    let dark = "getComputedStyle(document.body).backgroundColor === 'rgb(21, 24, 28)'";
    assert_eq!(browser.evaluate(dark).await, json!(true));
    browser.picture("status-dark-phone").await;
    // Tab, and Enter.
    browser.type_keys("\u{e004}").await;
    let focus = browser.evaluate("document.activeElement.innerText").await;
    assert_eq!(focus, json!("To the members"));
    browser.type_keys("\u{e007}").await;
    assert_eq!(browser.evaluate("location.hash").await, json!("#members"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_javascript_it_can_be_read_and_renews_itself() {
    let cluster = start(3).await;
    let leader = cluster.leader().await;
    let address = cluster.nodes[&other_than(leader)].addresses().http;
    let page = http_get(address.expect("a port"), "/").await;
    assert_eq!(page.status, 200);
    for part in [
        format!("Node {leader} leads"),
        "<td>follower</td>".to_owned(),
        "<td>leader change</td>".to_owned(),
        "<td>book</td>".to_owned(),
        "<noscript><meta http-equiv=\"refresh\" content=\"5\">".to_owned(),
    ] {
        assert!(page.body.contains(&part), "{part}: {}", page.body);
    }
    assert!(!page.body.contains("https://"), "it loads nothing");
    let browser = Browser::start().await;
    browser.run_scripts(false).await;
    browser.open(&url(&cluster, leader)).await;
    browser.picture("status-without-javascript").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_callers_wrote_is_shown_as_text() {
    let cluster = start(1).await;
    let mut client = cluster.client(1);
    let names = CreateNamespaceRequest {
        name: "chat".to_owned(),
        key_kind: KeyKind::Name.into(),
        ..CreateNamespaceRequest::default()
    };
    client.admin.create_namespace(names).await.expect("created");
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let hostile = name(b"<script>alert(1)</script>");
    eventually("the key", async || {
        let taken = client.try_next("chat", hostile.clone(), 1_000).await;
        taken.expect("numbers");
        let page = http_get(address, "/").await.body;
        assert!(!page.contains("<script>alert"), "{page}");
        page.contains("&lt;script&gt;alert(1)").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_stops_although_somebody_watches_and_does_not_read() {
    let mut cluster = Cluster::start(1, |config| {
        with_http(config);
        config.shutdown_timeout_ms = 600_000;
        config.client_share_percent = 100;
    })
    .await;
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let mut watchers = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let request = b"GET /events HTTP/1.1\r\nHost: ratchet\r\n\r\n";
        stream.write_all(request).await.expect("sent");
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.expect("an answer");
        assert_eq!(&head, b"HTTP/1.1 200");
        watchers.push(stream);
    }
    let one_more = http_get(address, "/events").await;
    assert_eq!(one_more.status, 429, "{}", one_more.body);
    let node = cluster.nodes.remove(&1).expect("it runs");
    in_time("the end of the node", node.stop()).await;
}
