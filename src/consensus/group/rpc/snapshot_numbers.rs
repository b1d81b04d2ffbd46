//! Numbers the snapshots that begin to arrive at this node.
//!
//! Invariant: the snapshot that began last is the only one that goes on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers the snapshots that begin to arrive.
#[derive(Debug, Default)]
pub struct SnapshotNumbers(AtomicU64);

impl SnapshotNumbers {
    /// A snapshot begins to arrive. Returns its number.
    pub fn begin(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }

    /// True if no other snapshot has begun to arrive since the one with this number.
    pub fn is_latest(&self, number: u64) -> bool {
        number == self.0.load(Relaxed)
    }
}
