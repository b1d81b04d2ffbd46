//! Which voter can lead next, and how it comes to that: a transfer, and the end of a term that was given up.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use openraft::{RaftMetrics, async_runtime::watch::WatchReceiver, errors::Fatal};

use super::{
    group::{Group, ProposeError, replicated_index, term_led},
    leadership::Leadership,
};
use crate::{
    consensus::lease::TermLease,
    planted_bugs::{Bug, is_planted},
    sequence::NodeId,
    storage::Types,
};

// Which voter can lead next.

/// Why no voter can take over.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub struct NoSuccessor {
    why: String,
    /// True if it is only that nobody was heard: that may change.
    pub silent: bool,
}

impl Group {
    /// The voter to hand the leadership of `term` to: among those that were heard within a follower lease,
    /// the one with the longest log. If `wanted` is given: that node, or why it cannot be.
    ///
    /// # Errors
    /// `NoSuccessor` if `wanted` is not a member, is a learner, or was not heard; or if no other voter was heard.
    pub fn successor(&self, term: u64, wanted: Option<NodeId>) -> Result<NodeId, NoSuccessor> {
        let Some(wanted) = wanted else {
            let nobody = "no other voter answers; there is nobody to lead instead";
            let none = || refused(nobody, !self.is_sole_voter());
            return self.successor_that(term, |_| true).ok_or_else(none);
        };
        let seen = self.metrics();
        let membership = seen.membership_config.membership();
        if membership.get_node(&wanted).is_none() || wanted == self.node() {
            return Err(refused(format!("node {wanted} is not a member"), false));
        }
        if !self.other_voters().contains(&wanted) {
            let why = format!("is a learner; promote it first: ratchet node promote {wanted}");
            return Err(refused(format!("node {wanted} {why}"), false));
        }
        if !self.is_heard(term, wanted) {
            let why = "does not answer; see ratchet status, then choose another node";
            return Err(refused(format!("node {wanted} {why}"), true));
        }
        Ok(wanted)
    }

    /// As [`Group::successor`], if `failed` could not take over: another voter, or `failed` again if there is no other.
    pub fn another_successor(&self, term: u64, failed: NodeId) -> NodeId {
        self.successor_that(term, |id| id != failed).unwrap_or(failed)
    }

    /// The voter to hand the leadership of `term` to, of those for which `fits` is true: among those that were heard within a
    /// follower lease, the one with the longest log.
    pub fn successor_that(&self, term: u64, fits: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let seen = self.metrics();
        let others = self.other_voters().into_iter();
        let fit = others.filter(|id| self.is_heard(term, *id) && fits(*id));
        fit.max_by_key(|id| replicated_index(&seen, *id))
    }

    /// The voters but for this node.
    fn other_voters(&self) -> BTreeSet<NodeId> {
        let seen = self.metrics();
        let voters = seen.membership_config.membership().voter_ids();
        voters.filter(|id| *id != self.node()).collect()
    }

    /// True if a node was heard within a follower lease.
    pub(super) fn is_heard(&self, term: u64, id: NodeId) -> bool {
        let last_ack = self.lease.last_ack(term, id);
        last_ack.is_some_and(|sent| self.lease.now().since(sent) < self.config.follower_lease())
    }

