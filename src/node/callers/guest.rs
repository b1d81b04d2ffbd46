//! The connections of clients: whose each one is, whose its calls are, and which ones end if nobody says whose they are.
//!
//! A connection begins as one of its address. Once something comes over it that this node knows (a token, or a certificate), it
//! is one of that principal, wherever it was opened. A proxy may bring several principals: the connection is the first one's,
//! and each call counts for the principal that asks in it.
//!
//! Where anonymous may do nothing, it is a stranger's until then: it has one call at a time, and [`KNOWN_WITHIN`].
//!
//! Invariant: strangers keep nobody out who is known. If there is no room for a connection, the one ends that was opened first
//! by a stranger. All else that strangers hold is one share, of all of them together.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Relaxed},
        },
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::time::{Instant, sleep_until};

use super::{
    Caller, Callers, Counted, CountedKind, Full, LEAVING_MAX, PLACE_AFTER_MS, Port, RETRY_AFTER_MS,
    STRANGERS, strangers::ConnectionStanding,
};
use crate::proto::{Refusal, refusal};

/// How soon something must come over a connection by which its principal is known, where anonymous may do nothing.
pub const KNOWN_WITHIN: Duration = Duration::from_secs(5);

/// The kind that a caller has too many of, in the text that tells it so.
const CALLS: &str =
    "calls in progress, and may have no more (client_calls_max, client_share_percent)";

/// A connection of a client, until it is dropped.
#[derive(Debug)]
pub struct Guest {
    port: Port,
    /// Its place: that of its address at first, then of its principal.
    place: Counted,
    /// The caller that asks over it now.
    asks: ArcSwap<Caller>,
    opened: Instant,
    /// From which address it was opened, and whether it may end for another one.
    standing: Arc<ConnectionStanding>,
}

/// A call over a connection that has others: it is of the principal that asked when it began, or of the one that asks in it
/// once that is known. So is its place among the calls.
#[derive(Debug)]
pub struct GuestCall {
    guest: Arc<Guest>,
    place: Counted,
    /// Whether it has its turn over a stranger's connection.
    has_turn: AtomicBool,
}

impl Drop for GuestCall {
    fn drop(&mut self) {
        self.is_answered();
    }
}

impl GuestCall {
    /// Its connection is given the end of its answer next: a caller that reads that may ask again, before the node has let
    /// go of the call.
    pub fn is_answered(&self) {
        if self.has_turn.load(Relaxed) && self.has_turn.swap(false, AcqRel) {
            self.guest.standing.end_turn();
        }
    }

    /// The caller that has its place.
    pub(super) fn caller(&self) -> Arc<Caller> {
        self.place.caller()
    }

    /// The principal asks in it that `id` names, if one is known. It becomes that principal's, and so does the connection, if
    /// nobody's is known so far.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if that principal has as many calls, or connections, as it may have.
    pub(super) fn is_asked_by(&self, id: impl FnOnce() -> Option<u64>) -> Result<(), Refusal> {
        // Each message of a stream comes here: nothing is written that all threads share.
        let before = self.place.caller.load();
        if before.is_principal() {
            return Ok(());
        }
        let Some(id) = id() else {
            return Ok(());
        };
        let caller = before.callers.caller(id);
        self.guest.belongs_to(&caller)?;
        self.place.become_of(&caller).map_err(|full| full.refused(CALLS, RETRY_AFTER_MS))
    }
}

impl Guest {
    /// The connection of `port` that has this place among those of its address.
    pub(super) fn new(port: Port, place: Counted) -> Arc<Guest> {
        let caller = place.caller();
        let standing = ConnectionStanding::unknown(caller.id());
        // The port for administrators has its own rule of who ends.
        if port == Port::Clients {
            caller.strangers.add(&standing);
            caller.callers.strangers.add(&standing);
        }
        Arc::new(Guest {
            port,
            place,
            asks: ArcSwap::new(caller),
            opened: Instant::now(),
            standing,
        })
    }

    /// The caller to whom calls over this connection, and their memory, are charged now: the principal that asks, if it is
    /// known, or else its address, or all strangers.
    pub fn caller(&self) -> Arc<Caller> {
        let asks = self.asks.load();
        match !asks.is_principal() && asks.callers.are_closed_to(self.standing.network) {
            true => asks.callers.caller(STRANGERS),
            false => asks.clone(),
        }
    }

