//! Callers of one address cannot take the resources that all callers need: connections, calls and memory.

use crate::common::{channel, cluster::Cluster, eventually, http2, in_time, is_late, with_http};
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use ratchet::{
    metrics::Interface,
    node::Config,
    proto::{
        Refusal, reason_of,
        v1::{
            NextIdsRequest, NextManyRequest, Outcome, Reason, WatchRouteRequest,
            ids_client::IdsClient, sequencer_client::SequencerClient,
        },
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

async fn start(change: impl Fn(&mut Config)) -> Cluster {
    Cluster::start(1, change).await
}

const NEXT: &str = "/ratchet.v1.Sequencer/Next";

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_one_address_leave_connections_to_others() {
    let cluster = start(|config| config.client_connections_max = 16).await;
    let metrics = cluster.nodes[&1].context().metrics.clone();
    let refused = || metrics.client_connections_refused.get(Interface::grpc);
    let mut held = Vec::new();
    while refused() == 0 {
        held.push(http2::connect_from_elsewhere(cluster.address(1)).await);
        tokio::task::yield_now().await;
    }
    cluster.client(1).next(1).await.expect("room for another address");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_one_address_leave_status_pages_to_others() {
    let cluster = start(with_http).await;
    let at = cluster.nodes[&1].addresses().http.expect("a port");
    let watch = async |mut stream: TcpStream| {
        let request = b"GET /events HTTP/1.1\r\nHost: ratchet\r\n\r\n";
        stream.write_all(request).await.expect("sent");
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.expect("an answer");
        (String::from_utf8_lossy(&head).into_owned(), stream)
    };
    let mut watching = Vec::new();
    for _ in 0..32 {
        let (head, stream) = watch(http2::connect_from_elsewhere(at).await).await;
        assert_eq!(head, "HTTP/1.1 200");
        watching.push(stream);
    }
    let (head, _) = watch(http2::connect_from_elsewhere(at).await).await;
    assert_eq!(head, "HTTP/1.1 429", "half of the 64 are its share");
    let here = TcpStream::connect(at).await.expect("a connection");
    let (head, _here) = watch(here).await;
    assert_eq!(head, "HTTP/1.1 200", "room for another address");
    drop(watching);
    eventually("room once it watches no more", async || {
        let (head, _) = watch(http2::connect_from_elsewhere(at).await).await;
        (head == "HTTP/1.1 200").then_some(())
    })
    .await;
}

/// Has as many calls as an address may have, of the eight that a node has, and sees that it may have no more.
async fn hold_calls(stream: TcpStream) -> TcpStream {
    let mut stream = http2::greet(stream, &[]).await;
    for call in 0..5 {
        stream.write_all(&http2::call(2 * call + 1, NEXT)).await.expect("a call");
    }
    let refused = async {
        loop {
            let frame = http2::read(&mut stream).await.expect("a frame");
            if frame.kind == http2::HEADERS {
                break frame;
            }
        }
    };
    let refused = in_time("the refusal of the fifth call", refused).await;
    assert_eq!(refused.stream, 9);
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_one_address_leave_calls_to_others() {
    let cluster = start(|config| config.client_calls_max = 8).await;
    let _held = hold_calls(http2::connect_from_elsewhere(cluster.address(1)).await).await;
    cluster.client(1).next(1).await.expect("room for another address");
}

/// Unread bytes are of calls in progress, so that the limit on these bounds the memory that an address makes a node keep.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_call_that_is_refused_nothing_is_kept() {
    // The bytes that the connection may send before anybody reads: the window that every connection has, and the one that it is
    // told when it begins.
    const WINDOW: usize = 1 << 20;
    const BEGINNING: usize = WINDOW - 65_535;
    let cluster = start(|config| config.client_calls_max = 8).await;
    let mut stream = hold_calls(http2::connect_from_elsewhere(cluster.address(1)).await).await;
    // Later it is told of bytes that are not kept any more.
    let mut window = WINDOW;
    let part = [0; 16_000];
    for call in (11..91).step_by(2) {
        let opens = async {
            while window < 2 * part.len() {
                let frame = http2::read(&mut stream).await.expect("the connection goes on");
                if (frame.kind, frame.stream) == (http2::WINDOW_UPDATE, 0) {
                    let more: [u8; 4] = frame.payload.try_into().expect("four bytes");
                    match u32::from_be_bytes(more) as usize {
                        BEGINNING => {}
                        more => window += more,
                    }
                }
            }
        };
        in_time("the window of the connection", opens).await;
        let says = [http2::call(call, NEXT), http2::data(call, &part).repeat(2)].concat();
        stream.write_all(&says).await.expect("a call");
        window -= 2 * part.len();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_has_all_its_calls_under_way_is_still_told_whether_the_node_is_well() {
    let cluster = start(|config| config.client_calls_max = 8).await;
    let connection = TcpStream::connect(cluster.address(1)).await.expect("a connection");
    let _held = hold_calls(connection).await;
    let mut client = cluster.client(1);
    let refused = client.next(1).await.expect_err("it has all its calls under way");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    client.status().await.expect("a status");
    let mut health = HealthClient::new(channel(cluster.address(1)));
    health.check(HealthCheckRequest::default()).await.expect("a probe");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_message_never_ends_is_refused_and_a_silent_stream_is_not() {
    let cluster = start(|config| {
        config.request_timeout_ms = 3_000;
        config.request_timeout_max_ms = 3_000;
    })
    .await;
    let (messages, stream) = mpsc::channel(1);
    let answers = cluster.client(1).sequencer.next_many(ReceiverStream::new(stream)).await;
    let mut answers = answers.expect("a stream").into_inner();
    let begun = http2::data(1, &[0, 0, 0, 0, 9, 1]);
    for says in [&[][..], &begun] {
        let mut stream = http2::greeted(cluster.address(1)).await;
        stream.write_all(&[&http2::call(1, NEXT)[..], says].concat()).await.expect("a call");
        let refused = async {
            while http2::read(&mut stream).await.expect("a frame").kind != http2::HEADERS {}
        };
        in_time("a refusal", refused).await;
    }
    let message =
        NextManyRequest { namespace: "book".into(), ids: vec![1], ..NextManyRequest::default() };
    // A slow machine may need more than the three seconds. It says so, and the stream goes on.
    eventually("a number", async || {
        messages.send(message.clone()).await.expect("the stream is open");
        let answer = in_time("an answer", answers.message()).await.expect("no error");
        let failure = answer.expect("an answer").failure;
        let late = failure.map(|failure| Status::from(Refusal::from(*failure)));
        assert!(late.as_ref().is_none_or(is_late), "{late:?}");
        late.is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_takes_in_no_more_than_64_kb_that_nobody_has_read() {
    const MOST: usize = 64 << 10;
    const MEMORY_MB: u64 = 16;
    let cluster = start(|config| config.memory_requests_max_mb = MEMORY_MB).await;
    // A stream is not read on while there is no memory for its message.
    let memory = &cluster.nodes[&1].context().request_memory;
    let _all = memory.reserve((MEMORY_MB << 20) as usize).expect("all of it");
    let mut stream = TcpStream::connect(cluster.address(1)).await.expect("a connection");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(preface).await.expect("a greeting");
    // The window that every call begins with.
    let mut of_call = 65_535;
    loop {
        let frame = in_time("a frame", http2::read(&mut stream)).await.expect("a frame");
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
        match (frame.kind, frame.flags) {
            (http2::SETTINGS, 0) => {
                for setting in frame.payload.chunks_exact(6) {
                    if setting[..2] == [0, 4] {
                        of_call = number(&setting[2..]);
                    }
                }
            }
            // The acknowledgement comes last.
            (http2::SETTINGS, _) => break,
            _ => {}
        }
    }
    assert!(of_call as usize <= MOST, "{of_call} bytes");
    // The settings that it was told hold from its acknowledgement on. Then the beginning of a message of a megabyte.
    let acknowledged = b"\0\0\0\x04\x01\0\0\0\0";
    let begun = http2::data(1, &[0, 0, 15, 0, 0]);
    let call = http2::call(1, "/ratchet.v1.Sequencer/NextMany");
    stream.write_all(&[&acknowledged[..], &call, &begun].concat()).await.expect("a call");
    let part = [0; 8_000];
    let mut sent = 0;
    let refused = async {
        loop {
            // Its update of the window for a part comes before its answer to the ping, or soon after.
            stream.write_all(&[http2::data(1, &part), http2::ping()].concat()).await.expect("sent");
            sent += part.len();
            assert!(sent <= 2 * MOST, "{sent} bytes are taken in");
            loop {
                let frame = http2::read(&mut stream).await.expect("a frame");
                match (frame.kind, frame.stream) {
                    (http2::RST_STREAM, 1) => return frame.payload,
                    (http2::PING, _) => break,
                    _ => {}
                }
            }
        }
    };
    let refused = in_time("the end of a call that sends more than it may", refused).await;
    assert_eq!(refused, [0, 0, 0, 3], "a flow-control error");
}

/// A stream of a kind over which nothing is said.
async fn silent(
    cluster: &Cluster, kind: &str,
) -> Result<BoxStream<'static, Result<(), Status>>, Status> {
    let channel = channel(cluster.address(1));
    let (mut sequencer, mut ids) =
        (SequencerClient::new(channel.clone()), IdsClient::new(channel.clone()));
    Ok(match kind {
        "numbers" => {
            let answers = sequencer.next_many(stream::pending::<NextManyRequest>()).await;
            answers?.into_inner().map_ok(drop).boxed()
        }
        "ids" => {
            let answers = ids.next_many(stream::pending::<NextIdsRequest>()).await;
            answers?.into_inner().map_ok(drop).boxed()
        }
        "routes" => {
            let answers = sequencer.watch_route(WatchRouteRequest {}).await;
            answers?.into_inner().map_ok(drop).boxed()
        }
        _ => {
            let answers = HealthClient::new(channel).watch(HealthCheckRequest::default()).await;
            answers?.into_inner().map_ok(drop).boxed()
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_silent_for_long_make_room_once_other_calls_are_refused() {
    let cluster = start(|config| {
        config.client_calls_max = 8;
        config.connection_idle_ms = 200;
    })
    .await;
    for kind in ["numbers", "ids", "routes", "health"] {
        // All that an address may have.
        let mut streams = Vec::new();
        while streams.len() < 4 {
            streams.push(eventually("a place", async || silent(&cluster, kind).await.ok()).await);
        }
        let mut client = cluster.client(1);
        eventually("room", async || client.next(1).await.ok()).await;
        let ended = stream::select_all(streams).try_for_each(async |()| Ok(()));
        let ended = in_time("the end of a stream", ended).await;
        let ended = ended.expect_err("it says why");
        assert_eq!(ended.code(), Code::Unavailable, "{kind}: {ended}");
        assert_eq!(reason_of(&ended), (Reason::StreamIdle, Outcome::NotDone), "{kind}: {ended}");
    }
}
