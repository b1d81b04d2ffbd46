//! The watch over the disk of a leader, and the change to another leader if it is slow.
//!
//! A slow disk by itself is no reason to give a term up. Numbers come from memory. Heartbeats are sent and answered without
//! the disk. An entry is committed once a majority has it on its disks, with this node's or without. Where all disks are
//! slow another leader would be no quicker, and each change costs first touches, which are writes.
//!
//! So the leadership goes to another node only if the others' disks are quick, and are a majority without this one's: then
//! whatever the handover logs is committed at once. Each says by its answers how long a write takes to its disk.
//!
//! A handover waits for this node's own table, because only an applied entry says what its chunks are. A disk that hangs may
//! keep the table from ever being written. Then the memory cannot be handed off to anybody, and the handover is cut short.

use std::{collections::BTreeSet, future, sync::Arc, time::Duration};

use openraft::{RaftMetrics, async_runtime::watch::WatchReceiver};

use super::group::Group;
use crate::{
    clock::whole_ms,
    planted_bugs::{Bug, is_planted},
    sequence::NodeId,
    storage::Types,
};

/// A disk to which nothing gets for so long hangs, unless a voter's promise lasts nearly as long.
const HANG: Duration = Duration::from_secs(10);
/// A table that takes no committed entry for this many election timeouts, on a disk that is slow, hangs with the disk.
const TABLE_HANGS_ELECTIONS: u32 = 3;

impl Group {
    /// How long a write takes to the disk of the log of this node. `None` if nothing was written lately.
    pub fn flush_takes(&self) -> Option<Duration> {
        self.this_node.flush_takes(self.now())
    }

    /// How long it takes at least until the disk here can be found to be slow; zero if it is.
    pub fn slow_flush_in(&self) -> Duration {
        self.config.slow_flush().saturating_sub(self.flush_takes().unwrap_or_default())
    }

    /// The voter that had better lead `term` in this node's place, and how long a write takes to the disk here. `None` if the
    /// disk here is not slow, or if no change would help.
    ///
    /// It may be that the table here lags behind what is committed, and that the memory can be handed off to nobody: on a
    /// disk that hangs that does not change. The handover finds out ([`Group::table_hangs`]).
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
        let disks = &self.this_node.peer_machines.disks;
        let fitting = others.filter(|id| fits(*id, disks.flush_of(*id, now)));
        let fitting = fitting.collect();
        let is_majority = quorums.agree(&fitting) && !is_planted(Bug::HungDiskKeepsTerm);
        is_majority.then_some(fitting)
    }

    /// True if a majority without this node is heard, and tells of no slow disk: whatever another leader logs is committed
    /// soon.
    fn others_can_log(&self) -> bool {
        // Not known to be slow: a node that has nothing to write says nothing of its disk.
        let can_log = |id, takes: Option<Duration>| {
            self.is_heard(self.term(), id)
                && takes.is_none_or(|takes| takes <= self.config.slow_flush())
        };
        self.majority_of_others(can_log).is_some()
    }

    /// Waits until all that is committed now is in the table of this node.
    pub async fn table_catches_up(&self) {
        let committed = self.metrics().local_committed;
        self.until(|seen| seen.last_applied >= committed).await;
    }

    /// Waits until the table of this node hangs: its disk is slow, and an entry that is committed does not get into the table,
    /// while another leader could log. A caller that waits for an outcome in this term waits in vain then.
    pub async fn table_hangs(&self) {
        let patience = self.config.promise_time() * TABLE_HANGS_ELECTIONS;
        loop {
            self.until(lags).await;
            let applied = self.metrics().last_applied;
            let moves = self.until(|seen| seen.last_applied != applied);
            let stays = tokio::time::timeout(patience, moves).await.is_err();
            let is_slow = || self.flush_takes() > Some(self.config.slow_flush());
            // It may have caught up before it stayed as it was.
            let still_lags = lags(&self.metrics());
            if stays && still_lags && is_slow() && self.others_can_log() {
                return;
            }
        }
    }

    /// Waits until `is_true` of what Raft says; for ever if Raft has stopped.
    async fn until(&self, is_true: impl Fn(&RaftMetrics<Types>) -> bool) {
        let mut metrics = self.raft.metrics();
        while !is_true(&metrics.borrow_watched()) {
            if metrics.changed().await.is_err() {
                future::pending().await
            }
        }
    }

    /// Until Raft stops: ends the term whenever the log's disk hangs, and those of a majority do not. For the case that the
    /// leadership could not be handed over. Heartbeats do not touch the disk: without this, followers would follow a leader
    /// whose process ends as soon as it has to write.
    pub async fn watch_disk(self: Arc<Group>) {
        let limit = match is_planted(Bug::SlowDiskEndsTerm) {
            true => self.config.slow_flush(),
            false => HANG.max(2 * self.config.slow_flush()),
        };
        let helps = || is_planted(Bug::SlowDiskEndsTerm) || self.others_can_log();
        let mut stopped = self.stopped();
        loop {
            tokio::select! {
                biased;
                _ = stopped.wait_for(Option::is_some) => return,
                () = tokio::time::sleep(limit / 8) => {}
            }
            let Some(hangs) = self.this_node.disk_silence(self.now()) else {
                continue;
            };
            // A node that does not lead holds no lease.
            if hangs > limit && helps() && self.lease.void() {
                tracing::error!(
                    pending_ms = whole_ms(hangs),
                    directory = %self.this_node.store.dir().display(),
                    "the disk of the log does not answer; giving the leadership up"
                );
            }
        }
    }
}

/// True if an entry is committed that is not in the table of this node yet.
fn lags(seen: &RaftMetrics<Types>) -> bool {
    seen.last_applied < seen.local_committed
}
