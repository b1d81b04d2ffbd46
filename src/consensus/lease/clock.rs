//! The clock of acknowledgements, which keeps the lease of the current term up to date. The instant at which a message is sent
//! is stamped, and counts once the peer has acknowledged that message. A new term voids the lease of the old one.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;

use super::{
    arithmetic::LeaseArithmetic, later_terms::LaterTerms, quorums::Quorums, term_lease::TermLease,
};
use crate::{
    clock::{Clock, Instant},
    planted_bugs::{Bug, is_planted},
    sequence::NodeId,
};

/// A node that the leader has not heard for so long is told to be away.
pub const UNHEARD: Duration = Duration::from_secs(2);

/// Records acknowledgements and keeps the current term's lease up to date.
pub struct LeaseClock {
    clock: Arc<dyn Clock>,
    state: Mutex<LeaseState>,
}

/// The term that this node leads, and the acknowledgements that its lease rests on.
struct LeaseState {
    /// The last term that this node led.
    current: Option<CurrentTerm>,
    arithmetic: LeaseArithmetic,
    later_terms: LaterTerms,
    /// When a majority was last known to follow this node in a term that it led.
    followed_at: Option<Instant>,
}

/// A term that this node leads, or led last.
struct CurrentTerm {
    lease: Arc<TermLease>,
    /// The node that is to lead next. It alone gets appends once the lease is void, and until then there is none.
    successor: Option<NodeId>,
    /// An entry of the term is committed.
    has_committed: bool,
}

impl LeaseState {
    /// The current term, if it is `term`.
    fn current_if(&self, term: u64) -> Option<&CurrentTerm> {
        self.current.as_ref().filter(|current| current.lease.term() == term)
    }

    /// As [`LeaseState::current_if`], to be changed.
    fn current_if_mut(&mut self, term: u64) -> Option<&mut CurrentTerm> {
        self.current.as_mut().filter(|current| current.lease.term() == term)
    }

    /// The current term, if its lease is held.
    fn held(&self) -> Option<&CurrentTerm> {
        self.current.as_ref().filter(|current| !current.lease.is_void())
    }

    /// What the deadline of the current lease rests on has changed by `now`.
    fn update_deadline(&mut self, now: Instant) {
        let Some(CurrentTerm { lease, .. }) = &self.current else {
            return;
        };
        // A sole voter's lease is valid for ever, until another membership is proposed.
        let was_valid_at = lease.is_valid(now).then_some(now);
        let deadline = self.arithmetic.deadline(lease.term());
        lease.set_deadline(deadline);
        if !lease.is_void() {
            let followed_at = deadline.map(|deadline| deadline.min(now));
            self.followed_at = self.followed_at.max(was_valid_at).max(followed_at);
        }
    }
}

/// For how long a peer has not been known to follow this leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerSilence {
    /// The time since the latest message was sent that the peer acknowledged. If it acknowledged
    /// nothing in this term: the time since the term began.
    pub lasts: Duration,
    /// True if the peer acknowledged anything in this term.
    pub in_term: bool,
}

/// Raft has been told of a later term and has not decided whether to adopt it. When this is dropped,
/// the term counts as adopted.
#[must_use]
pub struct PendingTerm<'a> {
    clock: &'a LeaseClock,
    term: u64,
    adopted: bool,
}

impl PendingTerm<'_> {
    /// Raft kept to an earlier term: leases that begin from now on are not affected.
    pub fn rejected(mut self) {
        self.adopted = false;
    }
}

impl Drop for PendingTerm<'_> {
    fn drop(&mut self) {
        let mut state = self.clock.state.lock();
        state.later_terms.decide(self.term, self.adopted);
    }
}

impl LeaseClock {
    /// A clock for node `me`, whose leases last `lease` from the sending of what was acknowledged.
    pub fn new(clock: Arc<dyn Clock>, me: NodeId, lease: Duration) -> Self {
        LeaseClock {
            clock,
            state: Mutex::new(LeaseState {
                current: None,
                arithmetic: LeaseArithmetic::new(me, lease),
                later_terms: LaterTerms::default(),
                followed_at: None,
            }),
        }
    }

    /// The current instant: the stamp to take before a message is sent.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The reading of the wall clock: milliseconds since 1970.
    pub fn wall_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    /// The lease of `term`, which this node leads with the membership `in_force`. Begins it, and voids
    /// the lease of any other term, unless it began before.
    pub fn begin(&self, term: u64, in_force: Quorums) -> Arc<TermLease> {
        let mut state = self.state.lock();
        if let Some(lease) = state.current.as_ref().map(|current| current.lease.clone()) {
            if lease.term() == term {
                state.arithmetic.follow(in_force);
                state.update_deadline(self.now());
                return lease;
            }
            lease.void();
        }
        state.arithmetic.begin_term(in_force);
        let lease = Arc::new(TermLease::new(term, self.now()));
        if state.later_terms.forbid(term) {
            lease.void();
        }
        state.current =
            Some(CurrentTerm { lease: lease.clone(), successor: None, has_committed: false });
        state.update_deadline(lease.began());
        lease
    }

    /// Voids the current lease if its term is before `term`. To be called before Raft is told of a later
    /// term, so that no answer of this node can follow one of a successor.
    pub fn void_before(&self, term: u64) {
        drop(self.void_while_pending(term));
    }

