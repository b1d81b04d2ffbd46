//! Counts the calls in progress on one connection, so that an idle connection can be closed.
//!
//! Invariant: a call counts from when its headers have arrived until its answer is sent, or dropped because the caller is gone
//! (`answer_body.rs`).

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed},
        },
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::node::GuestCall;

/// How long the other end of a connection without calls may take to close it, once it was told to.
pub const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(1);

/// The calls of one connection, counted as they begin and end.
#[derive(Debug, Default)]
pub struct Calls {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Over HTTP/1 one answer follows another. This has the token that ends the last one early, and a number that changes with
    /// it.
    answers: Mutex<(u64, Option<CancellationToken>)>,
    /// Whether there is such a token. The task of the connection alone changes it.
    ends_early: AtomicBool,
}

impl Calls {
    /// Counts a call as begun. It ends when the returned value is dropped.
    pub fn begin(self: &Arc<Self>) -> OpenCall {
        self.begun.fetch_add(1, Relaxed);
        OpenCall { calls: self.clone(), of_guest: None }
    }

    /// Notes that an answer is sent from here on, and is to end early when this is cancelled.
    fn answers_until(&self, end: Option<CancellationToken>) {
        // Nothing changes from one answer without a token to the next.
        if end.is_none() && !self.ends_early.load(Relaxed) {
            return;
        }
        self.ends_early.store(end.is_some(), Relaxed);
        let mut answers = self.answers.lock();
        *answers = (answers.0 + 1, end);
    }

    /// The token that is cancelled if the answer that is sent over HTTP/1 is to end early, and a number that changes with it.
    pub fn answer(&self) -> (u64, Option<CancellationToken>) {
        self.answers.lock().clone()
    }

    /// How many have begun.
    pub fn begun(&self) -> u64 {
        self.begun.load(Acquire)
    }

    /// Whether none is in progress.
    pub fn are_none(&self) -> bool {
        self.in_progress() == 0
    }

    /// How many are in progress.
    pub fn in_progress(&self) -> u64 {
        // A call that has ended had begun before, but another thread may see that later.
        let ended = self.ended.load(Acquire);
        self.begun().saturating_sub(ended)
    }

    /// Waits until no call has been in progress for `span`, or for up to twice as long: the counters are
    /// compared once in a `span`, and no timer is reset by each call.
    pub async fn idle_for(&self, span: Duration) {
        let mut before = None;
        loop {
            let ended = self.ended.load(Relaxed);
            let begun = self.begun.load(Relaxed);
            if begun == ended && before == Some(begun) {
                return;
            }
            before = (begun == ended).then_some(begun);
            tokio::time::sleep(span).await;
        }
    }
}

/// A call in progress. It ends when this is dropped.
pub struct OpenCall {
    calls: Arc<Calls>,
    /// Its place among the calls of the connection's caller.
    pub of_guest: Option<Arc<GuestCall>>,
}

impl OpenCall {
    /// Notes that its answer is sent over HTTP/1 from here on, and is to end early when this is cancelled.
    pub fn answers_until(&self, end: Option<CancellationToken>) {
        self.calls.answers_until(end);
    }

    /// The connection is given the end of its answer next.
    pub fn is_answered(&self) {
        if let Some(of_guest) = &self.of_guest {
            of_guest.is_answered();
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.calls.ended.fetch_add(1, Relaxed);
    }
}
