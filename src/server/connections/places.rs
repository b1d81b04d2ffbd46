//! The places of a port's connections: how many there are, who gets one, and which connection ends when all are taken.

use std::{
    collections::VecDeque,
    future::pending,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::Either;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    aside::aside,
    calls::{Call, Calls, SHUTDOWN_TIME_MAX},
};
use crate::{
    clock::whole_ms,
    node::{Callers, Guest, KNOWN_WITHIN, Port},
    random,
    server::rare_warning::RareWarning,
};

// The places of a port's connections, and which of them ends when all are taken and another one comes.
//
// Anybody can open a connection and say nothing. Where a peer or a probe must get in, such connections make room for
// it.

/// How long a call of a scraper or a probe may take before its connection may end for another one's sake.
const CALL_TIME_MAX: Duration = Duration::from_secs(5);

/// How many connections a port may have, and which one ends when it has as many, and another one comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// The new one. The callers of all such ports are counted together (`Callers::connect`).
    RefuseNew,
    /// The oldest one of which nobody knows whose it is, although that has to be; or else the oldest one without a call under way.
    /// If all have one, the oldest one whose call takes longer than [`CALL_TIME_MAX`].
    EndIdle(u64),
    /// The oldest one over which no member has spoken.
    EndStrangers(u64),
}

/// A connection's place among those of its port.
#[derive(Debug)]
pub struct Place {
    calls: Arc<Calls>,
    since: Instant,
    /// How many milliseconds after `since` its last call began. Known where a connection may end for that.
    last_call_ms: Option<AtomicU64>,
    is_members: AtomicBool,
    /// Whose it is, if it is a client's.
    guest: Option<Arc<Guest>>,
    /// `None` if no other connection can need the place.
    needed: Option<CancellationToken>,
}

impl Place {
    /// A place that is `guest`'s, if it is a client's.
    pub fn new(when_full: WhenFull, guest: Option<Arc<Guest>>) -> Arc<Place> {
        Arc::new(Place {
            calls: Arc::default(),
            since: Instant::now(),
            last_call_ms: matches!(when_full, WhenFull::EndIdle(_)).then(AtomicU64::default),
            is_members: AtomicBool::new(false),
            guest,
            needed: (when_full != WhenFull::RefuseNew).then(CancellationToken::new),
        })
    }

    /// The connection's calls.
    pub fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// Counts a call as begun. It ends when the returned value is dropped.
    pub fn begin_call(&self) -> Call {
        if let Some(last_call_ms) = &self.last_call_ms {
            last_call_ms.store(self.age_ms(), Relaxed);
        }
        self.calls.begin()
    }

    fn age_ms(&self) -> u64 {
        whole_ms(self.since.elapsed())
    }

    /// Whose it is; `None` if it is no client's.
    pub fn guest(&self) -> Option<&Arc<Guest>> {
        self.guest.as_ref()
    }

    /// Keeps the place: a member has spoken over the connection.
    pub fn keep_for_member(&self) {
        self.is_members.store(true, Relaxed);
    }

    /// Returns when another connection needs the place.
    pub async fn is_needed(&self) {
        match (&self.needed, &self.guest) {
            (Some(needed), _) => needed.cancelled().await,
            (None, Some(guest)) => guest.is_needed().await,
            (None, None) => pending().await,
        }
    }

    /// Returns once nothing has come over the connection for too long by which it is known whose it is, although that has to be.
    pub async fn is_strangers_for_too_long(&self) {
        match &self.guest {
            Some(guest) => guest.is_strangers_for_too_long().await,
            None => pending().await,
        }
    }

    /// What a new connection says `first`. The pools of some clients open connections before they need them: it may be silent
    /// for `idle`, as any other, while there are places enough, and for `greeting` otherwise.
    ///
    /// # Errors
    /// A text if it says nothing in time.
    pub async fn greeted<T>(
        &self, first: impl Future<Output = T>, greeting: Duration, idle: Duration,
    ) -> Result<T, String> {
        let end = self.since + idle;
        let mut first = pin!(first);
        let mut look = self.since;
        while look < end {
            look = end.min(look + greeting);
            match timeout_at(look, first.as_mut()).await {
                Ok(said) => return Ok(said),
                Err(_) if self.guest().is_some_and(|guest| guest.is_crowded()) => break,
                Err(_) => {}
            }
        }
        Err("the other end sent nothing in time".to_owned())
    }

    fn may_end(&self, when_full: WhenFull) -> bool {
        match when_full {
            WhenFull::RefuseNew => false,
            WhenFull::EndIdle(_) => self.calls.are_none(),
            WhenFull::EndStrangers(_) => !self.is_members.load(Relaxed),
        }
    }
}

