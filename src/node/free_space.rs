//! Follows the free space on the disk of the data directory.
//!
//! The leader decides by its own disk whether new sections are made. A follower whose disk is low says so itself, and
//! changes nothing: numbers need a majority of the disks. If it leads later, it decides by its own disk.
//!
//! Invariant: whoever asks is told what the last measurement said, at once.

use std::{sync::Arc, time::Duration};

use super::NodeContext;
use crate::{
    metrics::whole,
    storage::{LowDisk, StoreError},
};

/// How often the disk is measured. New sections at full speed take some 30 MB in this time.
const CHECK_EVERY: Duration = Duration::from_millis(500);

impl NodeContext {
    /// How much of this node's disk is free, if that is less than the reserve.
    pub fn low_disk(&self) -> Option<LowDisk> {
        self.group.store().free_space().low()
    }

    /// Measures the disk again and again, and keeps the spare.
    pub(super) async fn follow_free_space(self: Arc<Self>) {
        let store = self.group.store();
        if !store.free_space().has_reserve() {
            return;
        }
        let (mut was_low, mut failed) = (false, false);
        loop {
            let free_space = store.free_space().clone();
            let measuring = store.blocking().run(move || {
                free_space.measure()?;
                free_space.keep_spare()
            });
            let measured = match measuring.await {
                Ok(measured) => measured,
                Err(error) => Err(StoreError::invalid(error.to_string())),
            };
            if let (Err(error), false) = (&measured, failed) {
                tracing::warn!(%error, "the free space of the disk is not known for now");
            }
            failed = measured.is_err();
            self.show_reserve();
            let low = self.low_disk();
            match low {
                Some(low) if !was_low => tracing::warn!(
                    directory = %store.dir().display(),
                    "the disk is nearly full: {low}. As leader this node refuses new keys and namespaces; make room"
                ),
                None if was_low => tracing::info!("the disk has room again: new keys are taken"),
                Some(_) | None => {}
            }
            was_low = low.is_some();
            tokio::time::sleep(CHECK_EVERY).await;
        }
    }

    /// Brings the gauges of the reserve up to date.
    pub(super) fn show_reserve(&self) {
        let free_space = self.group.store().free_space();
        self.metrics.disk_reserve_bytes.set(whole(free_space.reserve_bytes()));
        self.metrics.disk_low.set(i64::from(free_space.low().is_some()));
    }
}
