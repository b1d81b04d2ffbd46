//! The connections, calls and memory of callers count for their principal, at every node; and connections of strangers keep
//! nobody out.

use std::{
    net::SocketAddr,
    ops::Range,
    time::{Duration, Instant},
};

use ratchet::{
    metrics::Interface,
    node::KNOWN_WITHIN,
    proto::{
        reason_of,
        v1::{
            CreateNamespaceRequest, KeyKind, NextManyRequest, NextManyResponse, Reason, Route,
            WatchRouteRequest, admin_client::AdminClient, sequencer_client::SequencerClient,
        },
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::{Code, Status, Streaming};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::common::{
    closed::{ADMIN, Asking, Closed, asking, create, everything, grant, granting, next, told},
    eventually, http2, in_time, other_than,
};

/// The addresses of the ports for gRPC, HTTP and Redis clients of a node.
fn ports(closed: &Closed, node: u64) -> [SocketAddr; 3] {
    let at = closed.cluster.nodes[&node].addresses();
    [at.client, at.http.expect("a port"), at.resp.expect("a port")]
}

/// Sends this, and returns once the node has ended the connection.
async fn until_ended(mut stream: TcpStream, says: &[u8]) {
    stream.write_all(says).await.expect("sent");
    let ended = async {
        let mut bytes = [0; 1_024];
        while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    };
    in_time("the end of a stranger's connection", ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_end_over_which_nothing_comes_that_is_known_and_others_stay() {
    let closed = Closed::start().await;
    let node = other_than(closed.cluster.leader().await);
    let [grpc, http, redis] = ports(&closed, node);
    let open = |interface| {
        let metrics = &closed.cluster.nodes[&node].context().metrics;
        metrics.client_connections.of(interface).get()
    };
    let token = closed.token("next");
    let known = closed.at(node, token);
    told(&known, "book").await.expect("a number");
    let asks = format!(
        "POST /v1/namespaces/book/keys/1:next HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: 0\r\n\r\n"
    );
    let mut by_http = answered(http, &asks, "HTTP/1.1 200").await;
    // It may not wait long before it logs in.
    let logs_in = format!("AUTH {token}\r\n");
    let mut by_redis = answered(redis, &logs_in, "+OK").await;
    let only_these = async || {
        let open = [Interface::grpc, Interface::http, Interface::redis].map(open);
        (open == [1, 1, 1]).then_some(())
    };
    eventually("only these are connected", only_these).await;
    let connect = async |at| TcpStream::connect(at).await.expect("a connection");
    let watches = async {
        let mut health = HealthClient::new(asking(grpc, None));
        let watched = health.watch(HealthCheckRequest::default()).await;
        let mut watched = watched.expect("a stream").into_inner();
        while watched.message().await.is_ok_and(|told| told.is_some()) {}
    };
    // Each has one call at most.
    tokio::join!(
        async { until_ended(http2::greeted(grpc).await, &[]).await },
        async { until_ended(connect(grpc).await, &[]).await },
        async { until_ended(connect(http).await, &[]).await },
        async { until_ended(connect(http).await, b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await },
        async { until_refused(connect(http).await).await },
        async { until_ended(connect(redis).await, &[]).await },
        async { until_ended(connect(redis).await, b"PING\r\n").await },
        in_time("the end of what a stranger watches", watches),
    );
    next(&known, "book").await.expect("a number");
    answers(&mut by_http, &asks, "HTTP/1.1 200").await;
    answers(&mut by_redis, "INCR book:1\r\n", ":").await;
    eventually("nobody else is connected", only_these).await;
}

/// Asks time after time whether the node is well, until it has ended the connection.
async fn until_refused(mut stream: TcpStream) {
    let asking = async {
        let mut told = [0; 1_024];
        while stream.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await.is_ok()
            && stream.read(&mut told).await.is_ok_and(|read| read > 0)
        {}
    };
    in_time("the end of a stranger's connection that is used all the time", asking).await;
}

/// Calls a method of the service that tells whether a node is well, about all of it.
async fn ask(stream: &mut TcpStream, call: u32, method: &str) -> std::io::Result<()> {
    let path = format!("/grpc.health.v1.Health/{method}");
    let says = [http2::call(call, &path), http2::last_data(call, &[0; 5])].concat();
    stream.write_all(&says).await
}

/// Whether a call is refused, which its first headers tell: they are its end. `None` if the connection ends, or its first call:
/// then the stranger's time is over.
async fn is_refused(stream: &mut TcpStream, call: u32) -> Option<bool> {
    loop {
        let frame = http2::read(stream).await.ok()?;
        let is_end = frame.flags & http2::END != 0;
        match (frame.kind, frame.stream) {
            (http2::HEADERS, of) if of == call => return Some(is_end),
            (http2::HEADERS, 1) if is_end => return None,
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_has_one_call_at_a_time_over_a_connection_and_the_next_once_it_is_answered() {
    let closed = Closed::start().await;
    let at = closed.cluster.address(other_than(closed.cluster.leader().await));
    // A machine that is busy may not come to the end of it in a stranger's time.
    let watches_and_asks = async || {
        let mut stream = http2::greeted(at).await;
        ask(&mut stream, 1, "Watch").await.ok()?;
        assert!(!is_refused(&mut stream, 1).await?, "it has no other call");
        ask(&mut stream, 3, "Check").await.ok()?;
        is_refused(&mut stream, 3).await
    };
    let refused = eventually("an answer in a stranger's time", watches_and_asks).await;
    assert!(refused, "a second call is let in");
    let asks_one_by_one = async || {
        let mut stream = http2::greeted(at).await;
        for call in (1..100).step_by(2) {
            ask(&mut stream, call, "Check").await.ok()?;
            let refused = is_refused(&mut stream, call).await?;
            assert!(!refused, "call {call}, although all before are answered");
            loop {
                let frame = http2::read(&mut stream).await.ok()?;
                if (frame.kind, frame.stream) == (http2::HEADERS, call) {
                    break;
                }
            }
        }
        Some(())
    };
    eventually("all are answered in a stranger's time", asks_one_by_one).await;
}

/// How many of 10 000 pings are answered before the connection ends.
async fn pings_answered(at: SocketAddr) -> usize {
    const PINGS: usize = 10_000;
    let (mut answers, mut asks) = http2::greeted(at).await.into_split();
    // Beside the counting: the node may not read on.
    let asking = tokio::spawn(async move {
        let all = http2::ping().repeat(PINGS);
        asks.write_all(&all).await.is_ok().then_some(asks)
    });
    let mut answered = 0;
    let counting = async {
        while answered < PINGS
            && let Ok(frame) = http2::read(&mut answers).await
        {
            answered += usize::from((frame.kind, frame.flags) == (http2::PING, http2::ACK));
        }
    };
    in_time("all answers, or the end of the connection", counting).await;
    asking.abort();
    answered
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_connection_brings_64_kib_and_one_where_anonymous_may_ask_brings_all() {
    let closed = Closed::start().await;
    // On a slow machine the stranger's time may be over before the first one is answered.
    eventually("pings are answered", async || {
        let answered = pings_answered(closed.cluster.address(1)).await;
        // Each has 17 bytes.
        assert!(answered <= (64 << 10) / 17, "{answered} pings are answered");
        (answered > 0).then_some(())
    })
    .await;
    let mut admin = closed.admin(1);
    admin.set_grants(granting("anonymous", None, &["next:*"])).await.expect("granted");
    let all = async || (pings_answered(closed.cluster.address(1)).await == 10_000).then_some(());
    eventually("the node has heard of it", all).await;
}

/// How many bytes of a request or a command are sent that never ends.
const SENT: usize = 900_000;

/// The most that the requests of node 1 hold while somebody sends this, and nothing after it: until the connection ends, or all
/// that was sent is held.
async fn most_held(closed: &Closed, at: SocketAddr, says: Vec<u8>) -> i64 {
    let held = closed.cluster.nodes[&1].context().metrics.request_bytes.clone();
    let (mut answers, mut asks) = TcpStream::connect(at).await.expect("a connection").into_split();
    // Beside the reading: the node may not read on.
    let asking = tokio::spawn(async move { asks.write_all(&says).await.is_ok().then_some(asks) });
    let (mut most, mut look) = (0, tokio::time::interval(Duration::from_millis(5)));
    let looking = async {
        let mut told = [0; 1_024];
        while most < SENT as i64 {
            tokio::select! {
                biased;
                _ = look.tick() => most = most.max(held.get()),
                read = answers.read(&mut told) => if !read.is_ok_and(|read| read > 0) { break },
            }
        }
    };
    in_time("the end of the connection, or all of it", looking).await;
    asking.abort();
    most
}

/// The beginning of a request over HTTP, and of a Redis client's command, each of which never ends.
fn unfinished() -> [Vec<u8>; 2] {
    let body = "x".repeat(SENT);
    let by_http = format!(
        "POST /v1/namespaces/book/keys/1:next HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
         {SENT:x}\r\n{body}\r\n"
    );
    let by_redis = format!("*2\r\n$4\r\nINCR\r\n$1000000\r\n{body}");
    [by_http.into_bytes(), by_redis.into_bytes()]
}

#[tokio::test(flavor = "multi_thread")]
async fn of_what_a_stranger_sends_over_http_or_to_redis_no_more_than_64_kib_are_held() {
    let closed = Closed::start().await;
    let [_, http, redis] = ports(&closed, 1);
    for ((at, least), says) in [(http, 0), (redis, 1)].into_iter().zip(unfinished()) {
        // The place of an argument of a command counts, too. Over HTTP the body is refused before it is read.
        let max = (64 << 10) + size_of::<Range<usize>>() as i64;
        // On a slow machine the stranger's time may be over before anybody looks at what is held.
        eventually("what is held", async || {
            let most = most_held(&closed, at, says.clone()).await;
            assert!(most <= max, "{at}: {most} bytes");
            (most >= least).then_some(())
        })
        .await;
    }
    // Where anonymous may do something, all arrives.
    let mut admin = closed.admin(1);
    admin.set_grants(granting("anonymous", None, &["next:*"])).await.expect("granted");
    for (at, says) in [http, redis].into_iter().zip(unfinished()) {
        eventually("the node has heard of it", async || {
            (most_held(&closed, at, says.clone()).await >= SENT as i64).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_body_without_a_token_is_refused_before_it_comes_and_one_with_a_token_is_read() {
    let closed = Closed::start().await;
    let node = other_than(closed.cluster.leader().await);
    let [_, at, _] = ports(&closed, node);
    let body = format!("{}{{\"ids\": [1]}}", " ".repeat(200_000));
    let head = |token: &str| {
        format!(
            "POST /v1/namespaces/book:next HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{token}\r\n",
            body.len()
        )
    };
    let _stranger = answered(at, &head(""), "HTTP/1.1 401").await;
    // Nobody says of a body in chunks how long it is.
    let chunked = "POST /v1/namespaces/book:next HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    let _stranger = answered(at, chunked, "HTTP/1.1 401").await;
    let header = format!("Authorization: Bearer {}\r\n", closed.token("next"));
    let _known = answered(at, &(head(&header) + &body), "HTTP/1.1 200").await;
    // A token that the node has not heard of yet may be shown with the first request, too.
    let leader = closed.cluster.leader().await;
    create(&mut closed.admin(leader), "new", "new", vec![grant("next:*")]).await.expect("a token");
    let says = head("Authorization: Bearer new\r\n") + &body;
    eventually("a number for the new token", async || {
        let mut new = TcpStream::connect(at).await.expect("a connection");
        // If the node cannot ask the leader in time, it says so before it has read the body.
        new.write_all(says.as_bytes()).await.ok()?;
        let mut told = vec![0; 1_024];
        let read = in_time("an answer", new.read(&mut told)).await.ok()?;
        told[..read].starts_with(b"HTTP/1.1 200").then_some(())
    })
    .await;
}

/// Sends this. Returns the beginning of the answer, which is empty if the connection ends.
async fn answer_to(stream: &mut TcpStream, says: &str) -> std::io::Result<String> {
    let asking = async {
        stream.write_all(says.as_bytes()).await?;
        let mut told = vec![0; 1_024];
        let read = stream.read(&mut told).await?;
        Ok::<_, std::io::Error>(told[..read].escape_ascii().to_string())
    };
    in_time("an answer", asking).await
}

/// Sends this, and sees that the answer begins so.
async fn answers(stream: &mut TcpStream, says: &str, answer: &str) {
    let told = answer_to(stream, says).await.expect("an answer");
    assert!(told.starts_with(answer), "{told}");
}

/// A connection over which this is sent first, and whose answer begins so. On a slow machine the stranger's time may be over
/// before it is sent: then it is sent over another one.
async fn answered(at: SocketAddr, says: &str, answer: &str) -> TcpStream {
    eventually("an answer in a stranger's time", async || {
        let began = Instant::now();
        let mut stream = TcpStream::connect(at).await.expect("a connection");
        let told = answer_to(&mut stream, says).await;
        let is_answer = told.as_ref().is_ok_and(|told| !told.is_empty());
        if !is_answer && began.elapsed() >= KNOWN_WITHIN {
            return None;
        }
        let told = told.expect("an answer");
        assert!(told.starts_with(answer), "{told}");
        Some(stream)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_who_take_every_connection_keep_nobody_out_who_is_known() {
    let closed = Closed::with(|config| config.client_connections_max = 16).await;
    let node = other_than(closed.cluster.leader().await);
    let at = closed.cluster.address(node);
    let metrics = closed.cluster.nodes[&node].context().metrics.clone();
    let mut strangers = Vec::new();
    for round in 0..8 {
        // From two addresses, more than there may be of each.
        for _ in 0..10 {
            strangers.push(TcpStream::connect(at).await.expect("a connection"));
            strangers.push(http2::connect_from_elsewhere(at).await);
        }
        let name = format!("known-{round}");
        create(&mut closed.admin(node), &name, &name, vec![grant("next:*")])
            .await
            .expect("a token");
        // Each is a connection of its own.
        told(&closed.at(node, &name), "book").await.expect("a number");
    }
    assert_eq!(metrics.client_connections_refused.get(Interface::grpc), 0);
    eventually("there are no more than there may be", async || {
        (metrics.client_connections.of(Interface::grpc).get() <= 16).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_has_its_share_of_calls_whatever_others_at_its_address_have() {
    let closed = Closed::with(|config| config.client_calls_max = 8).await;
    let node = other_than(closed.cluster.leader().await);
    for (token, name) in [("of-ci", "ci"), ("of-ci-too", "ci"), ("of-app", "app")] {
        create(&mut closed.admin(node), token, name, vec![grant("next:*")]).await.expect("a token");
        told(&closed.at(node, token), "book").await.expect("a number");
    }
    let watch = async |asking: &Asking| {
        let mut sequencer = SequencerClient::new(asking.clone());
        let watched = sequencer.watch_route(WatchRouteRequest {}).await;
        watched.map(|stream| stream.into_inner())
    };
    let mut held: Vec<Streaming<Route>> = Vec::new();
    for _ in 0..4 {
        held.push(watch(&closed.at(node, "of-ci")).await.expect("its share"));
    }
    // Another token of the same name is the same principal, over any connection.
    for token in ["of-ci", "of-ci-too"] {
        let refused: Status = watch(&closed.at(node, token)).await.expect_err("it has four");
        assert_eq!(reason_of(&refused).0, Reason::Busy, "{refused:?}");
        assert!(refused.message().starts_with("your principal has 4 calls"), "{refused:?}");
    }
    next(&closed.at(node, "of-app"), "book").await.expect("a number");
    drop(held);
    let ci = closed.at(node, "of-ci");
    eventually("there is room again", async || next(&ci, "book").await.ok()).await;
}

/// Takes a number of each of 1 000 gapless keys with long names, under a request id.
async fn take(asking: &Asking, request: &str) -> NextManyResponse {
    let message = NextManyRequest {
        namespace: "invoice".to_owned(),
        names: (0..1_000).map(|number| format!("{number:0>256}").into()).collect(),
        request_id: Some(request.to_owned().into()),
        ..NextManyRequest::default()
    };
    let mut sequencer = SequencerClient::new(asking.clone());
    let answers = sequencer.next_many(tokio_stream::once(message)).await.expect("a stream");
    answers.into_inner().message().await.expect("an answer").expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_remembered_of_requests_counts_for_the_principal_whichever_node_it_asks() {
    let closed = Closed::with(|config| config.request_ids_max_mb = 2).await;
    let leader = closed.cluster.leader().await;
    for name in ["ci", "app"] {
        create(&mut closed.admin(leader), name, name, vec![grant("next:*")])
            .await
            .expect("a token");
        for node in 1..=3 {
            told(&closed.at(node, name), "book").await.expect("a number");
        }
    }
    let created = CreateNamespaceRequest {
        name: "invoice".to_owned(),
        gapless: true,
        request_id_optional: true,
        key_kind: KeyKind::Name.into(),
        ..CreateNamespaceRequest::default()
    };
    let mut admin = AdminClient::new(closed.at(leader, ADMIN));
    admin.create_namespace(created).await.expect("created");
    let mut asked = 0;
    let full = loop {
        // By turns: the leader counts both for the caller that has asked.
        let node = [leader, other_than(leader)][asked % 2];
        match take(&closed.at(node, "ci"), &asked.to_string()).await.failure {
            None => asked += 1,
            Some(failure) => break failure,
        }
        assert!(asked < 10, "it is never full");
    };
    assert_eq!(asked, (1 << 20) / (1_000 * 280));
    assert_eq!(full.reason(), Reason::RequestIdsFull);
    assert!(full.message.contains("are remembered for your principal"), "{}", full.message);
    let another = take(&closed.at(other_than(leader), "app"), "of another").await;
    assert_eq!(another.failure, None, "another principal at the same address");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_may_have_its_share_of_connections_from_all_addresses_together() {
    let closed = Closed::with(|config| config.client_connections_max = 8).await;
    let node = closed.cluster.leader().await;
    let own: Vec<Asking> = (0..5).map(|_| closed.at(node, closed.token("next"))).collect();
    for asking in &own[..4] {
        told(asking, "book").await.expect("a number");
    }
    let refused = next(&own[4], "book").await.expect_err("half of eight are its share");
    assert_eq!(refused, Code::ResourceExhausted);
    create(&mut closed.admin(node), "another", "another", everything()).await.expect("a token");
    next(&closed.at(node, "another"), "book").await.expect("a number");
}
