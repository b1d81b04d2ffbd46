//! Floors: a key whose floor was raised hands out greater numbers only, also under a later leader, and through every
//! interface.

use crate::common::{
    cluster::Cluster, eventually, http, id, in_time, other_than, processes::Processes, rust_client,
    with_http, with_resp,
};
use ratchet::{
    metrics::SkipCause,
    node::Config,
    proto::{
        reason_of,
        v1::{CreateNamespaceRequest, Outcome, RaiseManyRequest, RaiseRequest, Reason},
    },
};
use ratchet_client::{Code, Error, Key};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

fn quiet(config: &mut Config) {
    with_http(config);
    with_resp(config);
}

fn refused(error: &Error) -> (Code, String) {
    (error.code().expect("a code"), error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raised_key_hands_out_greater_numbers_at_every_node_and_under_the_next_leader() {
    let cluster = Cluster::start(3, quiet).await;
    let leader = cluster.leader().await;
    let client = rust_client::staying([cluster.address(other_than(leader))]);
    let before = client.next("book", 7).await.expect("a number");
    let raised = client.raise("book", 7, 5_000_000).await.expect("a floor");
    assert_eq!((raised.floor, raised.is_higher), (5_000_000, true));
    let again = client.raise("book", 7, 5_000_000).await.expect("a floor");
    assert_eq!((again.floor, again.is_higher), (5_000_000, false));
    let lower = client.raise("book", 7, 3).await.expect("a floor");
    assert_eq!((lower.floor, lower.is_higher), (5_000_000, false));
    assert_eq!(client.current("book", 7).await.expect("a number"), Some(5_000_000));
    assert_eq!(client.next("book", 7).await.expect("a number"), 5_000_001);
    let metrics = &cluster.nodes[&leader].context().metrics;
    assert_eq!(metrics.skipped(SkipCause::floor), 5_000_000 - before);
    // A key that was raised and not used is where it was, and nothing of it is skipped.
    client.raise("book", 8, 1_000).await.expect("a floor");
    cluster.cut_off(leader);
    let other = other_than(leader);
    let next = cluster.leader_seen_by(other, |new| new != leader).await;
    let client = rust_client::staying([cluster.address(next)]);
    assert_eq!(client.current("book", 8).await.expect("a number"), Some(1_000));
    assert_eq!(client.next("book", 8).await.expect("a number"), 1_001);
    assert!(client.next("book", 7).await.expect("a number") > 5_000_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_keys_are_raised_and_read_together_or_refused_before_any_is_raised() {
    let cluster = Cluster::start(3, quiet).await;
    let leader = cluster.leader().await;
    for node in [leader, other_than(leader)] {
        let client = rust_client::client_of(&cluster, &[node]);
        let base = node * 100_000;
        let keys = || (base..base + 20_000).map(Key::Id);
        let floors: Vec<u64> = (base..base + 20_000).map(|id| id * 3 + 1).collect();
        let asked = keys().zip(floors.iter().copied());
        let raised = client.raise_many("book", asked).await.expect("floors");
        assert_eq!(raised, floors);
        let last = client.current_many("book", keys()).await.expect("numbers");
        assert_eq!(last, floors.iter().copied().map(Some).collect::<Vec<_>>());
        let mut ids = base + 5..base + 20_000;
        eventually("the number right above a floor", async || {
            let id = ids.next().expect("a key");
            let (floor, next) = (id * 3 + 1, client.next("book", id).await.expect("a number"));
            assert!(next > floor, "{next} of key {id}");
            // The client asks again if an answer is lost: then the number above the floor is nobody's.
            (next == floor + 1).then_some(())
        })
        .await;
        let none = client.current_many("book", [Key::Id(u64::MAX - 1)]).await;
        assert_eq!(none.expect("an answer"), [None]);

        let bad = [(Key::Id(base + 90_000), 5), (Key::Id(77), 0)];
        let error = client.raise_many("book", bad).await.expect_err("0 is no floor");
        let (code, text) = refused(&error);
        assert_eq!(code, Code::OutOfRange);
        assert!(text.contains("place 1: the floor of key 77 is 0"), "{text}");
        let bad = [(Key::Id(base + 90_000), 5), (Key::Id(78), 1 << 63)];
        let error = client.raise_many("book", bad).await.expect_err("above max");
        assert!(error.to_string().contains("9223372036854775807, the max"), "{error}");
        let untouched = client.current("book", base + 90_000).await.expect("an answer");
        assert_eq!(untouched, None, "all is checked before anything is raised");
        let names = [(Key::from("a"), 1)];
        let error = client.raise_many("book", names).await.expect_err("ids");
        assert_eq!(refused(&error).0, Code::InvalidArgument);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_a_shared_section_is_raised_alone() {
    let cluster = Cluster::start(1, quiet).await;
    let client = rust_client::client_of(&cluster, &[1]);
    assert_eq!(client.next("uid", 5).await.expect("a number"), 1);
    client.raise("uid", 6, 1_000_000).await.expect("a floor");
    assert_eq!(client.next("uid", 5).await.expect("a number"), 2);
    assert_eq!(client.next("uid", 6).await.expect("a number"), 1_000_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_keys_of_a_shared_section_are_raised_with_few_bumps() {
    let cluster = Cluster::start(1, quiet).await;
    let client = rust_client::client_of(&cluster, &[1]);
    client.next("uid", 5).await.expect("a number");
    let metrics = &cluster.nodes[&1].context().metrics;
    let before = metrics.of_set(1).bumps.get();
    let floors = (10..20_010).map(|id| (Key::Id(id), 1_000_000 + id));
    client.raise_many("uid", floors).await.expect("floors");
    // Calls that wait while one bump is under way share the next one.
    let bumps = metrics.of_set(1).bumps.get() - before;
    assert!((1..200).contains(&bumps), "{bumps} bumps for 20 000 keys");
    assert_eq!(client.next("uid", 5).await.expect("a number"), 2);
    let last = client.current("uid", 20_009).await.expect("an answer");
    assert_eq!(last, Some(1_020_009));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_floor_at_the_namespaces_max_uses_the_key_up_and_one_above_is_refused() {
    let processes = Processes::start(1, &[]).await;
    let address = processes.client(1);
    drop(address);
    let client = rust_client::client(processes.addresses());
    let create = ratchet_client::api::CreateNamespaceRequest {
        name: "short".into(),
        max: Some(100),
        ..Default::default()
    };
    client.create_namespace(create).await.expect("a namespace");
    let error = client.raise("short", 1, 101).await.expect_err("above max");
    let (code, text) = refused(&error);
    assert_eq!(code, Code::OutOfRange);
    assert!(text.contains("the floor of key 1 is 101; it must lie between 1 and 100"), "{text}");
    let error = client.raise("short", 1, 0).await.expect_err("0");
    assert_eq!(refused(&error).0, Code::OutOfRange);
    let raised = client.raise("short", 1, 100).await.expect("a floor");
    assert!(raised.is_higher);
    let error = client.next("short", 1).await.expect_err("used up");
    assert_eq!(refused(&error).0, Code::OutOfRange);
    let raised = client.raise("short", 1, 100).await.expect("a floor");
    assert_eq!((raised.floor, raised.is_higher), (100, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_set_goes_upwards_only_and_has_no_options_but_one() {
    let cluster = Cluster::start(1, quiet).await;
    let address = cluster.nodes[&1].addresses().resp.expect("a port");
    let mut socket = TcpStream::connect(address).await.expect("a connection");
    let mut ask = async |line: &str| {
        socket.write_all(format!("{line}\r\n").as_bytes()).await.expect("sent");
        let mut reply = vec![0; 1_024];
        let read = in_time("a reply", socket.read(&mut reply)).await.expect("a reply");
        String::from_utf8_lossy(&reply[..read]).into_owned()
    };
    assert_eq!(ask("SET book:42 1000").await, "+OK\r\n");
    assert_eq!(ask("INCR book:42").await, ":1001\r\n");
    let lower = ask("SET book:42 999").await;
    assert!(lower.starts_with("-ERR value 999 is below 1001"), "{lower}");
    // As when the answer of a first try was lost.
    assert_eq!(ask("SET book:42 1001").await, "+OK\r\n");
    assert_eq!(ask("GET book:42").await, "$4\r\n1001\r\n");
    let option = ask("SET book:42 2000 EX 10").await;
    assert!(option.contains("no option 'EX'"), "{option}");
    let text = ask("SET book:42 abc").await;
    assert!(text.contains("it is 'abc'"), "{text}");
    let zero = ask("SET book:42 0").await;
    assert!(zero.starts_with("-ERR value 0 is below 1001"), "{zero}");
    assert_eq!(ask("GET book:42").await, "$4\r\n1001\r\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn floors_are_raised_over_http() {
    let cluster = Cluster::start(1, quiet).await;
    let address = cluster.nodes[&1].addresses().http.expect("a port");
    let post = async |path: &str, body: &str| {
        let page =
            http(address, &format!("POST {path}"), "Content-Type: application/json\r\n", body)
                .await;
        (page.status, page.body)
    };
    let (status, body) = post("/v1/namespaces/book/keys/42:raise?at_least=1000", "").await;
    assert_eq!((status, body.as_str()), (200, r#"{"floor":"1000","raised":true}"#));
    let (status, body) = post("/v1/namespaces/book/keys/42:next", "").await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("1001"), "{body}");
    let many = r#"{"ids":["42",43],"at_least":["5",6]}"#;
    let (status, body) = post("/v1/namespaces/book:raise", many).await;
    assert_eq!((status, body.as_str()), (200, r#"{"floors":["1001","6"]}"#));
    let (status, body) = post("/v1/namespaces/book:current", r#"{"ids":[42,43,44]}"#).await;
    assert_eq!((status, body.as_str()), (200, r#"{"last":["1001","6","0"]}"#));
    let (status, body) = post("/v1/namespaces/book/keys/42:raise?at_least=0", "").await;
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("it must lie between 1 and"), "{body}");
    let (status, body) = post("/v1/namespaces/book/keys/42:raise", "").await;
    assert_eq!(status, 409, "{body}");
    let (status, body) = post("/v1/namespaces/book:raise", r#"{"ids":[1],"at_least":[]}"#).await;
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("1 keys and 0 floors"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sections_are_raised_over_http_also_at_a_follower_and_only_where_ids_share_them() {
    let cluster = Cluster::start(3, quiet).await;
    let leader = cluster.leader().await;
    let client = rust_client::client_of(&cluster, &[leader]);
    client.next("uid", 8).await.expect("a number");
    let port = |node: u64| cluster.nodes[&node].addresses().http.expect("a port");
    let raise = async |node: u64, namespace: &str| {
        let body = r#"{"ids": ["7", "100000"], "at_least": [900, 50000]}"#;
        let path = format!("POST /v1/namespaces/{namespace}/sections:raise");
        http(port(node), &path, "", body).await
    };
    let page = raise(other_than(leader), "uid").await;
    assert_eq!(page.status, 200, "{}", page.body);
    assert_eq!(page.body, r#"{"floors":["900","50000"]}"#);
    for (id, next) in [(8, 901), (7, 901), (99_999, 901), (100_001, 50_001), (200_000, 1)] {
        assert_eq!(client.next("uid", id).await.expect("a number"), next, "{id}");
    }
    let floors = client.raise_sections("uid", [(3, 5)]).await;
    assert_eq!(floors.expect("a floor"), [900]);
    let page = raise(leader, "book").await;
    assert_eq!(page.status, 409, "{}", page.body);
    assert!(page.body.contains("has a section of its own"), "{}", page.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_floors_that_fails_says_that_nothing_was_done_only_if_none_is_raised() {
    let cluster = Cluster::start(3, quiet).await;
    let leader = cluster.leader().await;
    let create = CreateNamespaceRequest {
        name: "few".into(),
        keys_max: Some(2),
        ..CreateNamespaceRequest::default()
    };
    cluster.client(leader).admin.create_namespace(create).await.expect("a namespace");
    for node in [leader, other_than(leader)] {
        let mut client = cluster.client(node);
        let many = RaiseManyRequest {
            namespace: "few".into(),
            ids: vec![1, 2, 3],
            at_least: vec![50; 3],
            ..RaiseManyRequest::default()
        };
        let refused = client.sequencer.raise_many(many).await.expect_err("a third key");
        assert_eq!(reason_of(&refused), (Reason::KeysMaxReached, Outcome::Unknown), "{refused}");
        assert!(refused.message().contains("floors of the request may be raised"), "{refused}");
        let mut raised = 0;
        for key in [1, 2, 3] {
            let last = client.current("few", id(key)).await.expect("an answer");
            raised += u64::from(last == Some(50));
        }
        assert_eq!(raised, 2, "as many as there may be");
        let one = RaiseRequest {
            namespace: "few".into(),
            key: id(9),
            at_least: 50,
            ..RaiseRequest::default()
        };
        let refused = client.sequencer.raise(one).await.expect_err("a third key");
        assert_eq!(reason_of(&refused), (Reason::KeysMaxReached, Outcome::NotDone), "{refused}");
    }
}
