//! Bounds the log: purges entries that are applied and that a follower which lags a little does not need.
//!
//! A purge loses nothing: the applied table is on the disk. Applying an entry and purging it are writes of
//! one database, which survive a crash in their order. Raft purges only what a snapshot covers, so it is
//! told to take a snapshot first; that writes nothing.
//!
//! While a peer is sent a snapshot, the entries that it needs next are kept. Otherwise, if more were
//! logged during the sending than is kept, the peer would need another snapshot afterwards, for ever.
//!
//! The log may not fill the disk. It keeps to its part of the disk's reserve, and while the disk is low nothing is kept
//! for a peer that is sent a snapshot.
//!
//! Invariant: at least `log_keep_bytes` of applied entries stay if the disk has room for them, and `ENTRIES_KEPT_MIN` entries
//! in any case. A purge near the entry that is being applied is of no use, and has made openraft panic (openraft issue 2116).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{NodeBudget, group::Group};
use crate::{
    storage::{BlockingExecutor, FreeSpace, LogReader, StoreError},
    tasks::Fault,
};

/// How often the size of the log is checked while entries are applied.
const CHECK_EVERY: Duration = Duration::from_millis(200);
/// How often it is checked while none is: what is kept may become less then, too.
const CHECK_AT_REST_EVERY: Duration = Duration::from_secs(2);
/// How long to wait after the log could not be read.
const RETRY: Duration = Duration::from_secs(10);
/// How many applied entries stay, however small `log_keep_bytes` is. A peer that lags by fewer gets no snapshot, which would
/// purge its log while it applies what came before.
const ENTRIES_KEPT_MIN: u64 = 16;
/// The log is purged in pieces of `log_keep_bytes` divided by this.
const PIECES_PER_KEEP: u64 = 16;

/// Bounds the log until Raft stops.
pub async fn watch(group: Arc<Group>) {
    let reader = LogReader::new(&group.this_node.store, group.config.set);
    let mut sizes = LogSizes::new(bounds_of(&group).0);
    let mut stopped = group.stopped();
    let (mut pause, mut looked_at) = (CHECK_EVERY, None);
    loop {
        let due = async {
            tokio::time::sleep(pause).await;
            group.more_is_applied(looked_at, CHECK_AT_REST_EVERY).await
        };
        tokio::select! {
            biased;
            _ = stopped.wait_for(Option::is_some) => return,
            _ = due => {}
        }
        pause = CHECK_EVERY;
        let seen = group.metrics();
        if let Some(purged) = seen.purged {
            sizes.forget_up_to(purged.index);
        }
        let Some(applied) = seen.last_applied else {
            continue;
        };
        looked_at = Some(applied.index);
        if sizes.next <= applied.index {
            match count_up_to(sizes, applied.index, &reader, group.this_node.store.blocking()).await
            {
                Ok((counted, read)) => {
                    sizes = counted;
                    if let Err(error) = read {
                        tracing::error!(%error, "the log cannot be read, and is not bounded meanwhile");
                        pause = RETRY;
                    }
                }
                Err(reason) => return group.stop_because(Fault::CannotGoOn(reason)),
            }
        }
        let (keep_bytes, hold_bytes) = bounds_of(&group);
        sizes.keep_bytes = keep_bytes;
        let Some(up_to) = sizes.purgeable(keep_bytes) else {
            continue;
        };
        let holds = group.log_holds();
        let held = up_to.min(holds.purgeable_max());
        let at_least = sizes.purgeable(hold_bytes);
        let up_to = held.max(at_least.unwrap_or(0));
        let up_to = up_to.min(applied.index.saturating_sub(ENTRIES_KEPT_MIN));
        let purged = seen.purged.map_or(0, |purged| purged.index);
        if purged >= up_to {
            continue;
        }
        tell_of_vain_snapshots(&group, holds.purged(up_to), hold_bytes).await;
        if group.purge_log(&seen, up_to).await.is_err() {
            // Raft has stopped. The watch over Raft says why.
            return;
        }
    }
}

