//! Clients of other id generators: each gets the answers that it knows, from any node.

mod any_name;
mod failures;
mod segments;

use std::{collections::BTreeMap, net::SocketAddr};

use crate::common::{Page, cluster::Cluster, http, http_get, other_than, others, with_http};
use ratchet::node::Config;
use serde_json::json;

const TOKEN: &str = "0f673adf";

fn table(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
    let rows = rows.iter();
    rows.map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// Has the node serve the clients of all three. Namespace `leaf` takes names and begins at 1 001, `ten` goes in steps of 10
/// from 7, and `short` has three numbers of each key.
fn all(config: &mut Config) {
    with_http(config);
    config.leaf_tags = table(&[
        ("order", "leaf:order"),
        ("a/b c", "leaf:a/b c"),
        ("gone", "nowhere:1"),
        ("no-id", "book:x"),
        ("short", "short:1"),
    ]);
    config.tinyid_types = table(&[
        ("test", "book:1"),
        ("ten", "ten:1"),
        ("huge", "huge:1"),
        ("gone", "nowhere:1"),
        ("short", "short:1"),
    ]);
    let tokens = [("test", "0f673adf second"), ("ten", TOKEN), ("huge", TOKEN)];
    config.tinyid_tokens = table(&tokens);
    config.tinyid_tokens.extend(table(&[("gone", TOKEN), ("short", TOKEN)]));
    config.tinyid_segment = BTreeMap::from([("{bizType}".to_owned(), 100)]);
    config.yuewen_types = table(&[
        ("1", "book:2"),
        ("2", "nowhere:2"),
        ("3", "short:2"),
        ("4", "book:{bookid}"),
        ("5", "chapters:key={bookid},table={table},database=7"),
        ("6", "leaf:{name}"),
    ]);
}

async fn start(n: u64) -> Cluster {
    let cluster = Cluster::start(n, all).await;
    for namespace in [
        json!({"name": "leaf", "key_kind": "KEY_KIND_NAME", "start": 1_001}),
        json!({"name": "ten", "start": 7, "increment": 10}),
        json!({"name": "huge", "increment": 1_u64 << 31}),
        json!({"name": "short", "max": 3}),
        json!({"name": "chapters", "format": "yuewen-chapter"}),
    ] {
        let address = address(&cluster, 1);
        let page = http(address, "POST /v1/namespaces", "", &namespace.to_string()).await;
        assert_eq!(page.status, 201, "{}", page.body);
    }
    cluster
}

fn address(cluster: &Cluster, node: u64) -> SocketAddr {
    cluster.nodes[&node].addresses().http.expect("a port")
}

/// Checks that a page is such an answer, and one that no proxy keeps.
fn assert_answer(page: &Page, status: u16, media_type: &str, body: &str) {
    assert_eq!((page.status, &page.body[..]), (status, body));
    let head = page.head.to_lowercase();
    let expected = format!("content-type: {media_type}\r\n");
    assert!(format!("{head}\r\n").contains(&expected), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

#[tokio::test(flavor = "multi_thread")]
async fn leaf_clients_get_a_number_as_text_from_any_node() {
    let cluster = start(3).await;
    let leader = cluster.leader().await;
    let nodes = [leader, other_than(leader)].map(|node| address(&cluster, node));
    for (asked, what, number) in [
        (nodes[0], "GET /api/segment/get/order", "1001"),
        (nodes[1], "GET /api/segment/get/order", "1002"),
        (nodes[0], "POST /api/segment/get/order?x=1", "1003"),
        // Characters that a path may not hold are encoded.
        (nodes[1], "GET /api/segment/get/a%2Fb%20c", "1001"),
    ] {
        assert_answer(&http(asked, what, "", "").await, 200, TEXT, number);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn yuewen_clients_get_a_number_in_json_from_any_node() {
    let cluster = start(3).await;
    let leader = cluster.leader().await;
    for (node, number) in [(leader, 1), (other_than(leader), 2)] {
        let page = http_get(address(&cluster, node), "/?type=1").await;
        let expected = format!("{{\"error\":0,\"errorMessage\":\"success\",\"result\":{number}}}");
        assert_answer(&page, 200, JSON, &expected);
    }
    // Without a type it is no request of theirs, but for the status page.
    let page = http_get(address(&cluster, 1), "/?kind=1").await;
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(page.head.contains("text/html"), "{}", page.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn yuewen_clients_name_the_key_and_what_nobody_reads_is_refused() {
    let cluster = start(3).await;
    let leader = cluster.leader().await;
    let nodes = [leader, other_than(leader)].map(|node| address(&cluster, node));
    let result = async |node: usize, query: &str| {
        let page = http_get(nodes[node], &format!("/?{query}")).await;
        assert_eq!(page.status, 200, "{query}: {}", page.body);
        let reply: serde_json::Value = serde_json::from_str(&page.body).expect("JSON");
        reply["result"].as_u64().expect("a number")
    };
    for (node, query, number) in [
        (0, "type=4&bookid=43", 1),
        (1, "type=4&bookid=42", 1),
        (1, "bookid=43&type=4", 2),
        (0, "type=4&bookid=%34%33", 3),
        (0, "type=1", 1),
        (0, "type=6&name=a%3Ab%2Cc%3D1", 1_001),
        (1, "type=6&name=%7Bname%7D", 1_001),
        (1, "type=6&name=a:b,c%3D1", 1_002),
    ] {
        assert_eq!(result(node, query).await, number, "{query}");
    }
    let chapter = ratchet_ids::Format::parse("yuewen-chapter").expect("a format");
    for (node, query, order) in [
        (0, "type=5&bookid=43&table=9", 100),
        (1, "type=5&bookid=43&table=9", 200),
        (1, "type=5&bookid=42&table=8", 100),
    ] {
        let decoded = chapter.decode_number(result(node, query).await.into()).expect("an id");
        assert_eq!(decoded.parts().sequence, order, "{query}");
        assert_eq!(decoded.value("database"), Some(7), "{query}");
        assert_eq!(decoded.value("table"), query[query.len() - 1..].parse().ok(), "{query}");
    }
    let bad = "{\"error\":412,\"errorMessage\":\"Bad Request\"}";
    for query in [
        "type=1&bookid=43",
        "type=1&x",
        "type=4",
        "type=4&bookid",
        "type=4&bookid=x",
        "type=4&bookid=43&bookid=43",
        "type=4&bookid=43&table=1",
        "type=5&bookid=43",
        "type=5&bookid=43&table=x",
        "type=5&bookid=43&table=1000",
        "type=5&bookid=43,table=1&table=2",
        "type=6&name=",
    ] {
        let page = http_get(nodes[0], &format!("/?{query}")).await;
        assert_eq!((page.status, &page.body[..]), (400, bad), "{query}");
    }
    // None of these took a number.
    assert_eq!(result(0, "type=1").await, 2);
    assert_eq!(result(0, "type=4&bookid=43").await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn tinyid_clients_get_numbers_and_segments_from_any_node() {
    let cluster = start(3).await;
    let leader = cluster.leader().await;
    let [leads, follows] = [leader, other_than(leader)].map(|node| address(&cluster, node));
    let test = format!("bizType=test&token={TOKEN}");
    let ten = format!("bizType=ten&token={TOKEN}");
    let ids = |numbers: &str| format!("{{\"data\":[{numbers}],\"code\":200,\"message\":\"\"}}");
    for (asked, method, path, media_type, body) in [
        (leads, "GET", format!("nextId?{test}"), JSON, ids("1")),
        (follows, "POST", format!("nextId?{test}&batchSize=3"), JSON, ids("2,3,4")),
        (follows, "GET", format!("nextId?{test}&batchSize="), JSON, ids("5")),
        (leads, "GET", format!("nextId?{test}&batchSize=0"), JSON, ids("")),
        (leads, "GET", format!("nextId?{test}&batchSize=-1"), JSON, ids("")),
        (leads, "GET", format!("nextIdSimple?{test}&x=1"), TEXT, "6".to_owned()),
        (follows, "GET", format!("nextIdSimple?{test}&batchSize=3"), TEXT, "7,8,9".to_owned()),
        (leads, "GET", format!("nextIdSimple?{test}&batchSize=0"), TEXT, String::new()),
        // Another token of the same type.
        (leads, "GET", "nextIdSimple?token=second&bizType=test".to_owned(), TEXT, "10".to_owned()),
        (
            follows,
            "POST",
            format!("nextSegmentIdSimple?{test}"),
            TEXT,
            "10,30,110,1,0".to_owned(),
        ),
        (
            leads,
            "GET",
            format!("nextSegmentId?{test}"),
            JSON,
            "{\"data\":{\"currentId\":110,\"loadingId\":130,\"maxId\":210,\"delta\":1,\"remainder\":0},\
             \"code\":200,\"message\":\"\"}"
                .to_owned(),
        ),
        (leads, "GET", format!("nextIdSimple?{ten}&batchSize=2"), TEXT, "7,17".to_owned()),
        (
            follows,
            "GET",
            format!("nextSegmentIdSimple?{ten}"),
            TEXT,
            "26,224,1017,10,7".to_owned(),
        ),
    ] {
        let what = format!("{method} /tinyid/id/{path}");
        let page = http(asked, &what, "", "").await;
        assert_answer(&page, 200, media_type, &body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tinyid_clients_may_send_a_form_and_get_at_most_100_000_numbers() {
    let cluster = start(1).await;
    let asked = address(&cluster, 1);
    let form = "Content-Type: application/x-www-form-urlencoded; charset=UTF-8\r\n";
    let body = format!("bizType=te%73t&token={TOKEN}&batchSize=2");
    let page = http(asked, "POST /tinyid/id/nextIdSimple", form, &body).await;
    assert_answer(&page, 200, TEXT, "1,2");
    let half = format!("POST /tinyid/id/nextIdSimple?token={TOKEN}");
    let page = http(asked, &half, form, "bizType=test").await;
    assert_answer(&page, 200, TEXT, "3");
    // A body that is no form is not read.
    let page = http(asked, &half, "Content-Type: text/plain\r\n", "bizType=test").await;
    assert_answer(&page, 200, TEXT, "");
    let compressed = format!("{form}Content-Encoding: gzip\r\n");
    let page = http(asked, "POST /tinyid/id/nextId", &compressed, &body).await;
    assert!(page.body.contains("the body is compressed (content-encoding: gzip)"), "{}", page.body);
    let many = format!("/tinyid/id/nextIdSimple?token={TOKEN}&bizType=test&batchSize=100001");
    let numbers: Vec<String> = (4..100_004).map(|number: u64| number.to_string()).collect();
    assert_answer(&http_get(asked, &many).await, 200, TEXT, &numbers.join(","));
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_go_on_upwards_after_a_failover_for_all_clients() {
    let mut cluster = start(3).await;
    let leader = cluster.leader().await;
    let paths = [
        "/api/segment/get/order".to_owned(),
        format!("/tinyid/id/nextIdSimple?bizType=test&token={TOKEN}"),
    ];
    let mut before = Vec::new();
    for path in &paths {
        before.push(http_get(address(&cluster, leader), path).await);
    }
    cluster.crash(leader).await;
    for (path, before) in paths.iter().zip(before) {
        let other = address(&cluster, others(leader)[0]);
        let after = http_get(other, path).await;
        let number = |page: &Page| page.body.parse::<u64>().expect("a number");
        assert!(number(&after) > number(&before), "{path}: {}", after.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_table_there_is_no_endpoint() {
    let cluster = Cluster::start(1, with_http).await;
    for path in [
        "/api/segment/get/order",
        "/tinyid/id/nextId?bizType=test&token=0f673adf",
        "/tinyid/id/nextIdSimple",
        "/tinyid/id/nextSegmentId",
        "/tinyid/id/nextSegmentIdSimple",
    ] {
        let page = http_get(address(&cluster, 1), path).await;
        assert_eq!(page.status, 404, "{path}: {}", page.body);
        assert!(page.body.contains("does not exist"), "{path}: {}", page.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_table_a_type_takes_no_number() {
    let cluster = Cluster::start(1, with_http).await;
    let numbers = || cluster.nodes[&1].context().metrics.numbers.get();
    let before = numbers();
    let page = http_get(address(&cluster, 1), "/?type=1").await;
    assert!(page.head.contains("text/html"), "{}", page.head);
    assert_eq!(numbers(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_method_that_takes_no_numbers_is_refused_and_takes_none() {
    let cluster = start(1).await;
    let asked = address(&cluster, 1);
    let next = format!("/tinyid/id/nextId?bizType=test&token={TOKEN}");
    for (what, takes) in [
        ("HEAD /api/segment/get/order", "GET, POST"),
        ("PUT /api/segment/get/order", ""),
        ("DELETE /api/segment/get/order", ""),
        ("HEAD /?type=1", "GET"),
        ("POST /?type=1", ""),
        (&format!("HEAD {next}"), "GET, POST"),
        (&format!("PUT {next}"), ""),
    ] {
        let page = http(asked, what, "", "").await;
        assert_eq!(page.status, 405, "{what}: {}", page.body);
        assert!(page.head.contains(&format!("allow: {takes}")), "{what}: {}", page.head);
    }
    assert_eq!(http_get(asked, "/api/segment/get/order").await.body, "1001");
    let page = http_get(asked, "/?type=1").await;
    assert!(page.body.ends_with("\"result\":1}"), "{}", page.body);
    let page = http_get(asked, &next).await;
    assert!(page.body.starts_with("{\"data\":[1],"), "{}", page.body);
}
