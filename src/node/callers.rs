//! What the callers of one address hold: connections, calls, exports, pages that they watch, and memory.
//!
//! An address is one of IPv4, or the 64 bits of one of IPv6 that name its network: who has one address there has them all.
//!
//! A follower tells the leader whose the requests are that it forwards: there, too, they count for that address.
//!
//! Invariant: callers of one address hold at most their [`Share`] of what there is, so that they cannot keep others
//! out. An address is known for as long as anybody there holds anything.

mod silence;

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
    time::Duration,
};

use futures::future::Either;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;

pub use self::silence::Silence;
use self::silence::SilentStreams;
use super::Config;
use crate::{
    metrics::{Interface, Metrics},
    proto::{Code, Refusal, refusal},
    sequence::{NO_NETWORK, network_of},
};

/// How many calls of probes each address, and all callers, may have beyond the others.
const PROBES_OF_ADDRESS: u64 = 16;
const PROBES: u64 = 1_024;

/// How soon a refused caller may try again, in milliseconds.
pub(super) const RETRY_AFTER_MS: u64 = 100;
/// As above, where those that are counted are kept for long.
const PLACE_AFTER_MS: u64 = 1_000;

tokio::task_local! {
    /// Whose call, or connection, this task serves.
    static CALLER: Arc<Caller>;
}

/// What callers have, and may have only so many of.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A connection.
    Connection,
    /// A call in progress over HTTP/2.
    Call,
    /// An export. Each holds a thread, and a view of the table.
    Export,
    /// A status page that is kept up to date.
    Page,
}

const KINDS: usize = 4;
const EXPORTS_MAX: u64 = 2;
const PAGES_MAX: u64 = 64;

/// How many of a kind the callers of one address, and all of them, may have.
#[derive(Debug, Clone, Copy)]
struct Share {
    all: u64,
    of_address: u64,
}

/// `percent` percent of `all`; at least 1.
pub(super) fn share(all: u64, percent: u64) -> u64 {
    let part = u128::from(all) * u128::from(percent) / 100;
    u64::try_from(part).unwrap_or(all).max(1)
}

/// The callers of a node's ports for clients.
#[derive(Debug)]
pub struct Callers {
    shares: [Share; KINDS],
    /// Counts the calls that are refused.
    refused: Counter,
    held: [AtomicU64; KINDS],
    silent: Arc<SilentStreams>,
    by_network: Mutex<HashMap<u64, Weak<Caller>>>,
}

/// The callers of one address.
#[derive(Debug)]
pub struct Caller {
    callers: Arc<Callers>,
    /// What names its address, as [`network_of`] says.
    network: u64,
    held: [AtomicU64; KINDS],
    silent: Arc<SilentStreams>,
    bytes: AtomicI64,
}

impl Callers {
    /// The callers of a node.
    pub fn new(config: &Config, metrics: &Metrics) -> Arc<Callers> {
        let (connections, calls) = (config.client_connections_max, config.client_calls_max);
        let shares = [connections, calls, EXPORTS_MAX, PAGES_MAX]
            .map(|all| Share { all, of_address: share(all, config.client_share_percent) });
        Callers::with_shares(shares, metrics)
    }

