//! Failures, in the form that each client knows.

use ratchet::metrics::Interface;
use serde_json::{Value, json};
use tonic::Code;

use super::{TOKEN, address, all, start};
use crate::common::{cluster::Cluster, http, http_get};

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_has_the_form_that_the_client_knows_and_is_counted() {
    let cluster = start(1).await;
    let asked = address(&cluster, 1);
    let metrics = &cluster.nodes[&1].context().metrics;
    let errors = metrics.errors.of(Interface::http);
    let long = "x".repeat(5_000);
    let unknown = "{\"data\":null,\"code\":5,\"message\":\"there is no such bizType, or the token is not one of its \
                   tokens\"}";
    let no_namespace = "does not exist; create it with";
    let no_tag = "is not in this node's leaf_tags";
    let twice = "is given more than once";
    let bad = "{\"error\":412,\"errorMessage\":\"Bad Request\"}";
    let of = |of_type: &str| format!("bizType={of_type}&token={TOKEN}");
    let id = |parameters: &str| format!("/tinyid/id/nextId?{parameters}");
    let of_test = |rest: &str| id(&format!("{}&{rest}", of("test")));
    let simple = |parameters: &str| format!("/tinyid/id/nextIdSimple?{parameters}");
    let segment = |parameters: &str| format!("/tinyid/id/nextSegmentId?{parameters}");
    let segment_simple = |parameters: &str| format!("/tinyid/id/nextSegmentIdSimple?{parameters}");
    let leaf = |tag: &str| format!("/api/segment/get/{tag}");
    let yuewen = |query: &str| format!("/?{query}");
    for (status, code, paths) in [
        (
            500,
            Code::InvalidArgument,
            vec![(leaf("none"), no_tag), (leaf(&long), no_tag), (leaf("%FF"), "UTF-8")],
        ),
        (
            500,
            Code::FailedPrecondition,
            vec![
                (leaf("gone"), no_namespace),
                (leaf("no-id"), "not 'x'"),
                (yuewen("type=2"), no_namespace),
            ],
        ),
        (
            400,
            Code::InvalidArgument,
            vec![
                (yuewen("type="), bad),
                (yuewen("type"), bad),
                (yuewen("type=9"), bad),
                (yuewen("type=01"), bad),
                (yuewen("type=%FF"), bad),
                (yuewen("type=6&name=%B5%C0"), bad),
                (yuewen("type=1&type=1"), bad),
                (yuewen(&format!("type={long}")), bad),
                (of_test("batchSize=x"), "batchSize is 'x'"),
                (of_test("batchSize=1.5"), "batchSize is '1.5'"),
                (of_test("batchSize=99999999999"), "batchSize is"),
                (of_test("batchSize=1&batchSize=2"), twice),
                (of_test("token=second"), twice),
                (of_test("bizType=test"), twice),
                (id(&format!("batchSize={long}")), "batchSize is 'xxx"),
                (simple("batchSize=x"), ""),
            ],
        ),
        (
            200,
            Code::Unauthenticated,
            vec![
                (id(""), unknown),
                (id("bizType=test"), unknown),
                (id("bizType=test&token="), unknown),
                (id("bizType=test&token=wrong"), unknown),
                (id("bizType=test&token=0f673adf%20second"), unknown),
                (id(&of("none")), unknown),
                (id(&of(&long)), unknown),
                (segment("bizType=test&token=wrong"), unknown),
                (segment(&of("none")), unknown),
                (simple(&of("none")), ""),
                (segment_simple(&of("none")), ""),
            ],
        ),
        (
            200,
            Code::FailedPrecondition,
            vec![
                (id(&of("gone")), no_namespace),
                (simple(&of("gone")), ""),
                (segment(&of("gone")), no_namespace),
                (segment_simple(&of("gone")), ""),
                (segment(&of("huge")), "increment is 2147483648"),
                (segment_simple(&of("huge")), ""),
            ],
        ),
        (200, Code::OutOfRange, vec![(segment(&of("short")), "max 3")]),
    ] {
        for (path, says) in paths {
            let before = errors.get(code);
            let taken = metrics.numbers.get();
            let page = http_get(asked, &path).await;
            let shown = format!("{}: {}", &path[..path.len().min(100)], page.body);
            assert_eq!(page.status, status, "{shown}");
            assert_eq!(errors.get(code) - before, 1, "{shown}");
            assert_eq!(metrics.numbers.get(), taken, "{shown}");
            assert!(page.body.len() < 1_200, "{shown}");
            let head = page.head.to_lowercase();
            assert!(head.contains("cache-control: no-store"), "{head}");
            match says.is_empty() || says.starts_with('{') {
                true => assert_eq!(page.body, says, "{shown}"),
                false => assert!(page.body.contains(says), "{shown}"),
            }
            if path.starts_with("/api") || page.body.is_empty() {
                continue;
            }
            let reply: Value = serde_json::from_str(&page.body).expect("JSON");
            match (path.starts_with("/tinyid"), code) {
                (true, Code::Unauthenticated) => {}
                (true, _) => assert_eq!(reply["code"], json!(6), "{shown}"),
                (false, Code::InvalidArgument) => {}
                (false, _) => assert_eq!(reply["error"], json!(500), "{shown}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_without_numbers_left_is_a_failure_of_each_form() {
    let cluster = start(1).await;
    let asked = address(&cluster, 1);
    let tinyid = format!("/tinyid/id/nextId?bizType=short&token={TOKEN}&batchSize=4");
    let page = http_get(asked, &tinyid).await;
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(page.body.starts_with("{\"data\":null,\"code\":6,"), "{}", page.body);
    for (path, status) in [("/api/segment/get/short", 500), ("/?type=3", 500)] {
        for expected in [200, 200, 200, status] {
            let page = http_get(asked, path).await;
            assert_eq!(page.status, expected, "{path}: {}", page.body);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_leader_each_client_is_told_in_time() {
    let mut cluster = Cluster::configured(3, all);
    // Alone it has no leader.
    cluster.start_node(2).await;
    let asked = address(&cluster, 2);
    let tinyid = format!("/tinyid/id/nextId?bizType=test&token={TOKEN}");
    for (path, status, begins) in [
        ("/api/segment/get/order", 500, "node 2: no leader answered"),
        ("/?type=1", 503, "{\"error\":503,\"errorMessage\":\""),
        (&tinyid[..], 200, "{\"data\":null,\"code\":6,\"message\":\""),
    ] {
        let what = format!("GET {path}");
        let page = http(asked, &what, "ratchet-timeout-ms: 100\r\n", "").await;
        assert_eq!(page.status, status, "{path}: {}", page.body);
        assert!(page.body.starts_with(begins), "{path}: {}", page.body);
    }
}
