//! One HTTP/1 connection. While nobody uses it, it is a socket, with TLS also its session, and nothing else: the buffers of
//! the protocol, some 20 kB, are made anew for the next request.
//!
//! Invariant: a silent connection is closed within the limits that it was given ([`Times`]).

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use futures::TryFutureExt;
use hyper::{
    header::{CONNECTION, HeaderValue},
    server::conn::http1::{Builder, Parts},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    answer_body::answered,
    answering::Answering,
    aside::aside,
    calls::SHUTDOWN_TIME_MAX,
    patient_socket::{PatientSocket, Times},
    places::ConnectionPlace,
    stream::Stream,
    until_known::UntilKnown,
};

/// The most bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Serves a connection with `service` until its other end closes it, it takes longer than `times` says, or the node stops.
///
/// # Errors
/// A text if the other end sends nothing in time, does not speak HTTP/1, or breaks off.
pub async fn serve<S: Answering>(
    stream: Stream, service: S, place: Arc<ConnectionPlace>, times: Times, stop: CancellationToken,
) -> Result<(), String> {
    let mut stream = UntilKnown::new(stream, place.guest());
    let mut is_new = true;
    // The connection was idle before it rested.
    let rest = times.idle.saturating_sub(times.rest_after);
    loop {
        let waiting = async {
            let first = stream.inner_mut().has_more();
            match std::mem::take(&mut is_new) {
                true => place.greeted(first, times.head, times.idle).await,
                false => timeout(rest, first).await.map_err(|_| "no further request".into()),
            }
        };
        let arrived = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            arrived = waiting => arrived?,
        };
        if !arrived.map_err(|error| error.to_string())? {
            return Ok(());
        }
        let serving = serve_until_rest(stream, service.clone(), &place, times, &stop);
        // In a box, so that a socket that rests is small.
        match Box::pin(serving).await? {
            Some(rests) => stream = rests,
            None => return Ok(()),
        }
    }
}

/// Serves requests until none comes for a while. Returns the socket then, with the bytes of a further request that were read;
/// `None` if the connection has ended.
async fn serve_until_rest<S: Answering>(
    stream: UntilKnown<Stream>, service: S, place: &Arc<ConnectionPlace>, times: Times,
    stop: &CancellationToken,
) -> Result<Option<UntilKnown<Stream>>, String> {
    let Times { idle, rest_after, .. } = times;
    let (calls, of_connection) = (place.calls(), place.clone());
    let service = service_fn(move |request| {
        let call = of_connection.begin_call();
        // This is put in a box first: otherwise each future that waits for it would hold a copy.
        Box::pin(service.clone().call(request)).map_ok(move |answer| {
            let mut answer = answered(call, answer);
            if times.are_over() {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            answer
        })
    });
    let mut builder = Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).header_read_timeout(None);
    let stream = PatientSocket::new(stream, times, calls.clone(), stop.clone());
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
    let ends = aside(async {
        tokio::select! {
            biased;
            () = stop.cancelled() => true,
            () = calls.idle_for(rest_after) => false,
        }
    });
    let node_stops = tokio::select! {
        biased;
        ended = &mut connection => {
            return ended.map(|()| None).map_err(|error| error.to_string());
        }
        node_stops = ends => node_stops,
    };
    if node_stops {
        // Tells the other end to begin no further calls. Those in progress are answered.
        connection.as_mut().graceful_shutdown();
        return tokio::select! {
            biased;
            ended = &mut connection => ended.map(|()| None).map_err(|error| error.to_string()),
            () = calls.idle_for(SHUTDOWN_TIME_MAX) => Ok(None),
        };
    }
    // No call is in progress: this ends the protocol without a word to the other end, once all answers are sent. If a part of
    // the first request has arrived, the connection waits for the rest, and that request is the last one: its answer says so.
    let begun = calls.begun();
    connection.as_mut().graceful_shutdown();
    let resting = timeout(idle, Pin::into_inner(connection).without_shutdown());
    let stopping = async {
        stop.cancelled().await;
        calls.idle_for(SHUTDOWN_TIME_MAX).await;
    };
    let rested = tokio::select! {
        biased;
        rested = resting => rested.map_err(|_| "the other end neither sends nor reads")?,
        () = stopping => return Ok(None),
    };
    let Parts { io, read_buf, .. } = rested.map_err(|error| error.to_string())?;
    at_rest(io.into_inner(), read_buf, calls.begun() == begun).map(Some)
}

/// The socket of a protocol that has ended, with the bytes of a further request that were read. `is_idle` says that no call has
/// begun since the protocol was told to end.
///
/// # Errors
/// A text if the end of an answer is not sent, or more was sent after the last request.
fn at_rest(
    socket: PatientSocket, read: Bytes, is_idle: bool,
) -> Result<UntilKnown<Stream>, String> {
    if socket.is_writing() {
        // The bytes that were read may be the rest of that answer's request.
        return Err("the end of an answer is not sent".to_owned());
    }
    if !read.is_empty() && !is_idle {
        return Err("more was sent after the last request".to_owned());
    }
    let mut stream = socket.into_inner();
    stream.inner_mut().put_back(read);
    Ok(stream)
}

#[cfg(test)]
mod tests;
