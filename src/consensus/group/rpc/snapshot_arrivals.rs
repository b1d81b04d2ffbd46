//! Counts the snapshots that begin to arrive at this node, so that each has a number.
//!
//! Invariant: the snapshot that began last is the only one that goes on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many snapshots began to arrive.
#[derive(Debug, Default)]
pub struct SnapshotArrivals(AtomicU64);

impl SnapshotArrivals {
    /// A snapshot begins to arrive. Returns its number.
    pub fn begin(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }

    /// True if no other snapshot has begun to arrive since the one with this number.
    pub fn is_latest(&self, number: u64) -> bool {
        number == self.0.load(Relaxed)
    }
}
