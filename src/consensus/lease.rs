//! The leader's lease: how long its answers are in order without asking anyone.
//!
//! A follower that hears from a leader keeps out of elections for one *follower lease*. The leader
//! therefore knows that nobody leads after it until a majority's promises run out, and counts on
//! that for a *lease* that is shorter by a margin for clock drift (Gray and Cheriton, "Leases",
//! 1989; Ongaro's Raft dissertation, 6.4.1).
//!
//! The clock of acknowledgements is our own. Raft's counts an acknowledgement for messages that it
//! did not acknowledge; this one is credited for the very message that an answer came back to, from
//! the instant *before* that message was sent.
//!
//! Invariant: a void lease never becomes valid again, and a lease of one term is never extended by
//! an acknowledgement in another.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    clock::{Clock, Instant},
    planted::{Bug, is_planted},
    sequence::NodeId,
    storage::StoredMembership,
};

const VOID: u64 = 0;
const EXPIRED: u64 = 1;

/// The lease of one term of this node's leadership.
#[derive(Debug)]
pub struct TermLease {
    term: u64,
    /// When this node noticed that it leads.
    began: Instant,
    /// Nanoseconds; `VOID` for good, `EXPIRED` before the first majority of acknowledgements.
    deadline: AtomicU64,
    changed: Notify,
}

impl TermLease {
    fn new(term: u64, began: Instant) -> Self {
        TermLease {
            term,
            began,
            deadline: AtomicU64::new(EXPIRED),
            changed: Notify::new(),
        }
    }

    /// The term that it belongs to.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// When this node noticed that it leads the term.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Whether nobody else can lead at `now`. One atomic load.
    pub fn is_valid(&self, now: Instant) -> bool {
        // Acquire pairs with the release in `set`: who sees the deadline sees what it rests on.
        // One more, so that not even at the clock's very start does `EXPIRED` lie ahead.
        now.as_nanos().saturating_add(1) < self.deadline.load(Ordering::Acquire)
    }

    /// Whether the term is over as far as numbers are concerned.
    pub fn is_void(&self) -> bool {
        self.deadline.load(Ordering::Acquire) == VOID
    }

    /// Until when it is valid.
    pub fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Ends it for good.
    pub fn void(&self) {
        if self.deadline.swap(VOID, Ordering::AcqRel) != VOID {
            tracing::info!(term = self.term, "the lease of this term is void");
        }
        self.changed.notify_waiters();
    }

    /// Waits until it was extended or voided, or until `enough` says so of the present state.
    pub async fn wait_until(&self, enough: impl Fn(&TermLease) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if enough(self) {
                return;
            }
            changed.await;
        }
    }

    fn set(&self, deadline: Instant) {
        let deadline = deadline.as_nanos().max(EXPIRED);
        let update = |current| (current != VOID).then_some(deadline);
        if self
            .deadline
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, update)
            .is_ok()
        {
            self.changed.notify_waiters();
        }
    }
}

/// For how long a peer has not been known to follow this leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// Since that was sent which it last answered; since the term began, where it answered nothing.
    pub lasts: Duration,
    /// Whether it answered anything in this term.
    pub in_term: bool,
}

/// The sets of voters whose majorities must all agree: one, or two while membership changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quorums {
    sets: Vec<BTreeSet<NodeId>>,
    /// The log index of the membership that they are of.
    at: u64,
}

impl Quorums {
    /// From the voter sets of a membership.
    pub fn new(sets: impl IntoIterator<Item = BTreeSet<NodeId>>) -> Self {
        Quorums {
            sets: sets.into_iter().collect(),
            at: 0,
        }
    }

    /// From a membership, as it stands in the log.
    pub fn of(membership: &StoredMembership) -> Self {
        Quorums {
            sets: membership.membership().get_joint_config().clone(),
            at: membership.log_id().as_ref().map_or(0, |id| id.index),
        }
    }

    /// All voters.
    pub fn voters(&self) -> BTreeSet<NodeId> {
        self.sets.iter().flatten().copied().collect()
    }

