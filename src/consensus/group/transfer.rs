//! Hands the leadership over, and ends each term that was given up.
//!
//! Such a term hands out nothing more, so the next one should begin at once. Its followers would elect a leader when their
//! promises have ended. But each append renews the promise of its receiver, and each answer to it the time for which Raft
//! here refuses its vote: a backlog for one voter that lags would keep all from being elected for as long as it takes. So
//! nobody gets appends but the one that is to lead next, and only until it has the whole log. Then Raft transfers to it.
//! A transfer overrides what followers have promised this leader, who counts on it no more.
//!
//! Invariant: a transfer is asked of Raft only for a term whose lease is void.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use openraft::{RaftMetrics, async_runtime::watch::WatchReceiver, errors::Fatal};

use super::{
    group::Group, leadership::Leadership, propose_error::ProposeError,
    replication::replicated_index,
};
use crate::{
    consensus::lease::TermLease,
    planted_bugs::{Bug, is_planted},
    sequence::NodeId,
    storage::{Types, term_led},
};

/// A successor that gets no further with the log for this many election timeouts, or that has the whole log and has not taken
/// over for as long, makes room for another one.
const TURN_ELECTIONS: u32 = 2;

/// A voter that may lead next. The one to ask first is the greatest. To ask one that has the whole log costs two election
/// timeouts, even if it has died. Nothing bounds how long one takes that lags. Of each kind those come first that were heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Heir {
    has_whole_log: bool,
    /// Whether it was heard when the term was given up. Later nobody is, but the one that gets appends.
    was_heard: bool,
    /// The last entry that its log is known to have.
    log_index: Option<u64>,
    id: NodeId,
}

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
        let (term, election) = (lease.term(), self.config.promise_time());
        let mut wanted = self.lease.successor(term);
        let mut heard = self.other_voters();
        heard.retain(|id| self.is_heard(term, *id));
        // Where each leader loses its term as soon as it has begun, terms would otherwise race.
        let young = election.saturating_sub(self.now().since(lease.began()));
        if wanted.is_none() && self.is_over_within(term, young).await {
            return;
        }
        let mut tried = BTreeSet::new();
        loop {
            let Some(next) = wanted.take().or_else(|| self.next_to_lead(&heard, &tried)) else {
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

    /// Of the other voters that were not `tried`, who is to lead next. `heard` are those that were heard when the term was
    /// given up.
    fn next_to_lead(&self, heard: &BTreeSet<NodeId>, tried: &BTreeSet<NodeId>) -> Option<NodeId> {
        let seen = self.metrics();
        let untried = self.other_voters().into_iter().filter(|id| !tried.contains(id));
        let heirs = untried.map(|id| {
            let log_index = replicated_index(&seen, id);
            let has_whole_log = log_index >= seen.last_log_index;
            Heir { has_whole_log, was_heard: heard.contains(&id), log_index, id }
        });
        heirs.max().map(|heir| heir.id)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Who leads next, of voters that have so much of a log with 9 entries, and were heard or not.
    fn next(voters: &[(NodeId, u64, bool)]) -> Option<NodeId> {
        let heirs = voters.iter().map(|(id, log, was_heard)| Heir {
            has_whole_log: *log >= 9,
            was_heard: *was_heard,
            log_index: Some(*log),
            id: *id,
        });
        heirs.max().map(|heir| heir.id)
    }

    #[test]
    fn a_voter_with_the_whole_log_leads_next_or_else_one_that_was_heard_with_the_longest_log() {
        assert_eq!(next(&[(2, 9, false), (3, 5, true)]), Some(2), "even if it has died");
        assert_eq!(next(&[(2, 9, true), (3, 9, false)]), Some(2));
        assert_eq!(next(&[(2, 8, false), (3, 5, true)]), Some(3), "nobody has the whole log");
        assert_eq!(next(&[(2, 8, true), (3, 5, true)]), Some(2));
        assert_eq!(next(&[(2, 8, false), (3, 5, false)]), Some(2), "nobody was heard");
        assert_eq!(next(&[]), None);
    }
}
