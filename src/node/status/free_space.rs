//! Follows the free space on the disk of the data directory.
//!
//! The leader of a group decides whether new sections are made: not while its own disk is low, and not while the voters whose
//! disks have room are no majority (`Group::watch_voter_disks`). A follower whose disk is low says so itself, and tells the
//! leader with each answer.
//!
//! Invariant: the last measurement is told at once.

use std::{sync::Arc, time::Duration};

use super::Status;
use crate::{metrics::whole, storage::StoreError};

/// How often the disk is measured while entries are applied. New sections at full speed take some 30 MB in this time.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// How often it is measured while none is: others may fill it. The next entry has it measured again at once.
const CHECK_AT_REST_EVERY: Duration = Duration::from_secs(2);

impl Status {
    /// Measures the disk again and again, and keeps the spare.
    pub(in crate::node) async fn follow_free_space(self: Arc<Self>) {
        let disk = self.this_node.store.free_space();
        let mut failed = false;
        if !disk.has_reserve() {
            // An earlier setting may have left a spare.
            note(&mut failed, &self.measure_disk().await);
            return;
        }
        let configured = self.this_node.budget.whole().log_keep_bytes;
        if let Some(kept) = disk.log_bytes_max().filter(|kept| *kept < configured) {
            tracing::warn!("{}", short_log(configured, kept, disk.reserve_bytes()));
        }
        let mut applied = None;
        loop {
            note(&mut failed, &self.measure_disk().await);
            self.show_reserve();
            tokio::time::sleep(CHECK_EVERY).await;
            applied = self.group.more_is_applied(applied, CHECK_AT_REST_EVERY).await;
        }
    }

    /// Measures the disk, and keeps the spare.
    async fn measure_disk(&self) -> Result<(), StoreError> {
        let store = &self.this_node.store;
        let free_space = store.free_space().clone();
        let measuring = store.blocking().run(move || {
            free_space.measure()?;
            free_space.keep_spare()
        });
        let measured = measuring.await;
        measured.map_err(|error| StoreError::invalid(error.to_string()))?
    }

    /// Brings the gauges of the reserve up to date.
    pub(super) fn show_reserve(&self) {
        let free_space = self.this_node.store.free_space();
        self.metrics.disk_reserve_bytes.set(whole(free_space.reserve_bytes()));
        self.metrics.disk_low.set(i64::from(free_space.low().is_some()));
    }
}

/// That a disk is too small for the log that it was to keep.
fn short_log(configured: u64, kept: u64, reserve: u64) -> String {
    format!(
        "log_keep_bytes is {configured}, and only {kept} bytes of the log are kept: with more it could outgrow the reserve of \
         this disk, which is {} MB. A node that lags further gets a snapshot. Give the node a larger disk, raise \
         disk_reserve_mb, or lower log_keep_bytes",
        reserve >> 20
    )
}

/// Says that measuring the disk, or keeping the spare, has begun to fail. `failed` is whether it did the last time.
fn note(failed: &mut bool, measured: &Result<(), StoreError>) {
    if let (Err(error), false) = (measured, *failed) {
        tracing::warn!(%error, "the reserve of the disk is not looked after for now");
    }
    *failed = measured.is_err();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_cut_short_by_a_small_disk_says_by_what_and_what_to_do() {
        let text = short_log(256 << 20, 50 << 20, 200 << 20);
        for part in ["268435456", "52428800", "200 MB", "disk_reserve_mb", "larger disk"] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    }
}
