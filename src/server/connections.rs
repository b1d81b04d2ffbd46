//! The connections of a port that speaks HTTP. Idle connections are closed, and the others end gracefully when the node stops.
//! The connections of HTTP/1 are in `http1.rs`.
//!
//! `listeners.rs` binds the ports, and `local_socket.rs` the local socket. `acceptor.rs` accepts connections. `places.rs` has
//! the places for them, and `client_limit.rs` limits the connections of clients. `opening.rs` begins a connection, and
//! `stream.rs` has its bytes. `owner.rs` says who asks over it, and `until_known.rs` limits its bytes while nobody knows that.
//! `calls.rs` counts its calls, and `aside.rs` waits beside them for its end. `inspected_body.rs` looks at a body while it
//! arrives: `unfinished.rs` limits its memory and its time, and `arrival.rs` says whether it is late. `answering.rs` says which
//! services can answer. `answer_body.rs` has the answers until they are sent, and `answer_memory.rs` the memory that they hold.
//! `reflection.rs` looks who asks the library's own service. `patient_socket.rs` and `unread_answers.rs` end answers that
//! nobody reads.
//!
//! Invariant: a silent connection is closed within the limits below.

pub(super) mod acceptor;
pub(super) mod answer_body;
pub(super) mod answer_memory;
pub(super) mod answering;
pub(super) mod arrival;
pub(super) mod aside;
pub(super) mod calls;
pub(super) mod client_limit;
mod http1;
pub(super) mod inspected_body;
pub(super) mod listeners;
pub(super) mod local_socket;
pub(super) mod opening;
pub(super) mod owner;
mod patient_socket;
pub(super) mod places;
pub(super) mod reflection;
pub(super) mod stream;
pub(super) mod unfinished;
mod unread_answers;
pub(super) mod until_known;

use std::{convert::Infallible, future::pending, io, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::{Request, body::Incoming, server::conn::http2::Builder, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use self::{
    acceptor::{ConnectionLimits, accept},
    answer_body::answered,
    answering::Answering,
    aside::aside,
    calls::SHUTDOWN_TIME_MAX,
    opening::{GREETING_TIME_MAX, Opening},
    patient_socket::Times,
    places::ConnectionPlace,
    stream::Stream,
    unread_answers::ReadInTime,
    until_known::UntilKnown,
};
use crate::node::Guest;

/// How many calls of one connection may be in progress, and how many bytes the headers of a call may have. Further calls wait
/// at the client. For peers both are low: a peer merges its clients' requests, its headers are short, and anybody may open
/// connections there.
const CLIENT_CALLS: [u32; 2] = [1_024, 8 << 10];
const PEER_CALLS: [u32; 2] = [256, 2 << 10];
/// How many bytes of one call, and of one connection, may have arrived and not be read yet. HTTP/2 derives another limit from
/// the one of the connection: it ends a connection after some number of small messages that were not processed. A smaller limit
/// would lower that number. Bytes that are not read belong to calls in progress, so the limit on calls bounds them, too. A
/// stranger's connection brings less (`until_known.rs`).
const CLIENT_WINDOWS: [u32; 2] = [64 << 10, 1 << 20];
const PEER_WINDOWS: [u32; 2] = [1 << 20, 1 << 20];
/// The longest frame that is taken in. The library keeps a frame that has arrived in part, and beside it headers whose end is
/// missing: bytes of a connection, and not of a call.
const FRAME_BYTES_MAX: u32 = 16 << 10;
/// How many calls of one connection the client may reset before the server accepts them. Beyond this limit
/// HTTP/2 ends the connection, and with it the calls that are still wanted. The limit is high because a
/// stalled node reads everything that arrived meanwhile at once, and much of that may be calls whose
/// deadlines have passed. A higher limit would not help: HTTP/2 also ends the connection after some 2 300
/// small messages that were not processed.
const RESET_CALLS_MAX: usize = 2_048;
/// How often HTTP/2 pings the other end of a connection, and how long that may take to answer.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The methods that probes call.
const PROBES: [&str; 2] = ["/grpc.health.v1.Health/Check", "/ratchet.v1.Admin/Status"];

/// The bytes that every HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// For gRPC.
    Http2,
    /// For gRPC between nodes.
    PeerHttp2,
    /// For JSON, scrapers and probes.
    Http1,
}

/// Serves the connections of `listener` until `stop`. `service` makes the service of each connection from its place and its
/// stream. At `stop` no more are accepted. Returns once the calls in progress are answered.
pub async fn serve<S: Answering>(
    listener: TcpListener, opening: Opening,
    service: impl Fn(&Arc<ConnectionPlace>, &Stream) -> S + Clone + Send + 'static,
    protocol: Protocol, limits: ConnectionLimits, stop: CancellationToken,
) {
    let (idle, of_port, of_connection) = (limits.idle, limits.clone(), stop.clone());
    let serve = |socket: TcpStream, place: Arc<ConnectionPlace>| {
        let (opening, service, stop) = (opening.clone(), service.clone(), of_connection.clone());
        let too_old_at = of_port.too_old_at();
        async move {
            let silence = match protocol {
                Protocol::Http1 => idle,
                // Anybody may open a connection to a peer. The preface has as long once more.
                Protocol::Http2 | Protocol::PeerHttp2 => GREETING_TIME_MAX.min(idle),
            };
            let Some(stream) = opening.open(socket, &place, silence, &stop).await? else {
                return Ok(());
            };
            let service = service(&place, &stream);
            let bounds = match protocol {
                Protocol::Http1 => {
                    let times = Times::new(idle, too_old_at);
                    return http1::serve(stream, service, place, times, stop).await;
                }
                Protocol::PeerHttp2 => (PEER_CALLS, PEER_WINDOWS),
                Protocol::Http2 => (CLIENT_CALLS, CLIENT_WINDOWS),
            };
            let greeting = timeout(GREETING_TIME_MAX.min(idle), read_preface(stream));
            let stream = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                greeted = greeting => {
                    greeted.map_err(|_| "the other end sent nothing in time".to_owned())??
                }
            };
            let http2 = http2(bounds, idle, &place);
            let stream = UntilKnown::new(stream, place.guest());
            serve_http2(stream, http2, service, place, Ends { idle, too_old_at, stop }).await
        }
    };
    accept(listener, limits, stop, serve).await;
}

