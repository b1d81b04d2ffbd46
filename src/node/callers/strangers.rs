//! Chooses which connections of unknown callers end when others need their places. The oldest one ends first, and only where
//! anonymous callers may do nothing.

use std::{
    collections::VecDeque,
    fmt,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Whether it is known whose a connection is, whether it has a call until then, and whether it is to end for another one.
#[derive(Debug)]
pub struct ConnectionStanding {
    /// The id of the network from which it was opened.
    pub network: u64,
    is_known: AtomicBool,
    became_known: Notify,
    /// Whether a call has its turn: there is one at a time.
    has_call: AtomicBool,
    /// Cancelled when another connection needs its place.
    needed: CancellationToken,
}

impl ConnectionStanding {
    /// That of a new connection.
    pub fn unknown(network: u64) -> Arc<ConnectionStanding> {
        Arc::new(ConnectionStanding {
            network,
            is_known: AtomicBool::new(false),
            became_known: Notify::new(),
            has_call: AtomicBool::new(false),
            needed: CancellationToken::new(),
        })
    }

    /// Whether it is known whose it is.
    pub fn is_known(&self) -> bool {
        self.is_known.load(Acquire)
    }

    /// It is known from here on.
    pub fn become_known(&self) {
        self.is_known.store(true, Release);
        self.became_known.notify_waiters();
    }

    /// Returns once it is known whose it is.
    pub async fn becomes_known(&self) {
        let mut became_known = pin!(self.became_known.notified());
        // Before the look, so that it is not missed.
        became_known.as_mut().enable();
        if !self.is_known() {
            became_known.await;
        }
    }

    /// Gives a call its turn. False if another one has it.
    pub fn begin_turn(&self) -> bool {
        !self.has_call.swap(true, AcqRel)
    }

    /// The call that has its turn has had it.
    pub fn end_turn(&self) {
        self.has_call.store(false, Release);
    }

    /// Returns when another connection needs its place.
    pub async fn is_needed(&self) {
        self.needed.cancelled().await;
    }

    /// Has it end for another one. False if it is to go on, or ends already.
    fn make_room(&self, are_closed_to: impl Fn(u64) -> bool) -> bool {
        let ends = !self.is_known() && !self.needed.is_cancelled() && are_closed_to(self.network);
        if ends {
            self.needed.cancel();
        }
        ends
    }
}

/// Connections of which nobody knew whose they are, the oldest one first.
#[derive(Default)]
pub struct Strangers(Mutex<VecDeque<Weak<ConnectionStanding>>>);

impl fmt::Debug for Strangers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Strangers").finish_non_exhaustive()
    }
}

impl Strangers {
    /// Adds a new one.
    pub fn add(&self, standing: &Arc<ConnectionStanding>) {
        let mut all = self.0.lock();
        // Those that have ended, or are known by now, are forgotten before there is room for twice as many. Others may become
        // strangers', once anonymous may do nothing.
        if all.len() == all.capacity() {
            all.retain(|one| one.upgrade().is_some_and(|one| !one.is_known()));
            let many = all.len();
            all.reserve(many + 1);
        }
        all.push_back(Arc::downgrade(standing));
    }

    /// Has the oldest one end that may: anonymous may do nothing where it was opened, as `are_closed_to` tells of what names an
    /// address. False if there is none.
    pub fn make_room(&self, are_closed_to: impl Fn(u64) -> bool) -> bool {
        let mut all = self.0.lock();
        let ends = |one: &Weak<ConnectionStanding>| {
            one.upgrade().is_some_and(|one| one.make_room(&are_closed_to))
        };
        let oldest = all.iter().position(ends);
        if let Some(oldest) = oldest {
            all.remove(oldest);
        }
        oldest.is_some()
    }
}
