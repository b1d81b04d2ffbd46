//! Who belongs to the group: founding it, adding, promoting and removing nodes, and how far each is.
//!
//! Invariant: from before a membership is proposed until it is known to be in force, the leader's
//! lease needs the majority of the new voters as well.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Release},
    },
    time::Duration,
};

use openraft::{
    ChangeMembers, RaftMetrics, ServerState,
    async_runtime::watch::WatchReceiver,
    errors::{ClientWriteError, RaftError},
    raft::Precondition,
};

use super::{
    group::{Group, ProposeError, refused, term_led},
    lease::{Quorums, Silence},
};
use crate::{
    clock::Instant,
    sequence::NodeId,
    storage::{Member, Membership, StoreError, StoredMembership, Types},
    watch,
};

/// A voter that is further behind has not caught up.
const LAG_ENTRIES_MAX: u64 = 1_000;

/// What is known of one node.
#[derive(Debug, Clone)]
pub struct NodeState {
    /// Which.
    pub id: NodeId,
    /// Where it is.
    pub member: Member,
    /// Whether it votes.
    pub voter: bool,
    /// What it does.
    pub role: Role,
    /// Its last log entry: of this node, or known to be on the disk of a follower of this node.
    pub log_index: Option<u64>,
    /// The last entry that it applied; known of this node alone.
    pub applied_index: Option<u64>,
    /// For how long it has not been heard; known of the others, where this node leads.
    pub silence: Option<Silence>,
}

/// How far this node's log is; `None` for no entry.
#[derive(Debug, Clone, Copy)]
pub struct LogState {
    /// Its last entry.
    pub last: Option<u64>,
    /// The last entry that it knows to be committed.
    pub committed: Option<u64>,
    /// The last entry that it applied.
    pub applied: Option<u64>,
}

/// The voters of a membership that is committed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Voters {
    /// 1 + the index of the membership's log entry, the same on all nodes; 0 while none is known.
    pub version: u64,
    /// Where they are; of two memberships while one takes the other's place.
    pub members: BTreeMap<NodeId, Member>,
}

/// What a node does in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Leader,
    /// It votes and follows.
    Follower,
    /// It stands for election.
    Candidate,
    /// It receives the log and does not vote.
    Learner,
}

impl Group {
    /// Founds the cluster with these voters. Called once, on one node.
    ///
    /// # Errors
    /// [`StoreError`] if this node already belongs to a cluster.
    pub async fn found(&self, members: BTreeMap<NodeId, Member>) -> Result<(), StoreError> {
        self.raft
            .initialize(members)
            .await
            .map_err(|e| StoreError::invalid(format!("the cluster cannot be founded: {e}")))
    }

    /// The members: node, where it is, whether it votes.
    pub fn members(&self) -> BTreeMap<NodeId, (Member, bool)> {
        let membership = self.metrics().membership_config;
        let voters: BTreeSet<NodeId> = membership.membership().voter_ids().collect();
        membership
            .membership()
            .nodes()
            .map(|(&id, member)| (id, (member.clone(), voters.contains(&id))))
            .collect()
    }

    /// The voters as of the last membership that is applied here, now and from now on.
    pub fn voters(&self) -> watch::Receiver<Voters> {
        self.voters.subscribe()
    }

    /// The version of [`Group::voters`]: one atomic load.
    pub fn voters_version(&self) -> u64 {
        self.voters_version.load(Acquire)
    }

    /// Follows what Raft says of the voters. A membership counts once it is applied: an earlier one may
    /// yet be replaced by a later leader's at the same index.
    pub(super) fn follow_voters(&self, seen: &RaftMetrics<Types>) {
        let membership = &seen.membership_config;
        let index = membership.log_id().as_ref().map(|id| id.index);
        let applied = seen.last_applied.as_ref().map(|id| id.index);
        let version = index.map_or(0, |index| index + 1);
        if index > applied || version <= self.voters_version() {
            return;
        }
        let voters = membership.membership().voter_ids();
        let members = voters.filter_map(|id| {
            let member = membership.membership().get_node(&id)?;
            Some((id, member.clone()))
        });
        let members = members.collect();
        self.voters.send_replace(Voters { version, members });
        self.voters_version.store(version, Release);
    }

