//! The bounds on one caller: on its connections, calls, exports, open status pages, and memory. A caller is a principal, or all
//! callers of one address whose principals nobody knows.
//!
//! An address is one of IPv4, or the 64 bits of one of IPv6 that name its network: who has one address there has them all.
//!
//! A follower tells the leader whose the requests are that it forwards: there, too, they count for that principal or address.
//!
//! `on_behalf_of.rs` notes for a task which caller it works for. `guest.rs` has the connections of clients, and whose each one
//! is. `silence.rs` and `strangers.rs` choose the streams and the connections that end when others need their places.
//!
//! Invariant: a principal, and the callers of one address, hold at most their [`Share`] of what there is, so that they cannot
//! keep others out. Each is known for as long as it holds anything.

mod guest;
mod on_behalf_of;
mod silence;
mod strangers;

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicI64, AtomicU64,
            Ordering::{AcqRel, Relaxed},
        },
    },
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;

pub use self::{
    guest::{Guest, GuestCall, KNOWN_WITHIN},
    silence::Silence,
};
use self::{silence::SilentStreams, strangers::Strangers};
use super::Config;
use crate::{
    metrics::{Interface, Metrics},
    proto::{Code, Refusal, refusal},
    sequence::{NO_NETWORK, is_principal, network_of},
};

/// How many calls of probes each principal or address, and all callers, may have beyond the others.
const PROBES_OF_EACH: u64 = 16;
const PROBES: u64 = 1_024;

/// How soon a refused caller may try again, in milliseconds.
pub(super) const RETRY_AFTER_MS: u64 = 100;
/// The same where what is counted is kept for long: connections, exports and pages.
const PLACE_AFTER_MS: u64 = 1_000;
/// How many connections of strangers may be about to end at a time, so that others have their places.
const LEAVING_MAX: u64 = 64;

/// The id of all strangers where callers share something. No network and no principal has it.
const STRANGERS: u64 = NO_NETWORK - 1;

/// The things of which each caller may have a limited number.
#[derive(Debug, Clone, Copy)]
pub enum CountedKind {
    /// A connection.
    Connection,
    /// A call in progress over HTTP/2.
    Call,
    /// A connection of the port for administrators, which bounds them by itself.
    AdminConnection,
    /// A call in progress over one.
    AdminCall,
    /// A call of a probe that has no place among the others.
    Probe,
    /// An export. Each holds a thread, and a view of the table.
    Export,
    /// A status page that is kept up to date.
    Page,
}

const KINDS: usize = 7;
const EXPORTS_MAX: u64 = 2;
const PAGES_MAX: u64 = 64;

/// Which ports a connection is one of: what is held at those of clients leaves room at that of administrators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Those for clients.
    Clients,
    /// The one for administrators.
    Administrators,
}

impl Port {
    fn connection(self) -> CountedKind {
        match self {
            Port::Clients => CountedKind::Connection,
            Port::Administrators => CountedKind::AdminConnection,
        }
    }

    fn call(self) -> CountedKind {
        match self {
            Port::Clients => CountedKind::Call,
            Port::Administrators => CountedKind::AdminCall,
        }
    }
}

/// How many of a kind a principal, or the callers of one address, and all of them, may have.
#[derive(Debug, Clone, Copy)]
struct Share {
    all: u64,
    of_each: u64,
}

/// `percent` percent of `all`; at least 1.
pub(super) fn share(all: u64, percent: u64) -> u64 {
    let part = u128::from(all) * u128::from(percent) / 100;
    u64::try_from(part).unwrap_or(all).max(1)
}

/// Tells whether anonymous may do nothing at the address that a network names.
type AreClosedTo = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// The callers of a node's ports for clients.
pub struct Callers {
    shares: [Share; KINDS],
    are_closed_to: AreClosedTo,
    /// Counts the calls that are refused.
    refused: Counter,
    held: [AtomicU64; KINDS],
    silent: Arc<SilentStreams>,
    strangers: Strangers,
    by_id: Mutex<HashMap<u64, Weak<Caller>>>,
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").field("held", &self.held).finish_non_exhaustive()
    }
}

/// A principal, or the callers of one address.
#[derive(Debug)]
pub struct Caller {
    callers: Arc<Callers>,
    /// The id of the principal ([`principal_id`](crate::sequence::principal_id)), or of the address ([`network_of`]).
    id: u64,
    held: [AtomicU64; KINDS],
    silent: Arc<SilentStreams>,
    strangers: Strangers,
    bytes: AtomicI64,
}