    /// Whether `who` is the one and only voter.
    pub fn is_sole(&self, who: NodeId) -> bool {
        self.voters() == BTreeSet::from([who])
    }

    /// The latest instant that a majority of every set has reached, given how far each node got.
    /// `None` while some majority has not spoken at all.
    pub fn reached(&self, far: impl Fn(NodeId) -> Option<Instant>) -> Option<Instant> {
        let mut earliest = None;
        for set in &self.sets {
            let mut stamps: Vec<Instant> = set.iter().filter_map(|&node| far(node)).collect();
            stamps.sort_unstable_by(|a, b| b.cmp(a));
            let majority = *stamps.get(set.len() / 2)?;
            earliest = Some(earliest.map_or(majority, |e: Instant| e.min(majority)));
        }
        earliest
    }

    /// Whether a majority of every set is among `nodes`.
    pub fn agree(&self, nodes: &BTreeSet<NodeId>) -> bool {
        self.reached(|node| nodes.contains(&node).then_some(Instant::NEVER))
            .is_some()
    }

    fn and(&self, other: Option<&BTreeSet<NodeId>>) -> Quorums {
        Quorums {
            sets: self.sets.iter().chain(other).cloned().collect(),
            at: self.at,
        }
    }
}

/// Counts acknowledgements and keeps the current term's lease up to date.
pub struct LeaseClock {
    clock: Arc<dyn Clock>,
    me: NodeId,
    lease: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Arc<TermLease>>,
    quorums: Quorums,
    /// A membership that was proposed and may be in force before we hear of it.
    proposed: Option<BTreeSet<NodeId>>,
    acks_term: u64,
    acks: HashMap<NodeId, Instant>,
    /// Raft may know of this term: no lease of an earlier one is valid, not even one that is begun
    /// later, by a watcher that lags.
    void_before: u64,
    /// The terms of what Raft is judging at present; they count as `void_before` does.
    shown: Vec<u64>,
}

impl State {
    /// Follows the membership in force. Within a term it only moves on; a watcher that lags may
    /// bring an earlier one.
    fn follow(&mut self, quorums: Quorums) {
        if quorums.at >= self.quorums.at {
            self.quorums = quorums;
        }
    }

    fn void_before(&self) -> u64 {
        let shown = self.shown.iter().copied().max();
        self.void_before.max(shown.unwrap_or(0))
    }
}

/// Raft is judging a message of a later term. Dropped, that term counts as known to Raft.
#[must_use]
pub struct Shown<'a> {
    clock: &'a LeaseClock,
    term: u64,
    adopted: bool,
}

impl Shown<'_> {
    /// Raft kept to an earlier term: leases that begin later are not affected.
    pub fn refused(mut self) {
        self.adopted = false;
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let mut state = self.clock.state.lock();
        if let Some(at) = state.shown.iter().position(|term| *term == self.term) {
            state.shown.swap_remove(at);
        }
        if self.adopted {
            state.void_before = self.term.max(state.void_before);
        }
    }
}

impl LeaseClock {
    /// A clock for node `me`, whose leases last `lease` from the sending of what was acknowledged.
    pub fn new(clock: Arc<dyn Clock>, me: NodeId, lease: Duration) -> Self {
        LeaseClock {
            clock,
            me,
            lease,
            state: Mutex::default(),
        }
    }

    /// The current instant: the stamp to take before a message is sent.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Starts the lease of a term that this node leads, voiding any other.
    pub fn begin(&self, term: u64, quorums: Quorums) -> Arc<TermLease> {
        let mut state = self.state.lock();
        if let Some(current) = state.current.clone() {
            if current.term == term {
                state.follow(quorums);
                self.recompute(&state);
                return current;
            }
            current.void();
        }
        state.quorums = quorums;
        // What was proposed in an earlier term is in our log, and so in `quorums`, or nowhere.
        state.proposed = None;
        let lease = Arc::new(TermLease::new(term, self.now()));
        if term < state.void_before() {
            lease.void();
        }
        state.current = Some(lease.clone());
        self.recompute(&state);
        lease
    }

