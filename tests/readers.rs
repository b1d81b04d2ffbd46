//! Callers that do not read their answers hold nobody up.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    time::{Duration, Instant},
};

use crate::common::{
    PATIENCE,
    cluster::Cluster,
    eventually,
    history::Load,
    id, in_time, other_than, others,
    processes::Processes,
    rust_client::{client_of, create_with_format},
    until,
};
use ratchet::{
    metrics::{HandoverEnd, Interface, SkipCause},
    node::{config::FenceKind, to_key},
    proto::v1::{
        ExportRequest, ExportResponse, NextIdsRequest, NextManyRequest, NextManyResponse,
        RaiseManyRequest, ids_client::IdsClient, sequencer_client::SequencerClient,
    },
    sequence::OwnedKey,
};
use tokio_stream::{StreamExt, iter, pending};
use tonic::{Code, Streaming, transport::Endpoint};

const STREAMS: u64 = 200;
/// Streams of one connection.
const CONNECTION_STREAMS: u64 = 20;
/// The window that callers open, in bytes.
const WINDOW: u32 = 16_384;
/// Enough that two answers fill the window.
const MESSAGE_KEYS: u64 = 5_000;
/// Messages of one stream.
const MESSAGES: u64 = 8;
/// Keys that no message has had before.
const COLD_KEYS: u64 = 2;
/// A call that hangs takes longer: as long as its caller waits.
const HANG: Duration = Duration::from_secs(PATIENCE.as_secs() / 3);

/// The messages of one stream: warm ones, and between them some whose keys need a bump.
fn messages(stream: u64) -> Vec<NextManyRequest> {
    let warm: Vec<u64> = (0..MESSAGE_KEYS).map(|n| 1_000 + n % 100).collect();
    let cold = |id: u64| {
        let first = 1_000_000 + (stream * MESSAGES + id) * COLD_KEYS;
        (first..first + COLD_KEYS).collect()
    };
    let message = |id, ids| NextManyRequest {
        id,
        namespace: "book".into(),
        ids,
        ..NextManyRequest::default()
    };
    let rest = (2..=MESSAGES).map(|id| match id % 2 {
        0 => message(id, warm.clone()),
        _ => message(id, cold(id)),
    });
    std::iter::once(message(1, vec![1_000])).chain(rest).collect()
}

/// Opens the streams, which are never read.
async fn stall(address: SocketAddr, streams: u64) -> Vec<Streaming<NextManyResponse>> {
    let mut open = Vec::new();
    for first in (0..streams).step_by(CONNECTION_STREAMS as usize) {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let channel = endpoint
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * CONNECTION_STREAMS as u32)
            .connect()
            .await
            .expect("a connection");
        for stream in first..first + CONNECTION_STREAMS {
            let mut client = SequencerClient::new(channel.clone());
            let requests = iter(messages(stream)).chain(pending());
            let answers = client.next_many(requests).await.expect("a stream");
            open.push(answers.into_inner());
        }
    }
    open
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_waits_for_who_reads_its_last_answer_slowly() {
    let mut cluster = Cluster::start(1, |config| config.shutdown_timeout_ms = 600_000).await;
    let node = cluster.nodes.remove(&cluster.leader().await).expect("it is there");
    let metrics = node.context().metrics.clone();
    let endpoint = Endpoint::from_shared(format!("http://{}", node.addresses().client));
    let channel = endpoint.expect("an address").initial_stream_window_size(WINDOW);
    let mut client = SequencerClient::new(channel.connect().await.expect("a connection"));
    const KEYS: u64 = 40_000;
    let message = |id| NextManyRequest {
        id,
        namespace: "book".into(),
        ids: (id * KEYS..(id + 1) * KEYS).collect(),
        ..NextManyRequest::default()
    };
    let requests = iter([message(1), message(2)]).chain(pending());
    let mut answers = client.next_many(requests).await.expect("a stream").into_inner();
    let mut read_answer = async || {
        let answer = in_time("an answer", answers.next()).await;
        let firsts = answer.expect("no end").expect("no error").firsts;
        assert_eq!(firsts.len() as u64, KEYS);
        assert!(firsts.into_iter().all(|number| number == 1));
    };
    read_answer().await;
    until("both are answered", || metrics.numbers.get() >= 2 * KEYS).await;
    let stopping = tokio::spawn(node.stop());
    // A connection without calls is closed after a second or two.
    tokio::time::sleep(Duration::from_secs(3)).await;
    read_answer().await;
    stopping.await.expect("it stops");
}