    /// From here on the principal asks over it that `id` names, or somebody of its address. It becomes that principal's, if it
    /// is nobody's yet.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if it would become that principal's, who has as many as it may have.
    pub(super) fn is_asked_by(&self, id: Option<u64>) -> Result<(), Refusal> {
        let (before, id) = (self.asks.load(), id.unwrap_or(self.standing.network));
        if before.id() != id {
            let caller = before.callers.caller(id);
            self.belongs_to(&caller)?;
            self.asks.store(caller);
        }
        Ok(())
    }

    /// Makes it `caller`'s, if that is a principal, and it is nobody's yet.
    fn belongs_to(&self, caller: &Arc<Caller>) -> Result<(), Refusal> {
        if !caller.is_principal() || self.standing.is_known() {
            return Ok(());
        }
        self.place.become_of(caller).map_err(|full| {
            full.refused("connections, and may have no more (client_share_percent)", PLACE_AFTER_MS)
        })?;
        self.standing.become_known();
        Ok(())
    }

    /// Whether nobody knows whose it is, and has to.
    pub fn is_strangers(&self) -> bool {
        !self.standing.is_known() && self.asks.load().callers.are_closed_to(self.standing.network)
    }

    /// Returns once it is known whose it is.
    pub async fn becomes_known(&self) {
        self.standing.becomes_known().await;
    }

    /// Returns if nobody knows whose it is although the time for that is over.
    pub async fn is_strangers_for_too_long(&self) {
        sleep_until(self.opened + KNOWN_WITHIN).await;
        if !self.is_strangers() {
            std::future::pending().await
        }
    }

    /// Returns when another connection needs its place.
    pub async fn is_needed(&self) {
        self.standing.is_needed().await;
    }

    /// Whether more than half of the connections are open that there may be, or that its owner may have.
    pub fn is_crowded(&self) -> bool {
        let (caller, at) = (self.place.caller(), self.port.connection() as usize);
        let share = caller.callers.shares[at];
        caller.callers.held[at].load(Relaxed) > share.all / 2
            || caller.held[at].load(Relaxed) > share.of_each / 2
    }

    /// A further call by gRPC over it. One that is refused is counted as an error: no service sees it; a stream that is silent
    /// makes room for the next one. There is room for some probes when there is none for other calls.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if this caller, or all together, have as many calls in progress as they may have; or if the
    /// connection is a stranger's and has one that is not answered.
    pub fn begin_call(self: &Arc<Self>, is_probe: bool) -> Result<Arc<GuestCall>, Refusal> {
        let caller = self.caller();
        let by_turns = caller.id() == STRANGERS && !self.standing.is_known();
        if by_turns && !self.standing.begin_turn() {
            caller.callers.refused.inc();
            return Err(refusal!(
                Busy,
                "a connection has one call at a time until one has brought a token or a certificate that is known here; try \
                 again in {RETRY_AFTER_MS} ms"
            )
            .retry_after(RETRY_AFTER_MS));
        }
        let begun = caller.begin(self.port.call(), [0; 2]).or_else(|full| {
            // Strangers who fill their share keep no probe of another address out.
            let probe = is_probe.then(|| self.asks.load().begin(CountedKind::Probe, [0; 2]));
            probe.and_then(Result::ok).ok_or(full)
        });
        let place = begun.map_err(|full| {
            if by_turns {
                self.standing.end_turn();
            }
            caller.callers.refused.inc();
            match full {
                Full::OfOne(..) => caller.silent.end_one(),
                Full::OfAll(_) => caller.callers.silent.end_one(),
            }
            full.refused(CALLS, RETRY_AFTER_MS)
        })?;
        let has_turn = AtomicBool::new(by_turns);
        Ok(Arc::new(GuestCall { guest: self.clone(), place, has_turn }))
    }
}