    /// What this node knows of every member.
    pub fn nodes(&self) -> Vec<NodeState> {
        let metrics = self.metrics();
        let replicated = |id: &NodeId| {
            let progress = metrics.replication.as_ref()?.get(id)?;
            progress.as_ref().map(|log_id| log_id.index)
        };
        self.members()
            .into_iter()
            .map(|(id, (member, voter))| {
                let mine = id == self.node();
                let role = match metrics.state {
                    _ if metrics.current_leader == Some(id) => Role::Leader,
                    ServerState::Candidate if mine => Role::Candidate,
                    _ if voter => Role::Follower,
                    _ => Role::Learner,
                };
                NodeState {
                    id,
                    silence: self.lease.silence(id).filter(|_| !mine),
                    member,
                    voter,
                    role,
                    log_index: if mine {
                        metrics.last_log_index
                    } else {
                        replicated(&id)
                    },
                    applied_index: metrics
                        .last_applied
                        .as_ref()
                        .filter(|_| mine)
                        .map(|log_id| log_id.index),
                }
            })
            .collect()
    }

    /// How far this node's log is.
    pub fn log_state(&self) -> LogState {
        let metrics = self.metrics();
        LogState {
            last: metrics.last_log_index,
            committed: metrics.local_committed.map(|log_id| log_id.index),
            applied: metrics.last_applied.map(|log_id| log_id.index),
        }
    }

    /// The voter to hand the leadership of `term` to: one that was heard within a lease, with the
    /// longest log. Asked for `wanted`, that one or why not.
    ///
    /// # Errors
    /// [`ProposeError::Refused`] with the reason.
    pub fn successor(&self, term: u64, wanted: Option<NodeId>) -> Result<NodeId, ProposeError> {
        let now = self.lease.now();
        let heard = |id: NodeId| {
            self.lease
                .last_credit(term, id)
                .is_some_and(|sent| now.since(sent) < self.follower_lease())
        };
        let others = self
            .nodes()
            .into_iter()
            .filter(|node| node.id != self.node());
        let candidates: Vec<NodeState> = others
            .filter(|node| wanted.is_none_or(|wanted| wanted == node.id))
            .collect();
        let refuse = |why: String| Err(ProposeError::Refused(why));
        match (wanted, candidates.first()) {
            (Some(wanted), None) => return refuse(format!("node {wanted} is not a member")),
            (Some(wanted), Some(node)) if !node.voter => {
                return refuse(format!(
                    "node {wanted} is a learner; promote it first: ratchet node promote {wanted}"
                ));
            }
            (Some(wanted), Some(_)) if !heard(wanted) => {
                return refuse(format!(
                    "node {wanted} does not answer; see ratchet status, then choose another node"
                ));
            }
            _ => {}
        }
        candidates
            .into_iter()
            .filter(|node| node.voter && heard(node.id))
            .max_by_key(|node| node.log_index)
            .map(|node| node.id)
            .ok_or_else(|| {
                ProposeError::Refused(
                    "no other voter answers; there is nobody to lead instead".into(),
                )
            })
    }

    /// Changes the membership: one change at a time, and to its end, whether or not the caller
    /// waits for it. With `unless_unfit` it is refused as by [`Group::check_voters_after`].
    ///
    /// # Errors
    /// [`ProposeError`]. After a failure on the way a voter may have been added or removed halfway
    /// (both majorities count then): asked for again, the change is completed.
    pub async fn change(
        self: &Arc<Self>,
        term: u64,
        change: MembershipChange,
        unless_unfit: Option<Instant>,
    ) -> Result<(), ProposeError> {
        let changing = tokio::spawn(self.clone().change_alone(term, change, unless_unfit));
        changing
            .await
            .map_err(|e| ProposeError::Stopped(e.to_string()))?
    }

    /// The instant that messages sent from now on are stamped with.
    pub fn now(&self) -> Instant {
        self.lease.now()
    }

    /// How long a follower keeps out of elections after it heard of a leader.
    pub(super) fn follower_lease(&self) -> Duration {
        Duration::from_millis(self.config().election_timeout_ms)
    }

    /// The last log entry that this node has purged; what lies before comes by snapshot alone.
    pub fn purged_index(&self) -> Option<u64> {
        self.metrics().purged.map(|log_id| log_id.index)
    }

    /// Whether this node is the one and only voter.
    pub fn is_sole_voter(&self) -> bool {
        self.lease.quorums().is_sole(self.node())
    }

