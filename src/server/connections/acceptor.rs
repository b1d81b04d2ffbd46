//! Accepts the connections of a port up to a limit, and waits for them when the node stops.
//!
//! Invariant: no connection delays the accepting of the next one. All interfaces for clients share one limit. Unused
//! connections to the ports for peers and probes keep no peer and no probe out.

use std::{io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use futures::future::Either;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    aside::aside,
    calls::SHUTDOWN_TIME_MAX,
    places::{ConnectionPlace, Places, WhenFull},
};
use crate::{
    clock::whole_ms,
    node::{Callers, Config, KNOWN_WITHIN, Port},
    random,
    server::rare_warning::RareWarning,
};

/// The pause after a failed accept. The usual cause is a lack of file descriptors: the next accept would fail
/// at once.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Up to 1/`AGE_DRAWN_PART` of the greatest age of a connection is taken off.
const AGE_DRAWN_PART: u32 = 4;

/// The limits for the connections of a port, and their metrics.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// The port's name, for the log.
    pub port: &'static str,
    /// How many connections may be open at a time, and which one ends when there are as many, and another one comes.
    pub when_full: WhenFull,
    /// How long a connection that is not used is kept; it may be kept up to twice as long.
    pub idle: Duration,
    /// How old a connection may become, at most; then no further call is begun over it.
    pub age_max: Option<Duration>,
    /// How many connections of this port are open.
    pub connections: Gauge,
    /// How many connections were refused because of the limit.
    pub refused: Counter,
    /// The bounds on callers, and the ports that they hold for; `None` if the port is for others.
    pub callers: Option<(Arc<Callers>, Port)>,
}

impl ConnectionLimits {
    /// The limits of a port of a node with this configuration. No metric shows its connections.
    pub fn new(config: &Config, port: &'static str, when_full: WhenFull) -> Self {
        ConnectionLimits {
            port,
            when_full,
            callers: None,
            idle: Duration::from_millis(config.connection_idle_ms),
            age_max: None,
            connections: Gauge::default(),
            refused: Counter::default(),
        }
    }

    /// When a connection that begins now is too old. The time is drawn at random, so that connections that began together do
    /// not end together.
    pub fn too_old_at(&self) -> Option<Instant> {
        let age_max = self.age_max?;
        let less = random::u64() % (1 + whole_ms(age_max / AGE_DRAWN_PART));
        Some(Instant::now() + age_max - Duration::from_millis(less))
    }
}

/// Has `serve` serve the connections of `listener` until `stop`. Then it accepts no more, and returns once all are
/// served.
pub async fn accept<F>(
    listener: TcpListener, limits: ConnectionLimits, stop: CancellationToken,
    serve: impl Fn(TcpStream, Arc<ConnectionPlace>) -> F,
) where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let serving = TaskTracker::new();
    let mut places = Places::new(limits.when_full);
    let warning = RareWarning::default();
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
        if warning.is_due() {
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
    places: &mut Places, limits: &ConnectionLimits, from: SocketAddr,
) -> Result<(Arc<ConnectionPlace>, OpenConnection), String> {
    let callers = limits.callers.as_ref();
    let guest = callers.map(|(callers, port)| callers.connect(*port, from.ip())).transpose()?;
    // The connection that ends for the new one leaves a moment later.
    let place = places.enter(guest);
    let place = place.ok_or("all connections are used that this port may have")?;
    limits.connections.inc();
    Ok((place, OpenConnection(limits.connections.clone())))
}

/// Serves a connection until it ends, another one needs its place, or it is a stranger's for too long. Memory that is reserved
/// meanwhile counts as its caller's.
async fn in_place(
    place: &ConnectionPlace, served: Pin<Box<impl Future<Output = Result<(), String>>>>,
) -> Result<(), String> {
    let served = match place.guest() {
        Some(guest) => Either::Left(guest.clone().scope(served)),
        None => Either::Right(served),
    };
    let is_strangers_for_too_long = async {
        place.is_strangers_for_too_long().await;
        // The protocol ends the connection in its own way, if it has one. Calls under way may be answered, and may even make
        // the caller known.
        let _ = timeout(KNOWN_WITHIN, place.calls().idle_for(SHUTDOWN_TIME_MAX)).await;
        place.is_strangers_for_too_long().await;
    };
    let ends = aside(async {
        tokio::select! {
            biased;
            () = place.is_needed() => "it made room for another connection".to_owned(),
            () = is_strangers_for_too_long => format!(
                "it brought neither a token nor a certificate that is known within {} s",
                KNOWN_WITHIN.as_secs()
            ),
        }
    });
    tokio::select! {
        biased;
        why = ends => Err(why),
        served = served => served,
    }
}