impl Callers {
    /// The callers of a node. `are_closed_to` tells whether anonymous may do nothing at the address that a network names.
    pub fn new(
        config: &Config, metrics: &Metrics,
        are_closed_to: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Arc<Callers> {
        let (connections, calls) = (config.client_connections_max, config.client_calls_max);
        let shares = [connections, calls, u64::MAX, u64::MAX, EXPORTS_MAX, PAGES_MAX]
            .map(|all| Share { all, of_each: share(all, config.client_share_percent) });
        let [connections, calls, admin_connections, admin_calls, exports, pages] = shares;
        let probes = Share { all: PROBES, of_each: PROBES_OF_EACH };
        let shares = [connections, calls, admin_connections, admin_calls, probes, exports, pages];
        Callers::with_shares(shares, metrics, Box::new(are_closed_to))
    }

    fn with_shares(
        shares: [Share; KINDS], metrics: &Metrics, are_closed_to: AreClosedTo,
    ) -> Arc<Callers> {
        let refused = metrics.errors.of(Interface::grpc).of(Code::ResourceExhausted).clone();
        Arc::new(Callers {
            shares,
            are_closed_to,
            refused,
            held: Default::default(),
            silent: Arc::default(),
            strangers: Strangers::default(),
            by_id: Mutex::default(),
        })
    }

    /// The principal, or the callers of the address, that `id` names.
    pub fn caller(self: &Arc<Self>, id: u64) -> Arc<Caller> {
        let mut by_id = self.by_id.lock();
        if let Some(known) = by_id.get(&id).and_then(Weak::upgrade) {
            return known;
        }
        let caller = Arc::new(Caller {
            callers: self.clone(),
            id,
            held: Default::default(),
            silent: Arc::default(),
            strangers: Strangers::default(),
            bytes: AtomicI64::new(0),
        });
        by_id.insert(id, Arc::downgrade(&caller));
        caller
    }

    /// The callers at `address`, and at its neighbours.
    pub fn at(self: &Arc<Self>, address: IpAddr) -> Arc<Caller> {
        self.caller(network_of(address))
    }

    /// How many of a `kind` all callers have.
    pub fn held(&self, kind: CountedKind) -> u64 {
        self.held[kind as usize].load(Relaxed)
    }

    fn are_closed_to(&self, network: u64) -> bool {
        (self.are_closed_to)(network)
    }

    /// One more of a `kind` for the caller that this task serves, who may keep it for long. `name` says what it is, of several.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if this caller, or all together, have as many as they may have.
    pub fn begin(self: &Arc<Self>, kind: CountedKind, name: &str) -> Result<Counted, Refusal> {
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
        let mut by_id = self.callers.by_id.lock();
        // There may be another one by now, for who has connected since.
        if by_id.get(&self.id).is_some_and(|known| known.strong_count() == 0) {
            by_id.remove(&self.id);
        }
    }
}

impl Caller {
    /// One more of a `kind`. There is room for `beyond_own` more than its share, and for `beyond_all` more than all.
    fn begin(
        self: &Arc<Self>, kind: CountedKind, [beyond_own, beyond_all]: [u64; 2],
    ) -> Result<Counted, Full> {
        let (callers, at) = (&self.callers, kind as usize);
        let own = self.held[at].fetch_add(1, Relaxed);
        let all = callers.held[at].fetch_add(1, Relaxed);
        let counted = Counted { caller: ArcSwap::new(self.clone()), kind };
        let share = callers.shares[at];
        match () {
            () if own >= share.of_each.saturating_add(beyond_own) => {
                Err(Full::OfOne(self.called(), share.of_each))
            }
            () if all >= share.all.saturating_add(beyond_all) => Err(Full::OfAll(share.all)),
            () => Ok(counted),
        }
    }

    /// Counts further bytes of the memory of requests. Returns how many it holds now.
    pub(super) fn hold(&self, bytes: i64) -> i64 {
        self.bytes.fetch_add(bytes, AcqRel).saturating_add(bytes)
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether it is a principal, and no address.
    pub fn is_principal(&self) -> bool {
        is_principal(self.id)
    }

    /// How it is called where it is told what it holds.
    pub(super) fn called(&self) -> &'static str {
        match self.id {
            id if is_principal(id) => "your principal",
            STRANGERS => "everybody without a known token or certificate",
            _ => "your address",
        }
    }
}

/// One of a kind that a caller has, until it is dropped.
#[derive(Debug)]
pub struct Counted {
    caller: ArcSwap<Caller>,
    kind: CountedKind,
}

impl Counted {
    /// The caller that has it.
    fn caller(&self) -> Arc<Caller> {
        self.caller.load_full()
    }

