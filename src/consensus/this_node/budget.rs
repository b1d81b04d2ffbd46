//! The budget of a node for its Raft groups, and each group's share of it.
//!
//! A setting bounds what the node uses, however many groups run on it. `node_budget` in module `node`, `lifecycle`, alone makes
//! the budget of these settings. A group knows its share. With one group that is all of it.
//!
//! Invariant: the shares of all groups together are no more than what the node may use.

use std::num::NonZeroU64;

/// How much may be used at most, by a node's groups together or by one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The leader's memory for keys and sections, in bytes.
    pub memory_bytes: u64,
    /// The bytes that are remembered under request ids, on the disk.
    pub request_ids_bytes: u64,
    /// The applied log that is kept for followers that lag, in bytes.
    pub log_keep_bytes: u64,
    /// How fast snapshots are sent to each peer, in bytes a second, at least 1.
    pub snapshot_bytes_per_second: u64,
    /// The memory for records that a new leader needs, in bytes.
    pub recent_records_bytes: u64,
}

/// The budget of a node, and how many groups share it.
#[derive(Debug, Clone, Copy)]
pub struct NodeBudget {
    whole: Budget,
    groups: NonZeroU64,
}

impl NodeBudget {
    /// The budget `whole`, which so many groups share.
    pub fn new(whole: Budget, groups: NonZeroU64) -> Self {
        let rate = whole.snapshot_bytes_per_second;
        assert!(rate >= groups.get(), "{groups} groups could send no snapshot with {rate} bytes/s");
        NodeBudget { whole, groups }
    }

    /// The budget of all groups together.
    pub fn whole(&self) -> &Budget {
        &self.whole
    }

    /// The budget of each group.
    pub fn share(&self) -> Budget {
        // Each field by its name: a new one has to be divided as well.
        let Budget {
            memory_bytes,
            request_ids_bytes,
            log_keep_bytes,
            snapshot_bytes_per_second,
            recent_records_bytes,
        } = self.whole;
        Budget {
            memory_bytes: self.share_of(memory_bytes),
            request_ids_bytes: self.share_of(request_ids_bytes),
            log_keep_bytes: self.share_of(log_keep_bytes),
            snapshot_bytes_per_second: self.share_of(snapshot_bytes_per_second),
            recent_records_bytes: self.share_of(recent_records_bytes),
        }
    }

    /// Each group's share of `bytes` that the node has for all of them.
    pub fn share_of(&self, bytes: u64) -> u64 {
        bytes / self.groups
    }
}

#[cfg(test)]
impl NodeBudget {
    /// That of a node with one group, for tests that use little.
    pub(crate) fn of_a_test() -> Self {
        let whole = Budget {
            memory_bytes: 16 << 20,
            request_ids_bytes: 1 << 20,
            log_keep_bytes: 1 << 20,
            snapshot_bytes_per_second: 8 << 20,
            recent_records_bytes: 1 << 20,
        };
        NodeBudget::new(whole, NonZeroU64::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of which few numbers of groups are a divisor, and one that is 0.
    const WHOLE: Budget = Budget {
        memory_bytes: 1_000_003,
        request_ids_bytes: 1_009,
        log_keep_bytes: 1_000,
        snapshot_bytes_per_second: 101,
        recent_records_bytes: 0,
    };

    fn figures(budget: Budget) -> [u64; 5] {
        [
            budget.memory_bytes,
            budget.request_ids_bytes,
            budget.log_keep_bytes,
            budget.snapshot_bytes_per_second,
            budget.recent_records_bytes,
        ]
    }

    fn of_groups(groups: u64) -> NodeBudget {
        NodeBudget::new(WHOLE, NonZeroU64::new(groups).expect("a group"))
    }

    #[test]
    fn the_share_of_the_only_group_is_the_whole_budget() {
        assert_eq!(of_groups(1).share(), WHOLE);
        assert_eq!(of_groups(1).share_of(u64::MAX), u64::MAX);
    }

    #[test]
    fn the_shares_of_all_groups_are_no_more_than_the_budget_and_lose_less_than_a_byte_each() {
        for groups in 1..=101 {
            let shares = figures(of_groups(groups).share());
            for (share, whole) in shares.into_iter().zip(figures(WHOLE)) {
                assert!(share * groups <= whole, "{groups} shares of {share} out of {whole}");
                assert!((share + 1) * groups > whole, "{groups} shares of {share} out of {whole}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "102 groups could send no snapshot")]
    fn no_group_is_left_without_snapshots() {
        of_groups(102);
    }
}
