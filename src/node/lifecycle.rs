//! A node's life: start, serve, drain, stop.
//!
//! `Node::start` opens the store, rejoins the cluster if the node was in one, starts the Raft group, and then the tasks of the
//! node. A stop first hands the leadership over. Then it waits for the answers that are under way, and stops Raft. `context.rs`
//! makes the services of a node, and says which of them uses which.

pub(super) mod context;

use std::{num::NonZeroU64, path::Path, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Config, NodeContext, StartError,
    access::{all_to_wire, check_start, warn_of_what_is_open},
    handover::handover_max,
    members::{lost_directory::watch_for_lost_directory, rejoin},
    seams::{Addresses, Seams},
    terms::recent_records::fill_recent_records,
};
use crate::{
    consensus::{self, Budget, Group, GroupConfig, NodeBudget, ThisNode},
    metrics::Metrics,
    planted_bugs::{Bug, is_planted},
    proto::v1,
    sequence::{Principals, SetId},
    storage::{self, Margin, Recovery, Store, StoreError, StoreOptions},
    tasks::{Fault, Tasks},
};

/// The one set that a cluster has for now. The code below is handed the set that it belongs to.
const FIRST_SET: SetId = 1;
/// How many Raft groups share what the node may use: that of the one set.
const GROUPS: NonZeroU64 = NonZeroU64::MIN;
/// How long a node that has to stop waits for answers that are under way.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// How long Raft has to stop, after that. On a disk that hangs it never does.
const RAFT_STOP_MAX: Duration = Duration::from_secs(2);

/// Makes a cluster of one out of the data directory of a node that survived its cluster. With `dry_run` it only
/// tells what it would do. Returns what was done, and the principals of that cluster. Blocks.
///
/// # Errors
/// [`StoreError`] if the directory is in use, is not that of a member, or cannot be read or trusted.
pub fn recover(
    dir: &Path, margin: &Margin, dry_run: bool,
) -> Result<(Recovery, Vec<v1::Principal>), StoreError> {
    let (done, principals) = storage::recover(dir, FIRST_SET, margin, dry_run)?;
    Ok((done, all_to_wire(&principals)))
}

/// A running node.
pub struct Node {
    context: Arc<NodeContext>,
    stop: CancellationToken,
    /// The tasks that a stop waits for.
    running: TaskTracker,
    addresses: Addresses,
}

impl Node {
    /// Starts a node that clients and peers reach at `addresses`. It opens its store, keeps silent for as long as
    /// a promise of its last run may bind it, and starts to form its cluster. Serve no port until this
    /// returns.
    ///
    /// # Errors
    /// [`StartError`] if the configuration cannot work, strangers reach the node and are granted something, the data
    /// directory cannot be used or trusted, or Raft does not start.
    pub async fn start(
        config: Config, seams: Seams, addresses: Addresses,
    ) -> Result<Node, StartError> {
        config.check()?;
        let (dir, cluster, id) = (config.data_dir.clone(), config.cluster.clone(), config.node_id);
        let metrics = Metrics::new();
        metrics.namespaces().set_places_max(config.metrics_namespaces_max as usize);
        let tasks = Tasks::default();
        let budget = node_budget(&config);
        let options = StoreOptions {
            block_cache_bytes: (config.block_cache_mb << 20) as usize,
            disk_reserve_bytes: config.disk_reserve_mb << 20,
            recent_records_bytes: budget.share().recent_records_bytes as usize,
            tasks: tasks.clone(),
            metrics: metrics.clone(),
            dev: config.dev,
            require_volume: config.require_volume,
            ..seams.storage.clone()
        };
        let store = options
            .blocking
            .run(move || Store::open(&dir, &cluster, id, options))
            .await
            .map_err(|e| StartError::Internal(e.to_string()))??;
        check_is_not_open(&config, &store)?;
        rejoin::rejoin(&store, FIRST_SET, &config, &seams.transport).await?;
        let this_node = ThisNode::new(config.cluster.clone(), id, store, tasks, budget);
        let group = Group::start(
            group_config(&config),
            this_node,
            seams.transport.clone(),
            seams.clock.clone(),
            &metrics,
        )
        .await?;
        let context = Arc::new(NodeContext::new(config, seams, group, metrics, addresses));
        let node = Node {
            stop: context.stopping.stopped().clone(),
            context,
            running: TaskTracker::new(),
            addresses,
        };
        node.run_group();
        node.run_node();
        Ok(node)
    }

    /// Runs what its Raft group needs.
    fn run_group(&self) {
        let (group, of_group) = (&self.context.group, &self.context.services.of_group);
        let (led, handovers) = (&of_group.led, &of_group.handovers);
        self.run_until_stopped("watchdog of the disk", group.clone().watch_disk());
        self.run_until_stopped("watch over the disks of voters", group.clone().watch_voter_disks());
        self.run_until_stopped("leaving a slow disk", handovers.clone().leave_slow_disk());
        self.run_until_stopped("bounding the log", consensus::log_limit::watch(group.clone()));
        self.run_until_stopped("following the leadership", led.clone().follow_leadership());
        let filling = fill_recent_records(group.clone());
        self.run_until_stopped("filling the recent records", filling);
        self.run_until_stopped("stopping with raft", stop_with_group(group.clone()));
        let leaving = handovers.clone().leave_doubted_terms(of_group.leader_ids.time().clone());
        self.run_until_stopped("leaving terms whose clock is doubted", leaving);
    }

