//! One Raft group: its life, its proposals, and who leads it.
//!
//! Invariant: what this module says of leadership is ordered by term. A change from leader to
//! leader shows as a new term even where the states in between were not seen.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use openraft::{
    Raft, RaftMetrics, RaftState, SnapshotPolicy, StepDownPolicy,
    async_runtime::watch::WatchReceiver,
    errors::{ClientWriteError, Fatal, RaftError},
    impls::ProgressResponder,
    raft::{AppendEntriesRequest, ClientWriteResult},
};

use super::{
    inbound::Heard,
    lease::{LeaseClock, Quorums, TermLease},
    membership::Voters,
    network::{Network, Sender},
    state_machine::StateMachine,
    transport::Transport,
};
use crate::{
    clock::Clock,
    metrics::Metrics,
    sequence::{Command, NodeId, Outcome, SetId},
    storage::{AppliedView, LogStore, Member, Store, StoreError, Types, Vote},
    tasks::Tasks,
    watch,
};

/// The timing and limits of a group. Times are in milliseconds.
#[derive(Debug, Clone)]
pub struct GroupConfig {
    /// The cluster's name.
    pub cluster: String,
    /// The set that this group is.
    pub set: SetId,
    /// This node.
    pub node: NodeId,
    /// How often a leader is heard of.
    pub heartbeat_ms: u64,
    /// How long a follower keeps out of elections after it heard of a leader; an election follows
    /// after half of this to all of this again.
    pub election_timeout_ms: u64,
    /// How long a leader's answers are in order after a majority acknowledged it.
    pub lease_ms: u64,
    /// How many bytes of the applied log are kept for followers that lag.
    pub log_keep_bytes: u64,
}

impl GroupConfig {
    fn raft(&self) -> Result<openraft::Config, StoreError> {
        let config = openraft::Config {
            cluster_name: self.cluster.clone(),
            heartbeat_interval: self.heartbeat_ms,
            election_timeout_min: self.election_timeout_ms / 2,
            // Openraft's follower lease is the greatest election timeout.
            election_timeout_max: self.election_timeout_ms,
            install_snapshot_timeout: 600_000,
            // When a snapshot is taken, and what of the log is purged, is decided by its bytes:
            // `log_limit`.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            // We refuse to remove a leader; one that steps down by itself would transfer the
            // leadership behind the allocator's back.
            removed_leader_step_down: StepDownPolicy::Never,
            // A half-isolated leader must not block the election of a better one for ever.
            quorum_loss_probe_interval: Some(2 * self.election_timeout_ms),
            enable_pre_vote: Some(true),
            // A restored leader would go on in its old term, without an election.
            enable_leader_restore: Some(false),
            backoff: "50ms 100ms ..200ms".to_owned(),
            ..Default::default()
        };
        config
            .validate()
            .map_err(|e| StoreError::invalid(format!("Raft refuses the timing: {e}")))
    }
}

/// Who leads, as far as this node knows.
#[derive(Debug, Clone, Default)]
pub struct Leadership {
    /// The term.
    pub term: u64,
    /// Its leader, where there is one.
    pub leader: Option<(NodeId, Member)>,
    /// This node's lease, where it leads, has applied an entry of its term (so that it knows all
    /// that its predecessors committed), and has not given the term up.
    pub own: Option<Arc<TermLease>>,
}

impl Leadership {
    fn same_as(&self, other: &Leadership) -> bool {
        let own = |l: &Leadership| l.own.as_ref().map(|lease| lease.term());
        self.term == other.term && self.leader == other.leader && own(self) == own(other)
    }
}

/// Why a proposal came to nothing, or to nobody knows what.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProposeError {
    /// This node does not lead in that term; nothing was proposed.
    #[error("this node does not lead in term {0}")]
    NotLeader(u64),
    /// The proposal was made, and the leadership lost before it was known to be committed.
    #[error("the leadership of term {0} was lost while a proposal was under way")]
    Unknown(u64),
    /// Raft has stopped on this node.
    #[error("Raft has stopped on this node: {0}")]
    Stopped(String),
    /// The membership cannot change in this way now.
    #[error("{0}")]
    Refused(String),
}

