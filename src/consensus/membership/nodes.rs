//! What this node knows of each member, and what follows: who can lead next, and whether a change leaves a majority
//! that could go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use openraft::{RaftMetrics, ServerState, async_runtime::watch::WatchReceiver};

use super::change::MembershipChange;
use crate::{
    clock::Instant,
    consensus::{
        group::Group,
        lease::{Quorums, Silence},
    },
    sequence::NodeId,
    storage::{Member, Types},
};

/// What is known of one node.
#[derive(Debug, Clone)]
pub struct NodeState {
    /// The node.
    pub id: NodeId,
    /// Its addresses and its data directory.
    pub member: Member,
    /// True if it is a voter.
    pub voter: bool,
    /// True if it leads, as far as this node knows.
    pub leads: bool,
    /// True if it stands for election; known of this node alone.
    pub stands: bool,
    /// Its last log entry: known of this node, and (as far as it is on the disk there) of the followers
    /// of this node.
    pub log_index: Option<u64>,
    /// The last entry that it applied; known of this node alone.
    pub applied_index: Option<u64>,
    /// For how long it has not been heard; known of the others, if this node leads.
    pub silence: Option<Silence>,
}

/// How far this node's log is; `None` for no entry.
#[derive(Debug, Clone, Copy)]
pub struct LogState {
    /// Its last entry.
    pub last: Option<u64>,
    /// The last entry that it knows to be committed.
    pub committed: Option<u64>,
    /// The last entry that it applied.
    pub applied: Option<u64>,
}

impl Group {
    /// The members: for each node its addresses, and whether it is a voter.
    pub fn members(&self) -> BTreeMap<NodeId, (Member, bool)> {
        members_of(&self.metrics())
    }

    /// What this node knows of every member.
    pub fn nodes(&self) -> Vec<NodeState> {
        let metrics = self.metrics();
        members_of(&metrics)
            .into_iter()
            .map(|(id, (member, voter))| {
                let leads = metrics.current_leader == Some(id);
                let stands = id == self.node() && metrics.state == ServerState::Candidate;
                let (log_index, applied_index, silence) = match id == self.node() {
                    true => (
                        metrics.last_log_index,
                        metrics.last_applied.as_ref().map(|log_id| log_id.index),
                        None,
                    ),
                    false => (replicated_index(&metrics, id), None, self.lease.silence(id)),
                };
                NodeState { id, member, voter, leads, stands, log_index, applied_index, silence }
            })
            .collect()
    }

    /// How far this node's log is.
    pub fn log_state(&self) -> LogState {
        let metrics = self.metrics();
        LogState {
            last: metrics.last_log_index,
            committed: metrics.local_committed.map(|log_id| log_id.index),
            applied: metrics.last_applied.map(|log_id| log_id.index),
        }
    }
}

fn members_of(metrics: &RaftMetrics<Types>) -> BTreeMap<NodeId, (Member, bool)> {
    let membership = metrics.membership_config.membership();
    let voters: BTreeSet<NodeId> = membership.voter_ids().collect();
    let nodes = membership.nodes();
    nodes.map(|(&id, member)| (id, (member.clone(), voters.contains(&id)))).collect()
}

/// Up to where the log of `id` is known to match this leader's log. `None` for a node that has nothing,
/// and on a node that does not lead.
fn replicated_index(metrics: &RaftMetrics<Types>, id: NodeId) -> Option<u64> {
    let progress = metrics.replication.as_ref()?.get(&id)?;
    progress.as_ref().map(|log_id| log_id.index)
}

