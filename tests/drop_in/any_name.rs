//! Names without a row of their own: new ones are served while the nodes run.

use std::{collections::BTreeMap, net::SocketAddr};

use ratchet::node::Config;
use serde_json::{Value, json};

use super::{TOKEN, address, table};
use crate::common::{
    cluster::Cluster, eventually, http, http_get, other_than, unhurried, with_http,
};

/// Any tag is a key of `tags`, any type of Tinyid's a namespace, and any of Yuewen's a key of `idc`.
fn any(config: &mut Config) {
    with_http(config);
    unhurried(config);
    config.leaf_tags = table(&[("own", "book:9"), ("{tag}", "tags:{tag}")]);
    config.tinyid_types = table(&[("{bizType}", "{bizType}:1")]);
    config.tinyid_tokens = table(&[("{bizType}", TOKEN), ("book", "secret")]);
    config.tinyid_segment = BTreeMap::from([("book".to_owned(), 10), ("{bizType}".to_owned(), 50)]);
    config.yuewen_types = table(&[("{type}", "idc:{type}"), ("4", "book:{bookid}")]);
}

async fn post(asked: SocketAddr, namespace: &Value) {
    let page = http(asked, "POST /v1/namespaces", "", &namespace.to_string()).await;
    assert_eq!(page.status, 201, "{}", page.body);
}

/// Starts three nodes, and returns the addresses of the leader and of a follower.
async fn start() -> (Cluster, [SocketAddr; 2]) {
    let cluster = Cluster::start(3, any).await;
    let leader = cluster.leader().await;
    let nodes = [leader, other_than(leader)].map(|node| address(&cluster, node));
    (cluster, nodes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_tag_is_a_key_where_the_keys_are_bounded() {
    let (_cluster, nodes) = start().await;
    let get = async |node: usize, tag: &str| {
        let page = http_get(nodes[node], &format!("/api/segment/get/{tag}")).await;
        (page.status, page.body)
    };
    let refused = get(1, "new").await;
    assert!(refused.0 == 500 && refused.1.contains("does not exist"), "{refused:?}");
    post(nodes[0], &json!({"name": "tags", "key_kind": "KEY_KIND_NAME"})).await;
    // A name that is mistyped would be a key for ever.
    for node in [0, 1] {
        let refused = get(node, "new").await;
        assert!(refused.0 == 500 && refused.1.contains("--keys-max N"), "{refused:?}");
    }
    let bounded = json!({"keys_max": 2}).to_string();
    let page = http(nodes[0], "PATCH /v1/namespaces/tags", "", &bounded).await;
    assert_eq!(page.status, 200, "{}", page.body);
    // The follower learns it a little later.
    eventually("the follower knows", async || (get(1, "new").await.0 == 200).then_some(())).await;
    for (node, tag, number) in
        [(0, "new", "2"), (1, "a%2Fb", "1"), (0, "a%2Fb", "2"), (1, "own", "1"), (0, "own", "2")]
    {
        assert_eq!(get(node, tag).await, (200, number.to_owned()), "{tag}");
    }
    let full = get(0, "third").await;
    assert!(full.0 == 500 && full.1.contains("keys_max"), "{full:?}");
    let long = get(0, &"x".repeat(257)).await;
    assert!(long.0 == 500 && long.1.contains("256"), "{long:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_type_of_tinyids_is_a_namespace_with_the_token_and_the_segment_of_its_row() {
    let (_cluster, nodes) = start().await;
    let get = async |node: usize, path: &str, of_type: &str, token: &str| {
        let query = format!("/tinyid/id/{path}?bizType={of_type}&token={token}");
        let page = http_get(nodes[node], &query).await;
        (page.status, page.body)
    };
    let none = get(1, "nextId", "seats", TOKEN).await;
    assert!(none.0 == 400 && none.1.contains("no namespace of that name"), "{none:?}");
    post(nodes[0], &json!({"name": "seats"})).await;
    let ok = |body: &str| (200, body.to_owned());
    assert_eq!(get(1, "nextIdSimple", "seats", TOKEN).await, ok("1"));
    assert_eq!(get(0, "nextSegmentIdSimple", "seats", TOKEN).await, ok("1,11,51,1,0"));
    assert_eq!(get(1, "nextSegmentIdSimple", "book", "secret").await, ok("0,2,10,1,0"));
    // A type with tokens of its own has these alone.
    for (of_type, token) in [("book", TOKEN), ("seats", "secret"), ("seats", "")] {
        let refused = get(0, "nextId", of_type, token).await;
        assert!(refused.0 == 200 && refused.1.contains("\"code\":5"), "{refused:?}");
    }
    let bad = get(0, "nextId", "a%20b", TOKEN).await;
    assert!(bad.0 == 400 && bad.1.contains("'a b' has no row"), "{bad:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_type_of_yuewens_is_a_key_beside_those_that_have_rows() {
    let (_cluster, nodes) = start().await;
    post(nodes[0], &json!({"name": "idc", "start": 1_001, "keys_max": 10})).await;
    for (node, query, number) in [
        (1, "type=77", 1_001),
        (0, "type=77", 1_002),
        (0, "type=78", 1_001),
        (1, "type=4&bookid=77", 1),
    ] {
        let page = http_get(nodes[node], &format!("/?{query}")).await;
        let expected = format!("{{\"error\":0,\"errorMessage\":\"success\",\"result\":{number}}}");
        assert_eq!((page.status, page.body), (200, expected), "{query}");
    }
    for query in ["type=", "type=x", "type=77&bookid=1", "type=77&type=78"] {
        let page = http_get(nodes[0], &format!("/?{query}")).await;
        assert_eq!(page.status, 400, "{query}: {}", page.body);
    }
}