    /// Makes it `caller`'s.
    fn become_of(&self, caller: &Arc<Caller>) -> Result<(), Full> {
        // There is room for it among all: it has its place there.
        let place = caller.begin(self.kind, [0, u64::MAX])?;
        // The count of the caller before is freed with it.
        place.caller.store(self.caller.swap(caller.clone()));
        Ok(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let caller = self.caller.load();
        for held in [&caller.held, &caller.callers.held] {
            held[self.kind as usize].fetch_sub(1, Relaxed);
        }
    }
}

/// Why a caller gets no more of a kind: how many there are already.
enum Full {
    /// Its principal, its address, or all strangers, whichever is said, has them.
    OfOne(&'static str, u64),
    /// All callers have them.
    OfAll(u64),
}

impl Full {
    /// The refusal for the caller: of `what` there are too many.
    fn refused(&self, what: &str, retry_after_ms: u64) -> Refusal {
        let has = match self {
            Full::OfOne(who, max) => format!("{who} has {max}"),
            Full::OfAll(max) => format!("callers have {max}"),
        };
        refusal!(Busy, "{has} {what}; try again in {retry_after_ms} ms").retry_after(retry_after_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::v1::Reason;

    fn callers(connections_of_each: u64, calls: u64, calls_of_each: u64) -> Arc<Callers> {
        let shares = [
            [connections_of_each.max(9), connections_of_each],
            [calls, calls_of_each],
            [9, 9],
            [9, 9],
            [1_024, 16],
            [3, 2],
            [9, 1],
        ];
        let shares = shares.map(|[all, of_each]| Share { all, of_each });
        Callers::with_shares(shares, &Metrics::new(), Box::new(|_| false))
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
            let first = callers.connect(Port::Clients, address(one)).expect("the first one");
            let _second = callers.connect(Port::Clients, address(same)).expect("the second one");
            let refused = callers.connect(Port::Clients, address(one)).expect_err("the third one");
            assert!(refused.contains("client_share_percent"), "{refused}");
            callers.connect(Port::Clients, address(other)).expect("another address");
            drop(first);
            callers.connect(Port::Clients, address(one)).expect("the first one's place");
        }
        assert!(callers.by_id.lock().is_empty(), "nobody is connected");
    }

    #[test]
    fn who_hangs_up_and_connects_again_still_holds_what_is_not_freed() {
        let callers = callers(2, 9, 9);
        let connect = || callers.connect(Port::Clients, address("10.0.0.1")).expect("a connection");
        let caller = connect().caller();
        caller.hold(1 << 20);
        assert_eq!(connect().caller().hold(0), 1 << 20);
        assert_eq!(callers.caller(caller.id()).hold(0), 1 << 20, "as another node says");
        drop(caller);
        assert!(callers.by_id.lock().is_empty(), "nobody holds anything");
    }

    #[test]
    fn calls_beyond_the_share_of_an_address_and_beyond_all_are_refused_until_others_end() {
        let callers = callers(9, 3, 2);
        let [one, other] =
            ["10.0.0.1", "10.0.0.2"].map(|text| callers.connect(Port::Clients, address(text)));
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
        for (calls, calls_of_each, hosts) in [(9, 2, 1), (2, 9_999, 64)] {
            let callers = callers(9_999, calls, calls_of_each);
            let guests: Vec<_> = (1..=hosts)
                .map(|host| callers.connect(Port::Clients, [10, 0, 0, host].into()))
                .map(|guest| guest.expect("a connection"))
                .collect();
            let _calls = [(); 2].map(|()| guests[0].begin_call(false).expect("a call"));
            let mut probes = Vec::new();
            for guest in &guests {
                for _ in 0..PROBES_OF_EACH {
                    probes.push(guest.begin_call(true).expect("a probe"));
                }
                guest.begin_call(true).expect_err("as many probes as there may be");
                guest.begin_call(false).expect_err("no further call");
            }
            probes.pop();
            let last = guests.last().expect("a connection");
            last.begin_call(true).expect("a probe");
            last.begin_call(false).expect_err("no further call");
        }
    }

    #[tokio::test]
    async fn exports_and_watched_pages_are_bounded_by_the_share_of_an_address_and_by_all() {
        let callers = callers(9, 9, 9);
        let guests = ["10.0.0.1", "10.0.0.2"]
            .map(|text| callers.connect(Port::Clients, address(text)).expect("a connection"));
        let [one, other] = guests.each_ref().map(|guest| guest.caller());
        let begin = async |caller: &Arc<Caller>, kind: CountedKind, name: &str| {
            let beginning = async { callers.begin(kind, name) };
            Caller::scope(Some(caller.clone()), beginning).await
        };
        let mut own = Vec::new();
        for _ in 0..2 {
            own.push(
                begin(&one, CountedKind::Export, "exports under way").await.expect("its share"),
            );
        }
        let refused =
            begin(&one, CountedKind::Export, "exports under way").await.expect_err("too many");
        assert!(refused.message().starts_with("your address has 2 exports under way"), "{refused}");
        assert!(refused.message().contains("client_share_percent"), "{refused}");
        assert_eq!(refused.reason(), Reason::Busy);
        let _third =
            begin(&other, CountedKind::Export, "exports under way").await.expect("there is room");
        let refused =
            begin(&other, CountedKind::Export, "exports under way").await.expect_err("all");
        assert!(refused.message().starts_with("callers have 3 exports under way"), "{refused}");
        let _page = begin(&one, CountedKind::Page, "pages").await.expect("another kind");
        begin(&one, CountedKind::Page, "pages").await.expect_err("its share of these");
        own.pop();
        begin(&other, CountedKind::Export, "exports under way").await.expect("one has ended");
    }

    #[test]
    fn connections_are_crowded_once_more_than_half_are_open_of_all_or_of_an_address() {
        let callers = callers(4, 9, 9);
        let connect = |host: u8| {
            callers.connect(Port::Clients, [10, 0, 0, host].into()).expect("a connection")
        };
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
