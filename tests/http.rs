//! The interface for HTTP: numbers and namespaces in JSON, from any node, and problems that name the fault.

use std::time::Duration;

use crate::common::{
    Page, cluster::Cluster, eventually, http, in_time, other_than, until, with_http, with_metrics,
};
use ratchet::{metrics::Interface, node::Config};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

async fn start(n: u64, change: impl Fn(&mut Config)) -> Cluster {
    Cluster::start(n, |config| {
        with_http(config);
        change(config);
    })
    .await
}

/// Asks node `node`. `what` is the method and the path.
async fn ask(cluster: &Cluster, node: u64, what: &str, body: &str) -> Page {
    let address = cluster.nodes[&node].addresses().http.expect("a port");
    http(address, what, "", body).await
}

/// As [`ask`], for an answer in JSON that is no problem.
async fn json(cluster: &Cluster, node: u64, what: &str, body: &str) -> Value {
    json_of(what, &ask(cluster, node, what, body).await)
}

/// As [`json`], for what is asked again as long as the answer is that it cannot be done now.
async fn json_at_last(cluster: &Cluster, node: u64, what: &str, body: &str) -> Value {
    let page = eventually(what, async || {
        let page = ask(cluster, node, what, body).await;
        (page.status != 503).then_some(page)
    })
    .await;
    json_of(what, &page)
}

fn json_of(what: &str, page: &Page) -> Value {
    assert!(page.status < 300, "{what}: {} {}", page.status, page.body);
    assert!(page.head.contains("application/json"), "{}", page.head);
    serde_json::from_str(&page.body).expect("JSON")
}