    /// Waits, at most `patience`, until the log of node `id` has all that this leader's log has now. False if it does
    /// not come to that, and on a node that does not lead.
    pub async fn has_whole_log(&self, id: NodeId, patience: Duration) -> bool {
        let last = self.metrics().last_log_index;
        let mut metrics = self.raft.metrics();
        let caught_up = async {
            while replicated_index(&metrics.borrow_watched(), id) < last {
                if metrics.changed().await.is_err() {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(patience, caught_up).await.unwrap_or(false)
    }
}

fn refused(why: impl Into<String>, silent: bool) -> NoSuccessor {
    NoSuccessor { why: why.into(), silent }
}

// Hands the leadership over, and ends each term that was given up.
//
// Such a term hands out nothing more, so the next one should begin at once. Its followers would elect a leader when their
// promises have ended. But each append renews the promise of its receiver, and each answer to it the time for which Raft
// here refuses its vote: a backlog for one voter that lags would keep all from being elected for as long as it takes. So
// nobody gets appends but the one that is to lead next, and only until it has the whole log. Then Raft transfers to it.
// A transfer overrides what followers have promised this leader, who counts on it no more.
//
// Invariant: a transfer is asked of Raft only for a term whose lease is void.

/// A successor that gets no further with the log for so many election timeouts, or that has the whole log and has not taken
/// over for as long, makes room for another one.
const TURN_ELECTIONS: u32 = 2;

impl Group {
    /// Gives up the term of `lease`, for `to` to lead next. Waits until a later term has a leader. The caller has closed the
    /// term's allocator for good.
    ///
    /// # Errors
    /// * [`ProposeError::NotLeader`] if the term is over already.
    /// * [`ProposeError::Unknown`] if nobody leads a later term within `timeout`. This node goes on to look for one that does.
    /// * [`ProposeError::Stopped`] if Raft has stopped.
    pub async fn transfer(
        &self, lease: &TermLease, to: NodeId, timeout: Duration,
    ) -> Result<Leadership, ProposeError> {
        let term = lease.term();
        let own = self.leadership.borrow().own.clone();
        if own.is_none_or(|own| own.term() != term) {
            return Err(ProposeError::NotLeader(term));
        }
        if is_planted(Bug::OpenDuringTransfer) {
            let asked = self.trigger_transfer(term, to).await;
            asked.map_err(|e| ProposeError::Stopped(e.to_string()))?;
        } else if !self.lease.give_up_to(term, to) {
            return Err(ProposeError::NotLeader(term));
        }
        let (mut leadership, mut stopped) = (self.leadership(), self.stopped());
        let later = leadership.wait_for(|now| now.term > term && now.leader.is_some());
        tokio::select! {
            biased;
            Ok(now) = later => Ok(now),
            Ok(why) = stopped.wait_for(Option::is_some) => {
                let why = why.map(|fault| fault.to_string());
                Err(ProposeError::Stopped(why.unwrap_or_default()))
            }
            () = tokio::time::sleep(timeout) => Err(ProposeError::Unknown(term)),
        }
    }

    /// Ends the term of `lease`, which is void: has one voter after the other take the leadership over, until one has, or Raft
    /// stops.
    pub(super) async fn end_term(self: Arc<Self>, lease: Arc<TermLease>) {
        let (term, election) = (lease.term(), self.config.follower_lease());
        let mut wanted = self.lease.successor(term);
        // Where each leader loses its term as soon as it has begun, terms would otherwise race.
        let young = election.saturating_sub(self.now().since(lease.began()));
        if wanted.is_none() && self.is_over_within(term, young).await {
            return;
        }
        let mut tried = BTreeSet::new();
        loop {
            let Some(next) = wanted.take().or_else(|| self.next_to_lead(term, &tried)) else {
                if tried.is_empty() {
                    return tracing::debug!(term, "there is no other voter that could lead");
                }
                tried.clear();
                continue;
            };
            self.lease.append_only_to(term, Some(next));
            let is_ready = self.catches_up(term, next, election * TURN_ELECTIONS).await;
            self.lease.append_only_to(term, None);
            if is_ready {
                tracing::info!(term, next, "another node is asked to lead");
                if self.trigger_transfer(term, next).await.is_err() {
                    // Raft has stopped. The watch over Raft says why.
                    return;
                }
            }
            let wait = if is_ready { election * TURN_ELECTIONS } else { Duration::ZERO };
            if self.is_over_within(term, wait).await {
                return;
            }
            tried.insert(next);
        }
    }

    /// Of the other voters that were not `tried`, who is to lead next: one that has the whole log, if there is one. Of those,
    /// or else of all, one that was heard, if there is one. Of those the one with the longest log.
    fn next_to_lead(&self, term: u64, tried: &BTreeSet<NodeId>) -> Option<NodeId> {
        let seen = self.metrics();
        let voters = self.other_voters().into_iter().filter(|id| !tried.contains(id));
        voters.max_by_key(|id| {
            let log = replicated_index(&seen, *id);
            (log >= seen.last_log_index, self.is_heard(term, *id), log)
        })
    }

    /// Waits until the log of node `id` has all that this leader's log has. False once it has not grown for `patience`, or the
    /// term is over.
    async fn catches_up(&self, term: u64, id: NodeId, patience: Duration) -> bool {
        let mut metrics = self.raft.metrics();
        let look = |seen: &RaftMetrics<Types>| {
            (self.leads(seen, term), replicated_index(seen, id), seen.last_log_index)
        };
        loop {
            let (leads, has, last) = look(&metrics.borrow_watched());
            if !leads || has >= last {
                return leads;
            }
            let grows = async {
                loop {
                    if metrics.changed().await.is_err() {
                        return false;
                    }
                    let (leads, now, _) = look(&metrics.borrow_watched());
                    if !leads || now > has {
                        return leads;
                    }
                }
            };
            if !tokio::time::timeout(patience, grows).await.unwrap_or(false) {
                return false;
            }
        }
    }

    /// True if Raft leads `term` no more, or does not within `limit`.
    async fn is_over_within(&self, term: u64, limit: Duration) -> bool {
        let mut metrics = self.raft.metrics();
        let over = async {
            while self.leads(&metrics.borrow_watched(), term) {
                if metrics.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(limit, over).await.is_ok()
    }

    /// True if Raft runs, and leads `term`.
    fn leads(&self, seen: &RaftMetrics<Types>, term: u64) -> bool {
        let led = term_led(&seen.vote, self.node());
        seen.running_state.is_ok() && seen.state.is_leader() && led == Some(term)
    }

    /// Makes Raft transfer the leadership of `term`, whose lease is void.
    ///
    /// Raft transfers the term that it leads when it handles the request. That may be a later term of
    /// this node, of which nothing here has heard yet. So the lease of that term is voided, too.
    async fn trigger_transfer(&self, term: u64, to: NodeId) -> Result<(), Fatal<Types>> {
        // A lease that begins before Raft has handled the request begins void.
        let pending = self.lease.void_while_pending(u64::MAX);
        self.raft.trigger().transfer_leader(to).await?;
        // Raft's core takes its messages in order, so this is answered after the transfer.
        if let Some(later) = self.term_led_in_raft().await?
            && later > term
        {
            self.lease.void_before(later + 1);
        }
        pending.rejected();
        Ok(())
    }
}