/// How much of the group's log is kept, and how much at most for a peer that is sent a snapshot, in bytes.
fn bounds_of(group: &Group) -> (u64, u64) {
    let node = &group.this_node;
    bounds(&node.budget, group.config.log_hold_times, node.store.free_space())
}

/// The same for each group of a node with this budget and disk.
fn bounds(budget: &NodeBudget, hold_times: u64, disk: &FreeSpace) -> (u64, u64) {
    let reserved = disk.log_bytes_max().map_or(u64::MAX, |bytes| budget.share_of(bytes));
    let keep_bytes = budget.share().log_keep_bytes.min(reserved);
    let hold_bytes = match disk.low() {
        Some(_) => keep_bytes,
        None => keep_bytes.saturating_mul(hold_times),
    };
    (keep_bytes, hold_bytes)
}

/// Says that `peers` are sent snapshots in vain: `hold_bytes` were logged meanwhile.
async fn tell_of_vain_snapshots(group: &Group, peers: usize, hold_bytes: u64) {
    if peers == 0 {
        return;
    }
    group.set_metrics.snapshots_in_vain.inc_by(peers as u64);
    let store = group.this_node.store.clone();
    let measured = store.blocking().run(move || store.disk_usage()).await;
    let table_bytes = measured.ok().and_then(Result::ok).map_or(0, |usage| usage.table_bytes);
    let of_node = group.this_node.budget.whole();
    tracing::error!(
        peers,
        table_bytes,
        at_least_seconds = table_bytes / group.budget.snapshot_bytes_per_second,
        "more than {hold_bytes} bytes were logged while a snapshot was being sent, so that its receiver needs another one: \
         raise snapshot_mb_per_second (now {}), or log_hold_times (now {}) if the disk has room for a longer log",
        of_node.snapshot_bytes_per_second >> 20,
        group.config.log_hold_times
    );
}

/// Counts the entries up to `last`, where blocking is allowed. Returns the sizes as far as they could be
/// read, and whether that failed.
///
/// # Errors
/// If the counting panicked: the sizes are lost.
async fn count_up_to(
    mut sizes: LogSizes, last: u64, reader: &LogReader, work: BlockingExecutor,
) -> Result<(LogSizes, Result<(), StoreError>), String> {
    let reader = reader.clone();
    let counting = work.run(move || {
        let first = sizes.next;
        let read = reader.sizes(first, last, |index, bytes| sizes.add(index, bytes));
        (sizes, read)
    });
    let counted = counting.await;
    counted.map_err(|error| format!("reading the log's sizes failed: {error}"))
}

/// How many bytes the pieces of the applied log have.
struct LogSizes {
    /// How much is to be kept: the pieces are a part of that.
    keep_bytes: u64,
    /// Pieces of the log, oldest first.
    pieces: VecDeque<Piece>,
    /// The bytes of all pieces.
    bytes: u64,
    /// The first entry that is not counted yet.
    next: u64,
}

struct Piece {
    last: u64,
    bytes: u64,
}

impl LogSizes {
    fn new(keep_bytes: u64) -> Self {
        LogSizes { keep_bytes, pieces: VecDeque::new(), bytes: 0, next: 0 }
    }

    /// Counts the entry at `index`, which has `bytes`.
    fn add(&mut self, index: u64, bytes: u64) {
        self.next = index + 1;
        self.bytes += bytes;
        match self.pieces.back_mut() {
            Some(piece) if piece.bytes < self.keep_bytes / PIECES_PER_KEEP => {
                piece.last = index;
                piece.bytes += bytes;
            }
            Some(_) | None => self.pieces.push_back(Piece { last: index, bytes }),
        }
    }

    /// The log is purged up to `index`.
    fn forget_up_to(&mut self, index: u64) {
        while let Some(piece) = self.pieces.front()
            && piece.last <= index
        {
            self.bytes -= piece.bytes;
            self.pieces.pop_front();
        }
        self.next = self.next.max(index + 1);
    }

