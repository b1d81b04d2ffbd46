//! Whether a majority of the voters after a membership change could go on.

use std::{collections::BTreeSet, fmt};

use openraft::RaftMetrics;

use super::{change::MembershipChange, nodes::replicated_index};
use crate::{
    clock::Instant,
    consensus::{group::Group, lease::Quorums},
    sequence::NodeId,
    storage::Types,
};

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

/// Why one node could not go on.
enum NodeUnfit {
    Silent(String),
    Behind(String),
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
                Err(NodeUnfit::Silent(why)) => {
                    unfit.silent = true;
                    unfit.why.push(why);
                }
                Err(NodeUnfit::Behind(why)) => unfit.why.push(why),
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

    fn check_voter(
        &self, metrics: &RaftMetrics<Types>, term: u64, id: NodeId, asked: Instant,
    ) -> Result<(), NodeUnfit> {
        if id == self.node() {
            return Ok(());
        }
        let heard = self.lease.last_ack(term, id);
        if heard.is_none_or(|heard| heard < asked) {
            let now = self.lease.now();
            return Err(NodeUnfit::Silent(match heard {
                Some(at) => format!("node {id} was last heard {:.1?} ago", now.since(at)),
                None => format!("node {id} was not heard in this term"),
            }));
        }
        let last = metrics.last_log_index.unwrap_or(0);
        let replicated = replicated_index(metrics, id);
        let behind = last.saturating_sub(replicated.unwrap_or(0));
        if behind > LAG_ENTRIES_MAX || (replicated.is_none() && last > 0) {
            return Err(NodeUnfit::Behind(format!("node {id} is {behind} log entries behind")));
        }
        Ok(())
    }
}
