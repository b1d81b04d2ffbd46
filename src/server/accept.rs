//! Accepts the connections of a port up to a limit, and waits for them when the node stops.
//!
//! Invariant: no connection delays the accepting of the next one, and all doors for clients share one limit. Whoever holds
//! connections of the ports for peers and probes without using them keeps no peer and no probe out.

use std::{io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use tokio::{
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::places::{Place, Places, WhenFull};
use crate::node::{Caller, Callers};

/// The pause after a failed accept. The usual cause is a lack of file descriptors: the next accept would fail
/// at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// At most one warning about refused connections is logged in this time.
const WARNING_EVERY: Duration = Duration::from_secs(10);

/// The limits for the connections of a port, and their metrics.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The port's name, for the log.
    pub port: &'static str,
    /// How many connections may be open at a time, and which one ends when there are as many, and another one comes.
    pub when_full: WhenFull,
    /// How long a connection that is not used is kept; it may be kept up to twice as long.
    pub idle: Duration,
    /// How many connections of this port are open.
    pub connections: Gauge,
    /// How many connections were refused because of the limit.
    pub refused: Counter,
    /// What callers may hold, in all ports for clients; `None` if the port is not for clients.
    pub callers: Option<Arc<Callers>>,
}

/// Has `serve` serve the connections of `listener` until `stop`. Then it accepts no more, and returns once all are
/// served.
pub async fn accept<F>(
    listener: TcpListener, limits: Limits, stop: CancellationToken,
    serve: impl Fn(TcpStream, Arc<Place>) -> F,
) where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let serving = TaskTracker::new();
    let mut places = Places::new(limits.when_full);
    let mut warned: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let why = match accepted {
            Ok((stream, from)) => match enter(&mut places, &limits, from) {
                Ok((place, open)) => {
                    let (port, served) = (limits.port, Box::pin(serve(stream, place.clone())));
                    serving.spawn(async move {
                        let _open = open;
                        if let Err(error) = in_place(&place, served).await {
                            tracing::debug!(port, %from, error, "a connection failed");
                        }
                    });
                    continue;
                }
                Err(why) => refuse(&limits, from, &why),
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

/// Room for a further connection.
///
/// # Errors
/// A text if there is none, or `from` has its share.
fn enter(
    places: &mut Places, limits: &Limits, from: SocketAddr,
) -> Result<(Arc<Place>, Open), String> {
    let callers = limits.callers.as_ref();
    let guest = callers.map(|callers| callers.connect(from.ip())).transpose()?;
    // The one that ends for it leaves a moment later.
    let place = places.enter(guest);
    let place = place.ok_or("all connections are used that this port may have")?;
    limits.connections.inc();
    Ok((place, Open(limits.connections.clone())))
}

/// Serves a connection until it ends, or another one needs its place. The memory that is reserved in doing so is its caller's.
async fn in_place(
    place: &Place, served: Pin<Box<impl Future<Output = Result<(), String>>>>,
) -> Result<(), String> {
    let served = Caller::scope(place.caller(), served);
    tokio::select! {
        biased;
        () = place.is_needed() => Err("it made room for another connection".to_owned()),
        served = served => served,
    }
}

/// Counts a refused connection. Returns the warning for the log.
fn refuse(limits: &Limits, from: SocketAddr, why: &str) -> String {
    limits.refused.inc();
    format!("refused a connection from {from}: {why}")
}

/// True if an accept failed because of the other end; then the next accept needs no pause.
fn is_callers_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
}

/// A connection that counts as open until this is dropped.
struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