    /// Runs what the node needs once, however many Raft groups it has.
    fn run_node(&self) {
        let NodeContext { config, group, services, ids, .. } = &*self.context;
        let status = &services.status;
        self.run_until_stopped("measuring the disk", status.clone().follow_free_space());
        self.run_until_stopped("formation", services.formation.clone().form());
        let warning = warn_of_what_is_open(config.clone(), group.clone());
        self.run_until_stopped("warning of what is open", warning);
        let lost = watch_for_lost_directory(services.members.clone());
        self.run_until_stopped("watch for a lost directory", lost);
        self.run_until_stopped("releasing idle worker ids", ids.clone().let_idle_workers_go());
        self.run_until_stopped("following the clock", status.clone().follow_clock());
        let greeting = services.members.clone().greet_members(services.of_group.led.changes());
        self.run_until_stopped("greeting the members", greeting);
    }

    /// Cancelled when the node stops.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Runs a task that the node cannot do without. A stop waits for it.
    pub fn run(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(self.context.this_node.tasks.watched(name, task));
    }

    /// Runs a task that the node cannot do without, and that ends when the node stops.
    pub fn run_until_stopped(
        &self, name: &'static str, task: impl Future<Output = ()> + Send + 'static,
    ) {
        let (stop, task) = (self.stopping(), task.boxed());
        self.run(name, async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// The context that the node's parts share.
    pub fn context(&self) -> &Arc<NodeContext> {
        &self.context
    }

    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Waits until the node cannot go on, and returns the reason.
    pub async fn failed(&self) -> Fault {
        let mut failed = self.context.this_node.tasks.failed();
        let fault = failed.wait_for(Option::is_some).await.ok().flatten();
        fault.unwrap_or_else(|| Fault::CannotGoOn("the node is gone".to_owned()))
    }

    /// How long [`Node::stop`] takes at most with these settings, as long as the disk does not hang.
    pub fn stop_max(config: &Config) -> Duration {
        handover_max(config) + Duration::from_millis(config.shutdown_timeout_ms)
    }

    /// Hands the leadership over, answers what is under way, and stops.
    pub async fn stop(self) {
        self.hand_over().await;
        self.finish().await;
    }

    /// The first half of [`Node::stop`]: hands the leadership over. The settings bound how long that takes.
    pub async fn hand_over(&self) {
        let handovers = &self.context.services.of_group.handovers;
        // First, so that load balancers send no further requests here.
        self.context.stopping.leaving().cancel();
        self.context.group.retire();
        let deadline = tokio::time::Instant::now() + handover_max(&self.context.config);
        self.context.ids.release_workers().await;
        if let Err(refusal) = handovers.hand_over_to_anyone(deadline).await {
            tracing::info!(reason = refusal.message(), "stopping before the handover is complete");
        }
    }

    /// The second half of [`Node::stop`]: answers what is under way, and stops.
    pub async fn finish(self) {
        let limit = Duration::from_millis(self.context.config.shutdown_timeout_ms);
        self.drain(limit).await;
    }

    /// Stops without a handover, as a crash would, but answers what it can at once.
    pub async fn halt(self) {
        self.drain(LAST_ANSWERS).await;
    }

    async fn drain(self, limit: Duration) {
        self.context.group.retire();
        self.context.stopping.stop();
        self.context.services.of_group.led.stop();
        self.running.close();
        if tokio::time::timeout(limit, self.running.wait()).await.is_err() {
            tracing::warn!("some requests were cut off");
        }
        if tokio::time::timeout(RAFT_STOP_MAX, self.context.group.stop()).await.is_err() {
            tracing::error!(
                "Raft does not stop within {} s: the disk of {} may hang; the node ends without it",
                RAFT_STOP_MAX.as_secs(),
                self.context.this_node.store.dir().display()
            );
        }
    }
}

/// Sees that a node that belongs to a cluster, or founds one by itself, is not open to strangers, as far as its data tells.
fn check_is_not_open(config: &Config, store: &Store) -> Result<(), StartError> {
    let principals = match storage::founded_principals(store, FIRST_SET)? {
        None if config.dev => Principals::default(),
        None => return Ok(()),
        Some(principals) => principals,
    };
    Ok(check_start(config, &principals)?)
}

/// Stops the node when Raft has stopped.
async fn stop_with_group(group: Arc<Group>) {
    let mut stopped = group.stopped();
    if let Ok(reason) = stopped.wait_for(Option::is_some).await
        && let Some(reason) = reason
    {
        let disk = group.this_node.store.health().failure();
        group.this_node.tasks.fail(disk.map_or(reason, Fault::CannotGoOn));
    }
}

fn group_config(config: &Config) -> GroupConfig {
    GroupConfig {
        set: FIRST_SET,
        heartbeat_ms: config.heartbeat_ms,
        election_timeout_ms: config.election_timeout_ms,
        lease_ms: if is_planted(Bug::LeaseNotShortened) {
            config.election_timeout_ms
        } else {
            config.lease_ms
        },
        log_hold_times: config.log_hold_times,
    }
}

/// The budget of the node for all its groups.
fn node_budget(config: &Config) -> NodeBudget {
    let whole = Budget {
        memory_bytes: config.memory_max_mb << 20,
        request_ids_bytes: config.request_ids_max_mb << 20,
        log_keep_bytes: config.log_keep_bytes,
        snapshot_bytes_per_second: config.snapshot_mb_per_second << 20,
        recent_records_bytes: config.recent_records_mb << 20,
    };
    NodeBudget::new(whole, GROUPS)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::{
        node::{Asker, CheckedRequest, Origin, Unanswered},
        proto::v1::{self, Key, NextRequest, Reason, key},
        sequence::{
            Bump, Bumped, CeilingRaise, Chunk, Command, EntryOutcome, NamespaceId, SectionId,
            SectionKey,
        },
    };

    async fn start(dir: &std::path::Path) -> Node {
        let config = Config { data_dir: dir.to_owned(), dev: true, ..Config::default() };
        // A cluster of one has nobody to be reached by.
        let addresses = Addresses {
            client: config.listen,
            peer: config.peer_listen,
            metrics: None,
            http: None,
            resp: None,
            admin: None,
        };
        loop {
            match Node::start(config.clone(), Seams::default(), addresses).await {
                // Parts of its last run are still letting go of the directory.
                Err(error) if error.to_string().contains("in use by another process") => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                started => return started.expect("the node starts"),
            }
        }
    }

    fn section() -> SectionId {
        SectionId { namespace: NamespaceId(1), key: SectionKey::Id(7) }
    }

    /// Bumps the section once this node leads and has its namespaces.
    async fn bump(node: &Node) -> Chunk {
        let mut leadership = node.context().group.leadership();
        loop {
            let now = leadership.wait_for(|now| now.own.is_some()).await;
            let term = now.expect("a node").term;
            let bump = Bump {
                section: section(),
                raise: CeilingRaise { numbers: 10, unused_max: 10, step: 10, up_to: 0 },
            };
            let proposed = node
                .context()
                .group
                .propose(term, Command::Bump { bumps: vec![bump], skipped: vec![], now_ms: 0 });
            if let Ok(EntryOutcome::Bumped(bumped)) = proposed.await
                && let [Bumped::Chunk(chunk)] = bumped[..]
            {
                return chunk;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_cluster_whose_data_has_no_id_gets_one_from_its_leader() {
        let dir = TempDir::new().expect("a temporary directory");
        let node = start(dir.path()).await;
        let lost = node.context().group.view.until_named().await;
        node.context().group.view.remove_cluster_id();
        node.halt().await;
        let node = start(dir.path()).await;
        let id = node.context().group.view.until_named().await;
        assert_ne!(id, lost);
        node.halt().await;
        let node = start(dir.path()).await;
        assert_eq!(node.context().services.members.cluster_id(), Some(id), "from the start on");
        node.halt().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_whose_raft_panics_says_so_and_comes_back_whole() {
        let dir = TempDir::new().expect("a temporary directory");
        let node = start(dir.path()).await;
        let before = bump(&node).await;
        node.context().group.panic_in_raft().await;
        let reason = node.failed().await;
        assert!(matches!(reason, Fault::Panic { .. }), "{reason}");
        let text = reason.to_string();
        assert!(text.contains("\"raft\" panicked"), "{text}");
        assert!(text.contains("start the node again"), "{text}");
        node.halt().await;
        let node = start(dir.path()).await;
        // How far above depends on whether the new term's epoch came before the bump.
        let after = bump(&node).await;
        assert!(after.old >= before.new, "{after:?} after {before:?}");
        node.halt().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_at_a_node_that_stops_and_knows_no_leader_does_not_wait_for_one() {
        let dir = TempDir::new().expect("a temporary directory");
        let node = start(dir.path()).await;
        bump(&node).await;
        let context = node.context().clone();
        let forever = Instant::now() + Duration::from_secs(86_400);
        let asked = NextRequest {
            namespace: "book".to_owned(),
            key: Some(Key { kind: Some(key::Kind::Id(7)) }),
            ..NextRequest::default()
        };
        let asked = CheckedRequest::new(asked, Asker::node(1)).expect("a request");
        let ask = || context.numbers.serve(&asked, Origin::Client, forever);
        ask().await.expect("a number");
        node.halt().await;
        let told = timeout(Duration::from_secs(300), ask()).await.expect("it waits for nobody");
        let Err(Unanswered::Refused(refusal)) = told else { panic!("{told:?}") };
        assert_eq!(
            (refusal.reason(), refusal.outcome()),
            (Reason::NodeStopping, v1::Outcome::NotDone)
        );
    }
}