    /// Like [`LeaseClock::void_before`], for a message that Raft may reject: leases that begin after a
    /// rejection are valid again.
    pub fn void_while_pending(&self, term: u64) -> PendingTerm<'_> {
        let term = match is_planted(Bug::OpenDuringTransfer) {
            true => 0,
            false => term,
        };
        let mut state = self.state.lock();
        state.later_terms.add_pending(term);
        if let Some(CurrentTerm { lease, .. }) = &state.current
            && lease.term() < term
        {
            lease.void();
        }
        PendingTerm { clock: self, term, adopted: true }
    }

    /// True if the current lease is valid now: nobody else leads.
    pub fn is_valid(&self) -> bool {
        let now = self.now();
        self.state.lock().held().is_some_and(|current| current.lease.is_valid(now))
    }

    /// When a majority was last known to follow this node in a term that it led. While its lease is valid, one does still. Of a
    /// sole voter it is when its term began, or when it began to need others. `None` if no majority ever followed this node.
    pub fn followed_at(&self) -> Option<Instant> {
        self.state.lock().followed_at
    }

    /// Whether this node leads, and no majority has followed it for two seconds.
    pub fn is_without_majority(&self) -> bool {
        let now = self.now();
        let state = self.state.lock();
        state.held().is_some_and(|CurrentTerm { lease, .. }| {
            let since = lease.began().max(state.followed_at.unwrap_or_default());
            !lease.is_valid(now) && now.since(since) >= UNHEARD
        })
    }

    /// Voids the current lease, if there is one. True if it was not void before.
    pub fn void(&self) -> bool {
        let state = self.state.lock();
        state.current.as_ref().is_some_and(|current| current.lease.end())
    }

    /// Voids the lease of `term`, which `successor` is to lead on. False if that is not the current lease, or it was void
    /// before.
    pub fn give_up_to(&self, term: u64, successor: NodeId) -> bool {
        let mut state = self.state.lock();
        let Some(current) = state.current_if_mut(term).filter(|current| current.lease.end()) else {
            return false;
        };
        current.successor = Some(successor);
        true
    }

    /// The node that is to lead after `term`, which is given up.
    pub fn successor(&self, term: u64) -> Option<NodeId> {
        let state = self.state.lock();
        state.current_if(term)?.successor
    }

    /// The appends of `term`, which is given up, go to `successor` alone, or to nobody.
    ///
    /// # Panics
    /// If the lease of `term` is held.
    pub fn append_only_to(&self, term: u64, successor: Option<NodeId>) {
        let mut state = self.state.lock();
        if let Some(current) = state.current_if_mut(term) {
            assert!(current.lease.is_void(), "a term that goes on has a successor");
            current.successor = successor;
        }
    }

    /// False if `term` is given up, and `peer` is not to lead it on. An append would do nothing then but keep that peer, and
    /// Raft here, from electing somebody else.
    pub fn may_append(&self, term: u64, peer: NodeId) -> bool {
        let state = self.state.lock();
        let given_up = state.current_if(term).filter(|current| current.lease.is_void());
        given_up.is_none_or(|current| current.successor == Some(peer))
    }

    /// An entry of `term` is committed.
    pub fn committed(&self, term: u64) {
        if let Some(current) = self.state.lock().current_if_mut(term) {
            current.has_committed = true;
        }
    }

    /// True if this leader can log without `peer`: it has committed an entry of its term, and those that acknowledged what was
    /// sent less than `span` ago are a majority, of each set of voters, if `peer` is not counted.
    pub fn can_do_without(&self, peer: NodeId, span: Duration) -> bool {
        let now = self.now();
        let state = self.state.lock();
        let Some(CurrentTerm { lease, has_committed, .. }) = state.held() else {
            return false;
        };
        let is_heard = |node| {
            let heard = state.arithmetic.last_ack(lease.term(), node);
            let is_me = state.arithmetic.is_me(node);
            let counts =
                node != peer && (is_me || heard.is_some_and(|sent| now.since(sent) < span));
            counts.then_some(())
        };
        *has_committed && state.arithmetic.quorums().majority_reached(is_heard).is_some()
    }

    /// The quorums that are needed at present.
    pub fn quorums(&self) -> Quorums {
        self.state.lock().arithmetic.quorums()
    }

    /// Raft acts on the membership `in_force` at this moment. If a change of it is about to be `proposed`, the majority of
    /// its voters is needed from now on as well: Raft acts on it as soon as it is in the log, before this clock can hear of
    /// it. `None`: no change is on its way any more.
    pub fn need(&self, in_force: Quorums, proposed: Option<BTreeSet<NodeId>>) {
        let mut state = self.state.lock();
        state.arithmetic.need(in_force, proposed);
        state.update_deadline(self.now());
    }

    /// `peer` followed this leader of `term` when it answered the very message that was sent at `sent`.
    pub fn record_ack(&self, term: u64, peer: NodeId, sent: Instant) {
        let mut state = self.state.lock();
        state.arithmetic.record_ack(term, peer, sent);
        state.update_deadline(self.now());
    }

    /// When the latest message of `term` was sent that `peer` acknowledged.
    pub fn last_ack(&self, term: u64, peer: NodeId) -> Option<Instant> {
        self.state.lock().arithmetic.last_ack(term, peer)
    }

    /// Those of `members` that this leader, `me`, has not heard for a while. None if this node does not lead.
    pub fn unheard(&self, me: NodeId, mut members: Vec<NodeId>) -> Vec<NodeId> {
        let is_silent = |id: &NodeId| self.silence(*id).is_some_and(|it| it.lasts >= UNHEARD);
        members.retain(|id| *id != me && is_silent(id));
        members
    }

    /// For how long `peer` has not been known to follow this leader. `None` if this node does not lead.
    pub fn silence(&self, peer: NodeId) -> Option<PeerSilence> {
        let now = self.now();
        let state = self.state.lock();
        let lease = &state.held()?.lease;
        let heard = state.arithmetic.last_ack(lease.term(), peer);
        Some(PeerSilence {
            lasts: now.since(heard.unwrap_or(lease.began())),
            in_term: heard.is_some(),
        })
    }
}
