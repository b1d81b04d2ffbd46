//! What the callers of one address hold: connections, calls and memory.
//!
//! An address is one of IPv4, or the 64 bits of one of IPv6 that name its network: who has one address there has them all.
//!
//! A follower tells the leader whose the requests are that it forwards: there, too, they count for that address.
//!
//! Invariant: callers of one address hold at most their share ([`Shares`]) of what there is, so that they cannot keep others
//! out. An address is known for as long as anybody there holds anything.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicI64, AtomicU64,
            Ordering::{AcqRel, Relaxed},
        },
    },
};

use futures::future::Either;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tonic::{Code, Status};

use super::Config;
use crate::{
    metrics::{Door, Metrics},
    proto::{busy, v1::Reason},
};

/// How many calls of probes each address, and all callers, may have beyond the others.
const PROBES_OF_ADDRESS: u64 = 16;
const PROBES: u64 = 1_024;

/// How soon a refused caller may try again, in milliseconds.
pub(super) const RETRY_AFTER_MS: u64 = 100;

tokio::task_local! {
    /// Whose call, or connection, this task serves.
    static CALLER: Arc<Caller>;
}

/// How much the callers of one address, and all of them, may hold.
#[derive(Debug, Clone, Copy)]
struct Shares {
    /// Connections.
    connections: u64,
    /// Of one address.
    connections_of_address: u64,
    /// Calls in progress over HTTP/2.
    calls: u64,
    /// Of one address.
    calls_of_address: u64,
}

impl Shares {
    /// The shares of a node.
    fn new(config: &Config) -> Shares {
        let connections = config.client_connections_max;
        let share = |all: u64| share(all, config.client_share_percent);
        Shares {
            connections,
            connections_of_address: share(connections),
            calls: config.client_calls_max,
            calls_of_address: share(config.client_calls_max),
        }
    }
}

/// `percent` percent of `all`; at least 1.
pub(super) fn share(all: u64, percent: u64) -> u64 {
    let part = u128::from(all) * u128::from(percent) / 100;
    u64::try_from(part).unwrap_or(all).max(1)
}

/// The callers of a node's ports for clients.
#[derive(Debug)]
pub struct Callers {
    shares: Shares,
    /// Counts the calls that are refused.
    refused: Counter,
    connections: AtomicU64,
    calls: AtomicU64,
    by_network: Mutex<HashMap<u64, Weak<Caller>>>,
}

/// The callers of one address.
#[derive(Debug)]
pub struct Caller {
    callers: Arc<Callers>,
    /// What names its address, as [`network`] says.
    network: u64,
    connections: AtomicU64,
    calls: AtomicU64,
    bytes: AtomicI64,
}

impl Callers {
    /// The callers of a node.
    pub fn new(config: &Config, metrics: &Metrics) -> Arc<Callers> {
        Callers::with_shares(Shares::new(config), metrics)
    }

    fn with_shares(shares: Shares, metrics: &Metrics) -> Arc<Callers> {
        let refused = metrics.errors.of(Door::grpc).of(Code::ResourceExhausted).clone();
        let [connections, calls] = [(); 2].map(|()| AtomicU64::new(0));
        let by_network = Mutex::default();
        Arc::new(Callers { shares, refused, connections, calls, by_network })
    }

    /// The callers of an address, which `network` names.
    pub fn caller(self: &Arc<Self>, network: u64) -> Arc<Caller> {
        let mut by_network = self.by_network.lock();
        if let Some(known) = by_network.get(&network).and_then(Weak::upgrade) {
            return known;
        }
        let caller = Arc::new(Caller {
            callers: self.clone(),
            network,
            connections: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            bytes: AtomicI64::new(0),
        });
        by_network.insert(network, Arc::downgrade(&caller));
        caller
    }

