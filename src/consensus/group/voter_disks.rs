//! Whether enough voters have room on their disks.
//!
//! The sections of a table are on the disk of every voter. If the disks of a majority are full, nobody gets numbers any
//! more. So a leader makes no new sections while the voters that have room, and answer, are no majority. It knows what
//! they have to say by the time that it serves: its lease rests on their answers. A voter whose answer is late counts for
//! a while as its last answer said: a disk fills up more slowly than that.
//!
//! The disk of this node is measured once for all of its groups. After each measurement a group looks at its voters' disks.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::group::Group;
use crate::{sequence::NodeId, storage::LowDisk};

/// For how long a voter that says nothing counts as it spoke last; if a follower keeps out of elections for longer, so long.
const SPOKE_LAST: Duration = Duration::from_millis(1_500);

impl Group {
    /// The low disk for which this node, as leader, refuses new keys and namespaces; `None` while it takes them.
    pub fn limiting_disk(&self) -> Option<LowDisk> {
        self.view.limiting_disk()
    }

    /// Looks at the voters' disks whenever this node's is measured, for as long as the node runs. Tells when new keys are
    /// refused, and when they are taken again. Without a reserve none are refused.
    pub async fn watch_voter_disks(self: Arc<Group>) {
        let disk = self.this_node.store.free_space();
        if !disk.has_reserve() {
            return;
        }
        let mut measurements = disk.measurements();
        let mut told = None;
        loop {
            self.view.note_low_voter(self.low_voter());
            self.show_refusal();
            let refusal = self.limiting_disk();
            tell_of_change(told, refusal);
            told = refusal;
            if measurements.changed().await.is_err() {
                return;
            }
        }
    }

    /// Brings the gauge of refused keys up to date.
    pub fn show_refusal(&self) {
        let leads = self.leadership.borrow().own.is_some();
        let refuses = leads && self.limiting_disk().is_some();
        self.set_metrics.new_keys_refused.set(i64::from(refuses));
    }

    /// A voter whose disk is low, if those that have room are no majority without it. `None` if they are one, or if this
    /// node does not lead. Its own disk does not count here.
    pub fn low_voter(&self) -> Option<LowDisk> {
        let low = self.this_node.peer_machines.disks.low();
        if low.is_empty() || self.leadership.borrow().own.is_none() {
            return None;
        }
        let limit = self.config.promise_time().max(SPOKE_LAST);
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

/// Tells that new keys are refused for another disk than before, or that they are taken again.
fn tell_of_change(before: Option<LowDisk>, now: Option<LowDisk>) {
    let whose = |refusal: Option<LowDisk>| refusal.map(|low| low.follower);
    if whose(before) == whose(now) {
        return;
    }
    match now {
        Some(low) => tracing::warn!(
            "{}: {low}. As leader this node refuses new keys and namespaces; make room",
            low.why_refused()
        ),
        None => tracing::info!("the disks have room again: new keys are taken"),
    }
}