/// The places of a port, the oldest one first.
pub struct Places {
    when_full: WhenFull,
    /// Empty if no connection ends for another one. A connection that has ended holds its place no more: what is counted for its
    /// caller is given back at once.
    taken: VecDeque<Weak<Place>>,
}

impl Places {
    /// No place is taken yet.
    pub fn new(when_full: WhenFull) -> Places {
        Places { when_full, taken: VecDeque::new() }
    }

    /// A place for a further connection; `None` if all are taken and none of them may end.
    pub fn enter(&mut self, guest: Option<Arc<Guest>>) -> Option<Arc<Place>> {
        let place = Place::new(self.when_full, guest);
        let (WhenFull::EndIdle(max) | WhenFull::EndStrangers(max)) = self.when_full else {
            return Some(place);
        };
        self.taken.retain(|place| place.strong_count() > 0);
        if self.taken.len() as u64 >= max {
            let oldest = self.taken.remove(self.first_to_end()?)?;
            // It may have ended just now.
            if let Some(oldest) = oldest.upgrade() {
                oldest.needed.as_ref()?.cancel();
            }
        }
        self.taken.push_back(Arc::downgrade(&place));
        Some(place)
    }

    fn first_to_end(&self) -> Option<usize> {
        let first_that = |may_end: &dyn Fn(&Place) -> bool| {
            // One that has ended meanwhile is the first choice.
            let fits = |place: &Weak<Place>| place.upgrade().is_none_or(|place| may_end(&place));
            self.taken.iter().position(fits)
        };
        let longest = whole_ms(CALL_TIME_MAX);
        let is_strangers = |place: &Place| place.guest().is_some_and(|guest| guest.is_strangers());
        let is_long = |place: &Place| {
            let last_call_ms = place.last_call_ms.as_ref().map(|ms| ms.load(Relaxed));
            last_call_ms.is_some_and(|ms| place.age_ms().saturating_sub(ms) > longest)
        };
        first_that(&is_strangers)
            .or_else(|| first_that(&|place| place.may_end(self.when_full)))
            .or_else(|| first_that(&is_long))
    }
}

// Accepts the connections of a port up to a limit, and waits for them when the node stops.
//
// Invariant: no connection delays the accepting of the next one, and all interfaces for clients share one limit. Whoever
// holds connections of the ports for peers and probes without using them keeps no peer and no probe out.

/// The pause after a failed accept. The usual cause is a lack of file descriptors: the next accept would fail
/// at once.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Up to 1/`AGE_DRAWN_PART` of the greatest age of a connection is taken off.
const AGE_DRAWN_PART: u32 = 4;

/// The limits for the connections of a port, and their metrics.
#[derive(Debug, Clone)]
pub struct Limits {
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
    /// What callers may hold, and at which ports; `None` if the port is for others.
    pub callers: Option<(Arc<Callers>, Port)>,
}

impl Limits {
    /// When a connection that begins now is too old. It is drawn, so that those that began together do not end together.
    pub fn too_old_at(&self) -> Option<Instant> {
        let age_max = self.age_max?;
        let less = random::u64() % (1 + whole_ms(age_max / AGE_DRAWN_PART));
        Some(Instant::now() + age_max - Duration::from_millis(less))
    }
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
    places: &mut Places, limits: &Limits, from: SocketAddr,
) -> Result<(Arc<Place>, Open), String> {
    let callers = limits.callers.as_ref();
    let guest = callers.map(|(callers, port)| callers.connect(*port, from.ip())).transpose()?;
    // The one that ends for it leaves a moment later.
    let place = places.enter(guest);
    let place = place.ok_or("all connections are used that this port may have")?;
    limits.connections.inc();
    Ok((place, Open(limits.connections.clone())))
}

