//! Chooses which connection ends where another one finds no room: one over which nothing is open but streams that were silent
//! for long. It counts as idle, as one without a call does.
//!
//! It is told to begin no further calls, and its silent streams end. Calls that have begun meanwhile are answered.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{Caller, Guest};

/// What is open over a connection, and whether it gives way to another one.
#[derive(Debug, Default)]
pub struct OpenCalls {
    /// How many calls are in progress over it, streams among them.
    calls: AtomicUsize,
    /// How many streams of those were silent for long.
    silent: AtomicUsize,
    /// Whether it is among the connections that had a silent stream. It changes under the lock of those alone.
    is_listed: AtomicBool,
    /// Cancelled once it gives way.
    gives_way: CancellationToken,
}

impl OpenCalls {
    /// A further call is in progress.
    pub fn begin(&self) {
        self.calls.fetch_add(1, AcqRel);
    }

    /// A call has ended.
    pub fn end(&self) {
        self.calls.fetch_sub(1, AcqRel);
    }

    /// Returns once it gives way.
    pub async fn give_way(&self) {
        self.gives_way.cancelled().await;
    }

    fn has_silent(&self) -> bool {
        self.silent.load(Acquire) > 0
    }

    /// Has it give way. False if something else is open over it than silent streams, or if it gives way already.
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
pub struct SilentOver(Arc<Guest>);

impl SilentOver {
    /// Such a stream over the connection of `guest`.
    pub fn new(guest: Arc<Guest>) -> SilentOver {
        guest.open.silent.fetch_add(1, AcqRel);
        guest.note_silent();
        SilentOver(guest)
    }
}

impl Drop for SilentOver {
    fn drop(&mut self) {
        self.0.open.silent.fetch_sub(1, AcqRel);
    }
}

/// The connections that had a silent stream, each once. The one that had it first comes first.
#[derive(Debug, Default)]
pub struct SilentConnections(Mutex<VecDeque<Weak<Guest>>>);

impl SilentConnections {
    /// Adds the connection of `guest`, over which a stream is silent, unless it is there.
    pub fn add(&self, guest: &Arc<Guest>) {
        let mut all = self.0.lock();
        if guest.open.is_listed.swap(true, Relaxed) {
            return;
        }
        // Those that have ended, or have no silent stream by now, are forgotten before there is room for twice as many.
        if all.len() == all.capacity() {
            all.retain(|one| {
                one.upgrade().is_some_and(|one| {
                    let stays = one.open.has_silent();
                    one.open.is_listed.store(stays, Relaxed);
                    stays
                })
            });
            let many = all.len();
            all.reserve(many + 1);
        }
        all.push_back(Arc::downgrade(guest));
    }

    /// Has the first one give way that may: of those that have their places among `of`'s connections, if that is given. False
    /// if there is none.
    pub fn make_room(&self, of: Option<&Arc<Caller>>) -> bool {
        let mut all = self.0.lock();
        let gives_way = |one: &Weak<Guest>| {
            one.upgrade().is_some_and(|one| {
                let fits = of.is_none_or(|caller| Arc::ptr_eq(caller, &one.place.caller()));
                fits && one.open.make_room()
            })
        };
        let first = all.iter().position(gives_way);
        if let Some(first) = first {
            all.remove(first);
        }
        first.is_some()
    }
}
