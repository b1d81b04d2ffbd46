//! Starts a group: opens what is stored, starts Raft, and follows what Raft says.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use openraft::Raft;

use super::{
    config::GroupConfig, election, group::Group, leader_heard::LeaderHeard, leadership_watch,
    takeover::LastTakeover, voters::AppliedVoters,
};
use crate::{
    clock::Clock,
    consensus::{
        lease::LeaseClock,
        network::{Network, Sender, Transport},
        state_machine::StateMachine,
    },
    metrics::Metrics,
    ordered_watch,
    planted_bugs::{Bug, is_planted},
    storage::{LogStore, Store, StoreError},
    tasks::Tasks,
};

impl Group {
    /// Starts the group on `store`, as part of the node whose tasks are `tasks`. If the store holds a
    /// vote, the caller has kept silent for one follower lease.
    ///
    /// # Errors
    /// If the stored state cannot be read or trusted, or if Raft refuses the timing or does not start.
    pub async fn start(
        config: GroupConfig, store: Arc<Store>, transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>, metrics: Arc<Metrics>, tasks: Tasks,
    ) -> Result<Arc<Group>, StoreError> {
        debug_assert!(
            config.lease_ms < config.election_timeout_ms || is_planted(Bug::LeaseNotShortened),
            "the lease ({} ms) must end before the followers' promises ({} ms)",
            config.lease_ms,
            config.election_timeout_ms
        );
        let lease = Duration::from_millis(config.lease_ms);
        let lease = Arc::new(LeaseClock::new(clock, config.node, lease));
        let sender = Arc::new(Sender {
            cluster: config.cluster.clone(),
            set: config.set,
            node: config.node,
            store: store.clone(),
            election_timeout_ms: config.election_timeout_ms,
        });
        let network = Network::new(
            sender,
            transport,
            lease.clone(),
            metrics,
            config.snapshot_bytes_per_second,
        );
        let log = LogStore::open(&store, config.set)?;
        let machine = StateMachine::open(&store, config.set)?;
        let view = machine.view();
        let raft_config = Arc::new(config.to_raft()?);
        let raft = Raft::new(config.node, raft_config, network.clone(), log, machine);
        // What Raft spawns while it starts belongs to the node, too.
        let raft = tasks.watched("raft", raft).await.map_err(not_started)?;
        let had_members = raft.is_initialized().await.map_err(not_started)?;
        let group = Arc::new(Group {
            had_members,
            config,
            raft,
            lease,
            network,
            view,
            store,
            leadership: ordered_watch::Sender::default(),
            voters: AppliedVoters::default(),
            stopped: ordered_watch::Sender::default(),
            retiring: AtomicBool::new(false),
            tasks,
            membership_change: tokio::sync::Mutex::default(),
            leader_heard: LeaderHeard::default(),
            last_takeover: LastTakeover::default(),
            taken_for_another: ordered_watch::Sender::default(),
            snapshots_begun: AtomicU64::new(0),
            incarnation_kept: Arc::default(),
        });
        let watching = leadership_watch::watch(group.clone());
        group.tasks.spawn("the watch over raft", watching);
        let standing = election::watch(group.clone());
        group.tasks.spawn("standing for election", standing);
        Ok(group)
    }
}

fn not_started(error: impl std::fmt::Display) -> StoreError {
    StoreError::invalid(format!("Raft does not start: {error}"))
}