fn number(value: &Value) -> u64 {
    value.as_str().expect("a string").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_hands_out_numbers_as_strings() {
    let cluster = start(3, |_| {}).await;
    let leader = cluster.leader().await;
    let other = other_than(leader);
    let path = "/v1/namespaces/book/keys/42";
    let one = json(&cluster, leader, &format!("POST {path}:next"), "").await;
    let first = number(&one["first"]);
    assert_eq!(
        one,
        json!({"first": first.to_string(), "last": first.to_string(), "increment": "1"})
    );
    let more = json(&cluster, other, &format!("POST {path}:next?count=10"), "").await;
    let (from, to) = ((first + 1).to_string(), (first + 10).to_string());
    assert_eq!(more, json!({"first": from, "last": to, "increment": "1"}));
    let last = json(&cluster, other, &format!("GET {path}"), "").await;
    assert_eq!(last, json!({"last": (first + 10).to_string()}));
    let none = json(&cluster, other, "GET /v1/namespaces/book/keys/43", "").await;
    assert_eq!(none, json!({}), "what is absent is left out");
    let now = json(&cluster, other, "POST /v1/leader:transfer", "").await;
    let routed = json(&cluster, other, &format!("POST {path}:next?route_version=1"), "").await;
    assert_eq!(routed["route"]["leader"], now["leader"], "whoever knows an old route is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_takes_numbers_of_many_keys() {
    let cluster = start(1, |_| {}).await;
    let what = "POST /v1/namespaces/book:next";
    let answer = |firsts: Value| json!({"id": "0", "firsts": firsts, "increment": "1", "refused": [], "gapless": false});
    let given = r#"{"ids": ["1", 2, "1"], "counts": [1, "5", 2]}"#;
    let taken = json(&cluster, 1, what, given).await;
    assert_eq!(taken, answer(json!(["1", "1", "2"])));
    let taken = json(&cluster, 1, what, r#"{"ids": ["2"], "id": 7}"#).await;
    assert_eq!(taken["id"], json!("7"));
    assert_eq!(taken["firsts"], json!(["6"]));
    let short = r#"{"name": "short", "max": "3"}"#;
    json(&cluster, 1, "POST /v1/namespaces", short).await;
    let what = "POST /v1/namespaces/short:next";
    let taken = json(&cluster, 1, what, r#"{"ids": [1, 2], "counts": [4, 3]}"#).await;
    assert_eq!(taken["firsts"], json!(["0", "1"]));
    let exhausted = &taken["exhausted"];
    assert_eq!((&exhausted["places"], &exhausted["left"]), (&json!([0]), &json!(["3"])));
    let failure = &exhausted["failure"];
    assert_eq!(failure["reason"], json!("REASON_NUMBERS_EXHAUSTED"), "{taken}");
    let why = failure["message"].as_str().expect("why");
    assert!(why.contains("max 3 of namespace"), "{why}");
    // Names are written as they are, and names that are no text in base64. A text that looks like base64 is a name.
    json(&cluster, 1, "POST /v1/namespaces", r#"{"name": "n", "key_kind": 2}"#).await;
    for (names, firsts) in [
        (r#"["a", {"base64": "Yv8="}]"#, ["1", "1"]),
        (r#"[{"base64": "Yv8="}, "YQ=="]"#, ["2", "1"]),
    ] {
        let given = format!(r#"{{"names": {names}}}"#);
        let taken = json(&cluster, 1, "POST /v1/namespaces/n:next", &given).await;
        assert_eq!(taken["firsts"], json!(firsts));
    }
    let taken = json(&cluster, 1, "POST /v1/namespaces/n/keys/a:next", "").await;
    assert_eq!(taken["first"], json!("2"));
    let taken = json(&cluster, 1, "POST /v1/namespaces/n/keys/YQ==:next", "").await;
    assert_eq!(taken["first"], json!("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_as_many_keys_as_it_may_have_and_no_more() {
    let cluster = start(1, |_| {}).await;
    let ids = |count: usize| json!((0..count).collect::<Vec<_>>());
    let (most, more) = (ids(4_096), ids(4_097));
    for (action, floors) in [("next", None), ("raise", Some(1)), ("current", None)] {
        let what = format!("POST /v1/namespaces/book:{action}");
        let body = |ids: &Value| {
            let mut body = json!({"ids": ids});
            if let Some(floor) = floors {
                body["at_least"] = json!(vec![floor; ids.as_array().map_or(0, Vec::len)]);
            }
            body.to_string()
        };
        let page = ask(&cluster, 1, &what, &body(&more)).await;
        assert_eq!(page.status, 400, "{what}: {}", page.body);
        assert!(page.body.contains("4097 keys; over HTTP give at most 4096"), "{}", page.body);
        let page = ask(&cluster, 1, &what, &body(&most)).await;
        assert_eq!(page.status, 200, "{what}: {}", page.body);
    }
    let context = cluster.nodes[&1].context().clone();
    until("nothing is held any more", || context.metrics.request_bytes.get() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_are_created_shown_changed_and_deleted() {
    let cluster = start(1, |_| {}).await;
    let create = r#"{"name": "chat", "key_kind": "KEY_KIND_NAME", "start": "100", "increment": 100, "step": 5}"#;
    let page = ask(&cluster, 1, "POST /v1/namespaces", create).await;
    assert_eq!(page.status, 201, "{}", page.body);
    let created: Value = serde_json::from_str(&page.body).expect("JSON");
    // Absent fields are left out: count_max, keys_max and format.
    let expected = json!({
        "name": "chat", "key_kind": "KEY_KIND_NAME", "step": "5", "step_min": "5", "step_max": "5",
        "increment": "100", "start": "100", "max": i64::MAX.to_string(), "section_size": "1", "gapless": false,
        "request_id_optional": false, "description": "", "redis_strings": false,
    });
    assert_eq!(created, expected);
    let page = ask(&cluster, 1, "GET /v1/namespaces/chat", "").await;
    assert!(page.head.contains("cache-control: no-store"), "{}", page.head);
    assert_eq!(serde_json::from_str::<Value>(&page.body).expect("JSON"), expected);
    let list = json(&cluster, 1, "GET /v1/namespaces", "").await;
    let names: Vec<&str> = list["namespaces"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["book", "uid", "chat"]);
    let change = r#"{"step": 7, "count_max": "9", "keys_max": null}"#;
    let changed = json(&cluster, 1, "PATCH /v1/namespaces/chat", change).await;
    let mut expected = expected;
    for (field, now) in [("step", "7"), ("step_min", "7"), ("step_max", "7"), ("count_max", "9")] {
        expected[field] = json!(now);
    }
    assert_eq!(changed, expected);
    let same = json(&cluster, 1, "PATCH /v1/namespaces/chat", "{}").await;
    assert_eq!(same, expected, "what is absent stays");
    let limited = r#"{"name": "limited", "keys_max": 4, "format": "snowflake", "keyKind": 1}"#;
    let limited = json(&cluster, 1, "POST /v1/namespaces", limited).await;
    assert_eq!((&limited["keys_max"], &limited["key_kind"]), (&json!("4"), &json!("KEY_KIND_ID")));
    assert!(limited["format"].as_str().expect("a text").contains("worker"), "{limited}");
    // Names may hold characters that a path may not: they are encoded.
    let taken = json(&cluster, 1, "POST /v1/namespaces/chat/keys/a%2Fb%3A%20c:next", "").await;
    assert_eq!(taken["first"], json!("100"));
    let last = json(&cluster, 1, "GET /v1/namespaces/chat/keys/a%2Fb%3A%20c", "").await;
    assert_eq!(last["last"], json!("100"));
    let status = json(&cluster, 1, "GET /v1/status", "").await;
    assert_eq!((&status["leader"], &status["serving"]), (&json!("1"), &json!(true)));
    assert_eq!(status["nodes"][0]["role"], json!("ROLE_LEADER"));
    let delete = "DELETE /v1/namespaces/chat?confirm=chat";
    let deleted = json(&cluster, 1, delete, "").await;
    let floor = deleted["floor"].as_str().and_then(|floor| floor.parse::<u64>().ok());
    assert!(floor.is_some_and(|floor| floor >= 100), "{deleted}");
    json(&cluster, 1, "POST /v1/namespaces", r#"{"name": "chat"}"#).await;
    let forgotten = json(&cluster, 1, &format!("{delete}&forget=true"), "").await;
    assert_eq!(forgotten, json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_namespace_cannot_be_asked_is_refused_by_the_name_of_the_field() {
    let cluster = start(1, |_| {}).await;
    let (create, book) = ("POST /v1/namespaces", "/v1/namespaces/book");
    let patch = format!("PATCH {book}");
    let delete = format!("DELETE {book}?confirm=book");
    for (what, body, says) in [
        (create, r#"{"name": "c", "step": "x"}"#, &["the body", "step: ", "/openapi.json"][..]),
        (create, r#"{"name": "c", "step": -1}"#, &["step: "]),
        (create, r#"{"name": "c", "step": 1.5}"#, &["step: "]),
        (create, r#"{"name": "c", "step": 1, "step": 2}"#, &["duplicate field `step`"]),
        (
            create,
            r#"{"name": "c", "key_kind": "name"}"#,
            &["key_kind: ", "`name`", "KEY_KIND_NAME"],
        ),
        (create, r#"{"name": "c", "key_kind": 3}"#, &["key_kind: "]),
        (create, r#"{"name": "c", "size": 3}"#, &["unknown field `size`", "`section_size`"]),
        (create, r#"{"name": null}"#, &["name: "]),
        (create, r#"{"name": "c""#, &["the body"]),
        (create, "", &["the body"]),
        ("POST /v1/namespaces?name=c", "{}", &["'name=c'", "the body"]),
        (&patch, r#"{"name": "c"}"#, &["unknown field `name`"]),
        (&patch, r#"{"namespace": "uid"}"#, &["the path", "the body"]),
        ("PATCH /v1/namespaces/book?step=7", "{}", &["'step=7'", "the body"]),
        ("GET /v1/namespaces?numbers=number", "", &["unknown field `numbers`"]),
        ("GET /v1/namespaces/book?namespace=uid", "", &["duplicate field `namespace`"]),
        ("GET /v1/namespaces/%FF", "", &["UTF-8"]),
        ("DELETE /v1/namespaces/book", "", &["confirm is \"\""]),
        ("DELETE /v1/namespaces/book?confirm=bok", "", &["confirm is \"bok\""]),
        (&format!("{delete}&forget=perhaps"), "", &["forget: ", "`true` or `false`"]),
        (&format!("{delete}&force=true"), "", &["unknown field `force`", "`forget`"]),
    ] {
        let page = ask(&cluster, 1, what, body).await;
        let problem: Value =
            serde_json::from_str(&page.body).unwrap_or_else(|_| panic!("{what}: {}", page.body));
        assert_eq!(page.status, 400, "{what} {body}: {problem}");
        assert_eq!(problem["code"], json!("INVALID_ARGUMENT"), "{what} {body}: {problem}");
        let detail = problem["detail"].as_str().expect("a text");
        for part in says {
            assert!(detail.contains(part), "{what} {body}: {detail}");
        }
    }
    let list = json(&cluster, 1, "GET /v1/namespaces", "").await;
    assert_eq!(list["namespaces"].as_array().map(Vec::len), Some(2), "nothing was done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_problem_says_what_was_wrong_and_is_counted() {
    let cluster = start(1, |config| config.count_max = 1_000).await;
    let key = "/v1/namespaces/book/keys/42";
    let large = format!(r#"{{"names": ["{}"]}}"#, "1".repeat(1 << 20));
    let errors = cluster.nodes[&1].context().metrics.errors.of(Interface::http);
    let invalid = tonic::Code::InvalidArgument;
    for (what, body, status, code, says) in [
        (format!("POST {key}:next?count=0"), "", 400, "INVALID_ARGUMENT", "count is 0"),
        (format!("POST {key}:next?count=1001"), "", 400, "INVALID_ARGUMENT", "between 1 and 1000"),
        (format!("POST {key}:next?count=-1"), "", 400, "INVALID_ARGUMENT", "count: "),
        (format!("POST {key}:next?key=7"), "", 400, "INVALID_ARGUMENT", "duplicate field `key`"),
        (format!("POST {key}:next"), "{}", 400, "INVALID_ARGUMENT", "the request has a body"),
        (format!("POST {key}:next?size=1"), "", 400, "INVALID_ARGUMENT", "unknown field `size`"),
        (format!("POST {key}:next?numbers=number"), "", 400, "INVALID_ARGUMENT", "`numbers`"),
        (format!("POST {key}"), "", 405, "UNIMPLEMENTED", "it must end with ':next' or ':raise'"),
        (
            format!("POST {key}%3Anext"),
            "",
            405,
            "UNIMPLEMENTED",
            "ends with '42:next'; here it must",
        ),
        (format!("POST {key}:next?count=%2B5"), "", 400, "INVALID_ARGUMENT", "count: "),
        ("POST /v1/namespaces/book/keys/x:next".to_owned(), "", 400, "INVALID_ARGUMENT", "not 'x'"),
        ("POST /v1/namespaces/book/keys/%FF:next".to_owned(), "", 400, "INVALID_ARGUMENT", "UTF-8"),
        (format!("GET {key}?count=5"), "", 400, "INVALID_ARGUMENT", "unknown field `count`"),
        ("POST /v1/namespaces/none/keys/1:next".to_owned(), "", 404, "NOT_FOUND", "create it with"),
        (
            "POST /v1/namespaces/book:next".to_owned(),
            "",
            400,
            "INVALID_ARGUMENT",
            "the body is not",
        ),
        (
            "POST /v1/namespaces/book:next".to_owned(),
            "{\"ids\":[]}",
            400,
            "INVALID_ARGUMENT",
            "0 keys",
        ),
        (
            "POST /v1/namespaces/book:next".to_owned(),
            "{\"ids\":[1],\"x\":1}",
            400,
            "INVALID_ARGUMENT",
            "`x`",
        ),
        (
            "POST /v1/namespaces/book:next".to_owned(),
            "{\"ids\":[-1]}",
            400,
            "INVALID_ARGUMENT",
            "ids[0]: ",
        ),
        (
            "POST /v1/namespaces/none/ids:next".to_owned(),
            "{\"parameters\":{\"a\":1,\"a\":1}}",
            400,
            "INVALID_ARGUMENT",
            "\"a\" is given twice",
        ),
        (
            "POST /v1/namespaces/none/ids:next".to_owned(),
            "{\"key\":1,\"count\":10001}",
            400,
            "INVALID_ARGUMENT",
            "count is 10001",
        ),
        (
            "POST /v1/namespaces/book:next?count=2".to_owned(),
            "{\"ids\":[1]}",
            400,
            "INVALID_ARGUMENT",
            "'count=2'",
        ),
        (
            "POST /v1/namespaces/book:next".to_owned(),
            "{\"ids\":[1],\"names\":[\"a\"]}",
            400,
            "INVALID_ARGUMENT",
            "1 ids and 1 names",
        ),
        (
            "POST /v1/namespaces/book:next".to_owned(),
            "{\"ids\":[1],\"namespace\":\"uid\"}",
            400,
            "INVALID_ARGUMENT",
            "leave namespace out",
        ),
        (
            "POST /v1/namespaces/book:next".to_owned(),
            "{\"ids\":[1],\"timeout_ms\":5}",
            400,
            "INVALID_ARGUMENT",
            "ratchet-timeout-ms",
        ),
        (
            "POST /v1/namespaces/book:next".to_owned(),
            "{\"ids\":[1],\"traceparent\":\"00\"}",
            400,
            "INVALID_ARGUMENT",
            "the header traceparent says",
        ),
        (
            "POST /v1/namespaces/book:next".to_owned(),
            &large,
            400,
            "INVALID_ARGUMENT",
            "more than 1048576 bytes",
        ),
        ("POST /v1/namespaces".to_owned(), "{\"name\":\"book\"}", 409, "ALREADY_EXISTS", "book"),
        ("POST /v1/namespaces".to_owned(), "{\"name\":\"a b\"}", 400, "INVALID_ARGUMENT", "a b"),
        (
            "POST /v1/namespaces".to_owned(),
            "{\"name\":\"c\",\"step\":\"x\"}",
            400,
            "INVALID_ARGUMENT",
            "step: ",
        ),
        ("GET /v1/namespaces/none".to_owned(), "", 404, "NOT_FOUND", "none"),
        ("GET /v2".to_owned(), "", 404, "NOT_FOUND", "/v2 does not exist"),
        (format!("DELETE {key}"), "", 405, "UNIMPLEMENTED", "does not take DELETE"),
    ] {
        let before = errors.get(invalid);
        let page = ask(&cluster, 1, &what, body).await;
        let problem: Value =
            serde_json::from_str(&page.body).unwrap_or_else(|_| panic!("{what}: {}", page.body));
        assert!(page.head.contains("application/problem+json"), "{}", page.head);
        assert_eq!(
            (page.status, &problem["status"]),
            (status, &json!(status)),
            "{what}: {problem}"
        );
        assert_eq!(problem["code"], json!(code), "{what}");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.contains(says), "{what}: {detail}");
        assert_eq!(errors.get(invalid) - before, u64::from(code == "INVALID_ARGUMENT"), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_answered_within_the_time_that_its_header_says() {
    let mut cluster = Cluster::configured(3, with_http);
    // Alone it has no leader.
    cluster.start_node(2).await;
    let address = cluster.nodes[&2].addresses().http.expect("a port");
    let what = "POST /v1/namespaces/book/keys/1:next";
    let page = http(address, what, "ratchet-timeout-ms: 100\r\n", "").await;
    assert_eq!(page.status, 503, "{}", page.body);
    assert!(page.head.contains("retry-after: 1"), "{}", page.head);
    for value in ["0", "-1", "soon"] {
        let page = http(address, what, &format!("ratchet-timeout-ms: {value}\r\n"), "").await;
        assert_eq!(page.status, 400, "{}", page.body);
        assert!(page.body.contains(&format!("ratchet-timeout-ms is '{value}'")), "{}", page.body);
    }
    let twice = "ratchet-timeout-ms: 100\r\nratchet-timeout-ms: 200\r\n";
    let page = http(address, what, twice, "").await;
    assert_eq!(page.status, 400, "{}", page.body);
    assert!(page.body.contains("ratchet-timeout-ms is '200'"), "{}", page.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_ends_is_counted_and_given_up() {
    let cluster = start(1, |config| {
        (config.request_timeout_ms, config.request_timeout_max_ms) = (5_000, 5_000);
    })
    .await;
    let context = cluster.nodes[&1].context().clone();
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let head =
        "POST /v1/namespaces/book:next HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    let is_counted = || context.metrics.request_bytes.get() >= 50_000;
    // On a slow machine the body is given up before anybody looks at what is counted: then another one is sent.
    let mut stream = eventually("a body whose bytes are counted", async || {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(head.as_bytes()).await.ok()?;
        stream.write_all(&[b' '; 50_000]).await.ok()?;
        let counted = until("its bytes are counted", is_counted);
        let counted = tokio::time::timeout(Duration::from_secs(4), counted).await;
        counted.ok().map(|()| stream)
    })
    .await;
    let mut answer = vec![0; 1_024];
    let read = in_time("an answer", stream.read(&mut answer)).await.expect("bytes");
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    until("nothing is held any more", || context.metrics.request_bytes.get() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_stops_although_connections_are_open_and_answers_what_is_under_way() {
    let mut cluster = start(1, |_| {}).await;
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let mut idle = TcpStream::connect(address).await.expect("a connection");
    idle.write_all(b"POST /v1/names").await.expect("sent");
    let node = cluster.nodes.remove(&1).expect("a node");
    in_time("the end of the node", node.stop()).await;
    let mut rest = Vec::new();
    // It may end with an error.
    let _ = in_time("the end of the connection", idle.read_to_end(&mut rest)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_added_promoted_moved_and_removed_and_the_leadership_is_handed_over() {
    let mut cluster = start(3, |_| {}).await;
    cluster.configure(4);
    cluster.start_node(4).await;
    let asked = other_than(cluster.leader().await);
    let peer_address = cluster.configs[&4].peer_listen.to_string();
    let body = json!({"id": 4, "peer_address": peer_address}).to_string();
    // The leader waits a second for the node's answer: on a slow machine it is asked again.
    let members = json_at_last(&cluster, asked, "POST /v1/nodes", &body).await;
    assert_eq!(members, json!({"voters": ["1", "2", "3"], "learners": ["4"]}));
    let same = json_at_last(&cluster, asked, "PATCH /v1/nodes/4", "{}").await;
    assert_eq!(same, members);
    eventually("a learner that has caught up", async || {
        let page = ask(&cluster, asked, "POST /v1/nodes/4:promote", "").await;
        (page.status == 200).then_some(())
    })
    .await;
    // On a slow machine node 4 may be too late, and another node leads: then that one is asked.
    let transfer = "POST /v1/leader:transfer?to=4";
    let page = eventually("node 4 leads", async || {
        let page = ask(&cluster, asked, transfer, "").await;
        (!page.body.contains("HANDOVER_LOST")).then_some(page)
    })
    .await;
    let now = json_of(transfer, &page);
    assert_eq!(now["leader"], json!("4"));
    assert!(number(&now["term"]) > 0, "{now}");
    let remove = format!("DELETE /v1/nodes/{asked}");
    let members = json(&cluster, other_than(asked), &remove, "").await;
    assert_eq!(members["voters"].as_array().map(Vec::len), Some(3));
    for (what, ends) in [
        ("POST /v1/nodes/4", "'4'"),
        ("POST /v1/nodes/4:demote", "'4:demote'"),
        ("POST /v1/nodes/4:promote:", "'4:promote:'"),
    ] {
        let page = ask(&cluster, other_than(asked), what, "").await;
        assert_eq!(page.status, 405, "{what}: {}", page.body);
        let says = format!("ends with {ends}; here it must end with ':promote'");
        assert!(page.body.contains(&says), "{what}: {}", page.body);
        assert!(page.head.contains("allow: DELETE, PATCH"), "{what}: {}", page.head);
    }
    for (what, allow) in [
        ("POST /v1/namespaces/book/keys/1", "allow: GET, HEAD"),
        ("POST /v1/namespaces/book:take", "allow: DELETE, GET, HEAD, PATCH"),
        ("DELETE /v1/namespaces/book/keys/1", "allow: GET, HEAD\r\n"),
        ("GET /v1/namespaces/book/keys/42:next", "allow: POST\r\n"),
        ("PATCH /v1/nodes/4:promote", "allow: POST\r\n"),
    ] {
        let page = ask(&cluster, other_than(asked), what, "").await;
        assert_eq!(page.status, 405, "{what}: {}", page.body);
        assert!(page.head.contains(allow), "{what}: {}", page.head);
    }
    for (what, body, says) in [
        ("DELETE /v1/nodes/x", "", "id: "),
        ("POST /v1/nodes/:promote", "", "id: "),
        ("POST /v1/nodes", "{}", "id is 0"),
        ("POST /v1/nodes", r#"{"id": 5, "peer_addres": "x:1"}"#, "unknown field `peer_addres`"),
        ("PATCH /v1/nodes/4", r#"{"id": 5}"#, "the path says"),
        ("PATCH /v1/nodes/0", r#"{"id": 5}"#, "the path says"),
        ("POST /v1/leader:transfer", r#"{"to": 4}"#, "the request has a body"),
        ("POST /v1/leader:transfer?to=x", "", "to: "),
        ("POST /v1/cluster:found?cluster=x", "", "unknown field `cluster`"),
        ("DELETE /v1/nodes/4?force=perhaps", "", "force: "),
    ] {
        let page = ask(&cluster, other_than(asked), what, body).await;
        assert_eq!(page.status, 400, "{what}: {}", page.body);
        assert!(page.body.contains(says), "{what}: {}", page.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_another_site_takes_no_number_by_way_of_its_readers_browser() {
    let cluster = start(1, |_| {}).await;
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let next = "POST /v1/namespaces/book/keys/42:next";
    for headers in [
        "Origin: http://evil.example\r\n",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
    ] {
        let page = http(address, next, headers, "").await;
        assert_eq!(page.status, 403, "{}", page.body);
        assert!(page.body.contains("PERMISSION_DENIED"), "{}", page.body);
    }
    let own = format!("Origin: http://{address}\r\n");
    let page = http(address, next, &own, "").await;
    let taken: Value = serde_json::from_str(&page.body).expect("JSON");
    assert_eq!(taken["first"], json!("1"), "nothing was taken before");
}

/// The page of a site whose name was made to lead to the node is the node's own page for the browser, which therefore lets it
/// read the answers. Without TLS the browser says nothing of where a GET comes from.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_whose_name_was_made_to_lead_to_the_node_reads_nothing() {
    let cluster = start(1, with_metrics).await;
    let at = cluster.nodes[&1].addresses();
    let (http_port, metrics) = (at.http.expect("a port"), at.metrics.expect("a port"));
    let browser = "Accept-Language: en-US,en;q=0.5\r\nUser-Agent: Mozilla/5.0 (X11)\r\n";
    let get = async |at, path: &str, host: &str| {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{browser}\r\n");
        let mut stream = TcpStream::connect(at).await.expect("a connection");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut status = [0; 12];
        in_time("an answer", stream.read_exact(&mut status)).await.expect("an answer");
        String::from_utf8_lossy(&status[9..]).into_owned()
    };
    for (at, path) in [
        (http_port, "/"),
        (http_port, "/events"),
        (http_port, "/openapi.json"),
        (http_port, "/v1/namespaces"),
        (http_port, "/v1/status"),
        (http_port, "/v1/namespaces/book/keys/1"),
        (metrics, "/metrics"),
    ] {
        let evil = format!("evil.example:{}", at.port());
        assert_eq!(get(at, path, &evil).await, "403", "{path}");
        assert_eq!(get(at, path, &at.to_string()).await, "200", "{path}");
    }
    for path in ["/livez", "/readyz"] {
        let probed = get(http_port, path, "evil.example").await;
        assert_eq!(probed, "200", "{path}: what it tells is no secret");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_an_idempotency_key_is_answered_once() {
    let cluster = start(3, |_| {}).await;
    let gapless = r#"{"name": "invoice", "gapless": true}"#;
    let created = json(&cluster, 1, "POST /v1/namespaces", gapless).await;
    assert_eq!(created["gapless"], true);
    let ask = async |node, path: &str, key: &str, body: &str| {
        let address = cluster.nodes[&node].addresses().http.expect("a port");
        let header = format!("Idempotency-Key: {key}\r\n");
        http(address, &format!("POST /v1/namespaces/{path}"), &header, body).await
    };
    let path = "invoice/keys/7:next?count=2";
    let first = ask(1, path, "order-7", "").await;
    assert_eq!(first.status, 200, "{}", first.body);
    let again = ask(2, path, "order-7", "").await;
    assert_eq!(again.body, first.body);
    let quoted = ask(1, path, "\"order-7\"", "").await;
    assert_eq!(quoted.body, first.body, "the quotes are no part of it");
    let asked = ask(1, &format!("{path}&request_id=order-7"), "order-7", "").await;
    assert_eq!(asked.status, 400, "{}", asked.body);
    assert!(asked.body.contains("leave one of them out"), "{}", asked.body);
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let by_field = format!("POST /v1/namespaces/{path}&request_id=order-7");
    assert_eq!(http(address, &by_field, "", "").await.body, first.body);
    let other = ask(3, "invoice/keys/7:next", "order-7", "").await;
    assert_eq!(other.status, 422, "{}", other.body);
    assert!(other.body.contains("used for 2 numbers of key 7 of"), "{}", other.body);
    assert!(other.body.contains(r#""reason":"REQUEST_ID_REUSED""#), "{}", other.body);
    let long = ask(3, path, &"x".repeat(65), "").await;
    assert_eq!(long.status, 400);
    assert!(long.body.contains("the request id has 65 bytes"), "{}", long.body);
    let many = ask(1, "invoice:next", "orders-8", r#"{"ids": [1, 7]}"#).await;
    assert_eq!(many.status, 200, "{}", many.body);
    let again = ask(2, "invoice:next", "orders-8", r#"{"ids": [1, 7]}"#).await;
    assert_eq!(again.body, many.body);
    for field in ["request_id", "requestId"] {
        let fields = format!(r#"{{"ids": [1, 7], "{field}": "orders-8"}}"#);
        let by_field = http(address, "POST /v1/namespaces/invoice:next", "", &fields).await;
        assert_eq!(by_field.body, many.body, "{field}");
    }
    for id in ["%80", "%EF%BF%BD"] {
        let query = format!("POST /v1/namespaces/invoice/keys/7:next?request_id={id}");
        let no_text = http(address, &query, "", "").await;
        assert_eq!(no_text.status, 400, "other bytes would be the same id: {}", no_text.body);
    }
    for twice in ["a\r\nidempotency-key: b", "\"a"] {
        let twice = ask(1, path, twice, "").await;
        assert_eq!(twice.status, 400, "{}", twice.body);
        assert!(twice.body.contains("give one idempotency-key"), "{}", twice.body);
    }
    let early = format!(
        "POST /v1/namespaces/{path}&request_id=early&retry_window_ms=9000&made_ms=9000000000"
    );
    let early = http(address, &early, "", "").await;
    assert_eq!(early.status, 422, "{}", early.body);
    let early: Value = serde_json::from_str(&early.body).expect("JSON");
    assert!(early["request_clock_ms"].is_u64(), "{early}");
    let book = ask(1, "book/keys/7:next", "order-7", "").await;
    assert_eq!(book.status, 422, "{}", book.body);
    assert!(book.body.contains("knows no request ids: ask without one"), "{}", book.body);
    let none = http(address, "POST /v1/namespaces/invoice/keys/7:next", "", "").await;
    assert_eq!(none.status, 422, "{}", none.body);
    let none: Value = serde_json::from_str(&none.body).expect("JSON");
    assert_eq!(none["reason"], json!("REQUEST_ID_REQUIRED"));
    assert_eq!(none["outcome"], json!("NOT_DONE"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_does_not_arrive_is_not_carried_out_and_its_caller_is_told_so() {
    let cluster = start(1, |_| {}).await;
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let part = format!(
        "POST /v1/namespaces HTTP/1.1\r\nHost: {address}\r\nRatchet-Timeout-Ms: 300\r\nConnection: close\r\n\
         Content-Length: 100\r\n\r\n{{"
    );
    stream.write_all(part.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    in_time("an answer", stream.read_to_string(&mut answer)).await.expect("text");
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("NOT_DONE"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn get_of_a_name_that_ends_as_an_action_says_that_post_takes_numbers() {
    let cluster = start(1, |_| {}).await;
    json(&cluster, 1, "POST /v1/namespaces", r#"{"name": "n", "key_kind": 2}"#).await;
    let page = ask(&cluster, 1, "GET /v1/namespaces/n/keys/abc:next", "").await;
    assert_eq!(page.status, 405, "{}", page.body);
    assert!(page.head.contains("allow: POST\r\n"), "{}", page.head);
    assert!(page.body.contains("ends with ':next', which takes POST, not GET"), "{}", page.body);
    let taken = json(&cluster, 1, "POST /v1/namespaces/n/keys/abc%3Anext:next", "").await;
    let last = json(&cluster, 1, "GET /v1/namespaces/n/keys/abc%3Anext", "").await;
    assert_eq!(last["last"], taken["first"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn anybody_may_probe_a_node_at_its_port_for_http() {
    let cluster = start(1, |_| {}).await;
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let foreign = "Origin: http://evil.example\r\nRatchet-Cluster-Id: \
                   f47ac10b-58cc-4372-a567-0e02b2c3d479\r\n";
    for path in ["/livez", "/readyz"] {
        let page = http(address, &format!("GET {path}"), foreign, "").await;
        assert_eq!((page.status, &page.body[..]), (200, "ok\n"), "{path}");
        let page = http(address, &format!("OPTIONS {path}"), foreign, "").await;
        assert_eq!((page.status, &page.body[..]), (204, ""), "{path}");
        assert!(page.head.contains("allow: GET, HEAD, OPTIONS\r\n"), "{}", page.head);
        let page = http(address, &format!("POST {path}"), foreign, "").await;
        assert_eq!(page.status, 405, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_body_is_refused_by_that_name() {
    let cluster = start(1, |_| {}).await;
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let what = "POST /v1/namespaces/book:next";
    let page = http(address, what, "Content-Encoding: gzip\r\n", "{}").await;
    assert_eq!(page.status, 400, "{}", page.body);
    assert!(page.body.contains("content-encoding: gzip"), "{}", page.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_too_old_ends_with_an_answer_that_says_so() {
    let cluster = start(1, |config| config.connection_age_max_ms = 1).await;
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = "POST /v1/namespaces/book/keys/1:next HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    let mut said = Vec::new();
    // The connection is young for a millisecond.
    let asking = async {
        while !String::from_utf8_lossy(&said).contains("connection: close") {
            stream.write_all(request.as_bytes()).await.expect("sent");
            let mut part = [0; 1_024];
            let read = stream.read(&mut part).await.expect("an answer");
            said.extend_from_slice(&part[..read]);
        }
        stream.read_to_end(&mut said).await.expect("the end")
    };
    in_time("an answer that is the last one", asking).await;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("\"first\":\"1\"") && said.ends_with('}'), "{said}");
}
