//! Connections of clients: whose each is, and which ones end if nobody says so.
//!
//! A connection begins as one of its address. Once something comes over it that this node knows (a token, or a certificate), it is
//! one of that principal, wherever it was opened: so are its calls, and what they hold. A proxy may bring several principals: the
//! connection is that of whoever asked last.
//!
//! Where anonymous may do nothing, it is a stranger's until then: it has one call at a time ([`STRANGERS_CALLS_MAX`]), and
//! [`KNOWN_WITHIN`].
//!
//! Invariant: strangers keep nobody out. If there is no room for a connection, the one ends that was opened first by a stranger.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    Caller, Counted, Full, Kind, PLACE_AFTER_MS, PROBES, PROBES_OF_EACH, RETRY_AFTER_MS, SERVED,
    Served,
};
use crate::proto::{Refusal, refusal};

/// How soon something must come over a connection by which its principal is known, where anonymous may do nothing.
pub const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// How many calls it may have in progress until then: one, and one that has just been answered. Whoever reads the answer may ask
/// again before the node has let go of the call.
const STRANGERS_CALLS_MAX: u64 = 2;

/// A connection of a client, until it is dropped.
#[derive(Debug)]
pub struct Guest {
    /// Its place: that of its address at first, then of its principal.
    place: ArcSwap<Counted>,
    /// What names its address.
    network: u64,
    opened: Instant,
    /// Cancelled when another connection needs its place.
    needed: CancellationToken,
}

impl Guest {
    /// The connection that has this place among those of its address.
    pub(super) fn new(place: Counted) -> Arc<Guest> {
        let caller = place.caller.clone();
        let guest = Arc::new(Guest {
            network: caller.id(),
            place: ArcSwap::from_pointee(place),
            opened: Instant::now(),
            needed: CancellationToken::new(),
        });
        if caller.callers.are_closed_to(guest.network) {
            caller.strangers.add(&guest);
            caller.callers.strangers.add(&guest);
        }
        guest
    }

    /// Whose it is.
    pub fn caller(&self) -> Arc<Caller> {
        self.place.load().caller.clone()
    }

    /// Makes it a connection of the principal that `id` names.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if that principal has as many as it may have. Then it is whose it was before.
    pub fn belongs_to(&self, id: u64) -> Result<(), Refusal> {
        let before = self.place.load();
        if before.caller.id() == id {
            return Ok(());
        }
        let caller = before.caller.callers.caller(id);
        // There is room for it among all: it has its place there.
        let place = caller.begin(Kind::Connection, [0, u64::MAX]).map_err(|full| {
            full.refused("connections, and may have no more (client_share_percent)", PLACE_AFTER_MS)
        })?;
        self.place.store(Arc::new(place));
        Ok(())
    }

    /// The connection that this task serves, if its calls come one after the other, or none has begun.
    pub fn current() -> Option<Arc<Guest>> {
        let served = SERVED.try_with(|served| match served {
            Served::Guest(guest) => Some(guest.clone()),
            Served::Caller(_) => None,
        });
        served.ok().flatten()
    }

    /// The future in which reservations of memory are those of whoever's the connection is by then.
    pub fn scope<F: Future>(self: Arc<Self>, future: F) -> impl Future<Output = F::Output> {
        SERVED.scope(Served::Guest(self), future)
    }

    /// Whether nobody knows whose it is, and has to.
    pub fn is_strangers(&self) -> bool {
        let place = self.place.load();
        !place.caller.is_principal() && place.caller.callers.are_closed_to(self.network)
    }

    /// Returns when it has to end because nobody knows whose it is, and the time for that is over. The call in progress is
    /// answered.
    pub async fn is_strangers_for_too_long(&self) {
        sleep_until(self.opened + KNOWN_WITHIN).await;
        if !self.is_strangers() {
            std::future::pending().await
        }
    }

    /// Returns when another connection needs its place.
    pub async fn is_needed(&self) {
        self.needed.cancelled().await;
    }

    /// Has it end for another one. False if it is to go on, or ends already.
    fn make_room(&self) -> bool {
        let ends = !self.needed.is_cancelled() && self.is_strangers();
        if ends {
            self.needed.cancel();
        }
        ends
    }