    /// Proposes a change, and keeps the lease within what may come into force.
    ///
    /// A membership is in force for Raft the moment that it stands in this leader's log, committed
    /// or not. The lease must need its majority from then on, or a majority of the new voters could
    /// elect a successor while the old one still answers. In any order of events it does:
    ///
    /// * *Before.* The membership that Raft acts on is read from Raft itself, not from what a
    ///   watcher saw of it, and Raft proposes only if it still is the one
    ///   (`Precondition::LastMembershipLogId`). The voters that follow from it count before the
    ///   proposal is made.
    /// * *On the way.* Raft puts a joint membership into the log, made of the old voters and the
    ///   new, then the new voters alone. The lease needs a majority of either, more than each of
    ///   these.
    /// * *Done, or definitely refused* ([`is_definite`]): whatever was proposed stands in the log by
    ///   then, or never will. Again Raft is asked for the membership that it acts on: the new one,
    ///   the old one, or, if the second step was refused, the joint one. No other can come into
    ///   force, since `changing` is held. That one alone counts from here.
    /// * *Unknown*, or this node leads no longer: the proposed voters go on counting, until another
    ///   change reads what is in force, or another term begins (it reads its log anew).
    /// * The watcher of Raft's metrics may bring an older membership later. Within a term the lease
    ///   follows only to a later log index, and a leader's log only grows.
    async fn change_alone(
        self: Arc<Self>,
        term: u64,
        change: MembershipChange,
        unless_unfit: Option<Instant>,
    ) -> Result<(), ProposeError> {
        // Whoever waited here could be gone long before it is its turn.
        let _one_at_a_time = self.changing.try_lock().map_err(|_| {
            let why = "another membership change is under way; ask again when it is done";
            ProposeError::Refused(why.to_owned())
        })?;
        let before = self.in_force(term).await?;
        change.check(before.membership())?;
        if let Some(asked) = unless_unfit {
            // It may have been checked while another change was under way.
            let fit = self.check_voters_after(term, &change, asked);
            fit.map_err(|unfit| ProposeError::Refused(unfit.to_string()))?;
        }
        let voters = change.voters_after(before.membership());
        self.lease.propose(Quorums::of(&before), voters);
        let unless_changed = [
            Precondition::CommittedLeaderId {
                committed_leader_id: term.into(),
            },
            Precondition::LastMembershipLogId {
                last_membership_log_id: *before.log_id(),
            },
        ];
        let written = self
            .raft
            .change_membership_if(change.into_raft(before.membership()), false, unless_changed)
            .await;
        if written.as_ref().err().is_none_or(is_definite)
            && let Ok(now) = self.in_force(term).await
        {
            self.lease.settle(Quorums::of(&now));
        }
        let written = written.map_err(|e| refused(term, e))?;
        // Whoever asks this node for its members from now on shall see the change.
        let index = written.log_id.index;
        let seen = |metrics: &RaftMetrics<Types>| {
            let log_id = metrics.membership_config.log_id();
            log_id.is_some_and(|id| id.index >= index)
        };
        match self.raft.metrics().wait_until(seen).await {
            Ok(_) => Ok(()),
            Err(error) => Err(ProposeError::Stopped(error.to_string())),
        }
    }

    /// Refuses a change of the voters after which no majority would be there to go on: the change
    /// itself might still be committed, and nothing after it. Whoever did not answer a message that
    /// was sent after `asked` (by the clock of [`Group::now`]) is not there.
    ///
    /// # Errors
    /// No majority of the voters that there would be was heard since, or has caught up; or who is
    /// promoted was not, or has not.
    pub fn check_voters_after(
        &self,
        term: u64,
        change: &MembershipChange,
        asked: Instant,
    ) -> Result<(), Unfit> {
        let metrics = self.metrics();
        let voters = change.voters_after(metrics.membership_config.membership());
        let last = metrics.last_log_index.unwrap_or(0);
        let now = self.lease.now();
        let mut unfit = Unfit {
            why: Vec::new(),
            silent: false,
        };
        let fit: BTreeSet<NodeId> = voters
            .iter()
            .copied()
            .filter(|&id| {
                if id == self.node() {
                    return true;
                }
                let heard = self.lease.last_credit(term, id);
                if heard.is_none_or(|heard| heard < asked) {
                    unfit.silent = true;
                    unfit.why.push(match heard {
                        Some(at) => format!("node {id} was last heard {:.1?} ago", now.since(at)),
                        None => format!("node {id} was not heard in this term"),
                    });
                    return false;
                }
                let progress = metrics.replication.as_ref().and_then(|all| all.get(&id));
                let has = progress.and_then(|at| at.as_ref().map(|at| at.index));
                let behind = last.saturating_sub(has.unwrap_or(0));
                if behind > LAG_ENTRIES_MAX || (has.is_none() && last > 0) {
                    unfit
                        .why
                        .push(format!("node {id} is {behind} log entries behind"));
                    return false;
                }
                true
            })
            .collect();
        let promoted_is_fit = match change {
            MembershipChange::Promote(id) => fit.contains(id),
            _ => true,
        };
        if promoted_is_fit && (voters.is_empty() || Quorums::new([voters]).agree(&fit)) {
            return Ok(());
        }
        Err(unfit)
    }

