//! What a leader whose disk is slow does.
//!
//! A slow disk by itself is no reason to give a term up. Numbers come from memory. Heartbeats are sent and answered without
//! the disk. An entry is committed once a majority has it on its disks, with this node's or without. Where all disks are
//! slow another leader would be no quicker, and each change costs first touches, which are writes.
//!
//! So the leadership goes to another node only if the others' disks are quick, and are a majority without this one's: then
//! whatever the handover logs is committed at once. Each says by its answers how long a write takes to its disk.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::group::Group;
use crate::{
    clock::whole_ms,
    planted_bugs::{Bug, is_planted},
    sequence::NodeId,
};

/// A disk to which nothing gets for so long hangs, unless a voter's promise lasts nearly as long.
const HANG: Duration = Duration::from_secs(10);

impl Group {
    /// How long a write takes to the disk of the log of this node. `None` if nothing was written lately.
    pub fn flush_takes(&self) -> Option<Duration> {
        self.store.health().flush_takes(self.now())
    }

    /// The voter that had better lead `term` in this node's place, and how long a write takes to the disk here. `None` if the
    /// disk here is not slow, or if no change would help.
    pub fn quicker_successor(&self, term: u64) -> Option<(NodeId, Duration)> {
        let takes = self.flush_takes().filter(|takes| *takes > self.config.slow_flush())?;
        let quick = self.quick_majority()?;
        let successor = self.successor_that(term, |id| quick.contains(&id))?;
        Some((successor, takes))
    }

    /// The other voters whose disks are quick, if they are a majority without this node.
    fn quick_majority(&self) -> Option<BTreeSet<NodeId>> {
        let (quorums, now) = (self.lease.quorums(), self.now());
        let is_quick = |voter: &NodeId| {
            let takes = self.network.peers.flushes.of(*voter, now);
            *voter != self.node() && takes.is_some_and(|takes| takes <= self.config.quick_flush())
        };
        let quick: BTreeSet<NodeId> = quorums.voters().into_iter().filter(is_quick).collect();
        let helps = quorums.agree(&quick) && !is_planted(Bug::HungDiskKeepsTerm);
        helps.then_some(quick)
    }

    /// True if the disks of a majority without this node are not known to be slow: those voters were heard, and said nothing
    /// of a slow write. One that has nothing to write says nothing at all.
    fn others_can_log(&self) -> bool {
        if is_planted(Bug::SlowDiskEndsTerm) {
            return true;
        }
        let (quorums, now) = (self.lease.quorums(), self.now());
        let can_log = |voter: &NodeId| {
            let takes = self.network.peers.flushes.of(*voter, now);
            let is_slow = takes.is_some_and(|takes| takes > self.config.slow_flush());
            let is_heard = self.is_heard(self.term(), *voter);
            *voter != self.node() && is_heard && !is_slow && !is_planted(Bug::HungDiskKeepsTerm)
        };
        quorums.agree(&quorums.voters().into_iter().filter(can_log).collect())
    }

    /// Until Raft stops: ends the term whenever the log's disk hangs, and those of a majority do not. For the case that the
    /// leadership could not be handed over. Heartbeats do not touch the disk: without this, followers would follow a leader
    /// whose process ends as soon as it has to write.
    pub async fn watch_disk(self: Arc<Group>) {
        let limit = match is_planted(Bug::SlowDiskEndsTerm) {
            true => self.config.slow_flush(),
            false => HANG.max(2 * self.config.slow_flush()),
        };
        let mut stopped = self.stopped();
        loop {
            tokio::select! {
                biased;
                _ = stopped.wait_for(Option::is_some) => return,
                () = tokio::time::sleep(limit / 8) => {}
            }
            let pending = self.store.health().oldest_pending();
            let Some(hangs) = pending.map(|since| self.now().since(since)) else {
                continue;
            };
            // A node that does not lead holds no lease.
            if hangs > limit && self.others_can_log() && self.lease.void() {
                tracing::error!(
                    pending_ms = whole_ms(hangs),
                    directory = %self.store.dir().display(),
                    "the disk of the log does not answer; giving the leadership up"
                );
            }
        }
    }
}
