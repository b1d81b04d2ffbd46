//! HTTP/1 connections whose other end is slow to read or to write, or asks for nothing more.

use super::*;
use crate::{
    node::Config,
    server::connections::{
        answer_body::EndsEarly,
        patient_socket::LAST_PATIENCE,
        places::{Places, WhenFull},
    },
};
use std::{convert::Infallible, time::Duration};

use hyper::{Request, Response, body::Incoming};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep},
};
use tonic::body::Body;
use tower::service_fn as service;

/// How many bytes a long answer has: more than the sockets hold.
const LONG: usize = 32 << 20;
const HOUR: Duration = Duration::from_secs(3_600);
/// No slow machine takes so long.
const PATIENCE: Duration = Duration::from_secs(300);

/// Serves one connection that rests after a millisecond: answers a path with itself, and "/long" with a long answer.
async fn connect(
    idle: Duration, stop: CancellationToken,
) -> (TcpStream, tokio::task::JoinHandle<Result<(), String>>) {
    connect_with(
        Times { head: HOUR, rest_after: Duration::from_millis(1), ..Times::new(idle, None) },
        stop,
        CancellationToken::new(),
    )
    .await
}

/// As [`connect`], with these times. Long answers end early at `end`.
async fn connect_with(
    times: Times, stop: CancellationToken, end: CancellationToken,
) -> (TcpStream, tokio::task::JoinHandle<Result<(), String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("its address"));
    let (client, accepted) = tokio::join!(client, listener.accept());
    let (stream, _) = accepted.expect("a connection");
    let answer = service(move |request: Request<Incoming>| {
        let end = end.clone();
        async move {
            let mut response = Response::new(Body::new(match request.uri().path() {
                "/long" => "x".repeat(LONG),
                path => path.to_owned(),
            }));
            if request.uri().path() == "/long" {
                response.extensions_mut().insert(EndsEarly(end));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut places = Places::new(WhenFull::RefuseNew);
    let served = serve(stream.into(), answer, places.enter(None).expect("room"), times, stop);
    (client.expect("a connection"), tokio::spawn(served))
}

fn request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes()
}

/// Reads an answer, whose body is `body`.
async fn read(client: &mut TcpStream, body: &str) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.expect("an answer"));
    }
    let mut read = vec![0; body.len()];
    client.read_exact(&mut read).await.expect("a body");
    assert_eq!(String::from_utf8_lossy(&read), body);
}

#[tokio::test]
async fn a_connection_that_rested_answers_as_before() {
    let (mut client, served) = connect(HOUR, CancellationToken::new()).await;
    for round in 0..100 {
        let paths = [format!("/{round}"), format!("/{round}/again")];
        let together: Vec<u8> = paths.iter().flat_map(|path| request(path)).collect();
        client.write_all(&together).await.expect("sent");
        for path in &paths {
            read(&mut client, path).await;
        }
        // Long enough to rest, in some rounds.
        tokio::time::sleep(Duration::from_millis(round % 5)).await;
    }
    drop(client);
    served.await.expect("no panic").expect("an end as usual");
}

#[tokio::test]
async fn a_connection_that_has_answered_is_kept_for_as_long_as_it_may_be_idle() {
    let idle = Duration::from_millis(Config::default().connection_idle_ms);
    let [stop, end] = [(); 2].map(|()| CancellationToken::new());
    let began = Instant::now();
    let (mut client, served) = connect_with(Times::new(idle, None), stop, end).await;
    client.write_all(&request("/once")).await.expect("sent");
    read(&mut client, "/once").await;
    // Nothing more is said. From here on the clock goes from one timer to the next.
    tokio::time::pause();
    let ended = timeout(2 * idle, served).await.expect("in time").expect("no panic");
    ended.expect_err("no further request came");
    let lasted = began.elapsed();
    assert!(lasted >= idle, "{lasted:?}");
}

