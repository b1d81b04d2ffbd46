//! The connections of a port: accepts them up to a limit, closes idle ones, and ends the others gracefully
//! when the node stops.
//!
//! Invariant: a silent connection is closed within the limits below, and no connection delays the accepting of
//! the next one.

use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{body::Body, codegen::Service};

use super::calls::{CallBody, Calls};

/// How many calls of one connection may be in progress. Further ones wait at the client.
const CALLS_MAX: u32 = 1_024;
/// How many calls of one connection the client may reset before the server accepts them. Beyond this limit
/// HTTP/2 ends the connection, and with it the calls that are still wanted. The limit is high because a
/// stalled node reads everything that arrived meanwhile at once, and much of that may be calls whose
/// deadlines have passed. A higher limit would not help: HTTP/2 also ends the connection after some 2 300
/// small messages that were not processed.
const RESET_CALLS_MAX: usize = 2 * CALLS_MAX as usize;
/// How long a new connection may take to send HTTP/2's preface, or the headers of an HTTP/1 request.
const PREFACE_TIME_MAX: Duration = Duration::from_secs(5);
/// How long the other end of a connection without calls may take to close it, once it was told to.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(1);
/// How often HTTP/2 pings the other end of a connection, and how long that may take to answer.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The pause after a failed accept. The usual cause is a lack of file descriptors: the next accept would fail
/// at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// At most one warning about refused connections is logged in this time.
const WARNING_EVERY: Duration = Duration::from_secs(10);

/// The bytes that every HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// For gRPC.
    Http2,
    /// For scrapers and probes.
    Http1,
}

/// The limits for the connections of one port, and its metrics.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The port's name, for the log.
    pub port: &'static str,
    /// The port's protocol.
    pub protocol: Protocol,
    /// How many connections may be open at a time.
    pub connections_max: u64,
    /// How long a connection without a call in progress is kept; it may be kept up to twice as long.
    pub idle: Duration,
    /// How many connections are open.
    pub connections: Gauge,
    /// How many connections were refused because of the limit.
    pub refused: Counter,
}

/// Serves the connections of `listener` with `service` until `stop`. Then it accepts no more, and returns once
/// the calls in progress are answered. `service` must always be ready: `poll_ready` is not called.
pub async fn serve<S>(listener: TcpListener, service: S, limits: Limits, stop: CancellationToken)
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
{
    let (serving, protocol) = (TaskTracker::new(), http_builder(limits.protocol));
    let mut warned: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let why = match accepted {
            Ok((stream, from)) => match Slot::take(&limits) {
                Some(slot) => {
                    let (service, protocol) = (service.clone(), protocol.clone());
                    let (limits, stop) = (limits.clone(), stop.clone());
                    serving.spawn(async move {
                        let _slot = slot;
                        let served = serve_connection(stream, service, protocol, &limits, stop);
                        if let Err(error) = served.await {
                            tracing::debug!(port = limits.port, %from, error, "a connection failed");
                        }
                    });
                    continue;
                }
                None => refuse(&limits, from),
            },
            Err(error) if is_callers_fault(&error) => continue,
            Err(error) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                format!("cannot accept connections: {error}")
            }
        };
        if warned.is_none_or(|at: Instant| at.elapsed() > WARNING_EVERY) {
            warned = Some(Instant::now());
            tracing::warn!(port = limits.port, "{why}");
        }
    }
    drop(listener);
    serving.close();
    serving.wait().await;
}

/// Counts a refused connection. Returns the warning for the log.
fn refuse(limits: &Limits, from: SocketAddr) -> String {
    limits.refused.inc();
    format!(
        "refused a connection from {from}: the limit of {} connections is reached",
        limits.connections_max
    )
}

/// True if an accept failed because of the other end; then the next accept needs no pause.
fn is_callers_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted | WouldBlock
    )
}

/// The HTTP settings of a port.
fn http_builder(protocol: Protocol) -> auto::Builder<TokioExecutor> {
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut builder = match protocol {
        Protocol::Http2 => builder.http2_only(),
        Protocol::Http1 => builder.http1_only(),
    };
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(CALLS_MAX)
        .max_pending_accept_reset_streams(RESET_CALLS_MAX)
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(PREFACE_TIME_MAX);
    builder
}

/// Serves one connection until its other end closes it, it is idle for too long, or the node stops.
///
/// # Errors
/// A text if the other end sends nothing in time, does not speak the port's protocol, or breaks it.
async fn serve_connection<S>(
    stream: TcpStream,
    service: S,
    protocol: auto::Builder<TokioExecutor>,
    limits: &Limits,
    stop: CancellationToken,
) -> Result<(), String>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
{
    let greeting = timeout(
        PREFACE_TIME_MAX.min(limits.idle),
        read_preface(stream, limits.protocol),
    );
    let stream = tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        greeted = greeting => {
            greeted.map_err(|_| "the other end sent nothing in time".to_owned())??
        }
    };
    let calls = Arc::new(Calls::default());
    let of_connection = calls.clone();
    let service = service_fn(move |request| {
        let call = of_connection.begin();
        let answering = service.clone().call(request);
        async move {
            let response = answering.await?;
            Ok::<_, Infallible>(response.map(|body| CallBody::new(body, call)))
        }
    });
    let mut connection = pin!(protocol.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = &mut connection => return ended.map_err(|error| error.to_string()),
        () = stop.cancelled() => {}
        () = calls.idle_for(limits.idle) => {}
    }
    // Tells the other end to begin no further calls. Those in progress are answered.
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        ended = &mut connection => ended.map_err(|error| error.to_string()),
        () = calls.idle_for(SHUTDOWN_TIME_MAX) => Ok(()),
    }
}

/// Reads HTTP/2's preface on a port that speaks it. The stream that is returned begins with it again.
///
/// # Errors
/// A text if the stream ends first, or begins with anything else.
async fn read_preface(
    stream: TcpStream,
    protocol: Protocol,
) -> Result<impl AsyncRead + AsyncWrite + Unpin, String> {
    let failed = |error: io::Error| error.to_string();
    stream.set_nodelay(true).map_err(failed)?;
    let (mut reading, writing) = stream.into_split();
    let mut read: &[u8] = &[];
    if protocol == Protocol::Http2 {
        let mut greeting = [0; PREFACE.len()];
        reading.read_exact(&mut greeting).await.map_err(failed)?;
        if greeting != PREFACE {
            return Err("the other end does not speak HTTP/2".to_owned());
        }
        read = PREFACE;
    }
    Ok(tokio::io::join(read.chain(reading), writing))
}

/// One of a port's `connections_max` connections. Free again when dropped.
struct Slot(Gauge);

impl Slot {
    /// Takes a slot; `None` if all are taken. Not atomic: one task accepts all connections of a port.
    fn take(limits: &Limits) -> Option<Slot> {
        let taken = limits.connections.get().unsigned_abs();
        (taken < limits.connections_max).then(|| {
            limits.connections.inc();
            Slot(limits.connections.clone())
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.dec();
    }
}