    /// Whether more than half of the connections are open that there may be, or that whoever opened it may have.
    pub fn is_crowded(&self) -> bool {
        let (place, at) = (self.place.load(), Kind::Connection as usize);
        let (caller, share) = (&place.caller, place.caller.callers.shares[at]);
        caller.callers.held[at].load(Relaxed) > share.all / 2
            || caller.held[at].load(Relaxed) > share.of_each / 2
    }

    /// A further call by gRPC over it, which makes `calls` in progress over it. One that is refused is counted as an error: no service
    /// sees it; a stream that is silent makes room for the next one. There is room for some probes when there is none for other
    /// calls.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if this caller, or all together, have as many calls in progress as they may have; or if the connection is
    /// a stranger's and has others.
    pub fn begin_call(&self, is_probe: bool, calls: u64) -> Result<Counted, Refusal> {
        let caller = self.caller();
        if calls > STRANGERS_CALLS_MAX && self.is_strangers() {
            caller.callers.refused.inc();
            return Err(refusal!(
                Busy,
                "a connection has one call at a time until one has brought a token or a certificate that is known here; try \
                 again in {RETRY_AFTER_MS} ms"
            )
            .retry_after(RETRY_AFTER_MS));
        }
        let beyond = if is_probe { [PROBES_OF_EACH, PROBES] } else { [0; 2] };
        caller.begin(Kind::Call, beyond).map_err(|full| {
            caller.callers.refused.inc();
            match full {
                Full::OfOne(..) => caller.silent.end_one(),
                Full::OfAll(_) => caller.callers.silent.end_one(),
            }
            let what =
                "calls in progress, and may have no more (client_calls_max, client_share_percent)";
            full.refused(what, RETRY_AFTER_MS)
        })
    }
}

/// Connections that were opened where anonymous may do nothing, the oldest one first.
#[derive(Default)]
pub(super) struct Strangers(Mutex<VecDeque<Weak<Guest>>>);

impl fmt::Debug for Strangers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Strangers").finish_non_exhaustive()
    }
}

impl Strangers {
    fn add(&self, guest: &Arc<Guest>) {
        let mut all = self.0.lock();
        // Those that have ended, or are known by now, are forgotten before there is room for twice as many.
        if all.len() == all.capacity() {
            all.retain(|guest| guest.upgrade().is_some_and(|guest| guest.is_strangers()));
            let many = all.len();
            all.reserve(many + 1);
        }
        all.push_back(Arc::downgrade(guest));
    }

