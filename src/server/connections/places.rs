//! The places of a port's connections: how many there are, and who gets one. If all are taken and another connection comes,
//! this file chooses the connection that ends.
//!
//! Anybody can open a connection and say nothing. Where a peer or a probe must get in, such connections make room for it.

use std::{
    collections::VecDeque,
    future::pending,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::calls::{Calls, OpenCall};
use crate::{clock::whole_ms, node::Guest};

/// How long a call of a scraper or a probe may take before its connection may end for another one's sake.
const CALL_TIME_MAX: Duration = Duration::from_secs(5);

/// How many connections a port may have, and which one ends when it has as many, and another one comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// The new one. The callers of all such ports are counted together (`Callers::connect`).
    RefuseNew,
    /// The oldest connection whose owner has to be known and is not; or else the oldest one without a call under way. If all
    /// have one, the oldest one whose call takes longer than [`CALL_TIME_MAX`].
    EndIdle(u64),
    /// The oldest one over which no member has spoken.
    EndStrangers(u64),
}

/// A connection's place among those of its port.
#[derive(Debug)]
pub struct ConnectionPlace {
    calls: Arc<Calls>,
    since: Instant,
    /// How many milliseconds after `since` its last call began. Known where a connection may end for that.
    last_call_ms: Option<AtomicU64>,
    is_members: AtomicBool,
    /// The client that has it, if it is a client's.
    guest: Option<Arc<Guest>>,
    /// `None` if no other connection can need the place.
    needed: Option<CancellationToken>,
}

impl ConnectionPlace {
    /// A place that is `guest`'s, if it is a client's.
    pub fn new(when_full: WhenFull, guest: Option<Arc<Guest>>) -> Arc<ConnectionPlace> {
        Arc::new(ConnectionPlace {
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
    pub fn begin_call(&self) -> OpenCall {
        if let Some(last_call_ms) = &self.last_call_ms {
            last_call_ms.store(self.age_ms(), Relaxed);
        }
        self.calls.begin()
    }

    fn age_ms(&self) -> u64 {
        whole_ms(self.since.elapsed())
    }

    /// The client that has it; `None` if it is no client's.
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

    /// Returns once the owner of the connection, which has to be known, has been unknown for too long.
    pub async fn is_strangers_for_too_long(&self) {
        match &self.guest {
            Some(guest) => guest.is_strangers_for_too_long().await,
            None => pending().await,
        }
    }

    /// Waits for the first bytes of a new connection. `first` is ready once they are there. The pools of some clients open
    /// connections before they need them. So while there are places enough, it may be silent for `idle`, as any other, and
    /// otherwise for `greeting`.
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
    /// Empty if no connection ends for another one. A connection that has ended holds its place no more: what is counted for
    /// its caller is uncounted at once.
    taken: VecDeque<Weak<ConnectionPlace>>,
}

impl Places {
    /// No place is taken yet.
    pub fn new(when_full: WhenFull) -> Places {
        Places { when_full, taken: VecDeque::new() }
    }

    /// A place for a further connection; `None` if all are taken and none of them may end.
    pub fn enter(&mut self, guest: Option<Arc<Guest>>) -> Option<Arc<ConnectionPlace>> {
        let place = ConnectionPlace::new(self.when_full, guest);
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
        let first_that = |may_end: &dyn Fn(&ConnectionPlace) -> bool| {
            // One that has ended meanwhile is the first choice.
            let fits =
                |place: &Weak<ConnectionPlace>| place.upgrade().is_none_or(|place| may_end(&place));
            self.taken.iter().position(fits)
        };
        let longest = whole_ms(CALL_TIME_MAX);
        let is_strangers =
            |place: &ConnectionPlace| place.guest().is_some_and(|guest| guest.is_strangers());
        let is_long = |place: &ConnectionPlace| {
            let last_call_ms = place.last_call_ms.as_ref().map(|ms| ms.load(Relaxed));
            last_call_ms.is_some_and(|ms| place.age_ms().saturating_sub(ms) > longest)
        };
        first_that(&is_strangers)
            .or_else(|| first_that(&|place| place.may_end(self.when_full)))
            .or_else(|| first_that(&is_long))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    use crate::{
        metrics::Metrics,
        node::{Callers, Config, CountedKind, Port},
        sequence::network_of,
    };

    fn is_needed(place: &ConnectionPlace) -> bool {
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
    async fn what_a_connection_counts_for_its_caller_is_freed_when_it_ends() {
        let callers = Callers::new(&Config::default(), &Metrics::new(), |_| false);
        let mut places = Places::new(WhenFull::EndIdle(2));
        let guest = callers.connect(Port::Administrators, [10, 0, 0, 1].into());
        let place = places.enter(Some(guest.expect("a connection"))).expect("room");
        assert_eq!(callers.held(CountedKind::AdminConnection), 1);
        drop(place);
        // No other connection has come since.
        assert_eq!(callers.held(CountedKind::AdminConnection), 0);
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
        let silent = async |place: Arc<ConnectionPlace>| {
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