    /// A further connection from `from`.
    ///
    /// # Errors
    /// A text if there are as many as there may be, or that address has as many as it may have.
    pub fn connect(self: &Arc<Self>, from: IpAddr) -> Result<Guest, String> {
        let caller = self.caller(network(from));
        let own = caller.connections.fetch_add(1, Relaxed);
        let all = self.connections.fetch_add(1, Relaxed);
        let guest = Guest { caller };
        let Shares { connections: max, connections_of_address: max_of_address, .. } = self.shares;
        match () {
            () if own >= max_of_address => Err(format!(
                "its address has the {max_of_address} connections that one address may have \
                 (client_share_percent)"
            )),
            () if all >= max => Err(format!(
                "the limit of {max} connections of clients is reached (client_connections_max)"
            )),
            () => Ok(guest),
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut by_network = self.callers.by_network.lock();
        // There may be another one by now, for who has connected since.
        if by_network.get(&self.network).is_some_and(|known| known.strong_count() == 0) {
            by_network.remove(&self.network);
        }
    }
}

impl Caller {
    /// The caller that this task serves, if it is a client's.
    pub(super) fn current() -> Option<Arc<Caller>> {
        CALLER.try_with(Arc::clone).ok()
    }

    /// Counts further bytes of the memory of requests. Returns how many it holds now.
    pub(super) fn hold(&self, bytes: i64) -> i64 {
        self.bytes.fetch_add(bytes, AcqRel).saturating_add(bytes)
    }

    /// The future in which reservations of memory are those of `caller`, or nobody's.
    pub fn scope<F: Future>(
        caller: Option<Arc<Caller>>, future: F,
    ) -> impl Future<Output = F::Output> {
        match caller {
            Some(caller) => Either::Left(CALLER.scope(caller, future)),
            None => Either::Right(future),
        }
    }

    /// The future for a task of its own, in which reservations of memory are those of the same caller as here.
    pub fn go_on<F: Future>(future: F) -> impl Future<Output = F::Output> {
        Caller::scope(Caller::current(), future)
    }

    /// What names its address to other nodes.
    pub fn network(&self) -> u64 {
        self.network
    }
}

/// A connection of a caller, until it is dropped.
#[derive(Debug)]
pub struct Guest {
    caller: Arc<Caller>,
}

impl Guest {
    /// Whose it is.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Whether more than half of the connections are open that there may be, or that its address may have.
    pub fn is_crowded(&self) -> bool {
        let callers = &self.caller.callers;
        let shares = &callers.shares;
        callers.connections.load(Relaxed) > shares.connections / 2
            || self.caller.connections.load(Relaxed) > shares.connections_of_address / 2
    }