/// Waits until no numbers are handed out any more, because all windows are full. Nothing announces that,
/// so the count must stay the same for a while.
async fn at_rest(handed_out: impl AsyncFn() -> u64) {
    let resting = async {
        let (mut before, mut same) = (0, 0);
        while same < 5 {
            let now = handed_out().await;
            same = if now == before && now > STREAMS { same + 1 } else { 0 };
            before = now;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    in_time("full windows", resting).await;
}

/// The longest that one of the calls of `load` took from `from` on.
fn longest_call(history: &crate::common::history::History, from: Instant) -> Duration {
    let after = history.ops.iter().filter(|op| op.returned >= from);
    let spans = after.map(|op| op.returned - op.invoked);
    spans.max().unwrap_or_default()
}

async fn a_transfer_goes_on(fence: FenceKind) {
    for _ in 0..3 {
        if has_gone_on(fence).await {
            return;
        }
    }
    panic!("the successor was too late each time");
}

/// False if the successor was too late, as it may be on a slow machine, and another node was elected: that skips numbers.
async fn has_gone_on(fence: FenceKind) -> bool {
    let cluster = Cluster::start(3, |config| {
        config.fence = fence;
        // All callers have one address, and on a busy machine all their messages may wait at once.
        config.memory_requests_max_mb = 4_096;
    })
    .await;
    let leader = cluster.leader().await;
    let successor = other_than(leader);
    let mut streams = stall(cluster.address(leader), STREAMS).await;
    streams.extend(stall(cluster.address(successor), CONNECTION_STREAMS).await);
    let metrics = &cluster.nodes[&leader].context().metrics;
    at_rest(async || metrics.numbers.get()).await;

    let load = Load::start(&cluster.addresses(), 6, 3);
    load.answers(200).await;
    let mut client = cluster.client(leader);
    let started = Instant::now();
    let now = client.transfer(successor).await;
    let took = started.elapsed();
    if now.as_ref().is_err_and(|late| late.code() == Code::Aborted) {
        return false;
    }
    assert_eq!(now.expect("a transfer").leader, successor);
    load.answers(200).await;
    let history = load.finish().await;
    println!("{fence:?}: transfer in {took:?}, longest call {:?}", longest_call(&history, started));
    assert!(took < HANG, "{took:?}");
    assert_eq!(history.failed, 0, "{:?}", history.failures);
    history.assert_strictly_increasing();
    for key in 0..3 {
        history.assert_without_gap(key, 1);
    }
    for node in cluster.nodes.values() {
        let metrics = &node.context().metrics;
        for cause in [SkipCause::leader_change, SkipCause::fence] {
            assert_eq!(metrics.skipped(cause), 0, "{cause:?}");
        }
    }
    // A caller that reads at last finds its answers. Their numbers were handed to nobody else.
    let mut firsts = BTreeSet::new();
    for mut stream in streams.into_iter().step_by(10) {
        let answers = async {
            let mut seen = 0;
            while seen < MESSAGES {
                let answer = stream.next().await.expect("an answer").expect("no error");
                assert_eq!(answer.failure, None);
                if answer.id == 1 {
                    assert!(firsts.insert(answer.firsts[0]), "{}", answer.firsts[0]);
                }
                seen += 1;
            }
        };
        in_time("the answers of a stream", answers).await;
    }
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_goes_on_while_200_callers_do_not_read_under_the_lease_fence() {
    a_transfer_goes_on(FenceKind::Lease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_goes_on_while_200_callers_do_not_read_under_the_quorum_fence() {
    a_transfer_goes_on(FenceKind::Quorum).await;
}

/// The first answer fills the window while the next message waits for a bump.
#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_goes_on_while_a_caller_does_not_read_the_ids_that_it_asked_for() {
    let cluster = Cluster::start(3, |_| {}).await;
    let leader = cluster.leader().await;
    create_with_format(&client_of(&cluster, &[leader]), "chat", "rongcloud").await;
    let endpoint = Endpoint::from_shared(format!("http://{}", cluster.address(leader)));
    let channel = endpoint.expect("an address").initial_stream_window_size(WINDOW);
    let channel = channel.connect().await.expect("a connection");
    let ask = |key| NextIdsRequest {
        namespace: "chat".into(),
        key: to_key(&OwnedKey::Id(key)),
        count: Some(1_000),
        parameters: [("type".to_owned(), 1)].into(),
        as_text: true,
    };
    let metrics = cluster.nodes[&leader].context().metrics.clone();
    let mut streams = Vec::new();
    for stream in 0..CONNECTION_STREAMS {
        let requests = iter((0..MESSAGES).map(move |n| ask(stream * MESSAGES + n)));
        let mut client = IdsClient::new(channel.clone());
        let answers = client.next_many(requests.chain(pending())).await;
        streams.push(answers.expect("a stream").into_inner());
    }
    at_rest(async || metrics.numbers.get()).await;

    let started = Instant::now();
    let now = cluster.client(leader).transfer(other_than(leader)).await;
    assert_eq!(now.expect("a transfer").leader, other_than(leader));
    let took = started.elapsed();
    assert!(took < HANG, "{took:?}");
    assert_eq!(metrics.of_set(1).handovers.get(HandoverEnd::memory), 1);
    for mut stream in streams {
        for _ in 0..MESSAGES {
            let answer = in_time("an answer", stream.next()).await;
            let answer = answer.expect("no end").expect("no error");
            assert_eq!((answer.error, answer.texts.len()), (None, 1_000));
        }
    }
}

async fn sigterm_goes_on(fence: &str) {
    let mut cluster =
        Processes::start(3, &["--fence", fence, "--memory-requests-max-mb", "4096"]).await;
    let leader = cluster.leader().await;
    let _streams = stall(cluster.places[&leader].listen, STREAMS).await;
    let mut probe = cluster.client(other_than(leader));
    // The warm keys stand where the stalled streams left them.
    at_rest(async || {
        let last = probe.clone().current("book", id(1_000)).await;
        last.expect("an answer").unwrap_or(0)
    })
    .await;
    probe.next(7).await.expect("a number");
    let others = others(leader);
    let addresses: Vec<_> = others.iter().map(|id| cluster.places[id].listen).collect();
    let load = Load::start(&addresses, 6, 3);
    load.answers(200).await;
    let before = probe.current("book", id(1_000)).await.unwrap();
    let started = Instant::now();
    let ended = cluster.terminate(leader);
    let (status, ()) = tokio::join!(ended, load.answers(200));
    assert!(status.success(), "{status}");
    let history = load.finish().await;
    println!(
        "{fence}: SIGTERM, longest call of others {:?}, ended after {:?}",
        longest_call(&history, started),
        started.elapsed()
    );
    assert_eq!(history.failed, 0, "{:?}", history.failures);
    history.assert_strictly_increasing();
    for key in 0..3 {
        history.assert_without_gap(key, 1);
    }
    let after = probe.next(1_000).await.expect("a number");
    assert_eq!(Some(after), before.map(|last| last + 1), "no gap");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_hands_over_while_200_callers_do_not_read_under_the_lease_fence() {
    sigterm_goes_on("lease").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_hands_over_while_200_callers_do_not_read_under_the_quorum_fence() {
    sigterm_goes_on("quorum").await;
}

/// How many keys [`many_books`] has: an export of them has two parts.
const BOOKS: u64 = 8_000;

/// A node with so many books that a part of an export of them is more than the window, and than a server sends at once.
async fn many_books() -> Cluster {
    // Large numbers have many bytes.
    const LARGE: u64 = 1 << 60;
    let cluster = Cluster::start(1, |config| {
        config.client_share_percent = 100;
        config.shutdown_timeout_ms = 600_000;
    })
    .await;
    let mut client = cluster.client(1);
    let floors = RaiseManyRequest {
        namespace: "book".into(),
        ids: (LARGE..LARGE + BOOKS).collect(),
        at_least: vec![LARGE; BOOKS as usize],
        ..RaiseManyRequest::default()
    };
    client.sequencer.raise_many(floors).await.expect("floors");
    cluster
}

fn books() -> ExportRequest {
    ExportRequest { namespace: "book".into() }
}

/// An export that is begun, and not read.
async fn unread_export(cluster: &Cluster) -> Streaming<ExportResponse> {
    let endpoint = Endpoint::from_shared(format!("http://{}", cluster.address(1)));
    let windows = endpoint.expect("an address").initial_stream_window_size(WINDOW);
    let channel = windows.initial_connection_window_size(WINDOW).connect().await;
    let export = SequencerClient::new(channel.expect("a connection")).export(books()).await;
    export.expect("an export").into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_that_nobody_reads_do_not_keep_others_from_theirs() {
    let cluster = many_books().await;
    let mut client = cluster.client(1);
    let unread = [unread_export(&cluster).await, unread_export(&cluster).await];
    // Refused as long as the table is read for the others, which takes a moment.
    let rows = eventually("an export", async || {
        let export = client.sequencer.export(books()).await.ok()?;
        let messages: Vec<_> = export.into_inner().collect().await;
        let last = messages.into_iter().next_back().expect("an end");
        last.expect("a whole export").rows
    });
    // The cluster was asked for a number of one more key when it started.
    assert_eq!(rows.await, BOOKS + 1);
    drop(unread);
}

/// Its answer has begun before: no layer sees how it ends.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_breaks_off_is_counted_as_an_error() {
    let mut cluster = many_books().await;
    let mut export = unread_export(&cluster).await;
    let node = cluster.nodes.remove(&1).expect("it runs");
    let metrics = node.context().metrics.clone();
    let errors = || metrics.errors.of(Interface::grpc).of(Code::Unavailable).get();
    assert_eq!(errors(), 0);
    let mut stop = Box::pin(node.stop());
    // The beginning of a stop breaks exports off: on a slow machine a task may begin after all of the export is read.
    assert!(futures::poll!(&mut stop).is_pending(), "an export is under way");
    let stopping = tokio::spawn(stop);
    let broken_off = async {
        loop {
            match export.message().await {
                Ok(part) => assert!(part.is_some(), "it ended as if it were whole"),
                Err(status) => break status,
            }
        }
    };
    let broken_off = in_time("the end of the export", broken_off).await;
    assert!(broken_off.message().contains("breaks the export off"), "{broken_off}");
    assert_eq!(errors(), 1);
    in_time("the end of the node", stopping).await.expect("it stops");
}
