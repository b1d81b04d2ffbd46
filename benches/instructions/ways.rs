//! The ways to a number. Callgrind counts the instructions inside the functions whose names begin with `counted_`.

use std::hint::black_box;

use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode, header},
};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use ratchet::{
    proto::v1::{
        Key, NextManyRequest, NextManyResponse, NextRequest, NextResponse, key::Kind,
        sequencer_server::SequencerServer,
    },
    server::{Services, fuzzing},
};
use tower::ServiceExt;

use crate::cluster::Cluster;

/// How many keys a message of many keys has.
const MANY: u64 = 1_000;
/// How many of these are counted, for each thousand calls of the other ways.
const MANY_CALLS: u64 = 20;
/// How many calls a way does before it is counted: they bring its data into memory.
const WARM: u64 = 50;
/// The key of the ways that ask for one number of one key.
const KEY: u64 = 42;
/// Keys that were not asked for before begin here, for each way that needs such.
const BUMPED: u64 = 1 << 32;
const OF_EPOCH: u64 = 1 << 33;

/// Makes so many calls to the node, for the key, or for as many keys from it on.
type Way = fn(&Cluster, &Services, u64, u64);

/// Makes functions that callgrind can tell apart: none is inlined into its caller, or merged with another one.
macro_rules! counted {
    ($($name:ident is $way:ident;)*) => {$(
        #[inline(never)]
        fn $name(cluster: &Cluster, at: &Services, first: u64, calls: u64) {
            black_box(stringify!($name));
            $way(cluster, at, first, calls);
        }
    )*};
}

counted! {
    counted_unary is unary;
    counted_stream is stream;
    counted_thousand_keys is thousand_keys;
    counted_http is http;
    counted_redis is redis;
    counted_forwarded is unary;
    counted_bump is unary_of_each;
    counted_first_touch is unary_of_each;
    counted_unsampled is unary;
    counted_traced is unary;
}

/// How many messages of many keys are counted where the other ways have so many calls.
pub fn calls_of_many_keys(calls: u64) -> u64 {
    calls * MANY_CALLS / 1_000
}

/// Counts each way with so many calls.
///
/// # Panics
/// If a call fails.
pub fn count_all(cluster: &mut Cluster, calls: u64) {
    let leader = cluster.leader();
    let (at_leader, at_follower) = (cluster.services(leader), cluster.services(leader % 3 + 1));
    let at_one_key: [(Way, Way, &Services, u64); 6] = [
        (unary, counted_unary, &at_leader, calls),
        (stream, counted_stream, &at_leader, calls),
        (thousand_keys, counted_thousand_keys, &at_leader, calls_of_many_keys(calls)),
        (http, counted_http, &at_leader, calls),
        (redis, counted_redis, &at_leader, calls),
        (unary, counted_forwarded, &at_follower, calls),
    ];
    for (way, counted, at, calls) in at_one_key {
        way(cluster, at, KEY, WARM);
        counted(cluster, at, KEY, calls);
    }
    unary_of_each(cluster, &at_leader, BUMPED, WARM);
    counted_bump(cluster, &at_leader, BUMPED + WARM, calls);

    // The next term's epoch gives it a chunk of each of these: a first touch needs no entry of the log.
    unary_of_each(cluster, &at_leader, OF_EPOCH, WARM + calls);
    let next = cluster.crash_leader();
    let at_next = cluster.services(next);
    unary_of_each(cluster, &at_next, OF_EPOCH, WARM);
    counted_first_touch(cluster, &at_next, OF_EPOCH + WARM, calls);
}

/// Counts calls to a leader whose traces are on, and which traces none of them: `unary` has them off.
///
/// # Panics
/// If a call fails.
pub fn count_unsampled(cluster: &Cluster, calls: u64) {
    count_at_leader(cluster, counted_unsampled, calls);
}

/// Counts calls to a leader that traces all of them.
///
/// # Panics
/// If a call fails.
pub fn count_traced(cluster: &Cluster, calls: u64) {
    count_at_leader(cluster, counted_traced, calls);
}

fn count_at_leader(cluster: &Cluster, counted: Way, calls: u64) {
    let at_leader = cluster.services(cluster.leader());
    unary(cluster, &at_leader, KEY, WARM);
    counted(cluster, &at_leader, KEY, calls);
}

