//! What this node measures of itself: gauges for each scrape, its activity, and the free space on its disk.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{Status, recent_activity::Second};
use crate::{
    allocator::{Footprint, HotKey},
    metrics::{Interface, PROCESS, Reading, whole},
    sequence::NamespaceId,
    storage::{LowDisk, StoreError},
};

// Gauges that are read for each scrape.
//
// Invariant: a scrape waits for nothing that hangs. A gauge that the disk does not tell in time keeps its last
// value.

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
        let (me, nodes) = (self.config.node_id, self.group.nodes());
        let log = self.group.log_state();
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
        let bytes_max = self.config.memory_limits().bytes_max;
        metrics.memory_max_bytes.set(whole(bytes_max));
        PROCESS.measure();
        match self.this_node.store.disk_usage() {
            Ok(space) => {
                metrics.log_bytes.set(whole(space.log_bytes));
                metrics.table_bytes.set(whole(space.table_bytes));
                metrics.disk_free_bytes.set(whole(space.disk_free_bytes));
                metrics.disk_size_bytes.set(whole(space.disk_size_bytes));
                self.show_reserve();
            }
            Err(error) => tracing::warn!(%error, "reading figures for the metrics failed"),
        }
    }
}

// Notes second by second what this node does, for its status page.

impl Status {
    /// What this node did in the last seconds, the latest one last.
    pub fn activity(&self) -> Vec<Second> {
        self.recent.seconds()
    }

    /// The keys that get the most numbers; none if this node does not lead.
    pub fn hottest_keys(&self, limit: usize) -> Vec<HotKey> {
        let term = self.led.current();
        term.map_or_else(Vec::new, |term| term.hot_keys().hottest(limit))
    }

    /// Notes each second what this node did.
    pub async fn observe_activity(self: Arc<Self>) {
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let (mut numbers, mut requests) = self.totals();
        let mut before = Instant::now();
        loop {
            ticks.tick().await;
            let (numbers_now, requests_now) = self.totals();
            let answered = requests_now.since(&requests);
            // A tick may come late.
            let seconds = before.elapsed().as_secs_f64().max(1.0);
            before = Instant::now();
            let in_a_second = |count: u64| (count as f64 / seconds) as u64;
            let second = Second {
                numbers: in_a_second(numbers_now.wrapping_sub(numbers)),
                requests: in_a_second(answered.count()),
                p50: answered.quantile(0.5),
                p99: answered.quantile(0.99),
            };
            (numbers, requests) = (numbers_now, requests_now);
            self.recent.add(second);
            if let Some(term) = self.led.current() {
                term.hot_keys().age();
            }
        }
    }

    /// How many numbers this node handed out, and the durations of its clients' requests.
    fn totals(&self) -> (u64, Reading) {
        let metrics = &self.metrics;
        let mut requests = Reading::default();
        for interface in Interface::ALL {
            requests.add(&metrics.request_seconds.of(*interface).read());
        }
        (metrics.numbers.get(), requests)
    }
}

// Follows the free space on the disk of the data directory, and what peers say of theirs.
//
// The leader decides whether new sections are made: not while its own disk is low, and not while the voters whose
// disks have room are no majority. A follower whose disk is low says so itself, and tells the leader with each answer.
//
// Invariant: whoever asks is told what the last measurement said, at once.

/// How often the disk is measured while entries are applied. New sections at full speed take some 30 MB in this time.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// How often it is measured while none is: others may fill it. The next entry has it measured again at once.
const CHECK_AT_REST_EVERY: Duration = Duration::from_secs(2);

impl Status {
    /// Measures the disk again and again, keeps the spare, and looks at what peers say of their disks.
    pub(in crate::node) async fn follow_free_space(self: Arc<Self>) {
        let disk = self.this_node.store.free_space();
        let mut seen = Seen::default();
        if !disk.has_reserve() {
            // An earlier setting may have left a spare.
            seen.note(self.measure_disk().await, None);
            return;
        }
        let configured = self.config.log_keep_bytes;
        if let Some(kept) = disk.log_bytes_max().filter(|kept| *kept < configured) {
            tracing::warn!("{}", short_log(configured, kept, disk.reserve_bytes()));
        }
        let mut applied = None;
        loop {
            let measured = self.measure_disk().await;
            disk.note_low_follower(self.group.low_voter());
            self.show_reserve();
            seen.note(measured, self.group.refuses_new_keys());
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
    fn show_reserve(&self) {
        let free_space = self.this_node.store.free_space();
        let leads = self.group.leadership().borrow().own.is_some();
        let refuses = leads && self.group.refuses_new_keys().is_some();
        self.metrics.disk_reserve_bytes.set(whole(free_space.reserve_bytes()));
        self.metrics.disk_low.set(i64::from(free_space.low().is_some()));
        self.group.set_metrics.new_keys_refused.set(i64::from(refuses));
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

/// What was seen last, and told.
#[derive(Default)]
struct Seen {
    failed: bool,
    refusal: Option<LowDisk>,
}

impl Seen {
    /// Tells what has changed.
    fn note(&mut self, measured: Result<(), StoreError>, refusal: Option<LowDisk>) {
        if let (Err(error), false) = (&measured, self.failed) {
            tracing::warn!(%error, "the reserve of the disk is not looked after for now");
        }
        self.failed = measured.is_err();
        let whose = |refusal: Option<LowDisk>| refusal.map(|low| low.follower);
        let before = std::mem::replace(&mut self.refusal, refusal);
        if whose(before) == whose(refusal) {
            return;
        }
        match refusal {
            Some(low @ LowDisk { follower: None, .. }) => tracing::warn!(
                "the disk is nearly full: {low}. As leader this node refuses new keys and namespaces; make room"
            ),
            Some(low) => tracing::warn!(
                "the voters whose disks have room are no majority: {low}. New keys and namespaces are refused; make room"
            ),
            None => tracing::info!("the disks have room again: new keys are taken"),
        }
    }
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
