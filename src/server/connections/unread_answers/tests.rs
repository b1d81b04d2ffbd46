//! Answers over HTTP/2 that nobody reads.

use super::*;
use crate::server::connections::{
    answer_body::{EndsEarly, answered},
    calls::Calls,
    patient_socket::LAST_PATIENCE,
    places::{Places, WhenFull},
};
use std::future::pending;

use bytes::Buf;
use hyper::body::Body as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::Response;

const SECOND: Duration = Duration::from_secs(1);

fn place() -> Arc<ConnectionPlace> {
    Places::new(WhenFull::RefuseNew).enter(None).expect("room")
}

#[tokio::test(start_paused = true)]
async fn a_call_is_given_up_once_nothing_of_its_answer_is_read_for_too_long() {
    let (connection, mut parts) = mpsc::unbounded_channel();
    let calls = Arc::new(Calls::default());
    let begun = calls.begin();
    // As a connection whose caller opens no window.
    let call = async move {
        let body = tonic::body::Body::new("x".repeat(100));
        let answer = answered(begun, Response::new(body));
        let mut body = pin!(answer.into_body());
        let first = poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        let part = first.expect("a part").expect("no error").into_data();
        connection.send(part.ok().expect("data")).expect("it is waited for");
        pending::<()>().await;
    };
    let task = tokio::spawn(read_in_time(call, place(), SECOND));
    let mut part = parts.recv().await.expect("a part");
    for _ in 0..10 {
        sleep(SECOND * 9 / 10).await;
        part.advance(1);
        assert!(!task.is_finished());
    }
    let since = Instant::now();
    task.await.expect("it ends");
    assert!(since.elapsed() <= 2 * SECOND, "{:?}", since.elapsed());
    assert!(!calls.are_none(), "a part is unsent");
    drop(part);
    assert!(calls.are_none());
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_a_moment_after_its_caller_may_not_read_on_however_much_of_it_is_read() {
    let (connection, mut parts) = mpsc::unbounded_channel();
    let end = CancellationToken::new();
    let ends = EndsEarly(end.clone());
    let begun = Arc::new(Calls::default()).begin();
    let call = async move {
        let mut response = Response::new(tonic::body::Body::new("x".repeat(100)));
        response.extensions_mut().insert(ends);
        let answer = answered(begun, response);
        let mut body = pin!(answer.into_body());
        let first = poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
        let part = first.expect("a part").expect("no error").into_data();
        connection.send(part.ok().expect("data")).expect("it is waited for");
        pending::<()>().await;
    };
    let task = tokio::spawn(read_in_time(call, place(), 100 * SECOND));
    let mut part = parts.recv().await.expect("a part");
    sleep(10 * SECOND).await;
    assert!(!task.is_finished(), "it may be read");
    end.cancel();
    let since = Instant::now();
    while !task.is_finished() {
        part.advance(1);
        sleep(SECOND / 10).await;
    }
    let taken = since.elapsed();
    assert!((LAST_PATIENCE..2 * LAST_PATIENCE).contains(&taken), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_nothing_to_say_is_not_given_up() {
    let (asks, says) = mpsc::unbounded_channel::<Result<bytes::Bytes, std::io::Error>>();
    let stream = tokio_stream::wrappers::UnboundedReceiverStream::new(says);
    let body = tonic::body::Body::new(axum::body::Body::from_stream(stream));
    let begun = Arc::new(Calls::default()).begin();
    let call = async move {
        let answer = answered(begun, Response::new(body));
        let mut body = pin!(answer.into_body());
        while poll_fn(|cx| body.as_mut().poll_frame(cx)).await.is_some() {}
    };
    let task = tokio::spawn(read_in_time(call, place(), SECOND));
    sleep(100 * SECOND).await;
    assert!(!task.is_finished());
    drop(asks);
    task.await.expect("it ends");
}