// Which voter the leadership goes to in a transfer.

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
            return self.longest_log(term, None).ok_or_else(none);
        };
        let nodes = self.nodes();
        let node = nodes.iter().find(|node| node.id == wanted);
        let Some(node) = node.filter(|node| node.id != self.node()) else {
            return Err(refused(format!("node {wanted} is not a member"), false));
        };
        if !node.voter {
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
        self.longest_log(term, Some(failed)).unwrap_or(failed)
    }

    /// The one of `voters` that has the longest log, if this leader of `term` heard any of them lately.
    pub fn successor_among(&self, term: u64, voters: &BTreeSet<NodeId>) -> Option<NodeId> {
        let mut nodes = self.nodes();
        nodes.retain(|node| voters.contains(&node.id) && self.is_heard(term, node.id));
        nodes.into_iter().max_by_key(|node| node.log_index).map(|node| node.id)
    }

    /// The voter with the longest log among those that were heard, but for this node and `excluded`.
    fn longest_log(&self, term: u64, excluded: Option<NodeId>) -> Option<NodeId> {
        let mut others = self.nodes();
        others.retain(|node| node.voter && node.id != self.node() && Some(node.id) != excluded);
        let heard = others.iter().filter(|node| self.is_heard(term, node.id));
        heard.max_by_key(|node| node.log_index).map(|node| node.id)
    }

    /// True if a node was heard within a follower lease.
    fn is_heard(&self, term: u64, id: NodeId) -> bool {
        let last_ack = self.lease.last_ack(term, id);
        last_ack.is_some_and(|sent| self.lease.now().since(sent) < self.config.follower_lease())
    }
}

impl Group {
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

// Whether a majority of the voters after a membership change could go on.

/// A voter that is further behind has not caught up.
const LAG_ENTRIES_MAX: u64 = 1_000;

/// Why the voters after a change could not go on.
#[derive(Debug, Clone)]
pub struct Unfit {
    /// The nodes that do not answer or lag, each with the reason.
    why: Vec<String>,
    /// True if one of them does not answer.
    pub silent: bool,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "after the change a majority of the voters, and the promoted node, must answer and be at \
             most {LAG_ENTRIES_MAX} log entries behind, but {}. Bring them back, wait until they have \
             caught up, or remove them first; see ratchet status. --force changes the membership \
             all the same: if they do not come back then, the cluster hands out no more numbers until \
             ratchet recover makes a new cluster of what is left",
            self.why.join(", ")
        )
    }
}

impl Group {
    /// Refuses a change of the voters if there would be no majority afterwards: the change itself might
    /// still be committed, and nothing after it. A voter is there if it has answered a message that was
    /// sent at `asked` (by the clock of [`Group::now`]) or later, and has caught up.
    ///
    /// # Errors
    /// If a majority of the voters after the change is not there, or if the promoted node is not.
    pub fn check_voters_after(
        &self, term: u64, change: &MembershipChange, asked: Instant,
    ) -> Result<(), Unfit> {
        let metrics = self.metrics();
        let voters = change.voters_after(metrics.membership_config.membership());
        let mut fit = BTreeSet::new();
        let mut unfit = Unfit { why: Vec::new(), silent: false };
        for &id in &voters {
            match self.check_voter(&metrics, term, id, asked) {
                Ok(()) => {
                    fit.insert(id);
                }
                Err((silent, why)) => {
                    unfit.silent |= silent;
                    unfit.why.push(why);
                }
            }
        }
        let promoted_is_fit = match change {
            MembershipChange::Promote(id) => fit.contains(id),
            MembershipChange::Add(..)
            | MembershipChange::Remove(_)
            | MembershipChange::RemoveLearner(..)
            | MembershipChange::Move(..) => true,
        };
        if promoted_is_fit && (voters.is_empty() || Quorums::new(0, [voters]).agree(&fit)) {
            return Ok(());
        }
        Err(unfit)
    }

    /// Refuses one voter. True: it does not answer.
    fn check_voter(
        &self, metrics: &RaftMetrics<Types>, term: u64, id: NodeId, asked: Instant,
    ) -> Result<(), (bool, String)> {
        if id == self.node() {
            return Ok(());
        }
        let heard = self.lease.last_ack(term, id);
        if heard.is_none_or(|heard| heard < asked) {
            let now = self.lease.now();
            let why = match heard {
                Some(at) => format!("node {id} was last heard {:.1?} ago", now.since(at)),
                None => format!("node {id} was not heard in this term"),
            };
            return Err((true, why));
        }
        let last = metrics.last_log_index.unwrap_or(0);
        let replicated = replicated_index(metrics, id);
        let behind = last.saturating_sub(replicated.unwrap_or(0));
        if behind > LAG_ENTRIES_MAX || (replicated.is_none() && last > 0) {
            return Err((false, format!("node {id} is {behind} log entries behind")));
        }
        Ok(())
    }
}