/// Calls of `Next` for one key, one after the other.
fn unary(cluster: &Cluster, at: &Services, key: u64, calls: u64) {
    cluster.run(async {
        let mut last = 0;
        for _ in 0..calls {
            let number = next(at, key).await;
            assert!(number > last, "{number} after {last}");
            last = number;
        }
    });
}

/// A call of `Next` for each of so many keys, one after the other.
fn unary_of_each(cluster: &Cluster, at: &Services, first: u64, calls: u64) {
    cluster.run(async {
        for key in first..first + calls {
            black_box(next(at, key).await);
        }
    });
}

/// Messages of one key on a stream.
fn stream(cluster: &Cluster, at: &Services, key: u64, calls: u64) {
    messages(cluster, at, key, 1, calls);
}

/// Messages of [`MANY`] keys on a stream.
fn thousand_keys(cluster: &Cluster, at: &Services, first: u64, calls: u64) {
    messages(cluster, at, first, MANY, calls);
}

fn messages(cluster: &Cluster, at: &Services, first: u64, keys: u64, calls: u64) {
    let message = |id| NextManyRequest {
        id,
        namespace: "book".to_owned(),
        ids: (first..first + keys).collect(),
        ..NextManyRequest::default()
    };
    let body: Vec<u8> = (1..=calls).flat_map(|id| framed(&message(id))).collect();
    let mut answers = cluster.run(grpc(at, "NextMany", body.into()));
    for _ in 0..calls {
        let answer: NextManyResponse = unframed(&mut answers);
        assert_eq!((answer.firsts.len() as u64, answer.failure), (keys, None));
    }
}

/// Calls over HTTP for one key, one after the other.
fn http(cluster: &Cluster, at: &Services, key: u64, calls: u64) {
    let routes = fuzzing::http_routes(at.context.clone());
    cluster.run(async {
        for _ in 0..calls {
            let asked = Request::post(format!("/v1/namespaces/book/keys/{key}:next"));
            let asked = asked.header(header::HOST, "127.0.0.1").body(Body::empty());
            let Ok(answer) = routes.clone().oneshot(asked.expect("a request")).await;
            assert_eq!(answer.status(), StatusCode::OK);
            let body = to_bytes(answer.into_body(), usize::MAX).await;
            black_box(body.expect("a body from memory"));
        }
    });
}

/// INCR of one key, one after the other.
fn redis(cluster: &Cluster, at: &Services, key: u64, calls: u64) {
    let name = format!("book:{key}");
    let command = format!("*2\r\n$4\r\nINCR\r\n${}\r\n{name}\r\n", name.len());
    cluster.run(async {
        let mut conversation = fuzzing::Conversation::new(at.context.clone());
        for _ in 0..calls {
            assert!(conversation.answer(command.as_bytes()).await, "it stays open");
        }
        let replies = conversation.replies();
        let numbers = replies.iter().filter(|byte| **byte == b':').count() as u64;
        assert_eq!(numbers, calls, "{}", replies.escape_ascii());
    });
}

async fn next(at: &Services, key: u64) -> u64 {
    let request = NextRequest {
        namespace: "book".to_owned(),
        key: Some(Key { kind: Some(Kind::Id(key)) }),
        ..NextRequest::default()
    };
    let answer: NextResponse = unframed(&mut grpc(at, "Next", framed(&request)).await);
    answer.first
}

/// Has the node answer a gRPC call. Returns the messages of the answer, in their frames.
async fn grpc(at: &Services, method: &str, body: Bytes) -> Bytes {
    let asked = Request::post(format!("/ratchet.v1.Sequencer/{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .body(Body::from(body))
        .expect("a request");
    let Ok(answer) = SequencerServer::new(at.clone()).oneshot(asked).await;
    let failed = answer.headers().get("grpc-message").cloned();
    assert!(failed.is_none(), "{method}: {failed:?}");
    let body = to_bytes(Body::new(answer.into_body()), usize::MAX).await;
    body.expect("a body from memory")
}

/// A message in gRPC's frame.
fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(5 + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).expect("a short message"));
    message.encode(&mut frame).expect("there is room");
    frame.freeze()
}

/// Takes the first message out of its frame.
fn unframed<M: Message + Default>(frames: &mut Bytes) -> M {
    assert_eq!(frames.get_u8(), 0, "not compressed");
    let length = frames.get_u32() as usize;
    M::decode(frames.split_to(length)).expect("an answer")
}
