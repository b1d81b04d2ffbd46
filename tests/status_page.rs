//! The status page: in a browser through a change of the leader, without JavaScript, and while a node stops; and the callers
//! that may see it where tokens are needed.

use std::{net::SocketAddr, time::Duration};

use crate::common::{
    Client, Page,
    browser::Browser,
    closed::{Closed, create, grant},
    cluster::Cluster,
    eventually, http, http_get, in_time, name, other_than, with_http,
};
use ratchet::{
    node::hash_of,
    proto::v1::{CreateNamespaceRequest, CreateTokenRequest, KeyKind, RevokeTokenRequest},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};
use tonic::Code;

async fn start(n: u64) -> Cluster {
    Cluster::start(n, with_http).await
}

fn address_of(cluster: &Cluster, node: u64) -> SocketAddr {
    cluster.nodes[&node].addresses().http.expect("a port")
}

fn url(cluster: &Cluster, node: u64) -> String {
    format!("http://{}/", address_of(cluster, node))
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

/// Waits until the text at `place` contains `text`. Nothing may be there yet.
async fn until_shown(browser: &Browser, place: &str, text: &str) {
    let what = format!("{text:?} in {place}");
    eventually(&what, async || {
        let shown =
            browser.evaluate(&format!("document.querySelector({place:?})?.innerText")).await;
        let shown = shown.as_str().unwrap_or_default().replace('\u{a0}', " ");
        shown.contains(text).then_some(())
    })
    .await;
}

/// Waits until this expression has this value in the page.
async fn until_is(browser: &Browser, expression: &str, value: Value) {
    let what = format!("{expression} is {value}");
    eventually(&what, async || (browser.evaluate(expression).await == value).then_some(())).await;
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
    // A page that is loaded anew has no mark.
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
    until_is(&browser, fits, json!(true)).await;
    let dark = "getComputedStyle(document.body).backgroundColor === 'rgb(21, 24, 28)'";
    until_is(&browser, dark, json!(true)).await;
    browser.picture("status-dark-phone").await;
    // The keys are Tab, and Enter.
    browser.type_keys("\u{e004}").await;
    until_is(&browser, "document.activeElement.innerText", json!("To the members")).await;
    browser.type_keys("\u{e007}").await;
    until_is(&browser, "location.hash", json!("#members")).await;
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
    assert!(!page.body.contains("/login"), "nobody has to log in");
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

/// The value of a header.
fn header<'a>(page: &'a Page, name: &str) -> Option<&'a str> {
    page.head.lines().find_map(|line| {
        let (known, value) = line.split_once(": ")?;
        known.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// Sees that the form is shown in the place of the page, with nothing of the page, and with the text `says` above the field.
fn assert_form(page: &Page, status: u16, says: Option<&str>) {
    assert_eq!(page.status, status, "{}", page.body);
    assert!(page.body.contains(r#"<form method="post" action="/login">"#), "{}", page.body);
    assert!(page.body.contains(r#"type="password" name="token""#), "{}", page.body);
    assert!(!page.body.contains("<script"), "it needs no JavaScript: {}", page.body);
    assert!(!page.body.contains("Members"), "{}", page.body);
    assert_eq!(page.body.contains(r#"id="why""#), says.is_some(), "{}", page.body);
    assert!(page.body.contains(says.unwrap_or_default()), "{}", page.body);
    let policy = header(page, "content-security-policy").expect("a policy");
    assert!(policy.contains("form-action 'self'"), "{policy}");
    assert_eq!(header(page, "www-authenticate"), None, "a browser would open a window");
    assert_eq!(header(page, "set-cookie"), None);
    assert_eq!(header(page, "cache-control"), Some("no-store"));
}

/// Sends the form with a token. A follower that could not ask the leader just now is asked again.
async fn log_in(address: SocketAddr, token: &str, headers: &str) -> Page {
    let token: String = form_urlencoded::byte_serialize(token.as_bytes()).collect();
    let headers = format!("Content-Type: application/x-www-form-urlencoded\r\n{headers}");
    eventually("an answer to the form", async || {
        let page = http(address, "POST /login", &headers, &format!("token={token}")).await;
        (page.status != 503).then_some(page)
    })
    .await
}

/// The cookie that the answer to a form sets, as a browser sends it.
fn cookie_of(answer: &Page) -> String {
    assert_eq!(answer.status, 303, "{}", answer.body);
    assert_eq!(header(answer, "location"), Some("/"));
    let cookie = header(answer, "set-cookie").expect("a cookie");
    let (pair, _) = cookie.split_once(';').expect("attributes");
    format!("Cookie: other=1; {pair}\r\n")
}

async fn session_of(address: SocketAddr, token: &str) -> String {
    cookie_of(&log_in(address, token, "").await)
}

async fn page_with(address: SocketAddr, headers: &str) -> Page {
    http(address, "GET /", headers, "").await
}

/// Watches the page with these headers. Returns the connection after the first event.
async fn watch(address: SocketAddr, headers: &str) -> TcpStream {
    let watching = async {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let request = format!("GET /events HTTP/1.1\r\nHost: ratchet\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut told = Vec::new();
        while !String::from_utf8_lossy(&told).contains("data: ") {
            let read = stream.read_buf(&mut told).await.expect("an answer");
            assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&told));
        }
        assert!(told.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&told));
        stream
    };
    in_time("an event", watching).await
}

/// Waits until nothing more comes over the connection.
async fn until_ended(mut stream: TcpStream) {
    let ending = async {
        let mut told = Vec::new();
        // It is cut off, or ends in order.
        while stream.read_buf(&mut told).await.is_ok_and(|read| read > 0) {
            told.clear();
        }
    };
    in_time("the end of what is watched", ending).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_not_let_in_gets_a_form_and_a_session_opens_the_page_and_nothing_else() {
    let closed = Closed::start().await;
    let node = other_than(closed.cluster.leader().await);
    let address = address_of(&closed.cluster, node);
    assert_form(&http_get(address, "/").await, 401, None);
    assert_eq!(http_get(address, "/events").await.status, 401);
    for (token, status, says) in [
        ("drawn by nobody", 401, "the token is worth nothing"),
        (closed.token("next"), 401, "it would need the grant read:*"),
        (" ", 400, "has no token"),
        (&"x".repeat(5_000), 400, "more than 4096 bytes"),
    ] {
        let again = log_in(address, token, "").await;
        assert_form(&again, status, Some(says));
        let told = format!("{}{}", again.head, again.body);
        assert!(token == " " || !told.contains(token), "it tells the token: {told}");
    }
    let compressed = log_in(address, closed.token("read"), "Content-Encoding: gzip\r\n").await;
    assert_form(&compressed, 400, Some("the body is compressed"));
    // A caller that shows a token itself needs no session.
    let shown = |verb| format!("Authorization: Bearer {}\r\n", closed.token(verb));
    let page = page_with(address, &shown("read")).await;
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(page.body.contains(r#"<a href="/login">Log out</a>"#), "{}", page.body);
    let policy = header(&page, "content-security-policy").expect("a policy");
    assert!(policy.contains("form-action 'none'"), "{policy}");
    assert_form(&page_with(address, &shown("next")).await, 401, None);

    let answer = log_in(address, closed.token("read"), "").await;
    let set = header(&answer, "set-cookie").expect("a cookie").to_owned();
    let id = set
        .strip_prefix(&format!("ratchet-test-{node}="))
        .and_then(|rest| rest.strip_suffix("; HttpOnly; SameSite=Strict; Path=/; Max-Age=28800"))
        .unwrap_or_else(|| panic!("{set}"));
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_eq!(answer.body, "");
    let cookie = cookie_of(&answer);
    let page = page_with(address, &cookie).await;
    assert_eq!(page.status, 200, "{}", page.body);
    drop(watch(address, &cookie).await);
    let form = http(address, "GET /login", &cookie, "").await;
    assert!(form.body.contains(r#"<form method="post" action="/logout">"#), "{}", form.body);
    // No other path takes the cookie, and no other node.
    for what in [
        "GET /openapi.json",
        "GET /v1/status",
        "GET /v1/namespaces",
        "GET /v1/namespaces/book/keys/1",
        "GET /v1/namespaces/book/export",
        "POST /v1/namespaces/book/keys/1:next",
        "GET /v1/principals",
    ] {
        let refused = http(address, what, &cookie, "").await;
        assert_eq!(refused.status, 401, "{what}: {}", refused.body);
    }
    let other = other_than(node);
    let elsewhere = format!("Cookie: ratchet-test-{other}={id}\r\n");
    let refused = page_with(address_of(&closed.cluster, other), &elsewhere).await;
    assert_form(&refused, 401, Some("the session has ended"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_at_once_with_its_token_and_with_a_logout() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let address = address_of(&closed.cluster, other_than(leader));
    let make = async || {
        let mut admin = closed.admin(leader);
        create(&mut admin, "seen once", "viewer", vec![grant("read:*")]).await.expect("a token");
    };
    make().await;
    let revoked = session_of(address, "seen once").await;
    let watched = watch(address, &revoked).await;
    let revoke = RevokeTokenRequest { name: "viewer".to_owned(), id: None };
    closed.admin(leader).revoke_token(revoke).await.expect("revoked");
    until_ended(watched).await;
    assert_form(&page_with(address, &revoked).await, 401, Some("the session has ended"));
    // Nor does it come back with the token.
    make().await;
    let cookie = session_of(address, "seen once").await;
    assert_eq!(page_with(address, &cookie).await.status, 200);
    assert_eq!(page_with(address, &revoked).await.status, 401);

    let watched = watch(address, &cookie).await;
    let answer = http(address, "POST /logout", &cookie, "").await;
    assert_eq!((answer.status, header(&answer, "location")), (303, Some("/")));
    let set = header(&answer, "set-cookie").expect("a cookie");
    assert!(set.contains("=; HttpOnly; ") && set.ends_with("; Max-Age=0"), "{set}");
    until_ended(watched).await;
    assert_eq!(page_with(address, &cookie).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_when_its_token_expires() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    let address = address_of(&closed.cluster, other_than(leader));
    let mut cookie = None;
    // On a busy machine the token may end before it is made or shown.
    for seconds in [2, 20, 200] {
        let now_ms = closed.cluster.nodes[&leader].context().group.wall_ms();
        let token = format!("for {seconds} seconds");
        let asked = CreateTokenRequest {
            name: "viewer".to_owned(),
            sha256: hash_of(token.as_bytes()).0.to_vec().into(),
            grants: vec![grant("read:*")],
            expires_ms: Some(now_ms + seconds * 1_000),
        };
        match closed.admin(leader).create_token(asked).await {
            Err(late) if late.code() == Code::InvalidArgument => continue,
            made => drop(made.expect("a token")),
        }
        let answer = log_in(address, &token, "").await;
        if answer.status == 303 {
            cookie = Some(cookie_of(&answer));
            break;
        }
    }
    let cookie = cookie.expect("a session");
    eventually("the session has ended", async || {
        (page_with(address, &cookie).await.status == 401).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_of_another_site_logs_anybody_in_or_out() {
    let closed = Closed::start().await;
    let address = address_of(&closed.cluster, 1);
    let token = closed.token("read");
    let own = format!("Origin: http://{address}\r\nSec-Fetch-Site: same-origin\r\n");
    let cookie = cookie_of(&log_in(address, token, &own).await);
    for foreign in [
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n",
        "Origin: http://evil.example\r\nSec-Fetch-Site: same-site\r\n",
    ] {
        let refused = log_in(address, token, foreign).await;
        assert_eq!(refused.status, 403, "{foreign}: {}", refused.body);
        assert_eq!(header(&refused, "set-cookie"), None, "{foreign}");
        let refused = http(address, "POST /logout", &format!("{foreign}{cookie}"), "").await;
        assert_eq!(refused.status, 403, "{foreign}: {}", refused.body);
        assert_eq!(page_with(address, &cookie).await.status, 200, "after {foreign}");
    }
    // A link cannot end a session either.
    let link = http(address, "GET /logout", &cookie, "").await;
    assert_eq!(link.status, 405, "{}", link.body);
    assert_eq!(page_with(address, &cookie).await.status, 200);
}

/// Has the browser send the form that it shows with a token, as its user does.
async fn type_token(browser: &Browser, token: &str) {
    eventually("the field has the focus", async || {
        let focus = browser.evaluate("document.activeElement?.id").await;
        (focus == json!("token")).then_some(())
    })
    .await;
    browser.type_keys(&format!("{token}\u{e007}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_browser_a_token_opens_the_page_until_it_is_revoked() {
    let closed = Closed::start().await;
    let leader = closed.cluster.leader().await;
    create(&mut closed.admin(leader), "for a browser", "viewer", vec![grant("read:*")])
        .await
        .expect("a token");
    let browser = Browser::start().await;
    browser.look(900, 700, "light").await;
    browser.open(&url(&closed.cluster, leader)).await;
    until_shown(&browser, "#login-title", "Log in").await;
    browser.picture("login").await;
    type_token(&browser, "drawn by nobody").await;
    until_shown(&browser, "#why", "worth nothing").await;
    type_token(&browser, "for a browser").await;
    until_shown(&browser, "#state", &format!("Node {leader} leads")).await;
    until_shown(&browser, "#connection", "Live.").await;

    browser.evaluate("document.querySelector('a[href=\"/login\"]').click()").await;
    until_shown(&browser, "#logout-title", "Log out").await;
    browser.evaluate("document.querySelector('form[action=\"/logout\"] button').click()").await;
    eventually("the form in the place of the page", async || {
        let shown = "location.pathname + (document.getElementById('token')?.id ?? '')";
        (browser.evaluate(shown).await == json!("/token")).then_some(())
    })
    .await;
    type_token(&browser, "for a browser").await;
    until_shown(&browser, "#connection", "Live.").await;
    let revoke = RevokeTokenRequest { name: "viewer".to_owned(), id: None };
    closed.admin(leader).revoke_token(revoke).await.expect("revoked");
    until_shown(&browser, "#why", "the session has ended").await;
}
