//! Requests that wait hold no more memory than is configured, however many there are.

use std::{sync::Arc, time::Duration};

use crate::common::{
    channel,
    cluster::Cluster,
    eventually, http, http2, id, in_time,
    invoices::{INVOICE, create_invoices},
    other_than, until, with_http, with_resp,
};
use bytes::Bytes;
use futures::future::join_all;
use prost::Message;
use ratchet::{
    node::{Config, NodeContext},
    proto::{
        reason_of,
        v1::{
            CreateNamespaceRequest, CurrentManyRequest, ListNamespacesRequest, NextIdsRequest,
            NextManyRequest, NextRequest, Outcome, Reason, ids_client::IdsClient,
        },
    },
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_request::MessageRequest,
};

const LIMIT_MB: u64 = 16;

/// A node of three that is alone, and so has no leader.
async fn alone() -> (Cluster, Arc<NodeContext>) {
    let mut cluster = Cluster::configured(3, |config| {
        config.memory_requests_max_mb = LIMIT_MB;
        with_http(config);
        with_resp(config);
    });
    cluster.start_node(2).await;
    let shared = cluster.nodes[&2].context().clone();
    (cluster, shared)
}

/// Two threads serve the node, however many the machine has: so many requests come together at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_for_a_leader_hold_no_more_memory_than_is_configured() {
    let (cluster, shared) = alone().await;
    let client = cluster.client(2);
    // On a slow machine all may be answered before anybody looks at what they hold: then they are sent again.
    let failures = eventually("requests that are seen to hold memory", async || {
        // Half a megabyte each, and as much for the copy that would be forwarded.
        let asked = (0..3 * LIMIT_MB).map(|_| {
            let mut sequencer = client.sequencer.clone();
            let request = NextManyRequest {
                namespace: "book".into(),
                ids: (0..1 << 16).collect(),
                timeout_ms: 500,
                ..NextManyRequest::default()
            };
            async move {
                let answers = sequencer.next_many(tokio_stream::once(request)).await;
                let answer = answers.unwrap().into_inner().message().await.expect("no error");
                answer.expect("an answer").failure.expect("a failure")
            }
        });
        let mut most = 0;
        let watching = async {
            loop {
                most = most.max(shared.metrics.request_bytes.get());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let failures = tokio::select! {
            failures = join_all(asked) => failures,
            () = watching => unreachable!("it goes on"),
        };
        // At times it is more: two that come together see each other's bytes before one is refused.
        assert!(most <= (LIMIT_MB as i64 + 2) << 20, "{most} bytes");
        (most > 1 << 20).then_some(failures)
    })
    .await;
    let of = |code: Code| failures.iter().filter(move |f| f.code == code as i32);
    let (waited, refused) = (of(Code::Unavailable), of(Code::ResourceExhausted));
    assert_eq!(waited.count() + refused.clone().count(), failures.len(), "{failures:?}");
    for failure in refused {
        for part in ["memory_requests_max_mb is 16", "try again in"] {
            assert!(failure.message.contains(part), "{failure:?}");
        }
    }
    until("the memory is free", || shared.metrics.request_bytes.get() == 0).await;
}

/// Ids of ten bytes each, so that their message comes in several parts.
const LARGE: std::ops::Range<u64> = 1 << 63..(1 << 63) + 5_000;

fn many(ids: std::ops::Range<u64>) -> NextManyRequest {
    NextManyRequest { namespace: "book".into(), ids: ids.collect(), ..NextManyRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_next_message_finds_no_memory_is_not_read_until_there_is_some() {
    let cluster = Cluster::start(1, |config| config.memory_requests_max_mb = LIMIT_MB).await;
    let shared = cluster.nodes[&1].context().clone();
    let (messages, stream) = tokio::sync::mpsc::channel(1);
    let answers = cluster.client(1).sequencer.next_many(ReceiverStream::new(stream)).await;
    let mut answers = answers.expect("a stream").into_inner();
    messages.send(many(0..1)).await.expect("the stream is open");
    let first = in_time("an answer", answers.message()).await.expect("no error");
    assert_eq!(first.expect("an answer").failure, None);
    let all = shared.request_memory.reserve((LIMIT_MB << 20) as usize).unwrap();
    messages.send(many(LARGE)).await.expect("the stream is open");
    let waiting = tokio::time::timeout(Duration::from_millis(300), answers.message()).await;
    assert!(waiting.is_err(), "it is not refused: {waiting:?}");
    drop(all);
    let second = in_time("an answer", answers.message()).await.expect("no error");
    assert_eq!(second.expect("an answer").failure, None);
    until("the memory is free", || shared.metrics.request_bytes.get() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ends_for_want_of_memory_does_not_say_that_its_messages_did_nothing() {
    let cluster = Cluster::start(1, |config| {
        config.memory_requests_max_mb = LIMIT_MB;
        // The message has begun to arrive within this time, on a slow machine, too.
        config.request_timeout_ms = 3_000;
        config.request_timeout_max_ms = 3_000;
    })
    .await;
    let shared = cluster.nodes[&1].context().clone();
    let _all = shared.request_memory.reserve((LIMIT_MB << 20) as usize).unwrap();
    let answers = cluster.client(1).sequencer.next_many(tokio_stream::once(many(LARGE))).await;
    let ended = in_time("an end", answers.expect("a stream").into_inner().message()).await;
    let ended = ended.expect_err("there is no memory");
    assert_eq!(reason_of(&ended), (Reason::DeadlineExceeded, Outcome::Unknown), "{ended}");
    assert!(ended.message().contains("memory_requests_max_mb is 16"), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_fails_answers_what_it_has_read_before() {
    let (cluster, _) = alone().await;
    let waits = NextManyRequest { id: 7, timeout_ms: 500, ..many(0..1) };
    // More than a message may have.
    let names = (0..5_000).map(|n| Bytes::from(format!("{n:0256}")));
    let too_long = NextManyRequest { ids: Vec::new(), names: names.collect(), ..many(0..1) };
    let messages = tokio_stream::iter([waits, too_long]);
    let answers = cluster.client(2).sequencer.next_many(messages).await;
    let mut answers = answers.expect("a stream").into_inner();
    let answer = in_time("an answer", answers.message()).await.expect("not the end");
    let answer = answer.expect("an answer");
    assert_eq!((answer.id, answer.failure.expect("no leader").reason()), (7, Reason::NotFounded));
    let ended = in_time("an end", answers.message()).await.expect_err("a long message");
    assert_eq!(ended.code(), Code::OutOfRange, "{ended}");
}

fn ids(namespace: &str) -> NextIdsRequest {
    NextIdsRequest { namespace: namespace.into(), ..NextIdsRequest::default() }
}

/// The answer to a Redis client.
async fn redis(cluster: &Cluster, command: &str) -> String {
    let at = cluster.nodes[&2].addresses().resp.expect("a port");
    let mut stream = TcpStream::connect(at).await.unwrap();
    let command = format!("{command}\r\n");
    stream.write_all(command.as_bytes()).await.unwrap();
    let mut reply = [0; 512];
    let read = in_time("a reply", stream.read(&mut reply)).await.unwrap();
    String::from_utf8_lossy(&reply[..read]).into_owned()
}

/// No leader answers here, so a request that waits for one is refused with another code.
#[tokio::test(flavor = "multi_thread")]
async fn requests_for_ids_that_no_namespace_fits_wait_for_no_leader() {
    let (cluster, _) = alone().await;
    let mut client = IdsClient::new(channel(cluster.address(2)));
    let many = (0..50_000).map(|i| (format!("p{i}"), i));
    let asked = [
        (ids(&"x".repeat(1_000_000)), "has 1000000 characters"),
        (ids(""), "the namespace is empty"),
        (NextIdsRequest { parameters: many.collect(), ..ids("orders") }, "50000 parameters"),
        (
            NextIdsRequest { parameters: [("x".repeat(33), 1)].into(), ..ids("orders") },
            "has 33 bytes",
        ),
        (NextIdsRequest { count: Some(0), ..ids("orders") }, "count is 0"),
    ];
    for (request, why) in &asked {
        let refused = client.next(request.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains(why), "{refused}");
    }
    let messages = asked.clone().map(|(request, _)| request);
    let answers = client.next_many(tokio_stream::iter(messages)).await;
    let mut answers = answers.unwrap().into_inner();
    for (_, why) in asked {
        let answer = answers.message().await.unwrap().expect("an answer");
        let error = answer.error.expect("a refusal");
        assert_eq!(error.code, Code::InvalidArgument as i32, "{error:?}");
        assert!(error.message.contains(why), "{error:?}");
    }
    for command in ["INCR id:", "INCR id:a/b"] {
        let reply = redis(&cluster, command).await;
        assert!(reply.starts_with("-ERR the namespace"), "{reply}");
    }
    let at = cluster.nodes[&2].addresses().http.expect("a port");
    for (path, body) in
        [("a%20b", "{}"), ("a%20b", "{\"key\": \"1\"}"), ("orders", "{\"count\": 0}")]
    {
        let path = format!("POST /v1/namespaces/{path}/ids:next");
        let page = http(at, &path, "", body).await;
        assert_eq!(page.status, 400, "{}", page.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_ids_that_wait_are_counted_at_every_interface() {
    let (cluster, shared) = alone().await;
    let bytes = || shared.metrics.request_bytes.get();
    let mut client = IdsClient::new(channel(cluster.address(2)));
    let name = "a-name-whose-bytes-are-counted";
    let request = NextIdsRequest {
        parameters: (0..100).map(|i| (format!("parameter-{i}"), i)).collect(),
        ..ids(name)
    };
    let mut waiting = client.clone();
    let waiting = tokio::spawn(async move { waiting.next(request).await });
    // More than the name and the parameters with their values, twice: the request waits, and a copy is forwarded.
    until("the request is counted", || bytes() > 2 * (30 + 100 * (12 + 8))).await;
    waiting.abort();
    until("the memory is free", || bytes() == 0).await;

    let _all = shared.request_memory.reserve((LIMIT_MB << 20) as usize).unwrap();
    let refused = client.next(ids(name)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let reply = redis(&cluster, "INCR id:orders").await;
    assert!(reply.starts_with("-TRYAGAIN waiting requests"), "{reply}");
    let at = cluster.nodes[&2].addresses().http.expect("a port");
    let page = http(at, "POST /v1/namespaces/orders/ids:next", "", "{}").await;
    assert_eq!(page.status, 429, "{}", page.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_over_http_that_nobody_could_answer_is_told_so_however_many_others_wait() {
    let cluster = Cluster::start(1, |config| {
        config.memory_requests_max_mb = LIMIT_MB;
        with_http(config);
    })
    .await;
    let shared = cluster.nodes[&1].context().clone();
    let at = cluster.nodes[&1].addresses().http.expect("a port");
    let _all = shared.request_memory.reserve((LIMIT_MB << 20) as usize).unwrap();
    // Their answer is long enough to count.
    let keys: Vec<u64> = (1..=50).collect();
    let ids = json!({ "ids": keys }).to_string();
    let floors = json!({ "ids": keys, "at_least": keys }).to_string();
    for (what, body, status) in [
        ("book:next", r#"{"names": ["a"]}"#, 400),
        ("book:next", r#"{"ids": []}"#, 400),
        ("book:next", r#"{"ids": [1], "counts": [1, 2]}"#, 400),
        ("book:raise", r#"{"names": ["a"], "at_least": [1]}"#, 400),
        ("book:current", r#"{"names": ["a"]}"#, 400),
        ("none:next", r#"{"ids": [1]}"#, 404),
        ("none:next", &ids, 404),
        ("none:raise", &floors, 404),
        ("book:next", &ids, 429),
        ("book:raise", &floors, 429),
        ("uid/sections:raise", &floors, 429),
        ("book:current", &ids, 429),
    ] {
        let page = http(at, &format!("POST /v1/namespaces/{what}"), "", body).await;
        assert_eq!(page.status, status, "{what} {body}: {}", page.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_caller_is_told_when_to_try_again_and_is_served_once_there_is_room() {
    let (mut cluster, shared) = alone().await;
    let all = shared.request_memory.reserve((LIMIT_MB << 20) as usize).unwrap();
    let refused = cluster.client(2).next(1).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let pushback = refused.metadata().get("grpc-retry-pushback-ms");
    assert_eq!(pushback.expect("when to try again"), "100");
    drop(all);
    cluster.start_node(1).await;
    cluster.start_node(3).await;
    cluster.found().await;
    cluster.client(2).next_at_last(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_a_warm_key_is_answered_however_many_others_wait() {
    let cluster = Cluster::start(1, |config| config.memory_requests_max_mb = LIMIT_MB).await;
    let shared = cluster.nodes[&1].context().clone();
    let mut client = cluster.client(1);
    client.next(1).await.unwrap();
    let _all = shared.request_memory.reserve((LIMIT_MB << 20) as usize).unwrap();
    client.next(1).await.unwrap();
    client.next_by_stream(1).await.unwrap();
    let cold = client.next(2).await.unwrap_err();
    assert_eq!(cold.code(), Code::ResourceExhausted, "{cold}");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_keys_that_wait_are_counted_and_keys_with_numbers_are_not() {
    const KEYS: u64 = 60_000;
    let cluster = Cluster::start(1, |config| config.memory_requests_max_mb = LIMIT_MB).await;
    let shared = cluster.nodes[&1].context().clone();
    let ask = async |ids: std::ops::Range<u64>| {
        let request = NextManyRequest {
            namespace: "book".into(),
            ids: ids.collect(),
            ..NextManyRequest::default()
        };
        let mut client = cluster.client(1).sequencer;
        let answers = client.next_many(tokio_stream::once(request)).await;
        let answer = answers.expect("a stream").into_inner().message().await;
        answer.expect("no error").expect("an answer")
    };
    let failure = ask(0..KEYS).await.failure.expect("more than all may hold");
    assert_eq!(failure.code, Code::ResourceExhausted as i32);
    assert!(failure.message.contains("fewer keys at a time"), "{failure:?}");
    for first in (0..KEYS).step_by(10_000) {
        let failure = ask(first..first + 10_000).await.failure;
        assert_eq!(failure, None, "a part of them fits");
    }
    assert_eq!(ask(0..KEYS).await.failure, None, "they have numbers now");
    until("the memory is free", || shared.metrics.request_bytes.get() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_has_its_share_of_the_leaders_memory_whichever_node_it_asks() {
    let cluster = Cluster::start(3, |config| {
        config.memory_requests_max_mb = LIMIT_MB;
    })
    .await;
    let leader = cluster.leader().await;
    let metrics = cluster.nodes[&leader].context().metrics.clone();
    for (asked, first) in [(leader, 0), (other_than(leader), 1 << 20)] {
        let ask = async |ids: std::ops::Range<u64>| {
            let request = NextManyRequest {
                namespace: "book".into(),
                ids: ids.collect(),
                ..NextManyRequest::default()
            };
            let mut client = cluster.client(asked).sequencer;
            let answers = client.next_many(tokio_stream::once(request)).await;
            let answer = answers.expect("a stream").into_inner().message().await;
            answer.expect("no error").expect("an answer").failure
        };
        // More than half of the memory, which others than this address may have, and less than all.
        let failure = ask(first..first + 25_000).await.expect("more than its share");
        assert!(failure.message.contains("of your address"), "{failure:?}");
        assert_eq!(ask(first..first + 15_000).await, None, "its share");
    }
    until("the memory is free", || metrics.request_bytes.get() == 0).await;
}

/// The numbers may be taken, so the refusal is no other. A follower that took it for a sign that the leader is deposed would
/// ask again until the deadline.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_memory_for_a_gapless_request_tells_the_caller_whichever_node_was_asked() {
    let cluster = Cluster::start(3, |config| config.memory_requests_max_mb = LIMIT_MB).await;
    create_invoices(&mut cluster.client(1), |_| {}).await;
    let ask = async |node: u64, request: &'static str| {
        let request = NextRequest {
            namespace: INVOICE.into(),
            key: id(7),
            request_id: Some(Bytes::from_static(request.as_bytes())),
            ..NextRequest::default()
        };
        let answer = cluster.client(node).sequencer.next(request).await;
        answer.map(|answer| answer.into_inner().first)
    };
    let asked = eventually("both are asked while one leads", async || {
        let leader = cluster.leader().await;
        let shared = cluster.nodes[&leader].context().clone();
        let leads = || {
            let now = shared.group.leadership().borrow().clone();
            (now.term, now.own.is_some())
        };
        let led = leads();
        let asked = [(leader, "one"), (other_than(leader), "another")];
        let all = shared.request_memory.reserve((LIMIT_MB << 20) as usize).ok()?;
        let mut told = Vec::new();
        for (node, request) in asked {
            told.push(in_time("a refusal", ask(node, request)).await);
        }
        drop(all);
        if leads() != led {
            return None;
        }
        for refused in told {
            let refused = refused.expect_err("no memory");
            let reason = reason_of(&refused);
            assert_eq!(reason, (Reason::OutcomeUnknown, Outcome::Unknown), "{refused}");
            assert!(refused.message().contains("memory_requests_max_mb is 16"), "{refused}");
        }
        Some(asked)
    })
    .await;
    let leader = asked[0].0;
    // Whether a refused message took its number or not, it gets it now, and no number is left out.
    let mut numbers = Vec::new();
    for (node, request) in asked.into_iter().chain([(leader, "a third one")]) {
        numbers.push(ask(node, request).await.expect("a number"));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_never_end_hold_no_more_memory_than_is_configured() {
    let (cluster, shared) = alone().await;
    let mut held = Vec::new();
    // As much as the windows allow, of messages of 1 MiB.
    for _ in 0..150 {
        let mut stream = http2::greeted(cluster.address(2)).await;
        let mut says = Vec::new();
        for call in [1, 3] {
            says.extend(http2::call(call, "/ratchet.v1.Sequencer/Next"));
            says.extend(http2::data(call, &[0, 0, 0x0f, 0xff, 0xff]));
            says.extend(http2::data(call, &[0; 15_000]).repeat(4));
        }
        // The node hangs up on connections that it refuses.
        let _ = stream.write_all(&says).await;
        held.push(stream);
    }
    until("a refusal", || shared.metrics.requests_refused.get() > 0).await;
    let bytes = shared.metrics.request_bytes.get();
    assert!(bytes > 0 && bytes <= (LIMIT_MB as i64 + 1) << 20, "{bytes}");
    drop(held);
    until("the memory is free", || shared.metrics.request_bytes.get() == 0).await;
}

/// Calls over one connection whose answers nobody reads: it opens no window.
async fn unread(cluster: &Cluster, path: &str, message: &impl Message, calls: u32) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    unread_over(socket, cluster, path, message, calls).await
}

/// As [`unread`], over this socket.
async fn unread_over(
    socket: TcpSocket, cluster: &Cluster, path: &str, message: &impl Message, calls: u32,
) -> TcpStream {
    let initial_window_size = 4;
    let stream = socket.connect(cluster.address(1)).await.expect("a connection");
    let mut stream = http2::greet(stream, &[(initial_window_size, 0)]).await;
    let message = message.encode_to_vec();
    let length = (message.len() as u32).to_be_bytes();
    let body = [&[0][..], &length, &message].concat();
    for call in 0..calls {
        let id = 2 * call + 1;
        let says = [http2::call(id, path), http2::last_data(id, &body)].concat();
        stream.write_all(&says).await.expect("a call");
    }
    stream
}

/// A node with namespaces that have long descriptions.
async fn with_namespaces(change: impl Fn(&mut Config)) -> Cluster {
    let cluster = Cluster::start(1, |config| {
        config.memory_requests_max_mb = LIMIT_MB;
        change(config);
    })
    .await;
    for i in 0..100 {
        let create = CreateNamespaceRequest {
            name: format!("namespace-{i}"),
            description: Some("d".repeat(256)),
            ..CreateNamespaceRequest::default()
        };
        cluster.client(1).admin.create_namespace(create).await.expect("a namespace");
    }
    cluster
}

const LIST: &str = "/ratchet.v1.Admin/ListNamespaces";

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_administration_that_nobody_reads_hold_no_more_memory_than_is_configured() {
    let cluster = with_namespaces(|config| config.client_share_percent = 100).await;
    let metrics = cluster.nodes[&1].context().metrics.clone();
    let held = unread(&cluster, LIST, &ListNamespacesRequest {}, 1_000).await;
    until("a refusal", || metrics.requests_refused.get() > 0).await;
    let bytes = metrics.request_bytes.get();
    assert!(bytes > (LIMIT_MB as i64 - 1) << 20, "{bytes}");
    assert!(bytes <= (LIMIT_MB as i64 + 1) << 20, "{bytes}");
    let list = async || cluster.client(1).admin.list_namespaces(ListNamespacesRequest {}).await;
    let refused = list().await.expect_err("the memory is held");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    drop(held);
    until("the memory is free", || metrics.request_bytes.get() == 0).await;
    assert_eq!(list().await.expect("a list").into_inner().namespaces.len(), 102);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_one_address_leave_memory_to_others() {
    let cluster = with_namespaces(|_| {}).await;
    let metrics = cluster.nodes[&1].context().metrics.clone();
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 2], 0).into()).expect("an address of this machine");
    let list = ListNamespacesRequest {};
    let held = unread_over(socket, &cluster, LIST, &list, 1_000).await;
    until("a refusal", || metrics.requests_refused.get() > 0).await;
    let bytes = metrics.request_bytes.get();
    assert!(bytes <= (LIMIT_MB as i64 / 2 + 1) << 20, "{bytes}");
    let listed = cluster.client(1).admin.list_namespaces(list).await;
    listed.expect("room for another address");
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_unread_answer_holds_is_counted_whatever_was_asked() {
    let cluster = with_namespaces(|_| {}).await;
    let metrics = cluster.nodes[&1].context().metrics.clone();
    let create = CreateNamespaceRequest {
        name: "orders".into(),
        format: Some("snowflake".into()),
        ..CreateNamespaceRequest::default()
    };
    cluster.client(1).admin.create_namespace(create).await.expect("a namespace");
    let many = CurrentManyRequest {
        namespace: "book".into(),
        ids: (0..2_000).collect(),
        ..Default::default()
    };
    let made = NextIdsRequest { count: Some(1_000), as_text: true, ..ids("orders") };
    let described = ServerReflectionRequest {
        message_request: Some(MessageRequest::FileContainingSymbol("ratchet.v1.Admin".into())),
        ..ServerReflectionRequest::default()
    };
    let wait = async |path: &str, stream: TcpStream| {
        until(path, || metrics.request_bytes.get() >= 8_000).await;
        drop(stream);
        until("the memory is free", || metrics.request_bytes.get() == 0).await;
    };
    let path = "/ratchet.v1.Sequencer/CurrentMany";
    wait(path, unread(&cluster, path, &many, 1).await).await;
    let path = "/ratchet.v1.Ids/Next";
    wait(path, unread(&cluster, path, &made, 1).await).await;
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    wait(path, unread(&cluster, path, &described, 1).await).await;
    wait(LIST, unread(&cluster, LIST, &ListNamespacesRequest {}, 1).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_ids_holds_nothing_once_its_answer_is_read() {
    let cluster = with_namespaces(|_| {}).await;
    let metrics = cluster.nodes[&1].context().metrics.clone();
    let create = CreateNamespaceRequest {
        name: "orders".into(),
        format: Some("snowflake".into()),
        ..CreateNamespaceRequest::default()
    };
    cluster.client(1).admin.create_namespace(create).await.expect("a namespace");
    let (messages, stream) = tokio::sync::mpsc::channel(1);
    let mut client = IdsClient::new(channel(cluster.address(1)));
    let answers = client.next_many(ReceiverStream::new(stream)).await;
    let mut answers = answers.expect("a stream").into_inner();
    for _ in 0..2 {
        let ask = NextIdsRequest { count: Some(1_000), ..ids("orders") };
        messages.send(ask).await.expect("the stream is open");
        let answer = in_time("an answer", answers.message()).await.expect("no error");
        assert_eq!(answer.expect("an answer").error, None);
        until("the memory is free", || metrics.request_bytes.get() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_answer_nobody_reads_is_given_up_and_its_connection_is_not() {
    // A slow machine must not take so long between a connection and its first call.
    let cluster = with_namespaces(|config| config.connection_idle_ms = 10_000).await;
    let metrics = cluster.nodes[&1].context().metrics.clone();
    let mut stream = unread(&cluster, LIST, &ListNamespacesRequest {}, 1).await;
    let given_up = async {
        loop {
            let frame = http2::read(&mut stream).await.expect("the connection goes on");
            if frame.kind == http2::RST_STREAM {
                break frame.stream;
            }
        }
    };
    assert_eq!(in_time("the end of the call", given_up).await, 1);
    until("the memory is free", || metrics.request_bytes.get() == 0).await;
}