/// Serves a connection until it ends, another one needs its place, or it is a stranger's for too long. The memory that is reserved
/// in doing so is its caller's.
async fn in_place(
    place: &Place, served: Pin<Box<impl Future<Output = Result<(), String>>>>,
) -> Result<(), String> {
    let served = match place.guest() {
        Some(guest) => Either::Left(guest.clone().scope(served)),
        None => Either::Right(served),
    };
    let is_strangers_for_too_long = async {
        place.is_strangers_for_too_long().await;
        // The protocol ends it in its own way, if it has one. What is under way may be answered, and may even bring what is known.
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    use crate::{
        metrics::Metrics,
        node::{Callers, Config, Kind},
        sequence::network_of,
    };

    fn is_needed(place: &Place) -> bool {
        place.is_needed().now_or_never().is_some()
    }

    #[tokio::test]
    async fn a_new_connection_ends_the_oldest_one_over_which_no_member_has_spoken() {
        let mut places = Places::new(WhenFull::EndStrangers(3));
        let [first, second, third] = std::array::from_fn(|_| places.enter(None).expect("room"));
        first.keep_for_member();
        let fourth = places.enter(None).expect("the second one's place");
        assert_eq!([&first, &second, &third].map(|place| is_needed(place)), [false, true, false]);
        third.keep_for_member();
        fourth.keep_for_member();
        assert!(places.enter(None).is_none(), "all are members'");
        drop(first);
        places.enter(None).expect("the first one's place, which has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_ends_the_oldest_one_without_a_call_or_else_one_with_a_long_call() {
        let mut places = Places::new(WhenFull::EndIdle(2));
        let [first, second] = std::array::from_fn(|_| places.enter(None).expect("room"));
        // Old connections, whose calls are new.
        tokio::time::advance(2 * CALL_TIME_MAX).await;
        let call = first.begin_call();
        let third = places.enter(None).expect("the second one's place");
        assert_eq!([&first, &second].map(|place| is_needed(place)), [false, true]);
        let _long = third.begin_call();
        assert!(places.enter(None).is_none(), "both have a call under way");
        tokio::time::advance(2 * CALL_TIME_MAX).await;
        drop(call);
        let _next = first.begin_call();
        places.enter(None).expect("the third one's place: its call takes too long");
        assert_eq!([&first, &third].map(|place| is_needed(place)), [false, true]);
    }

    #[tokio::test]
    async fn a_strangers_connection_ends_before_an_idle_one_of_whoever_may_ask() {
        let closed = network_of([10, 0, 0, 2].into());
        let is_closed = move |network| network == closed;
        let callers = Callers::new(&Config::default(), &Metrics::new(), is_closed);
        let mut places = Places::new(WhenFull::EndIdle(2));
        let [idle, stranger] = [1, 2].map(|host| {
            let guest = callers.connect(Port::Administrators, [10, 0, 0, host].into());
            places.enter(Some(guest.expect("a connection"))).expect("room")
        });
        let _call = stranger.begin_call();
        places.enter(None).expect("the stranger's place, whatever it asks");
        assert_eq!([&idle, &stranger].map(|place| is_needed(place)), [false, true]);
    }

    #[tokio::test]
    async fn what_a_connection_counts_for_its_caller_is_given_back_when_it_ends() {
        let callers = Callers::new(&Config::default(), &Metrics::new(), |_| false);
        let mut places = Places::new(WhenFull::EndIdle(2));
        let guest = callers.connect(Port::Administrators, [10, 0, 0, 1].into());
        let place = places.enter(Some(guest.expect("a connection"))).expect("room");
        assert_eq!(callers.held(Kind::AdminConnection), 1);
        drop(place);
        // No other connection has come since.
        assert_eq!(callers.held(Kind::AdminConnection), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn when_a_connection_is_too_old_is_drawn() {
        const MINUTE: Duration = Duration::from_secs(60);
        let limits = |age_max| Limits {
            port: "client",
            when_full: WhenFull::RefuseNew,
            idle: MINUTE,
            age_max,
            connections: Gauge::default(),
            refused: Counter::default(),
            callers: None,
        };
        assert_eq!(limits(None).too_old_at(), None);
        let limits = limits(Some(MINUTE));
        let ages: Vec<_> = (0..100)
            .filter_map(|_| Some(limits.too_old_at()? - Instant::now()))
            .inspect(|age| assert!((MINUTE * 3 / 4..=MINUTE).contains(age), "{age:?}"))
            .collect();
        assert_eq!(ages.len(), 100);
        assert!(ages.iter().any(|age| *age != ages[0]), "they end together");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_stays_as_long_as_an_idle_one_unless_places_are_short() {
        const GREETING: Duration = Duration::from_secs(5);
        const IDLE: Duration = Duration::from_secs(600);
        let config = Config { client_connections_max: 4, ..Config::default() };
        let callers = Callers::new(&config, &Metrics::new(), |_| false);
        let enter = || {
            let guest = callers.connect(Port::Clients, [10, 0, 0, 1].into()).expect("a connection");
            Places::new(WhenFull::RefuseNew).enter(Some(guest)).expect("room")
        };
        let silent = async |place: Arc<Place>| {
            let began = Instant::now();
            let ended = place.greeted(pending::<()>(), GREETING, IDLE).await;
            ended.expect_err("it says nothing");
            began.elapsed()
        };
        assert_eq!(silent(enter()).await, IDLE);
        let late = tokio::time::sleep(IDLE / 2);
        enter().greeted(late, GREETING, IDLE).await.expect("it speaks in time");
        let _other = enter();
        assert_eq!(silent(enter()).await, GREETING);
    }
}
