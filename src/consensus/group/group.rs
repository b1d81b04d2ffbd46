//! [`Group`]: one Raft group on this node, and proposals to it.
//!
//! Files above this one add to it: how it starts, whom it asks for votes, who still follows it, who can lead next, and how it
//! gives the leadership up. The files below hold its state that changes, a part each. `membership` is one of them.
//!
//! Invariant: a proposal names its term, and is logged in that term or not at all.

use std::{sync::Arc, time::Duration};

use openraft::{
    Raft, RaftMetrics, RaftState,
    async_runtime::watch::WatchReceiver,
    errors::{ClientWriteError, Fatal},
    impls::ProgressResponder,
    raft::ClientWriteResult,
};
use tokio::sync::OwnedRwLockReadGuard;

use super::{
    canvassed_term::CanvassedTerm,
    config::GroupConfig,
    ending::Ending,
    heard_leader::HeardLeader,
    leader_change::{LastLeaderChange, LeaderChange},
    leadership::{Leadership, PublishedLeadership},
    membership::GroupMembership,
    principals_lag::PrincipalsLag,
    propose_error::ProposeError,
    voters::{AppliedVoters, Voters},
};
use crate::{
    clock::Instant,
    consensus::{
        lease::{LeaseClock, UNHEARD},
        network::{LogHolds, MessageSender, Network},
        state_machine::StateMachine,
        this_node::{Budget, ThisNode},
    },
    metrics::SetMetrics,
    ordered_watch,
    sequence::{Command, EntryOutcome, NodeId},
    storage::{AppliedView, StoreError, Types, term_led},
    tasks::Fault,
};

/// One Raft group on this node.
///
/// No field is replaced after the start. State that changes is in types with private fields, whose files say what must
/// hold. So every file of the group may use each field. The public fields are settings and shares that users of the group read,
/// and its membership, which they ask and change.
pub struct Group {
    /// The parts that the node's groups share.
    pub this_node: Arc<ThisNode>,
    /// Its configuration.
    pub config: GroupConfig,
    /// Its share of what the node may use.
    pub budget: Budget,
    pub(super) raft: Raft<Types, StateMachine>,
    pub(super) lease: Arc<LeaseClock>,
    pub(super) network: Network,
    /// Its metrics.
    pub set_metrics: Arc<SetMetrics>,
    /// The applied table, for reading.
    pub view: AppliedView,
    /// Its membership.
    pub membership: Arc<GroupMembership>,
    pub(super) leadership: PublishedLeadership,
    pub(super) voters: AppliedVoters,
    pub(super) ending: Ending,
    pub(super) heard_leader: HeardLeader,
    pub(super) principals_lag: PrincipalsLag,
    pub(super) last_leader_change: LastLeaderChange,
    pub(super) canvassed_term: CanvassedTerm,
}

impl Group {
    /// This node.
    pub fn node(&self) -> NodeId {
        self.this_node.id
    }

    /// The sender of every message of this node to a peer.
    pub fn sender(&self) -> &Arc<MessageSender> {
        self.network.sender()
    }

    /// The leadership, now and from now on.
    pub fn leadership(&self) -> ordered_watch::Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// The voters of the last membership that is applied on this node, now and from now on.
    pub fn voters(&self) -> ordered_watch::Receiver<Voters> {
        self.voters.subscribe()
    }

    /// The version of [`Group::voters`]: one atomic load.
    pub fn voters_version(&self) -> u64 {
        self.voters.version()
    }

    /// When this node last followed a leader's message, if ever.
    pub fn leader_heard(&self) -> Option<Instant> {
        self.heard_leader.last().map(|(_, at)| at)
    }

    /// The members that the leader has not heard for two seconds: as this node sees it if it leads, or as its leader told it
    /// last. None if no leader that has a majority was heard for so long: a node that is cut off hears nobody, and knows less
    /// than those that it does not hear.
    pub fn unheard(&self) -> Vec<NodeId> {
        let me = self.node();
        let leader = self.leadership.borrow().leader.as_ref().map(|(id, _)| *id);
        let is_in_touch = self.leaderless_for().is_some_and(|lasts| lasts < UNHEARD);
        match leader {
            Some(leader) if is_in_touch && leader == me => {
                let members = self.network.addresses().members();
                self.lease.unheard(me, members)
            }
            Some(_) if is_in_touch => self.heard_leader.unheard_members(),
            _ => Vec::new(),
        }
    }