impl Callers {
    /// A further connection of `port` from `from`. If there is no room, a stranger's connection ends for it.
    ///
    /// # Errors
    /// A text if there are as many as there may be, or that address has as many as it may have, and none of them is a
    /// stranger's.
    pub fn connect(self: &Arc<Self>, port: Port, from: IpAddr) -> Result<Arc<Guest>, String> {
        let (caller, kind) = (self.at(from), port.connection());
        let place = caller.begin(kind, [0; 2]).or_else(|full| {
            let strangers = match full {
                Full::OfOne(..) => &caller.strangers,
                Full::OfAll(_) => &self.strangers,
            };
            match strangers.make_room(|network| self.are_closed_to(network)) {
                // The one that ends leaves a moment later.
                true => caller.begin(kind, [LEAVING_MAX; 2]),
                false => Err(full),
            }
        });
        place.map(|place| Guest::new(port, place)).map_err(|full| match full {
            Full::OfOne(_, max) => format!(
                "its address has the {max} connections that one address may have \
                 (client_share_percent)"
            ),
            Full::OfAll(max) => {
                format!(
                    "the limit of {max} connections of clients is reached (client_connections_max)"
                )
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    use crate::{
        metrics::Metrics,
        node::Config,
        sequence::{network_of, principal_id},
    };

    /// Callers of a node with four connections, of which each may have three, and where anonymous may do something from
    /// 10.0.0.9 alone.
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
        callers.connect(Port::Clients, [10, 0, 0, host].into())
    }

    fn ends(future: impl Future<Output = ()>) -> bool {
        future.now_or_never().is_some()
    }

    /// The principal of this name asks over the connection.
    fn asks(guest: &Guest, name: &str) -> Result<(), Refusal> {
        guest.is_asked_by(Some(principal_id(name)))
    }

    #[test]
    fn a_principal_has_one_share_wherever_it_connects_from_and_its_address_has_its_own_again() {
        let callers = callers();
        let first = [1, 2, 3].map(|host| from(&callers, host).expect("a connection"));
        first.iter().for_each(|guest| asks(guest, "ci").expect("its share"));
        assert!(first.iter().all(|guest| guest.caller().id() == principal_id("ci")));
        let fourth = from(&callers, 1).expect("the last one of all");
        let refused = asks(&fourth, "ci").expect_err("it has three");
        assert!(refused.message().starts_with("your principal has 3 connections"), "{refused}");
        assert!(fourth.is_strangers(), "whose it was");
        drop(first);
        asks(&fourth, "ci").expect("there is room");
        let _others = [(); 3].map(|()| from(&callers, 1).expect("none of its address is left"));
    }

    #[test]
    fn each_call_over_a_connection_counts_for_whoever_asks_in_it() {
        let callers = callers();
        let guest = from(&callers, 1).expect("a connection");
        asks(&guest, "ci").expect("its share");
        let calls = [(); 75].map(|()| guest.begin_call(false).expect("its share"));
        let refused = guest.begin_call(false).expect_err("its share is used up");
        assert!(refused.message().starts_with("your principal has 75 calls"), "{refused}");
        guest.caller().hold(1 << 20);
        asks(&guest, "app").expect("another one of a proxy");
        guest.begin_call(false).expect("it has none");
        assert_eq!(guest.caller().hold(0), 0);
        drop(calls);
        // A stranger, over the same connection: for all strangers together, wherever they are.
        guest.is_asked_by(None).expect("nobody");
        assert_eq!(guest.caller().id(), STRANGERS);
        let strangers = guest.caller();
        strangers.hold(7);
        let elsewhere = from(&callers, 2).expect("a connection");
        assert_eq!(elsewhere.caller().hold(0), 7);
        // They have used up their share of calls, over a connection that a proxy may have opened: a probe of each address has
        // room all the same.
        let _calls = [(); 75].map(|()| guest.begin_call(false).expect("their share"));
        let refused = guest.begin_call(false).expect_err("it is used up");
        assert!(refused.message().starts_with("everybody without a known token"), "{refused}");
        let _probes = [(); 16].map(|()| guest.begin_call(true).expect("a probe"));
        guest.begin_call(true).expect_err("as many probes as an address may have");
        let another = from(&callers, 3).expect("a connection");
        another.begin_call(true).expect("a probe of another address");
        let open = from(&callers, 9).expect("a connection");
        assert_eq!(open.caller().id(), network_of([10, 0, 0, 9].into()));
    }

    #[test]
    fn what_is_held_at_the_ports_for_clients_leaves_room_at_that_for_administrators() {
        let callers = callers();
        let _clients = [(); 3].map(|()| from(&callers, 1).expect("its share"));
        for _ in 0..2 {
            let admin = callers.connect(Port::Administrators, [10, 0, 0, 1].into());
            let admin = admin.expect("a connection");
            asks(&admin, "admin").expect("its share");
            let _calls = [(); 200].map(|()| admin.begin_call(false).expect("a call"));
        }
    }

    #[test]
    fn a_strangers_connection_has_one_call_at_a_time_until_its_principal_is_known() {
        let callers = callers();
        let guest = from(&callers, 1).expect("a connection");
        let first = guest.begin_call(false).expect("one call");
        let others_are_refused = || {
            for is_probe in [false, true] {
                let refused = guest.begin_call(is_probe).expect_err("another one has its turn");
                assert!(refused.message().contains("one call at a time"), "{refused}");
            }
        };
        others_are_refused();
        // A caller that has read the answer asks again before the call is let go.
        first.is_answered();
        let second = guest.begin_call(false).expect("the first one is answered");
        others_are_refused();
        drop(first);
        others_are_refused();
        drop(second);
        let _third = guest.begin_call(false).expect("the second one was given up");
        others_are_refused();
        asks(&guest, "ci").expect("its share");
        let _calls = [(); 2].map(|()| guest.begin_call(false).expect("it is known"));
        let open = from(&callers, 9).expect("a connection");
        let _calls = [(); 2].map(|()| open.begin_call(false).expect("anonymous may ask there"));
    }

    #[tokio::test]
    async fn a_token_that_becomes_known_in_a_call_makes_the_connection_known() {
        let callers = callers();
        let guest = from(&callers, 1).expect("a connection");
        let calls = |of: u64| {
            let caller = callers.caller(of);
            caller.held[CountedKind::Call as usize].load(Relaxed)
        };
        let ci = principal_id("ci");
        let call = guest.begin_call(false).expect("a call");
        assert_eq!([calls(STRANGERS), calls(ci)], [1, 0]);
        let serving = guest.clone().scope_call(async {
            Guest::is_serving(&call);
            Guest::is_asked_here_by(|| None).expect("nobody knows it");
            assert!(guest.is_strangers());
            let asks = || Caller::current().map(|caller| caller.id());
            assert_eq!(asks(), Some(STRANGERS));
            // In a task of its own, as of a message that waits.
            let learning = Caller::go_on(async move { Guest::is_asked_here_by(|| Some(ci)) });
            tokio::spawn(learning).await.expect("no panic").expect("its share");
            assert_eq!(asks(), Some(ci), "what is held from here on is the principal's");
            Guest::is_asked_here_by(|| Some(principal_id("other"))).expect("one asks in a call");
            assert_eq!(asks(), Some(ci));
        });
        serving.await;
        assert!(!guest.is_strangers());
        assert_eq!([calls(STRANGERS), calls(ci)], [0, 1], "while the call goes on");
        drop(call);
        assert_eq!([calls(STRANGERS), calls(ci)], [0, 0]);
        guest
            .clone()
            .scope(async { Guest::is_asked_here_by(|| Some(principal_id("ci"))) })
            .await
            .expect("the next call");
        assert_eq!(guest.caller().id(), principal_id("ci"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_strangers_connection_ends_in_time_and_no_other_does() {
        let callers = callers();
        let [known, stranger] = [(); 2].map(|()| from(&callers, 1).expect("a connection"));
        let open = from(&callers, 9).expect("a connection");
        asks(&known, "ci").expect("its share");
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
        asks(&known, "ci").expect("its share");
        let open = from(&callers, 9).expect("a connection");
        let strangers = [1, 2].map(|host| from(&callers, host).expect("a connection"));
        let needed = |guest: &Arc<Guest>| ends(guest.is_needed());
        let fifth = from(&callers, 3).expect("a stranger's place");
        assert!(needed(&strangers[0]) && !needed(&strangers[1]), "the oldest one");
        asks(&fifth, "app").expect("while the other one has not left yet");
        let sixth = from(&callers, 3).expect("a stranger's place, who has not left yet");
        assert!(needed(&strangers[1]));
        assert!(!needed(&known) && !needed(&open));
        drop((strangers, fifth, sixth));
        // An address that has its share makes room by its own.
        let callers = self::callers();
        let own = [(); 3].map(|()| from(&callers, 1).expect("its share"));
        let _more = from(&callers, 1).expect("the place of its own first one");
        assert!(needed(&own[0]) && !needed(&own[1]));
        // Where all are known, the new one is refused.
        let callers = self::callers();
        let all = ["a", "b", "c", "d"].map(|name| {
            let guest = from(&callers, 1).expect("a connection");
            asks(&guest, name).expect("its share");
            guest
        });
        let refused = from(&callers, 1).expect_err("nobody may end");
        assert!(refused.contains("client_connections_max"), "{refused}");
        assert!(!all.iter().any(needed));
    }

    #[test]
    fn those_that_connected_before_anonymous_lost_its_grants_make_room_too() {
        let is_closed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let config =
            Config { client_connections_max: 2, client_share_percent: 100, ..Config::default() };
        let seen = is_closed.clone();
        let callers = Callers::new(&config, &Metrics::new(), move |_| seen.load(Relaxed));
        let before = [1, 2].map(|host| from(&callers, host).expect("a connection"));
        from(&callers, 3).expect_err("nobody is a stranger");
        is_closed.store(true, Relaxed);
        let _after = from(&callers, 3).expect("a stranger's place");
        assert!(ends(before[0].is_needed()) && !ends(before[1].is_needed()));
    }
}