/// The settings of HTTP/2, with these bounds of calls and headers, and these windows of a call and of the connection.
/// Nothing of an answer may be unread for `patience`.
fn http2(
    ([calls, headers], [of_call, of_connection]): ([u32; 2], [u32; 2]), patience: Duration,
    place: &Arc<ConnectionPlace>,
) -> Builder<ReadInTime> {
    let mut builder = Builder::new(ReadInTime { patience, place: place.clone() });
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(calls)
        .max_pending_accept_reset_streams(RESET_CALLS_MAX)
        .max_header_list_size(headers)
        .max_frame_size(FRAME_BYTES_MAX)
        .initial_stream_window_size(of_call)
        .initial_connection_window_size(of_connection)
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE);
    builder
}

/// When the node ends a connection.
struct Ends {
    /// For how long it may be idle.
    idle: Duration,
    too_old_at: Option<Instant>,
    stop: CancellationToken,
}

/// An extension of a request: it is cancelled once the connection is too old, or has been a stranger's for too long. Streams
/// end then, as when the node stops.
#[derive(Clone)]
pub struct TooOld(pub CancellationToken);

/// Serves one HTTP/2 connection until its other end closes it, it is idle for too long or too old, a stranger's for too long,
/// or the node stops.
///
/// # Errors
/// A text if the other end does not speak HTTP/2, or breaks it.
async fn serve_http2<S: Answering>(
    stream: impl AsyncRead + AsyncWrite + Unpin, http2: Builder<ReadInTime>, service: S,
    place: Arc<ConnectionPlace>, Ends { idle, too_old_at, stop }: Ends,
) -> Result<(), String> {
    let calls = place.calls();
    let of_connection = place.clone();
    let too_old = TooOld(stop.child_token());
    let told = too_old.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        if too_old_at.is_some() || of_connection.guest().is_some_and(|guest| guest.is_strangers()) {
            request.extensions_mut().insert(told.clone());
        }
        let mut call = of_connection.begin_call();
        let is_probe = PROBES.contains(&request.uri().path());
        // The call looks at once who asks, and does nothing else before it is polled.
        let answering = service.clone().call(request);
        let of_guest = of_connection.guest().map(|guest| guest.begin_call(is_probe));
        let begun = of_guest.transpose();
        call.of_guest = begun.as_ref().ok().cloned().flatten();
        async move {
            let answer = match begun {
                Ok(of_guest) => {
                    // From here on the code runs in the task of the call.
                    of_guest.iter().for_each(Guest::is_serving);
                    answering.await?
                }
                Err(refusal) => Status::from(refusal).into_http(),
            };
            Ok::<_, Infallible>(answered(call, answer))
        }
    });
    let mut connection = pin!(http2.serve_connection(TokioIo::new(stream), service));
    let ends = aside(async {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = calls.idle_for(idle) => {}
            () = until(too_old_at) => too_old.0.cancel(),
            () = place.is_strangers_for_too_long() => too_old.0.cancel(),
        }
    });
    tokio::select! {
        biased;
        () = ends => {}
        // Last: a caller that never pauses would leave no turn to a timer after it.
        ended = &mut connection => return ended.map_err(|error| error.to_string()),
    }
    // Tells the other end to begin no further calls. Those in progress are answered.
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        () = calls.idle_for(SHUTDOWN_TIME_MAX) => Ok(()),
        ended = &mut connection => ended.map_err(|error| error.to_string()),
    }
}

/// Waits until then; forever for `None`.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// Reads HTTP/2's preface. The stream that is returned begins with it again.
///
/// # Errors
/// A text if the stream ends first, or begins with anything else.
async fn read_preface(mut stream: Stream) -> Result<Stream, String> {
    let mut read = [0; PREFACE.len()];
    stream.read_exact(&mut read).await.map_err(|error: io::Error| error.to_string())?;
    if read != PREFACE {
        return Err("the other end does not speak HTTP/2".to_owned());
    }
    stream.put_back(Bytes::from_static(PREFACE));
    Ok(stream)
}

#[cfg(test)]
mod tests;