/// Counts a refused connection. Returns the warning for the log.
fn refuse(limits: &ConnectionLimits, from: SocketAddr, why: &str) -> String {
    limits.refused.inc();
    format!("refused a connection from {from}: {why}")
}

/// True if an accept failed because of the other end; then the next accept needs no pause.
fn is_callers_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
}

/// A connection that counts as open until this is dropped.
struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use crate::{metrics::Metrics, node::Guest, sequence::principal_id};

    /// The limits of a port for clients, by default.
    fn of_clients() -> ConnectionLimits {
        ConnectionLimits::new(&Config::default(), "client", WhenFull::RefuseNew)
    }

    /// A balancer that asks over a connection that the node is closing has its caller told of an error.
    #[test]
    fn a_connection_that_is_not_used_is_kept_longer_than_balancers_keep_it() {
        const BALANCERS: Duration = Duration::from_secs(600);
        assert!(of_clients().idle > BALANCERS, "{:?}", of_clients().idle);
    }

    /// For how many seconds a stranger's connection goes on if it does not end by itself; `None`: for more than a minute. A
    /// call is under way over it until the second `call_ends_at`, and at `known_at` a principal asks that is known.
    async fn goes_on_for(call_ends_at: u64, known_at: Option<u64>) -> Option<u64> {
        let callers = Callers::new(&Config::default(), &Metrics::new(), |_| true);
        let guest = callers.connect(Port::Clients, [10, 0, 0, 1].into()).expect("a connection");
        let place = ConnectionPlace::new(WhenFull::RefuseNew, Some(guest));
        let (began, call) = (Instant::now(), place.begin_call());
        let at = |second| tokio::time::sleep_until(began + Duration::from_secs(second));
        let calling = async {
            at(call_ends_at).await;
            drop(call);
        };
        let asking = async {
            if let Some(second) = known_at {
                at(second).await;
                Guest::is_asked_here_by(|| Some(principal_id("ci"))).expect("its share");
            }
        };
        let served = Box::pin(async {
            tokio::join!(calling, asking);
            pending::<Result<(), String>>().await
        });
        let ended = timeout(Duration::from_secs(60), in_place(&place, served)).await.ok()?;
        let why = ended.expect_err("it is a stranger's");
        assert!(why.contains("known within 5 s"), "{why}");
        Some(began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_strangers_connection_has_5_s_and_what_is_under_way_then_5_s_more() {
        // The protocol has a second to end it in its own way.
        assert_eq!(goes_on_for(0, None).await, Some(6));
        assert_eq!(goes_on_for(60, None).await, Some(10));
        for known_at in [4, 9] {
            assert_eq!(goes_on_for(60, Some(known_at)).await, None, "it is known in time");
        }
        assert_eq!(goes_on_for(60, Some(11)).await, Some(10));
    }

    #[tokio::test(start_paused = true)]
    async fn when_a_connection_is_too_old_is_drawn() {
        const MINUTE: Duration = Duration::from_secs(60);
        let limits = |age_max| ConnectionLimits { age_max, ..of_clients() };
        assert_eq!(limits(None).too_old_at(), None);
        let limits = limits(Some(MINUTE));
        let ages: Vec<_> = (0..100)
            .filter_map(|_| Some(limits.too_old_at()? - Instant::now()))
            .inspect(|age| assert!((MINUTE * 3 / 4..=MINUTE).contains(age), "{age:?}"))
            .collect();
        assert_eq!(ages.len(), 100);
        assert!(ages.iter().any(|age| *age != ages[0]), "they end together");
    }
}