#[tokio::test]
async fn an_answer_that_is_not_read_yet_is_sent_in_full_before_the_connection_rests() {
    let (mut client, served) = connect(HOUR, CancellationToken::new()).await;
    client.write_all(&request("/long")).await.expect("sent");
    client.readable().await.expect("an answer");
    // The call has ended: its answer is in the buffer.
    tokio::time::sleep(Duration::from_millis(50)).await;
    read(&mut client, &"x".repeat(LONG)).await;
    client.write_all(&request("/next")).await.expect("sent");
    read(&mut client, "/next").await;
    drop(client);
    served.await.expect("no panic").expect("an end as usual");
}

#[tokio::test]
async fn a_request_that_arrives_in_parts_is_answered() {
    let (mut client, served) = connect(HOUR, CancellationToken::new()).await;
    let request = request("/parts");
    client.write_all(&request[..10]).await.expect("sent");
    tokio::time::sleep(Duration::from_millis(50)).await;
    client.write_all(&request[10..]).await.expect("sent");
    read(&mut client, "/parts").await;
    drop(client);
    served.await.expect("no panic").expect("an end as usual");
}

#[tokio::test]
async fn a_request_that_began_before_the_connection_rested_is_answered() {
    let (mut client, served) = connect(HOUR, CancellationToken::new()).await;
    let next = request("/next");
    for round in 0..3 {
        let begun = [&request("/before")[..], &next[..10]].concat();
        client.write_all(&begun).await.expect("sent");
        read(&mut client, "/before").await;
        // Long enough to rest.
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.write_all(&next[10..]).await.expect("sent");
        read(&mut client, "/next").await;
        assert!(!served.is_finished(), "{round}");
    }
    drop(client);
    served.await.expect("no panic").expect("an end as usual");
}

#[tokio::test]
async fn a_head_that_never_ends_ends_the_connection_also_after_other_requests() {
    for rests in [HOUR, Duration::from_millis(1)] {
        for requests in 0..3 {
            let head = Duration::from_millis(100);
            let times = Times { head, rest_after: rests, ..Times::new(HOUR, None) };
            let [stop, end] = [(); 2].map(|()| CancellationToken::new());
            let (mut client, served) = connect_with(times, stop, end).await;
            for _ in 0..requests {
                client.write_all(&request("/before")).await.expect("sent");
                read(&mut client, "/before").await;
            }
            client.write_all(b"GET /half HTTP/1.1\r\nHost:").await.expect("sent");
            let ended = timeout(PATIENCE, served).await;
            ended.expect("in time").expect("no panic").expect_err("it says why");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_not_read_or_read_byte_by_byte_ends_early_if_its_caller_may_not_read_on()
{
    for reads in [false, true] {
        let [stop, end] = [(); 2].map(|()| CancellationToken::new());
        let times = Times { head: HOUR, rest_after: HOUR, ..Times::new(HOUR, None) };
        let (mut client, mut served) = connect_with(times, stop, end.clone()).await;
        // One that has ended before is not this one.
        for path in ["/short", "/long"] {
            client.write_all(&request(path)).await.expect("sent");
            client.readable().await.expect("an answer");
            if path == "/short" {
                read(&mut client, path).await;
            }
        }
        assert!(timeout(LAST_PATIENCE / 4, &mut served).await.is_err(), "it is to be read");
        end.cancel();
        let reading = async {
            while reads && client.read_u8().await.is_ok() {
                sleep(Duration::from_millis(1)).await;
            }
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            biased;
            ended = timeout(PATIENCE, &mut served) => ended,
            () = reading => unreachable!("it never ends"),
        };
        ended.expect("in time").expect("no panic").expect_err("it is not sent in full");
    }
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_given_up_when_the_node_stops_or_time_is_over() {
    for idle in [HOUR, Duration::from_millis(200)] {
        let stop = CancellationToken::new();
        let (mut client, served) = connect(idle, stop.clone()).await;
        client.write_all(&request("/long")).await.expect("sent");
        client.readable().await.expect("an answer");
        if idle == HOUR {
            stop.cancel();
        }
        let ended = timeout(PATIENCE, served).await;
        // The first to notice, the writer or the end of the calls, says how it ended.
        let (Ok(()) | Err(_)) = ended.expect("in time").expect("no panic");
    }
}
