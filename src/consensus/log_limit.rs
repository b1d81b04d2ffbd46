//! Bounds the log: what is applied and not needed by a follower that lags a little is purged.
//!
//! The applied table is on the disk, and what was applied went to the disk before the purge that
//! removes it from the log can: both are writes of one database, which come back in order. Raft purges
//! only what a snapshot covers, so that it is told to take one first; that writes nothing.
//!
//! Nor is purged what a peer needs next that is being sent a snapshot: else a transfer during which
//! more is logged than is kept would end in the next one, for ever.
//!
//! Invariant: at least `log_keep_bytes` of applied entries stay. A purge near what is being applied
//! is of no use, and has made Raft's library panic (openraft issue 2116).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::group::Group;
use crate::storage::LogReader;

/// How often the log is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long after the log could not be read.
const RETRY: Duration = Duration::from_secs(10);
/// For a peer that is sent a snapshot the log is kept up to so many times `log_keep_bytes`: one that takes
/// it slowly must not fill this node's disk.
const GUARDED_KEEPS: u64 = 8;
/// The log is purged in steps of this part of what is kept.
const STEPS: u64 = 16;

/// Bounds the log until Raft stops.
pub async fn watch(group: Arc<Group>) {
    let reader = LogReader::new(group.store(), group.config().set);
    let mut sizes = LogSizes::new(group.config().log_keep_bytes);
    let mut stopped = group.stopped();
    let mut pause = LOOK_EVERY;
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(Option::is_some) => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = LOOK_EVERY;
        let seen = group.metrics();
        if let Some(purged) = seen.purged {
            sizes.purged(purged.index);
        }
        let Some(applied) = seen.last_applied else {
            continue;
        };
        if sizes.next <= applied.index {
            let (first, reader, mut added) = (sizes.next, reader.clone(), sizes);
            let adding = group.store().blocking().run(move || {
                let read = reader.sizes(first, applied.index, |index, bytes| {
                    added.add(index, bytes);
                });
                (added, read)
            });
            let (counted, read) = match adding.await {
                Ok(done) => done,
                Err(error) => {
                    let what = format!("reading the log's sizes failed: {error}");
                    return group.stop_because(what);
                }
            };
            sizes = counted;
            if let Err(error) = read {
                tracing::error!(%error, "the log cannot be read, and is not bounded meanwhile");
                pause = RETRY;
            }
        }
        let Some(upto) = sizes.purgeable(sizes.keep_bytes) else {
            continue;
        };
        // As long as that does not take too much room.
        let guarded = upto.min(group.network.purgeable_max());
        let at_least = sizes.purgeable(sizes.keep_bytes.saturating_mul(GUARDED_KEEPS));
        let upto = guarded.max(at_least.unwrap_or(0));
        if seen.purged.is_some_and(|purged| purged.index >= upto) {
            continue;
        }
        let trigger = group.raft.trigger();
        let asked = match seen.snapshot {
            Some(snapshot) if snapshot.index >= upto => trigger.purge_log(upto).await,
            _ => trigger.snapshot().await,
        };
        if asked.is_err() {
            // Raft has stopped; whoever watches it says why.
            return;
        }
    }
}

/// How many bytes of the applied log lie where.
struct LogSizes {
    keep_bytes: u64,
    /// Pieces of the log, oldest first.
    pieces: VecDeque<Piece>,
    /// Of all pieces.
    bytes: u64,
    /// The first entry that was not counted yet.
    next: u64,
}

struct Piece {
    last: u64,
    bytes: u64,
}

impl LogSizes {
    fn new(keep_bytes: u64) -> Self {
        LogSizes {
            keep_bytes,
            pieces: VecDeque::new(),
            bytes: 0,
            next: 0,
        }
    }

    /// The entry `index` has `bytes`.
    fn add(&mut self, index: u64, bytes: u64) {
        self.next = index + 1;
        self.bytes += bytes;
        match self.pieces.back_mut() {
            Some(piece) if piece.bytes < self.keep_bytes / STEPS => {
                piece.last = index;
                piece.bytes += bytes;
            }
            _ => self.pieces.push_back(Piece { last: index, bytes }),
        }
    }

    /// All up to `index` is purged.
    fn purged(&mut self, index: u64) {
        while let Some(piece) = self.pieces.front()
            && piece.last <= index
        {
            self.bytes -= piece.bytes;
            self.pieces.pop_front();
        }
        self.next = self.next.max(index + 1);
    }

    /// Up to where the log can be purged so that `keep_bytes` stay, if anywhere.
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
    use super::*;

    #[test]
    fn at_least_what_is_to_be_kept_stays_and_little_more() {
        let mut sizes = LogSizes::new(1_600);
        for index in 0..1_000 {
            sizes.add(index, 10 + index % 7);
            let before = sizes.bytes;
            if let Some(upto) = sizes.purgeable(1_600) {
                assert!(upto < index);
                sizes.purged(upto);
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
        sizes.purged(7);
        assert_eq!(sizes.purgeable(1_600), None);
    }

    #[test]
    fn an_installed_snapshot_leaves_nothing_to_count() {
        let mut sizes = LogSizes::new(1_600);
        (0..10).for_each(|index| sizes.add(index, 100));
        sizes.purged(500);
        assert_eq!((sizes.bytes, sizes.next), (0, 501));
        sizes.purged(300);
        assert_eq!(sizes.next, 501);
    }
}
