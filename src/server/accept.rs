//! Accepts the connections of a port up to a limit, and waits for them when the node stops.
//!
//! Invariant: no connection delays the accepting of the next one, and all doors for clients share one limit.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use tokio::{
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

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
    /// How many connections may be open at a time, in all ports that share `open`.
    pub connections_max: u64,
    /// How long a connection that is not used is kept; it may be kept up to twice as long.
    pub idle: Duration,
    /// How many connections are open, in all ports that share this.
    pub open: Arc<AtomicU64>,
    /// How many connections of this port are open.
    pub connections: Gauge,
    /// How many connections were refused because of the limit.
    pub refused: Counter,
}

/// Has `serve` serve the connections of `listener` until `stop`. Then it accepts no more, and returns once all are
/// served.
pub async fn accept<F>(
    listener: TcpListener, limits: Limits, stop: CancellationToken, serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let serving = TaskTracker::new();
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
                    let (port, served) = (limits.port, serve(stream));
                    serving.spawn(async move {
                        let _slot = slot;
                        if let Err(error) = served.await {
                            tracing::debug!(port, %from, error, "a connection failed");
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
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
}

/// One of the connections that may be open. Free again when dropped.
struct Slot {
    open: Arc<AtomicU64>,
    connections: Gauge,
}

impl Slot {
    /// Takes a slot; `None` if all are taken.
    fn take(limits: &Limits) -> Option<Slot> {
        let taken = limits.open.fetch_add(1, Relaxed);
        limits.connections.inc();
        let slot = Slot { open: limits.open.clone(), connections: limits.connections.clone() };
        (taken < limits.connections_max).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
        self.connections.dec();
    }
}