    /// Up to where the log can be purged so that at least `keep_bytes` stay. `None` for nowhere.
    fn purgeable(&self, keep_bytes: u64) -> Option<u64> {
        let mut kept = self.bytes;
        let old_enough = |piece: &&Piece| {
            let without = kept - piece.bytes;
            let is_old = without >= keep_bytes;
            kept = without;
            is_old
        };
        let last = self.pieces.iter().take_while(old_enough).last();
        last.map(|piece| piece.last)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use tempfile::TempDir;

    use super::*;
    use crate::{
        clock::BootClock,
        consensus::Budget,
        storage::{DiskSpace, Store, StoreOptions},
    };

    const MB: u64 = 1 << 20;

    /// The budget of a node that keeps this much of the logs of this many groups.
    fn budget(log_keep_mb: u64, groups: u64) -> NodeBudget {
        let whole = *NodeBudget::of_a_test().whole();
        let whole = Budget { log_keep_bytes: log_keep_mb * MB, ..whole };
        NodeBudget::new(whole, NonZeroU64::new(groups).unwrap())
    }

    #[test]
    fn the_log_keeps_to_its_part_of_the_reserve_and_holds_nothing_while_the_disk_is_low() {
        let dir = TempDir::new().unwrap();
        let bounds_at = |free_mb: u64, reserve_mb: u64, budget: NodeBudget| {
            let options = StoreOptions {
                measure_disk: Arc::new(move |_| {
                    Ok(DiskSpace { free_bytes: free_mb * MB, size_bytes: 4_000 * MB })
                }),
                disk_reserve_bytes: reserve_mb * MB,
                ..StoreOptions::new(Arc::new(BootClock))
            };
            let store = Store::open(dir.path(), "test", 1, options).unwrap();
            let (keep, hold) = bounds(&budget, 8, store.free_space());
            (keep / MB, hold / MB)
        };
        // The reserve of this disk is a twentieth of it: 200 MB.
        assert_eq!(bounds_at(1_000, 1_024, budget(20, 1)), (20, 160));
        assert_eq!(bounds_at(1_000, 1_024, budget(256, 1)), (50, 400));
        assert_eq!(bounds_at(199, 1_024, budget(256, 1)), (50, 50));
        assert_eq!(bounds_at(1, 0, budget(256, 1)), (256, 2_048), "no reserve is to be kept");
        assert_eq!(bounds_at(1_000, 1_024, budget(20, 2)), (10, 80), "half for each of two groups");
        assert_eq!(
            bounds_at(1_000, 1_024, budget(256, 2)),
            (25, 200),
            "half of the reserve's part"
        );
    }

    #[test]
    fn what_is_to_be_kept_stays_and_little_more() {
        let mut sizes = LogSizes::new(1_600);
        for index in 0..1_000 {
            sizes.add(index, 10 + index % 7);
            let before = sizes.bytes;
            if let Some(up_to) = sizes.purgeable(1_600) {
                assert!(up_to < index);
                sizes.forget_up_to(up_to);
                assert!(sizes.bytes < before);
            }
            assert!(sizes.bytes >= 1_600 || sizes.next <= 1_600 / 10 + 1);
            assert!(sizes.bytes <= 1_600 + 2 * (100 + 16), "{}", sizes.bytes);
            assert_eq!(sizes.purgeable(1_600), None);
        }
    }

    #[test]
    fn one_entry_larger_than_what_is_to_be_kept_is_kept_alone() {
        let mut sizes = LogSizes::new(1_600);
        sizes.add(7, 9_000);
        assert_eq!(sizes.purgeable(1_600), None);
        sizes.add(8, 5_000);
        assert_eq!(sizes.purgeable(1_600), Some(7));
        sizes.forget_up_to(7);
        assert_eq!(sizes.purgeable(1_600), None);
    }

    #[test]
    fn an_installed_snapshot_leaves_nothing_to_count() {
        let mut sizes = LogSizes::new(1_600);
        (0..10).for_each(|index| sizes.add(index, 100));
        sizes.forget_up_to(500);
        assert_eq!((sizes.bytes, sizes.next), (0, 501));
        sizes.forget_up_to(300);
        assert_eq!(sizes.next, 501);
    }
}