    /// This node follows a message of `leader` that arrived at `at`. False if it has followed one that arrived later.
    pub(in crate::consensus) fn heard_leader(&self, leader: NodeId, at: Instant) -> bool {
        self.network.peers.end_candidacy();
        self.heard_leader.note(leader, at)
    }

    /// For how long no leader was heard that had a majority: 0 while this node is one. Once it is one no more, the time counts
    /// from when a majority followed it last. A leader says that it has none after two seconds. `None` if no such leader was
    /// heard since this node started.
    pub fn leaderless_for(&self) -> Option<Duration> {
        let now = self.lease.now();
        // Not cloned: every message of a caller with a token comes here, and all of them would change one counter.
        let leads = self.leadership.borrow().own.as_ref().is_some_and(|own| own.is_valid(now));
        if leads {
            return Some(Duration::ZERO);
        }
        let last = self.heard_leader.majority_at().max(self.lease.followed_at());
        last.map(|at| now.since(at))
    }

    /// Hears that a leader knows of `version` changes of the principals.
    pub(in crate::consensus) fn hear_of_principals(&self, version: u64) {
        let own = self.view.principals().version();
        self.principals_lag.hear(version, own, || self.lease.now());
    }

    /// Whether this node has not heard for a second of changes of the principals of which a leader knows.
    /// It knows of `version` changes.
    pub fn lacks_changes_of_principals(&self, version: u64) -> bool {
        self.principals_lag.is_late(version, || self.lease.now())
    }

    /// The reading of the leader's wall clock, as far as this node knows it: milliseconds since 1970.
    pub fn leader_wall_ms(&self) -> u64 {
        let own = self.wall_ms();
        match self.leadership.borrow().own {
            Some(_) => own,
            None => own.saturating_add_signed(self.heard_leader.ahead_ms()),
        }
    }

    /// `leader` leads `term`, as it says itself. Raft tells who leads once the vote for it is on the disk of this node, and
    /// until then this node's callers would be without a leader.
    pub(in crate::consensus) fn hear_of_leader(&self, term: u64, leader: NodeId) {
        if !self.leadership.lacks_leader_of(term) {
            return;
        }
        let membership = self.metrics().membership_config;
        if let Some(member) = membership.membership().get_node(&leader).cloned() {
            self.leadership.hear_of(term, (leader, member));
        }
    }

    /// How this node came to lead `term`, if that was the last leader change to it.
    pub fn leader_change(&self, term: u64) -> Option<LeaderChange> {
        self.last_leader_change.of(term)
    }

    /// The instant that messages sent from now on are stamped with.
    pub fn now(&self) -> Instant {
        self.lease.now()
    }

    /// The reading of this node's wall clock: milliseconds since 1970.
    pub fn wall_ms(&self) -> u64 {
        self.lease.wall_ms()
    }

    /// True if this node belongs to a cluster.
    pub fn is_formed(&self) -> bool {
        if self.this_node.had_members() {
            return true;
        }
        let membership = self.metrics().membership_config;
        let has_members = membership.membership().nodes().next().is_some();
        if has_members {
            self.this_node.note_members();
        }
        has_members
    }

    /// Keeps the incarnation of a node that belongs to no cluster as it is while the result lives: a message for it must not
    /// reach Raft under another one. `None` if it belongs to a cluster.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the disk failed while the incarnation was written: no message is taken any more.
    pub(in crate::consensus) async fn keep_incarnation(
        &self,
    ) -> Result<Option<OwnedRwLockReadGuard<bool>>, StoreError> {
        if self.is_formed() {
            return Ok(None);
        }
        self.this_node.keep_incarnation().await.map(Some)
    }

    /// True if this node is the only voter.
    pub fn is_sole_voter(&self) -> bool {
        self.lease.quorums().is_sole(self.node())
    }

    /// The last log entry that this node has purged. A peer that lacks earlier ones needs a snapshot.
    pub fn purged_index(&self) -> Option<u64> {
        self.metrics().purged.map(|log_id| log_id.index)
    }

    /// The part of the log that is kept for peers that are sent snapshots.
    pub(in crate::consensus) fn log_holds(&self) -> &LogHolds {
        &self.network.peers.log_holds
    }

    /// Has Raft purge the log up to `up_to`, as far as its last snapshot covers that. If the snapshot covers less, Raft also
    /// takes another one, which writes nothing. `seen` is what Raft said last.
    ///
    /// # Errors
    /// If Raft has stopped.
    pub(in crate::consensus) async fn purge_log(
        &self, seen: &RaftMetrics<Types>, up_to: u64,
    ) -> Result<(), Fatal<Types>> {
        let purged = seen.purged.map_or(0, |purged| purged.index);
        // The log may grow by more than is kept between two checks.
        let covered = seen.snapshot.map_or(0, |snapshot| snapshot.index);
        let trigger = self.raft.trigger();
        if covered.min(up_to) > purged {
            trigger.purge_log(covered.min(up_to)).await?;
        }
        if covered < up_to {
            trigger.snapshot().await?;
        }
        Ok(())
    }