    fn with_shares(shares: [Share; KINDS], metrics: &Metrics) -> Arc<Callers> {
        let refused = metrics.errors.of(Interface::grpc).of(Code::ResourceExhausted).clone();
        Arc::new(Callers {
            shares,
            refused,
            held: Default::default(),
            silent: Arc::default(),
            by_network: Mutex::default(),
        })
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
            held: Default::default(),
            silent: Arc::default(),
            bytes: AtomicI64::new(0),
        });
        by_network.insert(network, Arc::downgrade(&caller));
        caller
    }

    /// The callers at `address`, and at its neighbours.
    pub fn at(self: &Arc<Self>, address: IpAddr) -> Arc<Caller> {
        self.caller(network_of(address))
    }

    /// A further connection from `from`.
    ///
    /// # Errors
    /// A text if there are as many as there may be, or that address has as many as it may have.
    pub fn connect(self: &Arc<Self>, from: IpAddr) -> Result<Guest, String> {
        let connection = self.at(from).begin(Kind::Connection, [0; 2]);
        connection.map(Guest).map_err(|full| match full {
            Full::OfAddress(max) => format!(
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

    /// One more of a `kind` for the caller that this task serves, who may keep it for long. `name` says what it is, of several.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if this caller, or all together, have as many as they may have.
    pub fn begin(self: &Arc<Self>, kind: Kind, name: &str) -> Result<Counted, Refusal> {
        let caller = Caller::current().unwrap_or_else(|| self.caller(NO_NETWORK));
        caller.begin(kind, [0; 2]).map_err(|full| {
            full.refused(
                &format!("{name}, and may have no more (client_share_percent)"),
                PLACE_AFTER_MS,
            )
        })
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

    /// One more of a `kind`. There is room for `beyond_own` more than the share of an address, and for
    /// `beyond_all` more than all.
    fn begin(
        self: &Arc<Self>, kind: Kind, [beyond_own, beyond_all]: [u64; 2],
    ) -> Result<Counted, Full> {
        let (callers, at) = (&self.callers, kind as usize);
        let own = self.held[at].fetch_add(1, Relaxed);
        let all = callers.held[at].fetch_add(1, Relaxed);
        let counted = Counted { caller: self.clone(), kind };
        let share = callers.shares[at];
        match () {
            () if own >= share.of_address.saturating_add(beyond_own) => {
                Err(Full::OfAddress(share.of_address))
            }
            () if all >= share.all.saturating_add(beyond_all) => Err(Full::OfAll(share.all)),
            () => Ok(counted),
        }
    }

    /// Counts further bytes of the memory of requests. Returns how many it holds now.
    pub(super) fn hold(&self, bytes: i64) -> i64 {
        self.bytes.fetch_add(bytes, AcqRel).saturating_add(bytes)
    }

    /// The silence of a stream of the caller that this task serves, which may last for `span`; `None` if it is no client's.
    pub fn silence(span: Duration) -> Option<Silence> {
        let caller = Caller::current()?;
        let among = [&caller.silent, &caller.callers.silent];
        Some(Silence::new(among.map(Arc::clone), span))
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

    /// What `reserve` returns. The memory that it reserves is this caller's.
    pub fn charge<T>(self: Arc<Self>, reserve: impl FnOnce() -> T) -> T {
        CALLER.sync_scope(self, reserve)
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

/// One of a kind that a caller has, until it is dropped.
#[derive(Debug)]
pub struct Counted {
    caller: Arc<Caller>,
    kind: Kind,
}

impl Drop for Counted {
    fn drop(&mut self) {
        for held in [&self.caller.held, &self.caller.callers.held] {
            held[self.kind as usize].fetch_sub(1, Relaxed);
        }
    }
}

/// Why a caller gets no more of a kind: its address, or all callers, have so many.
enum Full {
    OfAddress(u64),
    OfAll(u64),
}

impl Full {
    /// What the caller is told: of `what` there are too many.
    fn refused(&self, what: &str, retry_after_ms: u64) -> Refusal {
        let has = match self {
            Full::OfAddress(max) => format!("your address has {max}"),
            Full::OfAll(max) => format!("callers have {max}"),
        };
        refusal!(Busy, "{has} {what}; try again in {retry_after_ms} ms").retry_after(retry_after_ms)
    }
}

/// A connection of a caller, until it is dropped.
#[derive(Debug)]
pub struct Guest(Counted);

impl Guest {
    /// Whose it is.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.0.caller
    }

    /// Whether more than half of the connections are open that there may be, or that its address may have.
    pub fn is_crowded(&self) -> bool {
        let (caller, at) = (self.caller(), Kind::Connection as usize);
        let share = caller.callers.shares[at];
        caller.callers.held[at].load(Relaxed) > share.all / 2
            || caller.held[at].load(Relaxed) > share.of_address / 2
    }

    /// A further call by gRPC over it. One that is refused is counted as an error: no service sees it; a stream that is silent
    /// makes room for the next one. There is room for some probes when there is none for other calls.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if this caller, or all together, have as many calls in progress as they may have.
    pub fn begin_call(&self, is_probe: bool) -> Result<Counted, Refusal> {
        let beyond = if is_probe { [PROBES_OF_ADDRESS, PROBES] } else { [0; 2] };
        self.caller().begin(Kind::Call, beyond).map_err(|full| {
            let caller = self.caller();
            caller.callers.refused.inc();
            match full {
                Full::OfAddress(_) => caller.silent.end_one(),
                Full::OfAll(_) => caller.callers.silent.end_one(),
            }
            let what =
                "calls in progress, and may have no more (client_calls_max, client_share_percent)";
            full.refused(what, RETRY_AFTER_MS)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::v1::Reason;

    fn callers(connections_of_address: u64, calls: u64, calls_of_address: u64) -> Arc<Callers> {
        let share = |all, of_address| Share { all, of_address };
        let shares = [
            share(9, connections_of_address),
            share(calls, calls_of_address),
            share(3, 2),
            share(9, 1),
        ];
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

    #[tokio::test]
    async fn exports_and_watched_pages_are_bounded_by_the_share_of_an_address_and_by_all() {
        let callers = callers(9, 9, 9);
        let guests = ["10.0.0.1", "10.0.0.2"]
            .map(|text| callers.connect(address(text)).expect("a connection"));
        let [one, other] = guests.each_ref().map(Guest::caller);
        let begin = async |caller: &Arc<Caller>, kind: Kind, name: &str| {
            let beginning = async { callers.begin(kind, name) };
            Caller::scope(Some(caller.clone()), beginning).await
        };
        let mut own = Vec::new();
        for _ in 0..2 {
            own.push(begin(one, Kind::Export, "exports under way").await.expect("its share"));
        }
        let refused = begin(one, Kind::Export, "exports under way").await.expect_err("too many");
        assert!(refused.message().starts_with("your address has 2 exports under way"), "{refused}");
        assert!(refused.message().contains("client_share_percent"), "{refused}");
        assert_eq!(refused.reason(), Reason::Busy);
        let _third = begin(other, Kind::Export, "exports under way").await.expect("there is room");
        let refused = begin(other, Kind::Export, "exports under way").await.expect_err("all");
        assert!(refused.message().starts_with("callers have 3 exports under way"), "{refused}");
        let _page = begin(one, Kind::Page, "pages").await.expect("another kind");
        begin(one, Kind::Page, "pages").await.expect_err("its share of these");
        own.pop();
        begin(other, Kind::Export, "exports under way").await.expect("one has ended");
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
