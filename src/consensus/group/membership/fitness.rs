//! Whether a majority of the voters after a membership change could go on. Without that check a change could be committed, and
//! no entry after it.

use std::{collections::BTreeSet, fmt};

use openraft::RaftMetrics;

use super::{GroupMembership, change::MembershipChange};
use crate::{
    clock::Instant,
    consensus::{group::replication::replicated_index, lease::Quorums},
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
             most {LAG_ENTRIES_MAX} log entries behind, and all must know of a promoted node that has the id \
             of a removed one, but {}. Bring them back, wait until they have \
             caught up, or remove them first; see ratchet status. --force changes the membership \
             all the same: if they do not come back then, the cluster hands out no more numbers until \
             ratchet recover makes a new cluster of what is left",
            self.why.join(", ")
        )
    }
}

impl GroupMembership {
    /// Refuses a change of the voters if there would be no majority afterwards: the change itself might
    /// still be committed, and nothing after it. A voter is there if it has answered a message that was
    /// sent at `asked` (by the clock of leases) or later, and has caught up.
    ///
    /// A voter that knows that a node was removed, and not that its id was given to another one, listens to neither
    /// (`RpcHandler::check_sender`). So a node with such an id votes only once all voters know of it; and where one votes, a
    /// further voter has to know of it, too.
    ///
    /// # Errors
    /// If a majority of the voters after the change is not there, or if the promoted node is not. If a voter does not know of a
    /// node that has the id of a removed one, and must.
    pub fn check_voters_after(
        &self, term: u64, change: &MembershipChange, asked: Instant,
    ) -> Result<(), Unfit> {
        let metrics = self.raft_metrics();
        let voters = change.voters_after(metrics.membership_config.membership());
        let mut fit = BTreeSet::new();
        let mut unfit = Unfit { why: Vec::new(), silent: false };
        let members_at = metrics.membership_config.log_id().as_ref().map(|log_id| log_id.index);
        let must_know = must_know_members(change, &voters, &self.view.former_members());
        let mut all_know = true;
        for &id in &voters {
            // An entry that is replicated to a node is on its disk.
            if must_know.contains(&id)
                && id != self.this_node.id
                && replicated_index(&metrics, id) < members_at
            {
                all_know = false;
                let why = "does not know yet who the members are, of which one has the id of a removed node";
                unfit.why.push(format!("node {id} {why}"));
            }
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
        if all_know
            && promoted_is_fit
            && (voters.is_empty() || Quorums::new(0, [voters]).agree(&fit))
        {
            return Ok(());
        }
        Err(unfit)
    }

    /// Refuses one voter. True: it does not answer.
    fn check_voter(
        &self, metrics: &RaftMetrics<Types>, term: u64, id: NodeId, asked: Instant,
    ) -> Result<(), (bool, String)> {
        if id == self.this_node.id {
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

/// Which of the `voters` after a change must know all changes of the members before it, because one of them has the id of a
/// `former` member: all of them, if it is the one that is promoted; otherwise the promoted one, since the others knew it when
/// that one was.
fn must_know_members(
    change: &MembershipChange, voters: &BTreeSet<NodeId>, former: &BTreeSet<NodeId>,
) -> BTreeSet<NodeId> {
    match change {
        MembershipChange::Promote(id) if former.contains(id) => voters.clone(),
        MembershipChange::Promote(id) if !voters.is_disjoint(former) => BTreeSet::from([*id]),
        MembershipChange::Promote(_)
        | MembershipChange::Add(..)
        | MembershipChange::Remove(_)
        | MembershipChange::RemoveLearner(..)
        | MembershipChange::Move(..) => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Member;

    #[test]
    fn where_an_id_comes_again_all_voters_must_know_it_before_it_votes_and_later_ones_before_they_do()
     {
        use MembershipChange::{Add, Promote, Remove};
        let set = |ids: &[NodeId]| ids.iter().copied().collect::<BTreeSet<_>>();
        let member = Member::default();
        for (change, voters, former, must_know) in [
            (Promote(4), [1, 2, 4].as_slice(), [4].as_slice(), [1, 2, 4].as_slice()),
            (Promote(4), &[1, 2, 4], &[4, 5], &[1, 2, 4]),
            (Promote(3), &[1, 3, 4], &[4], &[3]),
            (Promote(4), &[1, 2, 4], &[3], &[]),
            (Promote(4), &[1, 2, 4], &[], &[]),
            // These give nobody a vote.
            (Remove(4), &[1, 2], &[2, 4], &[]),
            (Add(4, member), &[1, 2], &[2, 4], &[]),
        ] {
            let found = must_know_members(&change, &set(voters), &set(former));
            assert_eq!(found, set(must_know), "{change:?} to {voters:?}, {former:?} were removed");
        }
    }
}