    /// Waits until an entry after `before` is applied on this node, or for `at_most`; not at all if Raft has stopped. Returns
    /// up to where entries are applied then.
    pub async fn more_is_applied(&self, before: Option<u64>, at_most: Duration) -> Option<u64> {
        let mut progress = self.raft.watch_apply_progress();
        let more = progress.wait_until(|applied| applied.as_ref().map(|id| id.index) > before);
        drop(tokio::time::timeout(at_most, more).await);
        progress.get().map(|id| id.index)
    }

    /// Raft's own view of the group.
    pub(in crate::consensus) fn metrics(&self) -> RaftMetrics<Types> {
        self.raft.metrics().borrow_watched().clone()
    }

    /// The latest term that Raft knows of.
    pub fn term(&self) -> u64 {
        self.raft.metrics().borrow_watched().vote.leader_id.term
    }

    /// The term that Raft itself leads at this moment.
    pub(super) async fn term_led_in_raft(&self) -> Result<Option<u64>, Fatal<Types>> {
        let me = self.node();
        let read = move |state: &RaftState<Types>| term_led(state.vote_ref(), me);
        self.raft.with_raft_state(read).await
    }

    /// Proposes a command in `term`, and waits until it is applied on this node.
    ///
    /// # Errors
    /// [`ProposeError::NotLeader`] if this node does not lead `term`: nothing was proposed.
    /// [`ProposeError::Unknown`] if the leadership was lost meanwhile: the command may have been applied,
    /// or may still be. [`ProposeError::Stopped`] if Raft has stopped.
    pub async fn propose(&self, term: u64, command: Command) -> Result<EntryOutcome, ProposeError> {
        let outcome = self.try_propose(term, command).await;
        if outcome.is_err() {
            self.set_metrics.proposals_failed.inc();
        }
        outcome
    }

    /// As [`Group::propose`], for a command that comes to one outcome.
    ///
    /// # Errors
    /// A text that says why it did not come to `expected`.
    pub async fn propose_for(
        &self, term: u64, command: Command, expected: &EntryOutcome,
    ) -> Result<(), String> {
        match self.propose(term, command).await {
            Ok(outcome) if outcome == *expected => Ok(()),
            Ok(outcome) => Err(format!("the answer was {outcome:?}, not {expected:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn try_propose(&self, term: u64, command: Command) -> Result<EntryOutcome, ProposeError> {
        let (responder, answer) =
            ProgressResponder::<Types, ClientWriteResult<Types>>::complete_only();
        self.raft
            .write(command)
            // Raft must not log the command in another term, even if this node leads that one as well.
            .with_leader(term)
            .responder(responder)
            .await
            .map_err(|e| ProposeError::Stopped(e.to_string()))?;
        match answer.await {
            Ok(Ok(written)) => Ok(written.data),
            Ok(Err(ClientWriteError::ForwardToLeader(_))) => Err(ProposeError::NotLeader(term)),
            Ok(Err(
                ClientWriteError::LogEntryDiscarded(_)
                | ClientWriteError::ChangeMembershipError(_)
                | ClientWriteError::PreconditionFailed(_),
            ))
            | Err(_) => Err(ProposeError::Unknown(term)),
        }
    }

    /// Becomes the reason once Raft has stopped on this node for good.
    pub fn stopped(&self) -> ordered_watch::Receiver<Option<Fault>> {
        self.ending.subscribe()
    }

    /// Makes the node stop, for a reason that it cannot get over.
    pub(in crate::consensus) fn stop_because(&self, reason: Fault) {
        self.lease.void();
        self.ending.note_stopped(reason);
    }

    /// The node is about to stop: its term may end without another one. It stands for election no more, nor takes the
    /// leadership over: with a vote for itself it would depose, after its restart, the node that leads by then.
    pub fn retire(&self) {
        self.ending.note_near();
    }

    /// True once the node is about to stop.
    pub(in crate::consensus) fn is_retiring(&self) -> bool {
        self.ending.is_near()
    }

    /// Stops Raft on this node.
    pub async fn stop(&self) {
        self.retire();
        self.lease.void();
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "Raft did not stop cleanly");
        }
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
