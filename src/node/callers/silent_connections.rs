//! Chooses which connection ends where another one finds no room: one over which nothing is open but streams that were silent
//! for long. It counts as idle, as one without a call does.
//!
//! It is told to begin no further calls, and its silent streams end. Calls that have begun meanwhile are answered.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// What is open over a connection, and whether it gives way to another one.
#[derive(Debug)]
pub struct OpenCalls {
    /// The id of the caller that has the connection's place.
    caller: AtomicU64,
    /// How many calls are in progress over it, streams among them.
    calls: AtomicUsize,
    /// How many streams of those were silent for long.
    silent: AtomicUsize,
    /// The connections that it is among once it has a silent stream. `None` if it never gives way.
    among: Option<Arc<SilentConnections>>,
    /// Whether it is among them. It changes under their lock alone.
    is_listed: AtomicBool,
    /// Cancelled once it gives way.
    gives_way: CancellationToken,
}

impl OpenCalls {
    /// Those of a new connection, whose place is this caller's. It is `among` those that give way, or never gives way.
    pub fn new(caller: u64, among: Option<Arc<SilentConnections>>) -> Arc<OpenCalls> {
        Arc::new(OpenCalls {
            caller: AtomicU64::new(caller),
            calls: AtomicUsize::new(0),
            silent: AtomicUsize::new(0),
            among,
            is_listed: AtomicBool::new(false),
            gives_way: CancellationToken::new(),
        })
    }

    /// The connection's place is this caller's from here on.
    pub fn become_of(&self, caller: u64) {
        self.caller.store(caller, Relaxed);
    }

    /// A further call is in progress.
    pub fn begin(&self) {
        self.calls.fetch_add(1, AcqRel);
    }

    /// A call has ended.
    pub fn end(&self) {
        self.calls.fetch_sub(1, AcqRel);
    }

    /// Returns once the connection gives way.
    pub async fn gives_way(&self) {
        self.gives_way.cancelled().await;
    }

    fn has_silent(&self) -> bool {
        self.silent.load(Acquire) > 0
    }

    /// Has the connection give way. False if something else is open over it than silent streams, or if it gives way already.
    fn make_room(&self) -> bool {
        let silent = self.silent.load(Acquire);
        let is_silent = silent > 0 && silent >= self.calls.load(Acquire);
        let gives_way = is_silent && !self.gives_way.is_cancelled();
        if gives_way {
            self.gives_way.cancel();
        }
        gives_way
    }
}

/// A stream over a connection that was silent for long, until this is dropped.
pub struct SilentOver(Arc<OpenCalls>);

impl SilentOver {
    /// Such a stream over the connection over which these calls are open.
    pub fn new(open: Arc<OpenCalls>) -> SilentOver {
        open.silent.fetch_add(1, AcqRel);
        if let Some(among) = &open.among {
            among.add(&open);
        }
        SilentOver(open)
    }
}

impl Drop for SilentOver {
    fn drop(&mut self) {
        self.0.silent.fetch_sub(1, AcqRel);
    }
}

/// The connections that had a silent stream, each once. The one that had it first comes first.
#[derive(Debug, Default)]
pub struct SilentConnections(Mutex<VecDeque<Weak<OpenCalls>>>);

impl SilentConnections {
    /// Adds a connection over which a stream is silent, unless it is there.
    fn add(&self, open: &Arc<OpenCalls>) {
        let mut all = self.0.lock();
        if open.is_listed.swap(true, Relaxed) {
            return;
        }
        // Those that have ended, or have no silent stream by now, are forgotten before there is room for twice as many.
        if all.len() == all.capacity() {
            all.retain(|one| {
                one.upgrade().is_some_and(|one| {
                    let stays = one.has_silent();
                    one.is_listed.store(stays, Relaxed);
                    stays
                })
            });
            let many = all.len();
            all.reserve(many + 1);
        }
        all.push_back(Arc::downgrade(open));
    }

    /// Has the first one give way that may, of those whose places are this caller's, if one is given. False if there is none.
    pub fn make_room(&self, of: Option<u64>) -> bool {
        let mut all = self.0.lock();
        let gives_way = |one: &Weak<OpenCalls>| {
            one.upgrade().is_some_and(|one| {
                of.is_none_or(|caller| one.caller.load(Relaxed) == caller) && one.make_room()
            })
        };
        let first = all.iter().position(gives_way);
        if let Some(first) = first {
            all.remove(first);
        }
        first.is_some()
    }
}