    /// Voids the current lease if its term is before `term`; called before Raft is shown anything
    /// of a later term, so that no answer of ours can follow one of a successor.
    pub fn void_before(&self, term: u64) {
        drop(self.show(term));
    }

    /// As [`LeaseClock::void_before`], for a message that Raft may refuse: leases that begin after
    /// a refusal are valid again.
    pub fn show(&self, term: u64) -> Shown<'_> {
        let term = match is_planted(Bug::OpenDuringTransfer) {
            true => 0,
            false => term,
        };
        let mut state = self.state.lock();
        state.shown.push(term);
        if let Some(current) = &state.current
            && current.term < term
        {
            current.void();
        }
        Shown {
            clock: self,
            term,
            adopted: true,
        }
    }

    /// Whether this node holds a valid lease now: nobody else leads.
    pub fn is_held(&self) -> bool {
        let now = self.now();
        let current = self.state.lock().current.clone();
        current.is_some_and(|lease| lease.is_valid(now))
    }

    /// Voids the current lease, if there is one.
    pub fn void(&self) {
        if let Some(current) = &self.state.lock().current {
            current.void();
        }
    }

    /// Whose majorities count at present.
    pub fn quorums(&self) -> Quorums {
        let state = self.state.lock();
        state.quorums.and(state.proposed.as_ref())
    }

    /// A membership change is about to be proposed to Raft, which acts on it the moment that it is
    /// in the log, before this clock can hear of it: from now on the majority of `voters` counts as
    /// well. `in_force` is the membership that Raft acts on at this moment.
    pub fn propose(&self, in_force: Quorums, voters: BTreeSet<NodeId>) {
        let mut state = self.state.lock();
        state.follow(in_force);
        state.proposed = Some(voters);
        self.recompute(&state);
    }

    /// Nothing that was proposed is on its way any more, and Raft acts on `in_force`.
    pub fn settle(&self, in_force: Quorums) {
        let mut state = self.state.lock();
        state.follow(in_force);
        state.proposed = None;
        self.recompute(&state);
    }

    /// `peer` answered, in our favour, the very message of `term` that was sent at `sent`.
    pub fn credit(&self, term: u64, peer: NodeId, sent: Instant) {
        let mut state = self.state.lock();
        if term < state.acks_term {
            return;
        }
        if term > state.acks_term {
            state.acks_term = term;
            state.acks.clear();
        }
        let latest = state.acks.entry(peer).or_insert(sent);
        *latest = sent.max(*latest);
        self.recompute(&state);
    }

    /// Since when `peer` was last known to follow us in `term`.
    pub fn last_credit(&self, term: u64, peer: NodeId) -> Option<Instant> {
        let state = self.state.lock();
        (state.acks_term == term)
            .then(|| state.acks.get(&peer).copied())
            .flatten()
    }

    /// For how long `peer` has not been known to follow this leader; `None` where this node does not
    /// lead.
    pub fn silence(&self, peer: NodeId) -> Option<Silence> {
        let now = self.now();
        let state = self.state.lock();
        let lease = state.current.as_ref().filter(|lease| !lease.is_void())?;
        let of_this_term = state.acks_term == lease.term;
        let heard = of_this_term.then(|| state.acks.get(&peer)).flatten();
        Some(Silence {
            lasts: now.since(*heard.unwrap_or(&lease.began)),
            in_term: heard.is_some(),
        })
    }

    fn recompute(&self, state: &State) {
        let Some(current) = &state.current else {
            return;
        };
        let far = |node| {
            if node == self.me {
                // Our own promise to ourselves does not run out; a sole voter's lease never ends.
                Some(Instant::NEVER)
            } else if state.acks_term == current.term {
                state.acks.get(&node).copied()
            } else {
                None
            }
        };
        let quorums = state.quorums.and(state.proposed.as_ref());
        match quorums.reached(far) {
            Some(sent) => current.set(sent.after(self.lease)),
            None => current.set(Instant::default()),
        }
    }
}

#[cfg(test)]
mod tests;