/// One Raft group on this node.
pub struct Group {
    config: GroupConfig,
    pub(super) raft: Raft<Types, StateMachine>,
    pub(super) lease: Arc<LeaseClock>,
    pub(super) network: Network,
    view: AppliedView,
    store: Arc<Store>,
    /// Whether this node belonged to a cluster when it started.
    had_members: bool,
    leadership: watch::Sender<Leadership>,
    pub(super) voters: watch::Sender<Voters>,
    /// The version of `voters`, which is looked at with every answer.
    pub(super) voters_version: AtomicU64,
    stopped: watch::Sender<Option<String>>,
    /// The node is about to stop: a term that is given up is not taken up again.
    retiring: AtomicBool,
    tasks: Tasks,
    /// Held while the membership changes.
    pub(super) changing: tokio::sync::Mutex<()>,
    pub(super) heard: Heard,
}

impl Group {
    /// Starts the group on `store`, as part of the node whose tasks are `tasks`. The caller has kept
    /// silent for a follower lease if the store holds a vote.
    ///
    /// # Errors
    /// [`StoreError`] where the stored state cannot be read or trusted.
    pub async fn start(
        config: GroupConfig,
        store: Arc<Store>,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        tasks: Tasks,
    ) -> Result<Arc<Group>, StoreError> {
        let lease = Arc::new(LeaseClock::new(
            clock,
            config.node,
            Duration::from_millis(config.lease_ms),
        ));
        let sender = Arc::new(Sender {
            cluster: config.cluster.clone(),
            set: config.set,
            node: config.node,
            incarnation: store.identity().incarnation,
            election_timeout_ms: config.election_timeout_ms,
        });
        let network = Network::new(sender, transport, lease.clone(), metrics);
        let log = LogStore::open(&store, config.set)?;
        let machine = StateMachine::open(&store, config.set)?;
        let view = machine.view();
        let raft_config = Arc::new(config.raft()?);
        let raft = Raft::new(config.node, raft_config, network.clone(), log, machine);
        // Raft's tasks are the node's, too.
        let raft = tasks
            .watched("raft", raft)
            .await
            .map_err(|e| StoreError::invalid(format!("Raft does not start: {e}")))?;
        let had_members = raft
            .is_initialized()
            .await
            .map_err(|e| StoreError::invalid(format!("Raft does not start: {e}")))?;
        let group = Arc::new(Group {
            had_members,
            config,
            raft,
            lease,
            network,
            view,
            store,
            leadership: watch::Sender::default(),
            voters: watch::Sender::default(),
            voters_version: AtomicU64::new(0),
            stopped: watch::Sender::default(),
            retiring: AtomicBool::new(false),
            tasks,
            changing: tokio::sync::Mutex::default(),
            heard: Heard::default(),
        });
        group
            .tasks
            .spawn("the watch over raft", group.clone().watch());
        Ok(group)
    }

