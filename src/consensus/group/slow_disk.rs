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
        let is_quick = |_, takes: Option<Duration>| {
            takes.is_some_and(|takes| takes <= self.config.quick_flush())
        };
        let quick = self.majority_of_others(is_quick)?;
        let successor = self.successor_that(term, |id| quick.contains(&id))?;
        Some((successor, takes))
    }

    /// The other voters that fit, if they are a majority without this node. `fits` is told how long a write takes there, if
    /// that is known.
    fn majority_of_others(
        &self, fits: impl Fn(NodeId, Option<Duration>) -> bool,
    ) -> Option<BTreeSet<NodeId>> {
        let (quorums, now) = (self.lease.quorums(), self.now());
        let others = quorums.voters().into_iter().filter(|id| *id != self.node());
        let fitting = others.filter(|id| fits(*id, self.network.peers.flushes.of(*id, now)));
        let fitting = fitting.collect();
        let is_majority = quorums.agree(&fitting) && !is_planted(Bug::HungDiskKeepsTerm);
        is_majority.then_some(fitting)
    }

    /// Until Raft stops: ends the term whenever the log's disk hangs, and those of a majority do not. For the case that the
    /// leadership could not be handed over. Heartbeats do not touch the disk: without this, followers would follow a leader
    /// whose process ends as soon as it has to write.
    pub async fn watch_disk(self: Arc<Group>) {
        let limit = match is_planted(Bug::SlowDiskEndsTerm) {
            true => self.config.slow_flush(),
            false => HANG.max(2 * self.config.slow_flush()),
        };
        // Not known to be slow: a node that has nothing to write says nothing of its disk.
        let can_log = |id, takes: Option<Duration>| {
            self.is_heard(self.term(), id)
                && takes.is_none_or(|takes| takes <= self.config.slow_flush())
        };
        let helps =
            || is_planted(Bug::SlowDiskEndsTerm) || self.majority_of_others(can_log).is_some();
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
            if hangs > limit && helps() && self.lease.void() {
                tracing::error!(
                    pending_ms = whole_ms(hangs),
                    directory = %self.store.dir().display(),
                    "the disk of the log does not answer; giving the leadership up"
                );
            }
        }
    }
}