    /// Has the oldest one end that is still a stranger's. False if there is none.
    pub(super) fn make_room(&self) -> bool {
        let mut all = self.0.lock();
        while let Some(oldest) = all.pop_front() {
            if oldest.upgrade().is_some_and(|guest| guest.make_room()) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    use super::super::Callers;
    use crate::{
        metrics::Metrics,
        node::Config,
        sequence::{network_of, principal_id},
    };

    /// Callers of a node with four connections, of which each may have three, and where anonymous may do something from 10.0.0.9
    /// alone.
    fn callers() -> Arc<Callers> {
        let config = Config {
            client_connections_max: 4,
            client_calls_max: 100,
            client_share_percent: 75,
            ..Config::default()
        };
        let open = network_of([10, 0, 0, 9].into());
        Callers::new(&config, &Metrics::new(), move |network| network != open)
    }

    fn from(callers: &Arc<Callers>, host: u8) -> Result<Arc<Guest>, String> {
        callers.connect([10, 0, 0, host].into())
    }

    fn ends(future: impl Future<Output = ()>) -> bool {
        future.now_or_never().is_some()
    }

    #[test]
    fn a_principal_has_one_share_wherever_it_connects_from_and_its_address_has_its_own_again() {
        let callers = callers();
        let ci = principal_id("ci");
        let first = [1, 2, 3].map(|host| from(&callers, host).expect("a connection"));
        first.iter().for_each(|guest| guest.belongs_to(ci).expect("its share"));
        assert!(
            first.iter().all(|guest| guest.caller().id() == ci && guest.caller().is_principal())
        );
        let fourth = from(&callers, 1).expect("the last one of all");
        let refused = fourth.belongs_to(ci).expect_err("it has three");
        assert!(refused.message().starts_with("your principal has 3 connections"), "{refused}");
        assert_eq!(fourth.caller().id(), network_of([10, 0, 0, 1].into()), "whose it was");
        drop(first);
        fourth.belongs_to(ci).expect("there is room");
        fourth.belongs_to(principal_id("other")).expect("whoever asked last");
        let _others = [(); 3].map(|()| from(&callers, 1).expect("none of its address is left"));
    }

    #[test]
    fn a_principals_memory_and_calls_are_its_own_and_none_of_its_address() {
        let callers = callers();
        let [known, stranger] = [(); 2].map(|()| from(&callers, 1).expect("a connection"));
        known.belongs_to(principal_id("ci")).expect("its share");
        let calls = [(); 75].map(|()| known.begin_call(false, 9).expect("its share"));
        let refused = known.begin_call(false, 9).expect_err("its share is used up");
        assert!(refused.message().starts_with("your principal has 75 calls"), "{refused}");
        stranger.begin_call(false, 1).expect("its address has none");
        known.caller().hold(1 << 20);
        assert_eq!(stranger.caller().hold(0), 0);
        drop(calls);
    }

    #[test]
    fn a_strangers_connection_has_one_call_at_a_time_until_its_principal_is_known() {
        let callers = callers();
        let guest = from(&callers, 1).expect("a connection");
        let call = guest.begin_call(false, 1).expect("one call");
        drop(guest.begin_call(false, 2).expect("one that is answered may be in progress"));
        for is_probe in [false, true] {
            let refused = guest.begin_call(is_probe, 3).expect_err("a third one");
            assert!(refused.message().contains("one call at a time"), "{refused}");
        }
        guest.belongs_to(principal_id("ci")).expect("its share");
        guest.begin_call(false, 9).expect("it is known");
        drop(call);
        let open = from(&callers, 9).expect("a connection");
        let _calls = [(); 2].map(|()| open.begin_call(false, 9).expect("anonymous may ask there"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_strangers_connection_ends_in_time_and_no_other_does() {
        let callers = callers();
        let [known, stranger] = [(); 2].map(|()| from(&callers, 1).expect("a connection"));
        let open = from(&callers, 9).expect("a connection");
        known.belongs_to(principal_id("ci")).expect("its share");
        let too_long = |guest: &Arc<Guest>| {
            let guest = guest.clone();
            Box::pin(async move { guest.is_strangers_for_too_long().await })
        };
        let [mut of_known, mut of_stranger, mut of_open] = [&known, &stranger, &open].map(too_long);
        assert!(!ends(&mut of_stranger));
        tokio::time::advance(KNOWN_WITHIN).await;
        assert!(ends(&mut of_stranger));
        assert!(!ends(&mut of_known) && !ends(&mut of_open));
    }

    #[test]
    fn the_oldest_stranger_makes_room_for_a_connection_and_nobody_else_does() {
        let callers = callers();
        let known = from(&callers, 1).expect("a connection");
        known.belongs_to(principal_id("ci")).expect("its share");
        let open = from(&callers, 9).expect("a connection");
        let strangers = [1, 2].map(|host| from(&callers, host).expect("a connection"));
        let needed = |guest: &Arc<Guest>| ends(guest.is_needed());
        let fifth = from(&callers, 3).expect("a stranger's place");
        assert!(needed(&strangers[0]) && !needed(&strangers[1]), "the oldest one");
        fifth.belongs_to(principal_id("app")).expect("while the other one has not left yet");
        let sixth = from(&callers, 3).expect("a stranger's place, who has not left yet");
        assert!(needed(&strangers[1]));
        assert!(!needed(&known) && !needed(&open));
        drop(strangers);
        // An address that has its share makes room by its own.
        let callers = self::callers();
        let own = [(); 3].map(|()| from(&callers, 1).expect("its share"));
        let _more = from(&callers, 1).expect("the place of its own first one");
        assert!(needed(&own[0]) && !needed(&own[1]));
        drop((fifth, sixth));
        // Where all are known, the new one is refused.
        let callers = self::callers();
        let all = ["a", "b", "c", "d"].map(|name| {
            let guest = from(&callers, 1).expect("a connection");
            guest.belongs_to(principal_id(name)).expect("its share");
            guest
        });
        let refused = from(&callers, 1).expect_err("nobody may end");
        assert!(refused.contains("client_connections_max"), "{refused}");
        assert!(!all.iter().any(needed));
    }
}
