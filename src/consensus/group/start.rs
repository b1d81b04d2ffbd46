//! Starts a group: opens its part of the store, begins its log, its state machine and its network, and hands them to Raft.

use std::{sync::Arc, time::Duration};

use openraft::Raft;

use super::{
    canvassed_term::CanvassedTerm, config::GroupConfig, election, ending::Ending, group::Group,
    heard_leader::HeardLeader, leader_change::LastLeaderChange, leadership::PublishedLeadership,
    membership::GroupMembership, principals_lag::PrincipalsLag, raft_watch, voters::AppliedVoters,
};
use crate::{
    clock::Clock,
    consensus::{
        lease::LeaseClock,
        network::{MessageSender, Network, Transport},
        state_machine::StateMachine,
        this_node::ThisNode,
    },
    metrics::Metrics,
    planted_bugs::{Bug, is_planted},
    storage::{LogStore, StoreError},
};

impl Group {
    /// Starts the group on `this_node`. If its store holds a vote, the caller has kept silent for as long as a promise lasts.
    ///
    /// # Errors
    /// If the stored state cannot be read or trusted, or if Raft refuses the timing or does not start.
    pub async fn start(
        config: GroupConfig, this_node: Arc<ThisNode>, transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>, metrics: &Metrics,
    ) -> Result<Arc<Group>, StoreError> {
        assert!(
            config.lease_ms < config.election_timeout_ms || is_planted(Bug::LeaseNotShortened),
            "the lease ({} ms) must end before the followers' promises ({} ms)",
            config.lease_ms,
            config.election_timeout_ms
        );
        let lease = Duration::from_millis(config.lease_ms);
        let lease = Arc::new(LeaseClock::new(clock, this_node.id, lease));
        let sender = Arc::new(MessageSender {
            this_node: this_node.clone(),
            set: config.set,
            election_timeout_ms: config.election_timeout_ms,
        });
        let set_metrics = metrics.of_set(config.set);
        let budget = this_node.budget.share();
        let network = Network::new(
            sender,
            transport,
            lease.clone(),
            set_metrics.clone(),
            budget.snapshot_bytes_per_second,
        );
        let log = LogStore::open(&this_node.store, config.set)?;
        let machine = StateMachine::open(&this_node.store, config.set)?;
        let view = machine.view();
        network.peers.tell_principals_of(view.clone());
        let raft_config = Arc::new(config.to_raft(&this_node.cluster)?);
        let raft = Raft::new(this_node.id, raft_config, network.clone(), log, machine);
        // The tasks that Raft spawns while it starts belong to the node, too.
        let raft = this_node.tasks.watched("raft", raft).await.map_err(not_started)?;
        if raft.is_initialized().await.map_err(not_started)? {
            this_node.note_members();
        }
        let membership =
            GroupMembership::new(this_node.clone(), raft.clone(), lease.clone(), view.clone());
        let group = Arc::new(Group {
            this_node,
            config,
            budget,
            raft,
            lease,
            network,
            set_metrics,
            view,
            membership,
            leadership: PublishedLeadership::default(),
            voters: AppliedVoters::default(),
            ending: Ending::default(),
            heard_leader: HeardLeader::default(),
            principals_lag: PrincipalsLag::default(),
            last_leader_change: LastLeaderChange::default(),
            canvassed_term: CanvassedTerm::default(),
        });
        let watching = raft_watch::watch(group.clone());
        group.this_node.tasks.spawn("the watch over raft", watching);
        let standing = election::watch(group.clone());
        group.this_node.tasks.spawn("standing for election", standing);
        Ok(group)
    }
}

fn not_started(error: impl std::fmt::Display) -> StoreError {
    StoreError::invalid(format!("Raft does not start: {error}"))
}