    /// A further call by gRPC over it. One that is refused is counted as an error: no service sees it. There is room for
    /// some probes when there is none for other calls.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if this caller, or all together, have as many calls in progress as they may have.
    pub fn begin_call(&self, is_probe: bool) -> Result<CallOfGuest, Status> {
        let kept = |calls| if is_probe { calls } else { 0 };
        let callers = &self.caller.callers;
        let shares = &callers.shares;
        let all = callers.calls.fetch_add(1, Relaxed);
        let own = self.caller.calls.fetch_add(1, Relaxed);
        let call = CallOfGuest { caller: self.caller.clone() };
        let (whose, max) = match () {
            () if own >= shares.calls_of_address.saturating_add(kept(PROBES_OF_ADDRESS)) => {
                ("your address has", shares.calls_of_address)
            }
            () if all >= shares.calls.saturating_add(kept(PROBES)) => {
                ("callers have", shares.calls)
            }
            () => return Ok(call),
        };
        callers.refused.inc();
        let why = format!(
            "{whose} {max} calls in progress, and may have no more (client_calls_max, client_share_percent); try \
             again in {RETRY_AFTER_MS} ms"
        );
        Err(busy(Reason::Busy, RETRY_AFTER_MS, why))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.caller.callers.connections.fetch_sub(1, Relaxed);
        self.caller.connections.fetch_sub(1, Relaxed);
    }
}

/// A call in progress, until it is dropped.
#[derive(Debug)]
pub struct CallOfGuest {
    caller: Arc<Caller>,
}

impl Drop for CallOfGuest {
    fn drop(&mut self) {
        self.caller.callers.calls.fetch_sub(1, Relaxed);
        self.caller.calls.fetch_sub(1, Relaxed);
    }
}

/// What stands for an address and its neighbours: the half of an IPv6 address that names its network, or an IPv4 address after
/// bits that no network has.
fn network(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => 0xffff << 32 | u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callers(connections_of_address: u64, calls: u64, calls_of_address: u64) -> Arc<Callers> {
        let shares = Shares { connections: 9, connections_of_address, calls, calls_of_address };
        Callers::with_shares(shares, &Metrics::new())
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn one_address_has_its_share_of_connections_and_others_have_theirs() {
        let callers = callers(2, 9, 9);
        for [one, same, other] in [
            ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"],
            ["2001:db8::1", "2001:db8::2:3:4:5", "2001:db8:0:1::1"],
        ] {
            let first = callers.connect(address(one)).expect("the first one");
            let _second = callers.connect(address(same)).expect("the second one");
            let refused = callers.connect(address(one)).expect_err("the third one");
            assert!(refused.contains("client_share_percent"), "{refused}");
            callers.connect(address(other)).expect("another address");
            drop(first);
            callers.connect(address(one)).expect("the first one's place");
        }
        assert!(callers.by_network.lock().is_empty(), "nobody is connected");
    }

    #[test]
    fn who_hangs_up_and_connects_again_still_holds_what_is_not_given_back() {
        let callers = callers(2, 9, 9);
        let connect = || callers.connect(address("10.0.0.1")).expect("a connection");
        let caller = connect().caller().clone();
        caller.hold(1 << 20);
        assert_eq!(connect().caller().hold(0), 1 << 20);
        assert_eq!(callers.caller(caller.network()).hold(0), 1 << 20, "as another node says");
        drop(caller);
        assert!(callers.by_network.lock().is_empty(), "nobody holds anything");
    }

    #[test]
    fn calls_beyond_the_share_of_an_address_and_beyond_all_are_refused_until_others_end() {
        let callers = callers(9, 3, 2);
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|text| callers.connect(address(text)));
        let (one, other) = (one.expect("a connection"), other.expect("a connection"));
        let first = one.begin_call(false).expect("a call");
        let _second = one.begin_call(false).expect("a call");
        let refused = one.begin_call(false).expect_err("too many of one address");
        assert!(refused.message().contains("your address has 2 calls"), "{refused}");
        let _third = other.begin_call(false).expect("a call");
        let refused = other.begin_call(false).expect_err("too many of all");
        assert!(refused.message().contains("callers have 3 calls"), "{refused}");
        assert_eq!(callers.refused.get(), 2);
        drop(first);
        other.begin_call(false).expect("a call");
    }

    #[test]
    fn probes_have_room_when_other_calls_have_none_and_not_without_end() {
        for [calls, calls_of_address, probes] in [[9, 2, PROBES_OF_ADDRESS], [2, 9_999, PROBES]] {
            let callers = callers(9, calls, calls_of_address);
            let guest = callers.connect(address("10.0.0.1")).expect("a connection");
            let _calls = [(); 2].map(|()| guest.begin_call(false).expect("a call"));
            let probe: Vec<_> =
                (0..probes).map(|_| guest.begin_call(true).expect("a probe")).collect();
            guest.begin_call(true).expect_err("as many probes as there may be");
            guest.begin_call(false).expect_err("no further call");
            drop(probe);
            guest.begin_call(true).expect("a probe");
            guest.begin_call(false).expect_err("no further call");
        }
    }

    #[test]
    fn connections_are_crowded_once_more_than_half_are_open_of_all_or_of_an_address() {
        let callers = callers(4, 9, 9);
        let connect = |host: u8| callers.connect([10, 0, 0, host].into()).expect("a connection");
        let [first, _second] = [connect(1), connect(1)];
        assert!(!first.is_crowded(), "two of its four");
        let third = connect(1);
        assert!(first.is_crowded(), "three of its four");
        let other = connect(2);
        assert!(!other.is_crowded(), "four of nine");
        let last = connect(3);
        assert!(other.is_crowded(), "five of nine");
        drop((third, last));
        assert!(!first.is_crowded() && !other.is_crowded());
    }

    #[test]
    fn a_share_is_a_part_and_never_nothing() {
        for (all, percent, part) in
            [(10_000, 50, 5_000), (4, 100, 4), (1, 1, 1), (u64::MAX, 100, u64::MAX)]
        {
            assert_eq!(share(all, percent), part);
        }
    }
}
