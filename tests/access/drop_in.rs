//! Clients of other id generators in a closed cluster: they have the grants of their addresses, or of their token.

use std::{collections::BTreeMap, net::SocketAddr};

use ratchet::node::Config;
use serde_json::Value;
use tonic::Code;

use crate::common::{
    Page,
    closed::{Closed, create, grant, granting, next},
    eventually, http, http_get, other_than,
};

/// The token of the types of Tinyid's clients.
const TOKEN: &str = "0f673adf";

fn table(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
    let rows = rows.iter();
    rows.map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// Serves the clients of all three. No namespace is called `nowhere`.
fn all(config: &mut Config) {
    config.leaf_tags = table(&[("order", "book:1"), ("gone", "nowhere:1")]);
    config.leaf_snowflake = "uid".to_owned();
    config.tinyid_types = table(&[("test", "book:1"), ("gone", "nowhere:1")]);
    config.tinyid_tokens = table(&[("test", TOKEN), ("gone", TOKEN)]);
    config.tinyid_segment = BTreeMap::from([("{bizType}".to_owned(), 100)]);
    config.yuewen_types = table(&[("1", "book:2"), ("2", "nowhere:2")]);
}

/// The ports for HTTP of the leader and of a follower.
async fn ports(closed: &Closed) -> [SocketAddr; 2] {
    let leader = closed.cluster.leader().await;
    let port = |node: u64| closed.cluster.nodes[&node].addresses().http.expect("a port");
    [leader, other_than(leader)].map(port)
}

const LEAF: &str = "/api/segment/get/";
const YUEWEN: &str = "/?type=";
/// The requests of Tinyid's clients, and whether they are answered in JSON.
const TINYID: [(&str, bool); 4] = [
    ("/tinyid/id/nextId", true),
    ("/tinyid/id/nextIdSimple", false),
    ("/tinyid/id/nextSegmentId", true),
    ("/tinyid/id/nextSegmentIdSimple", false),
];

fn of_tinyid(path: &str, of_type: &str, token: &str) -> String {
    format!("{path}?bizType={of_type}&token={token}")
}

/// Checks the answer to a token that is nobody's. A node that could not ask the leader about it in time is asked again.
async fn refused_by_tinyid(address: SocketAddr, path: &str, of_type: &str) -> Page {
    eventually("an answer", async || {
        let page = http_get(address, &of_tinyid(path, of_type, "wrong")).await;
        (page.body.is_empty() || json(&page)["code"] == 5).then_some(page)
    })
    .await
}

/// The status and the text of an answer.
fn told(page: &Page) -> (u16, &str) {
    (page.status, &page.body)
}

fn json(page: &Page) -> Value {
    serde_json::from_str(&page.body).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_a_number_or_learns_which_namespaces_there_are() {
    let closed = Closed::with(all).await;
    for address in ports(&closed).await {
        // The namespace of the second one does not exist.
        for [known, gone] in [
            [format!("{LEAF}order"), format!("{LEAF}gone")],
            [1, 2].map(|n| format!("{YUEWEN}{n}")),
        ] {
            let page = http_get(address, &known).await;
            assert_eq!(page.status, 500, "{known}: {}", page.body);
            assert!(page.body.contains("token"), "{known}: {}", page.body);
            assert!(page.body.parse::<u64>().is_err(), "{known}: {}", page.body);
            assert!(!page.body.contains("result"), "{known}: {}", page.body);
            assert_eq!(told(&http_get(address, &gone).await), told(&page), "{gone}");
        }
        let page = http_get(address, "/api/snowflake/get/order").await;
        assert_eq!(page.status, 500, "{}", page.body);
        assert!(page.body.parse::<u64>().is_err(), "{}", page.body);
        for (path, is_json) in TINYID {
            let page = http_get(address, &of_tinyid(path, "test", TOKEN)).await;
            assert_eq!(page.status, 200, "{path}: {}", page.body);
            match is_json {
                true => {
                    let reply = json(&page);
                    assert_eq!((&reply["data"], &reply["code"]), (&Value::Null, &5.into()));
                }
                false => assert_eq!(page.body, "", "{path}"),
            }
            let gone = http_get(address, &of_tinyid(path, "gone", TOKEN)).await;
            assert_eq!(told(&gone), told(&page), "{path}");
            // Without its token nobody learns whether there is a type.
            let [wrong, none] = [
                refused_by_tinyid(address, path, "test").await,
                refused_by_tinyid(address, path, "none").await,
            ];
            assert_eq!(told(&wrong), told(&none), "{path}");
            assert!(!wrong.body.contains("data\":["), "{path}: {}", wrong.body);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_learns_which_tags_of_leaf_and_types_of_yuewen_are_known() {
    let closed = Closed::with(all).await;
    for address in ports(&closed).await {
        for [known, unknown] in [
            [format!("{LEAF}order"), format!("{LEAF}none")],
            [format!("{YUEWEN}1"), format!("{YUEWEN}9")],
        ] {
            let page = http_get(address, &known).await;
            assert_eq!(told(&http_get(address, &unknown).await), told(&page), "{unknown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_at_a_range_of_addresses_get_numbers_without_a_token() {
    let closed = Closed::with(all).await;
    let leader = closed.cluster.leader().await;
    let ports = ports(&closed).await;
    let leaf = format!("{LEAF}order");
    // Others than these are not let in by it.
    for (range, grants) in [("10.0.0.0/8", "next:book"), ("127.0.0.0/8", "next:other")] {
        let grants = granting("anonymous", Some(range), &[grants]);
        closed.admin(leader).set_grants(grants).await.expect("granted");
    }
    for address in ports {
        assert_eq!(http_get(address, &leaf).await.status, 500);
    }
    let grants = granting("anonymous", Some("127.0.0.0/8"), &["next:book"]);
    closed.admin(leader).set_grants(grants).await.expect("granted");
    for address in ports {
        let taken = eventually("the grant is heard of", async || {
            http_get(address, &leaf).await.body.parse::<u64>().ok()
        });
        let taken = taken.await;
        let next = http_get(address, &leaf).await.body.parse::<u64>().expect("a number");
        assert!(next > taken, "{next} after {taken}");
        let page = http_get(address, &format!("{YUEWEN}1")).await;
        assert!(json(&page)["result"].is_u64(), "{}", page.body);
        for (path, is_json) in TINYID {
            let page = http_get(address, &of_tinyid(path, "test", TOKEN)).await;
            match is_json {
                true => assert_eq!(json(&page)["code"], 200, "{}", page.body),
                false => assert!(!page.body.is_empty(), "{path}"),
            }
            // Tinyid's own token is still looked at.
            let page = refused_by_tinyid(address, path, "test").await;
            assert!(is_json || page.body.is_empty(), "{path}: {}", page.body);
        }
        // It is granted on one namespace.
        let page = http_get(address, &format!("{LEAF}gone")).await;
        assert_eq!(page.status, 500, "{}", page.body);
        assert!(!page.body.contains("does not exist"), "{}", page.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_that_a_client_of_tinyid_sends_may_be_one_of_the_clusters() {
    let closed = Closed::with(all).await;
    let leader = closed.cluster.leader().await;
    let elsewhere = "it-is-granted-something-else";
    let grants = vec![grant("next:other")];
    create(&mut closed.admin(leader), elsewhere, "elsewhere", grants).await.expect("a token");
    for node in [leader, other_than(leader)] {
        let has_heard = async || {
            let told = next(&closed.at(node, elsewhere), "book").await;
            (told == Err(Code::PermissionDenied)).then_some(())
        };
        eventually("the token is heard of", has_heard).await;
    }
    for address in ports(&closed).await {
        for (path, is_json) in TINYID {
            let page = http_get(address, &of_tinyid(path, "test", closed.token("next"))).await;
            assert_eq!(page.status, 200, "{path}: {}", page.body);
            match is_json {
                true => {
                    let reply = json(&page);
                    assert_eq!(reply["code"], 200, "{path}: {reply}");
                    assert!(!reply["data"].is_null(), "{path}: {reply}");
                }
                false => assert!(!page.body.is_empty(), "{path}"),
            }
            let header = format!("authorization: Bearer {}\r\n", closed.token("next"));
            let what = of_tinyid(path, "test", closed.token("next"));
            let page = http(address, &format!("GET {what}"), &header, "").await;
            match is_json {
                true => assert_eq!(json(&page)["code"], 5, "two tokens: {}", page.body),
                false => assert_eq!(page.body, "", "two tokens: {path}"),
            }
            for (of_type, token) in
                [("test", closed.token("raise")), ("test", elsewhere), ("gone", elsewhere)]
            {
                let page = http_get(address, &of_tinyid(path, of_type, token)).await;
                assert!(!page.body.contains("does not exist"), "{path}: {}", page.body);
                match is_json {
                    true => {
                        let reply = json(&page);
                        assert!(reply["data"].is_null() && reply["code"] != 200, "{path}: {reply}");
                    }
                    false => assert_eq!(page.body, "", "{path}"),
                }
            }
        }
    }
}