    /// The membership that Raft acts on at this moment, as the leader of `term`.
    async fn in_force(&self, term: u64) -> Result<StoredMembership, ProposeError> {
        let me = self.node();
        let read = self.raft.with_raft_state(move |state| {
            let leads = term_led(state.vote_ref(), me) == Some(term);
            leads.then(|| state.membership_state.effective().as_ref().clone())
        });
        read.await
            .map_err(|e| ProposeError::Stopped(e.to_string()))?
            .ok_or(ProposeError::NotLeader(term))
    }
}

/// Why the voters that there would be could not go on.
#[derive(Debug, Clone)]
pub struct Unfit {
    /// Who does not answer or lags.
    why: Vec<String>,
    /// Whether somebody among them does not answer.
    pub silent: bool,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a majority of the voters that there would be, and whoever is promoted, must answer \
             and be at most {LAG_ENTRIES_MAX} log entries behind, but {}. Bring them back, wait \
             until they have caught up, or remove them first; see ratchet status. --force changes \
             the membership all the same: if they do not come back then, the cluster hands out \
             nothing any more, until ratchet recover makes another one of what is left",
            self.why.join(", ")
        )
    }
}

/// What an operator can change of a membership.
#[derive(Debug, Clone)]
pub enum MembershipChange {
    /// A new node, as a learner.
    Add(NodeId, Member),
    /// A learner becomes a voter.
    Promote(NodeId),
    /// A node goes, voter or learner; not the leader.
    Remove(NodeId),
    /// A member is found elsewhere.
    Move(NodeId, Member),
}

impl MembershipChange {
    /// Refuses a change that was asked for when the membership was another one.
    fn check(&self, now: &Membership) -> Result<(), ProposeError> {
        let known = |id| now.get_node(id);
        let why = match self {
            MembershipChange::Add(id, _) if known(id).is_some() => {
                format!("node {id} has become a member meanwhile; see ratchet status")
            }
            MembershipChange::Move(id, there)
                if known(id).is_none_or(|known| known.incarnation != there.incarnation) =>
            {
                format!("node {id} has been removed or replaced meanwhile; see ratchet status")
            }
            // What Raft refuses by itself.
            MembershipChange::Add(..)
            | MembershipChange::Move(..)
            | MembershipChange::Promote(_)
            | MembershipChange::Remove(_) => return Ok(()),
        };
        Err(ProposeError::Refused(why))
    }

    /// The voters once it is done. A change that was left halfway is completed by the next one:
    /// what counts of a joint membership is its last set.
    pub fn voters_after(&self, now: &Membership) -> BTreeSet<NodeId> {
        let mut voters = now.get_joint_config().last().cloned().unwrap_or_default();
        match self {
            MembershipChange::Promote(id) => voters.insert(*id),
            MembershipChange::Remove(id) => voters.remove(id),
            MembershipChange::Add(..) | MembershipChange::Move(..) => false,
        };
        voters
    }

    fn into_raft(self, now: &Membership) -> ChangeMembers<NodeId, Member> {
        let votes = |id: &NodeId| now.voter_ids().any(|voter| voter == *id);
        match self {
            MembershipChange::Add(id, member) => {
                ChangeMembers::AddNodes(BTreeMap::from([(id, member)]))
            }
            MembershipChange::Promote(id) => ChangeMembers::AddVoterIds(BTreeSet::from([id])),
            MembershipChange::Remove(id) if votes(&id) => {
                ChangeMembers::RemoveVoters(BTreeSet::from([id]))
            }
            MembershipChange::Remove(id) => ChangeMembers::RemoveNodes(BTreeSet::from([id])),
            // Safe: it is the same node with the same data directory, as the caller has checked.
            MembershipChange::Move(id, member) => {
                ChangeMembers::SetNodes(BTreeMap::from([(id, member)]))
            }
        }
    }
}

/// Whether a failed change left nothing on its way: Raft checks the leadership, the preconditions
/// and the membership before it writes an entry, and answers these errors from there alone (the
/// first step or the second). Of an entry that was written it says `LogEntryDiscarded` where it was
/// replaced, and of all that was under way it says `Fatal` where Raft stopped.
fn is_definite(error: &RaftError<Types, ClientWriteError<Types>>) -> bool {
    match error {
        RaftError::APIError(
            ClientWriteError::ForwardToLeader(_)
            | ClientWriteError::ChangeMembershipError(_)
            | ClientWriteError::PreconditionFailed(_),
        ) => true,
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) | RaftError::Fatal(_) => false,
    }
}
