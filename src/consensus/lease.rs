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
};

const VOID: u64 = 0;
const EXPIRED: u64 = 1;

/// The lease of one term of this node's leadership.
#[derive(Debug)]
pub struct TermLease {
    term: u64,
    /// Nanoseconds; `VOID` for good, `EXPIRED` before the first majority of acknowledgements.
    deadline: AtomicU64,
    changed: Notify,
}

impl TermLease {
    fn new(term: u64) -> Self {
        TermLease {
            term,
            deadline: AtomicU64::new(EXPIRED),
            changed: Notify::new(),
        }
    }

    /// The term that it belongs to.
    pub fn term(&self) -> u64 {
        self.term
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

/// The sets of voters whose majorities must all agree: one, or two while membership changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quorums(Vec<BTreeSet<NodeId>>);

impl Quorums {
    /// From the voter sets of a membership.
    pub fn new(sets: impl IntoIterator<Item = BTreeSet<NodeId>>) -> Self {
        Quorums(sets.into_iter().collect())
    }

    /// All voters.
    pub fn voters(&self) -> BTreeSet<NodeId> {
        self.0.iter().flatten().copied().collect()
    }

    /// Whether `who` is the one and only voter.
    pub fn is_sole(&self, who: NodeId) -> bool {
        self.voters() == BTreeSet::from([who])
    }

    /// The latest instant that a majority of every set has reached, given how far each node got.
    /// `None` while some majority has not spoken at all.
    pub fn reached(&self, far: impl Fn(NodeId) -> Option<Instant>) -> Option<Instant> {
        let mut earliest = None;
        for set in &self.0 {
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
        Quorums(self.0.iter().chain(other).cloned().collect())
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
    /// Raft was shown something of this term: no lease of an earlier one is valid, not even one that
    /// is begun later, by a watcher that lags.
    void_before: u64,
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
        state.quorums = quorums;
        if let Some(current) = &state.current {
            if current.term == term {
                return current.clone();
            }
            current.void();
        }
        // What was proposed in an earlier term is in our log, and so in `quorums`, or nowhere.
        state.proposed = None;
        let lease = Arc::new(TermLease::new(term));
        if term < state.void_before {
            lease.void();
        }
        state.current = Some(lease.clone());
        self.recompute(&state);
        lease
    }

    /// Voids the current lease if its term is before `term`; called before Raft is shown anything
    /// of a later term, so that no answer of ours can follow one of a successor.
    pub fn void_before(&self, term: u64) {
        if is_planted(Bug::OpenDuringTransfer) {
            return;
        }
        let mut state = self.state.lock();
        state.void_before = term.max(state.void_before);
        if let Some(current) = &state.current
            && current.term < term
        {
            current.void();
        }
    }

    /// Voids the current lease, if there is one.
    pub fn void(&self) {
        if let Some(current) = &self.state.lock().current {
            current.void();
        }
    }

    /// Follows the membership that is in force.
    pub fn set_quorums(&self, quorums: Quorums) {
        let mut state = self.state.lock();
        if state.quorums != quorums {
            state.quorums = quorums;
            self.recompute(&state);
        }
    }

    /// Whose majorities count at present.
    pub fn quorums(&self) -> Quorums {
        let state = self.state.lock();
        state.quorums.and(state.proposed.as_ref())
    }

    /// From before a membership is proposed until it is known to be in force (or refused), its
    /// majority counts as well: Raft acts on a membership the moment it is in the log, before this
    /// clock can hear of it.
    pub fn set_proposed(&self, voters: Option<BTreeSet<NodeId>>) {
        let mut state = self.state.lock();
        state.proposed = voters;
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
mod tests {
    use super::*;

    #[derive(Default)]
    struct ManualClock(AtomicU64);

    impl Clock for ManualClock {
        fn now(&self) -> Instant {
            ms(self.0.load(Ordering::Relaxed))
        }
    }

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn quorums(sets: &[&[NodeId]]) -> Quorums {
        Quorums::new(sets.iter().map(|set| set.iter().copied().collect()))
    }

    fn clock() -> LeaseClock {
        LeaseClock::new(
            Arc::new(ManualClock::default()),
            1,
            Duration::from_millis(200),
        )
    }

    #[test]
    fn the_lease_runs_from_the_sending_of_what_a_majority_acknowledged() {
        let clock = clock();
        let lease = clock.begin(3, quorums(&[&[1, 2, 3]]));
        assert!(!lease.is_valid(ms(0)), "nobody has spoken");
        clock.credit(3, 2, ms(1_000));
        assert!(lease.is_valid(ms(1_199)));
        assert!(!lease.is_valid(ms(1_200)));
        clock.credit(3, 3, ms(900));
        assert_eq!(
            lease.deadline(),
            ms(1_200),
            "an older one does not shorten it"
        );
    }

    #[test]
    fn of_five_voters_the_second_fastest_peer_counts() {
        let clock = clock();
        let lease = clock.begin(3, quorums(&[&[1, 2, 3, 4, 5]]));
        clock.credit(3, 2, ms(1_000));
        assert!(!lease.is_valid(ms(0)));
        clock.credit(3, 3, ms(500));
        assert_eq!(lease.deadline(), ms(700));
        clock.credit(3, 4, ms(800));
        assert_eq!(lease.deadline(), ms(1_000));
    }

    #[test]
    fn a_joint_membership_needs_both_majorities() {
        let clock = clock();
        let lease = clock.begin(3, quorums(&[&[1, 2, 3], &[3, 4, 5]]));
        clock.credit(3, 2, ms(1_000));
        assert!(!lease.is_valid(ms(0)));
        clock.credit(3, 4, ms(100));
        clock.credit(3, 5, ms(90));
        assert_eq!(lease.deadline(), ms(290));
    }

    #[test]
    fn a_sole_voters_lease_never_ends_until_another_membership_is_proposed() {
        let clock = clock();
        let lease = clock.begin(3, quorums(&[&[1]]));
        assert!(lease.is_valid(ms(u64::from(u32::MAX))));
        clock.set_proposed(Some(BTreeSet::from([1, 2])));
        assert!(!lease.is_valid(ms(0)));
        clock.credit(3, 2, ms(1_000));
        assert_eq!(lease.deadline(), ms(1_200));
    }

    #[test]
    fn acknowledgements_of_another_term_extend_nothing() {
        let clock = clock();
        clock.credit(2, 2, ms(1_000));
        let lease = clock.begin(3, quorums(&[&[1, 2, 3]]));
        assert!(!lease.is_valid(ms(0)));
        clock.credit(2, 2, ms(1_100));
        assert!(!lease.is_valid(ms(0)));
        clock.credit(4, 2, ms(1_100));
        assert!(!lease.is_valid(ms(0)));
    }

    #[test]
    fn those_that_came_before_the_term_was_noticed_count() {
        let clock = clock();
        clock.credit(3, 2, ms(1_000));
        let lease = clock.begin(3, quorums(&[&[1, 2, 3]]));
        assert_eq!(lease.deadline(), ms(1_200));
    }

    #[test]
    fn a_void_lease_stays_void() {
        let clock = clock();
        let lease = clock.begin(3, quorums(&[&[1, 2, 3]]));
        clock.credit(3, 2, ms(1_000));
        clock.void_before(3);
        assert!(lease.is_valid(ms(1_000)), "of the same term");
        clock.void_before(4);
        assert!(lease.is_void());
        clock.credit(3, 2, ms(2_000));
        assert!(!lease.is_valid(ms(2_000)));
        let again = clock.begin(3, quorums(&[&[1, 2, 3]]));
        assert!(again.is_void(), "the same term does not start over");
        let next = clock.begin(5, quorums(&[&[1, 2, 3]]));
        assert!(!next.is_void());
    }

    #[test]
    fn a_lease_that_is_begun_after_a_later_term_was_seen_is_void() {
        let clock = clock();
        clock.credit(3, 2, ms(1_000));
        clock.void_before(4);
        let lease = clock.begin(3, quorums(&[&[1, 2, 3]]));
        assert!(lease.is_void());
        assert!(!clock.begin(4, quorums(&[&[1, 2, 3]])).is_void());
    }

    #[test]
    fn a_new_term_voids_the_last_one() {
        let clock = clock();
        let old = clock.begin(3, quorums(&[&[1]]));
        clock.begin(5, quorums(&[&[1]]));
        assert!(old.is_void());
    }
}