    /// Its configuration.
    pub fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.config.node
    }

    /// The applied table, for reading.
    pub fn view(&self) -> &AppliedView {
        &self.view
    }

    /// The store beneath.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The tasks of the node.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Who leads, now and from now on.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// Becomes the reason once Raft has stopped on this node for good.
    pub fn stopped(&self) -> watch::Receiver<Option<String>> {
        self.stopped.subscribe()
    }

    /// Has the node stop for a reason that it cannot get over.
    pub(super) fn stop_because(&self, reason: String) {
        self.lease.void();
        self.stopped.send_if_modified(|stopped| {
            let first = stopped.is_none();
            stopped.get_or_insert(reason);
            first
        });
    }

    /// Who this node is, as every message to a peer says.
    pub fn sender(&self) -> &Arc<Sender> {
        self.network.sender()
    }

    /// Raft's own view of the group.
    pub(super) fn metrics(&self) -> RaftMetrics<Types> {
        self.raft.metrics().borrow_watched().clone()
    }

    /// Whether this node belongs to a cluster.
    pub fn is_formed(&self) -> bool {
        if self.had_members {
            return true;
        }
        let membership = self.metrics().membership_config;
        membership.membership().nodes().next().is_some()
    }

    /// Proposes a command in `term` and waits until it is applied here.
    ///
    /// # Errors
    /// [`ProposeError`]; after `Unknown` the command may still be applied, or may have been.
    pub async fn propose(&self, term: u64, command: Command) -> Result<Outcome, ProposeError> {
        let outcome = self.try_propose(term, command).await;
        if outcome.is_err() {
            self.store.metrics().proposals_failed.inc();
        }
        outcome
    }

    async fn try_propose(&self, term: u64, command: Command) -> Result<Outcome, ProposeError> {
        let (responder, answer) =
            ProgressResponder::<Types, ClientWriteResult<Types>>::complete_only();
        self.raft
            .write(command)
            // Nothing of ours goes into the log of another term, even one that we lead as well.
            .with_leader(term)
            .responder(responder)
            .await
            .map_err(|e| ProposeError::Stopped(e.to_string()))?;
        match answer.await {
            Ok(Ok(written)) => Ok(written.data),
            Ok(Err(ClientWriteError::ForwardToLeader(_))) => Err(ProposeError::NotLeader(term)),
            Ok(Err(_)) | Err(_) => Err(ProposeError::Unknown(term)),
        }
    }

    /// Asks a majority whether it still follows this node in `term`; true if it does. What this
    /// node took from its memory before the question is then in order, with no clock in the
    /// argument: a successor needs the vote of somebody who answered, and would have it only after.
    pub async fn confirm(&self, lease: &TermLease) -> bool {
        let quorums = self.lease.quorums();
        let question = AppendEntriesRequest {
            vote: Vote::new_committed(lease.term(), self.node()),
            prev_log_id: None,
            entries: Vec::new(),
            leader_commit: None,
        };
        let membership = self.metrics().membership_config;
        let timeout = Duration::from_millis(self.config.election_timeout_ms);
        let mut answers: FuturesUnordered<_> = quorums
            .voters()
            .into_iter()
            .filter(|&voter| voter != self.node())
            .filter_map(|voter| {
                let member = membership.membership().get_node(&voter)?;
                let peer = self.network.peer(voter, member);
                let question = &question;
                Some(async move { (voter, peer.append(question, timeout).await) })
            })
            .collect();
        let mut with_us = BTreeSet::from([self.node()]);
        loop {
            if quorums.agree(&with_us) {
                return !lease.is_void();
            }
            match answers.next().await {
                Some((voter, Ok(answer))) if !is_higher(&answer) => {
                    with_us.insert(voter);
                }
                Some(_) => {}
                None => return false,
            }
        }
    }

    /// Gives up `lease`'s term and asks Raft to let `to` lead; waits until a later term has a
    /// leader. The caller has closed the term's allocator for good.
    ///
    /// # Errors
    /// [`ProposeError::NotLeader`] if the term is over already: Raft would transfer a later term of this
    /// node's, whose allocator is open. [`ProposeError::Unknown`] if nobody leads a later term within
    /// `timeout`; this node then keeps silent until somebody does.
    pub async fn transfer(
        &self,
        lease: &TermLease,
        to: NodeId,
        timeout: Duration,
    ) -> Result<Leadership, ProposeError> {
        let own = self.leadership.borrow().own.clone();
        if lease.is_void() || own.is_none_or(|own| own.term() != lease.term()) {
            return Err(ProposeError::NotLeader(lease.term()));
        }
        self.trigger_transfer(lease, to)
            .await
            .map_err(|e| ProposeError::Stopped(e.to_string()))?;
        let mut leadership = self.leadership();
        let later = leadership.wait_for(|now| now.term > lease.term() && now.leader.is_some());
        match tokio::time::timeout(timeout, later).await {
            Ok(Ok(now)) => Ok(now),
            _ => Err(ProposeError::Unknown(lease.term())),
        }
    }

    /// Voids `lease` and has Raft transfer the leadership. Raft transfers the term that it leads when it
    /// comes to this, which may be a later one of this node's that nobody here has heard of yet: the
    /// lease of that term is void, too.
    async fn trigger_transfer(&self, lease: &TermLease, to: NodeId) -> Result<(), Fatal<Types>> {
        // Whatever lease begins before Raft has come to it begins void.
        let shown = self.lease.show(u64::MAX);
        self.raft.trigger().transfer_leader(to).await?;
        // Raft's core takes its messages in order, so that this answers after the transfer.
        if let Some(term) = self.leads_in_raft().await?
            && term > lease.term()
        {
            self.lease.void_before(term + 1);
        }
        shown.refused();
        Ok(())
    }

    /// The node is about to stop: its term may end without another one.
    pub fn retire(&self) {
        self.retiring.store(true, Release);
    }

    /// The term that Raft itself leads at this moment.
    async fn leads_in_raft(&self) -> Result<Option<u64>, Fatal<Types>> {
        let me = self.node();
        let read = move |state: &RaftState<Types>| term_led(state.vote_ref(), me);
        self.raft.with_raft_state(read).await
    }

    /// Stops Raft on this node.
    pub async fn stop(&self) {
        self.retire();
        self.lease.void();
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "Raft did not stop cleanly");
        }
    }

    async fn watch(self: Arc<Self>) {
        let mut metrics = self.raft.metrics();
        loop {
            let seen = metrics.borrow_and_update().clone();
            if let Err(reason) = &seen.running_state {
                self.stop_because(reason.to_string());
                self.leadership.send_replace(Leadership::default());
                return;
            }
            self.follow_voters(&seen);
            let lease = self.observe(&seen);
            if let Some(lease) = &lease {
                self.stop_if_stuck(lease, &seen).await;
            }
            let given_up = async {
                match &lease {
                    Some(lease) if !lease.is_void() => lease.wait_until(TermLease::is_void).await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = metrics.changed() => if changed.is_err() {
                    self.stop_because("its core is gone".to_owned());
                    return;
                },
                () = given_up => {}
            }
        }
    }

    /// Stops the node where its term was given up and it is the only voter: nobody else can be elected,
    /// and Raft holds no election while it leads.
    async fn stop_if_stuck(&self, lease: &TermLease, seen: &RaftMetrics<Types>) {
        let is_sole = Quorums::of(&seen.membership_config).is_sole(self.node());
        if !lease.is_void() || !is_sole || self.retiring.load(Acquire) {
            return;
        }
        // Where Raft itself has ended, it is told elsewhere why; where it has left the term, another one
        // can begin.
        let stuck = self.leads_in_raft().await == Ok(Some(lease.term()));
        if stuck && !self.retiring.load(Acquire) {
            self.stop_because(
                "this node gave its term up, and is the only voter: another term begins when it is \
                 started again"
                    .to_owned(),
            );
        }
    }

    /// Follows what Raft says; the lease of the term that this node leads, if it leads.
    fn observe(&self, seen: &RaftMetrics<Types>) -> Option<Arc<TermLease>> {
        let term = seen.vote.leader_id.term;
        let leads = seen.state.is_leader() && term_led(&seen.vote, self.node()).is_some();
        let membership = seen.membership_config.membership();
        self.network.follow(&seen.membership_config);
        let quorums = Quorums::of(&seen.membership_config);
        let lease = leads.then(|| self.lease.begin(term, quorums));
        if lease.is_none() {
            self.lease.void();
        }
        // A term that was given up must end: nobody can take numbers in it any more. Its followers
        // elect another leader when they no longer hear of this one.
        let given_up = lease.as_ref().is_some_and(|lease| lease.is_void());
        self.raft.runtime_config().heartbeat(!given_up);

        let applied_own_term = seen
            .last_applied
            .as_ref()
            .is_some_and(|id| id.committed_leader_id().term == term);
        let now = Leadership {
            term,
            leader: seen.current_leader.and_then(|leader| {
                let member = membership.get_node(&leader)?;
                Some((leader, member.clone()))
            }),
            own: lease
                .clone()
                .filter(|lease| applied_own_term && !lease.is_void()),
        };
        self.leadership.send_if_modified(|before| {
            let changed = !before.same_as(&now);
            if changed {
                *before = now;
            }
            changed
        });
        lease
    }
}

#[cfg(test)]
impl Group {
    /// Makes Raft's core panic.
    pub(crate) async fn panic_in_raft(&self) {
        let panic = |_: &RaftState<Types>| panic!("a panic for a test");
        assert!(self.raft.with_raft_state::<_, ()>(panic).await.is_err());
    }
}

/// The term that `node` leads, where its vote says that it does.
pub(super) fn term_led(vote: &Vote, node: NodeId) -> Option<u64> {
    (vote.committed && vote.leader_id.voted_for == node).then_some(vote.leader_id.term)
}

/// Whether a message was refused, since its receiver knows a later leader or candidate.
pub(super) fn is_higher(answer: &openraft::raft::AppendEntriesResponse<Types>) -> bool {
    matches!(answer, openraft::raft::AppendEntriesResponse::HigherVote(_))
}

/// What a failed write means for the one who proposed it.
pub(super) fn refused(term: u64, error: RaftError<Types, ClientWriteError<Types>>) -> ProposeError {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => ProposeError::NotLeader(term),
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => ProposeError::Unknown(term),
        RaftError::APIError(other) => ProposeError::Refused(other.to_string()),
        RaftError::Fatal(fatal) => ProposeError::Stopped(fatal.to_string()),
    }
}
