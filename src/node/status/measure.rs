//! Gauges that are read for each scrape.
//!
//! Invariant: a scrape waits for nothing that hangs. A gauge that the disk does not tell in time keeps its last value.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::Status;
use crate::{
    allocator::Footprint,
    metrics::{PROCESS, whole},
    sequence::NamespaceId,
};

/// How long a scrape waits for the gauges that may block.
const PATIENCE: Duration = Duration::from_secs(1);

impl Status {
    /// All metrics as text, up to date.
    pub async fn metrics_text(self: &Arc<Self>) -> String {
        self.measure_lease();
        self.measure_group();
        self.measure_namespaces();
        let read = async {
            let alone = self.scrape_lock.clone().lock_owned().await;
            let status = self.clone();
            let work = self.this_node.store.blocking();
            work.run(move || {
                status.measure_memory();
                status.measure_machine();
                drop(alone);
            })
            .await
        };
        match timeout(PATIENCE, read).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "reading figures for the metrics failed"),
            Err(_) => tracing::warn!("the disk does not answer; some metrics are out of date"),
        }
        self.metrics.text()
    }

    /// Brings the gauges of the lease up to date.
    fn measure_lease(&self) {
        let own = self.group.leadership().borrow().own.clone();
        let (remaining, age) = match own {
            Some(lease) => {
                let now = self.clock.now().as_nanos() as f64 / 1e9;
                let deadline = lease.deadline();
                if deadline == crate::clock::Instant::NEVER {
                    // A sole voter's lease never ends.
                    self.group.set_metrics.lease_remaining_seconds.set(f64::INFINITY);
                    self.group.set_metrics.lease_age_seconds.set(0.0);
                    return;
                }
                let deadline = deadline.as_nanos() as f64 / 1e9;
                let lease_seconds = self.config.lease_ms as f64 / 1e3;
                // Before a majority answered, its age is that of the term.
                let began = lease.began().as_nanos() as f64 / 1e9;
                let deadline = deadline.max(began);
                let age = (now + lease_seconds - deadline).min(now - began);
                (deadline - now, age)
            }
            None => (0.0, 0.0),
        };
        self.group.set_metrics.lease_remaining_seconds.set(remaining);
        self.group.set_metrics.lease_age_seconds.set(age);
    }

    /// Brings the gauges of the log up to date, for this node and its peers.
    fn measure_group(&self) {
        let metrics = &self.group.set_metrics;
        let (me, nodes) = (self.config.node_id, self.group.membership.nodes());
        let log = self.group.membership.log_state();
        metrics.log_index.set(log.last.map_or(0, whole));
        metrics.committed_index.set(log.committed.map_or(0, whole));
        metrics.applied_index.set(log.applied.map_or(0, whole));
        let peers = nodes.iter().filter(|node| node.id != me);
        // Only a leader knows these of its peers.
        let silences = peers.filter_map(|node| Some((node, node.silence?)));
        let lag = |index: Option<u64>| {
            let last = log.last.unwrap_or(0);
            last.saturating_sub(index.unwrap_or(0))
        };
        let lags = silences.clone().map(|(node, _)| (node.id, lag(node.log_index)));
        metrics.peer_lag_entries.set(lags);
        let seconds = silences.map(|(node, silence)| (node.id, silence.lasts.as_secs_f64()));
        metrics.peer_silent_seconds.set(seconds);
        let leads = self.group.leadership().borrow().own.is_some();
        let ahead = nodes.iter().filter(|_| leads).filter_map(|node| {
            let ahead_ms = self.group.clock_ahead_ms(node.id)?;
            Some((node.id, ahead_ms as f64 / 1e3))
        });
        self.metrics.peer_clock_ahead_seconds.set(ahead);
    }

    /// Works out how long numbers last, and frees the places of namespaces that are deleted.
    fn measure_namespaces(&self) {
        let namespaces = self.group.view.namespaces();
        let max_of = |id| Some(namespaces.by_id(NamespaceId(id))?.config.max);
        self.metrics.namespaces().measure(self.clock.wall_ms(), max_of);
    }

    /// How much the memory of this node as leader holds; nothing if it does not lead. May block, as
    /// [`Term::footprint`] may.
    ///
    /// [`Term::footprint`]: crate::allocator::Term::footprint
    pub fn memory_footprint(&self) -> Footprint {
        let term = self.led.current();
        term.map(|term| term.footprint()).unwrap_or_default()
    }

    /// Brings the gauges of the group's memory up to date. May block, as [`Status::memory_footprint`] may.
    fn measure_memory(&self) {
        let metrics = &self.group.set_metrics;
        let memory = self.memory_footprint();
        metrics.recent_records.set(whole(self.group.view.recent_records().len()));
        metrics.memory_keys.set(whole(memory.keys));
        metrics.memory_sections.set(whole(memory.sections));
        metrics.memory_bytes.set(whole(memory.bytes));
    }

    /// Brings the gauges of the disk and the process up to date. Blocks.
    fn measure_machine(&self) {
        let metrics = &self.metrics;
        let of_node = self.this_node.budget.whole();
        metrics.memory_max_bytes.set(whole(of_node.memory_bytes));
        PROCESS.measure();
        match self.this_node.store.disk_usage() {
            Ok(space) => {
                metrics.log_bytes.set(whole(space.log_bytes));
                metrics.table_bytes.set(whole(space.table_bytes));
                metrics.disk_free_bytes.set(whole(space.disk_free_bytes));
                metrics.disk_size_bytes.set(whole(space.disk_size_bytes));
                self.show_reserve();
                self.group.show_refusal();
            }
            Err(error) => tracing::warn!(%error, "reading figures for the metrics failed"),
        }
    }
}
