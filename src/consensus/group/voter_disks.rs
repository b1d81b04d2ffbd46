//! Whether enough voters have room on their disks.
//!
//! The sections of a table are on the disk of every voter. If those of a majority fill up, all numbers end. So a leader
//! makes no new ones while the voters that have room, and answer, are no majority. It knows what they have to say by
//! the time that it serves: its lease rests on their answers. One that answers late counts for a while as it spoke
//! last: a disk fills up more slowly than that.

use std::{collections::BTreeSet, time::Duration};

use super::group::Group;
use crate::{sequence::NodeId, storage::LowDisk};

/// For how long a voter that says nothing counts as it spoke last; if a follower keeps out of elections for longer, so long.
const SPOKE_LAST: Duration = Duration::from_millis(1_500);

impl Group {
    /// Why this node, as leader, refuses new keys and namespaces; `None` while it takes them.
    pub fn refuses_new_keys(&self) -> Option<LowDisk> {
        self.this_node.store.free_space().refusal()
    }

    /// A voter whose disk is low, if those that have room are no majority without it. `None` if they are one, or if this
    /// node does not lead. Its own disk does not count here.
    pub fn low_voter(&self) -> Option<LowDisk> {
        let low = self.this_node.peer_machines.disks.low();
        if low.is_empty() || self.leadership.borrow().own.is_none() {
            return None;
        }
        let limit = self.config.follower_lease().max(SPOKE_LAST);
        let answers = |voter: NodeId| {
            let silence = self.lease.silence(voter);
            silence.is_some_and(|silence| silence.in_term && silence.lasts < limit)
        };
        let has_room =
            |voter: NodeId| voter == self.node() || (!low.contains_key(&voter) && answers(voter));
        let quorums = self.lease.quorums();
        let voters = quorums.voters();
        let roomy: BTreeSet<NodeId> = voters.iter().copied().filter(|id| has_room(*id)).collect();
        if quorums.agree(&roomy) {
            return None;
        }
        let low = low.into_iter().filter(|(id, _)| voters.contains(id));
        low.map(|(_, low)| low).min_by_key(|low| low.free_mb)
    }
}
