//! The connections of a port: how many there are at a time, how long they may be silent, and how they
//! end.
//!
//! Invariant: a connection that says nothing costs no memory for longer than the limits say, and none
//! of those that come keeps the node from accepting the next.

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

/// How many calls one connection may have under way; more wait at the client.
const CALLS_MAX: u32 = 1_024;
/// How many calls of one connection may be taken back before they were looked at. After a stall all
/// that came in meanwhile is read at once, and much of it may be calls whose deadlines have passed.
/// Beyond this HTTP/2 ends the connection, and with it the calls that are still wanted. (So it does
/// beyond some 2 300 small messages that nobody has looked at: more would not help.)
const RESET_CALLS_MAX: usize = 2 * CALLS_MAX as usize;
/// How long a connection may take until it has said that it speaks HTTP/2, or what it wants.
const PREFACE_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a connection that is told to end may take to say goodbye.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(1);
/// How often a connection is asked whether its other end is still there, and for how long it may not
/// answer.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// How long nothing is accepted after it has failed: it fails again at once, mostly, for want of file
/// descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often it is told that connections are refused.
const WARNING_EVERY: Duration = Duration::from_secs(10);

/// What HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// For gRPC.
    Http2,
    /// For scrapers and probes.
    Http1,
}

/// What holds for the connections of one port.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The port's name, for the log.
    pub port: &'static str,
    /// What it speaks.
    pub protocol: Protocol,
    /// How many connections there are at most.
    pub connections_max: u64,
    /// How long a connection without a call under way is kept; up to twice as long.
    pub idle: Duration,
    /// How many connections there are.
    pub connections: Gauge,
    /// How many were refused since there were too many.
    pub refused: Counter,
}

/// Serves `listener` with `service`, which is always ready, until `stop`; then until the calls under
/// way are answered.
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
                            tracing::debug!(port = limits.port, %from, error, "connection failed");
                        }
                    });
                    continue;
                }
                None => refusal(&limits, from),
            },
            Err(error) if is_callers_fault(&error) => continue,
            Err(error) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                format!("no connection can be accepted: {error}")
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

fn refusal(limits: &Limits, from: SocketAddr) -> String {
    limits.refused.inc();
    format!(
        "refused a connection from {from}: there are {} already, as many as there may be",
        limits.connections_max
    )
}

/// Whether an accept failed for a reason that lies with who connected.
fn is_callers_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted | WouldBlock
    )
}

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

/// One connection, from its first byte to its end.
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
            greeted.map_err(|_| "it did not say what it wants".to_owned())??
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
    // The other end is told, starts nothing new, and gets the answers to what it has under way.
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        ended = &mut connection => ended.map_err(|error| error.to_string()),
        () = calls.idle_for(SHUTDOWN_TIME_MAX) => Ok(()),
    }
}

/// The stream, once its other end has said that it speaks HTTP/2.
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
            return Err("it does not speak HTTP/2".to_owned());
        }
        read = PREFACE;
    }
    Ok(tokio::io::join(read.chain(reading), writing))
}

/// A place among a port's connections; free again when dropped.
struct Slot(Gauge);

impl Slot {
    /// One place, if there is one. The connections of a port are accepted by one task.
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
