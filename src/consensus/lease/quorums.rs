//! Quorum arithmetic: which voters must agree, and how far a majority of them got. Pure.
//!
//! A membership has one set of voters, or two while it changes (a joint membership). A decision needs
//! a majority of every set.

use std::collections::BTreeSet;

use crate::sequence::NodeId;

/// The sets of voters whose majorities must all agree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quorums {
    voter_sets: Vec<BTreeSet<NodeId>>,
    /// The log index of the membership that the sets come from.
    log_index: u64,
}

impl Quorums {
    /// The voter sets of a membership that stands at `log_index` in the log.
    pub fn new(log_index: u64, voter_sets: impl IntoIterator<Item = BTreeSet<NodeId>>) -> Self {
        Quorums { voter_sets: voter_sets.into_iter().collect(), log_index }
    }

    /// The log index of the membership that the sets come from.
    pub fn log_index(&self) -> u64 {
        self.log_index
    }

    /// The sets, one by one.
    #[cfg(test)]
    pub fn sets(&self) -> impl Iterator<Item = &BTreeSet<NodeId>> {
        self.voter_sets.iter()
    }

    /// The voters of all sets.
    pub fn voters(&self) -> BTreeSet<NodeId> {
        self.voter_sets.iter().flatten().copied().collect()
    }

    /// True if `node` is the only voter.
    pub fn is_sole(&self, node: NodeId) -> bool {
        self.voters() == BTreeSet::from([node])
    }

    /// The furthest point that a majority of every set has reached, given how far each node got.
    /// `None` while less than a majority of some set has reached anything.
    pub fn majority_reached<T: Ord>(&self, reached: impl Fn(NodeId) -> Option<T>) -> Option<T> {
        let majority_of = |voters: &BTreeSet<NodeId>| {
            let mut points: Vec<T> = voters.iter().filter_map(|&node| reached(node)).collect();
            points.sort_unstable_by(|a, b| b.cmp(a));
            // The first is the furthest: the point at len / 2 was reached by len / 2 + 1 voters.
            points.into_iter().nth(voters.len() / 2)
        };
        let points: Option<Vec<T>> = self.voter_sets.iter().map(majority_of).collect();
        points?.into_iter().min()
    }

    /// True if `nodes` contain a majority of every set.
    pub fn agree(&self, nodes: &BTreeSet<NodeId>) -> bool {
        let agrees = |node| nodes.contains(&node).then_some(());
        self.majority_reached(agrees).is_some()
    }

    /// These quorums, and a majority of `voters` as well.
    pub fn and(&self, voters: Option<&BTreeSet<NodeId>>) -> Quorums {
        let all = self.voter_sets.iter().chain(voters).cloned();
        Quorums::new(self.log_index, all)
    }
}
