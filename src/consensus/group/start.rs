//! The course of a group: it starts, and follows what Raft says.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64},
    },
    time::Duration,
};

use openraft::{Raft, RaftMetrics, metrics::RaftServerMetrics};
use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;

use super::{
    config::GroupConfig,
    election,
    group::{Group, quorums_of, term_led},
    leadership::{AppliedVoters, LastTakeover, Leadership},
};
use crate::{
    clock::Clock,
    consensus::{
        lease::{LeaseClock, TermLease},
        network::{Network, Sender, Transport},
        state_machine::StateMachine,
        this_node::ThisNode,
    },
    metrics::Metrics,
    ordered_watch,
    planted_bugs::{Bug, is_planted},
    storage::{LogStore, StoreError, Types},
    tasks::Fault,
};

impl Group {
    /// Starts the group on `this_node`. If its store holds a vote, the caller has kept silent for one follower lease.
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
        let sender = Arc::new(Sender {
            this_node: this_node.clone(),
            set: config.set,
            election_timeout_ms: config.election_timeout_ms,
        });
        let set_metrics = metrics.of_set(config.set);
        let network = Network::new(
            sender,
            transport,
            lease.clone(),
            set_metrics.clone(),
            config.snapshot_bytes_per_second,
        );
        let log = LogStore::open(&this_node.store, config.set)?;
        let machine = StateMachine::open(&this_node.store, config.set)?;
        let view = machine.view();
        network.peers.tell_principals_of(view.clone());
        let raft_config = Arc::new(config.to_raft(&this_node.cluster)?);
        let raft = Raft::new(this_node.id, raft_config, network.clone(), log, machine);
        // What Raft spawns while it starts belongs to the node, too.
        let raft = this_node.tasks.watched("raft", raft).await.map_err(not_started)?;
        if raft.is_initialized().await.map_err(not_started)? {
            this_node.note_members();
        }
        let group = Arc::new(Group {
            this_node,
            config,
            raft,
            lease,
            network,
            set_metrics,
            view,
            leadership: ordered_watch::Sender::default(),
            voters: AppliedVoters::default(),
            stopped: ordered_watch::Sender::default(),
            retiring: AtomicBool::new(false),
            membership_change: tokio::sync::Mutex::default(),
            leader_heard: Mutex::default(),
            unheard: Mutex::default(),
            leader_ahead_ms: AtomicI64::default(),
            principals_told: AtomicU64::new(0),
            principals_lacked_since: AtomicU64::new(0),
            last_takeover: LastTakeover::default(),
            snapshots_begun: AtomicU64::new(0),
            canvassed_term: AtomicU64::new(0),
        });
        let watching = watch(group.clone());
        group.this_node.tasks.spawn("the watch over raft", watching);
        let standing = election::watch(group.clone());
        group.this_node.tasks.spawn("standing for election", standing);
        Ok(group)
    }
}

fn not_started(error: impl std::fmt::Display) -> StoreError {
    StoreError::invalid(format!("Raft does not start: {error}"))
}

// Follows what Raft says: begins and voids leases, publishes who leads, and ends terms that were given
// up.
//
// Invariant: what is published is ordered by term. A change from leader to leader shows as a new term
// even if the states in between were not seen.

/// Watches until Raft stops, and has it send heartbeats while this node leads.
pub async fn watch(group: Arc<Group>) {
    let (mut metrics, mut server) = (group.raft.metrics(), group.raft.server_metrics());
    let mut is_gone = false;
    let mut beats = tokio::time::interval(Duration::from_millis(group.config.heartbeat_ms));
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ended = None;
    loop {
        let told = server.borrow_and_update().clone();
        let seen = metrics.borrow_and_update().clone();
        let why = seen.running_state.as_ref().err().map(ToString::to_string);
        if let Some(why) = why.or(is_gone.then(|| "its core is gone".to_owned())) {
            group.stop_because(Fault::CannotGoOn(why));
            group.leadership.send_replace(Leadership::default());
            return;
        }
        group.voters.follow(&seen);
        let (lease, is_given_up) = follow_leadership(&group, &seen);
        let is_settled = is_settled(&group, &seen, &told);
        if let Some(lease) = lease.as_ref().filter(|_| is_given_up) {
            stop_if_stuck(&group, lease, &seen).await;
            if ended.replace(lease.term()) != Some(lease.term()) {
                let ending = group.clone().end_term(lease.clone());
                group.this_node.tasks.spawn("ending a term", ending);
            }
        }
        let given_up = async {
            match &lease {
                // At once, if it was given up since it was followed.
                Some(lease) if !is_given_up => lease.until_void().await,
                Some(_) | None => std::future::pending().await,
            }
        };
        // Also before its own vote is on the disk, and the lease can begin.
        let beats_now = seen.state.is_leader() && !is_given_up;
        let mut given_up = pin!(given_up);
        loop {
            tokio::select! {
                biased;
                // First: under load an entry of this term may be long in coming, and the metrics change all the time.
                _ = beats.tick(), if beats_now => {
                    // If Raft has stopped, the metrics say so.
                    let _ = group.raft.trigger().heartbeat().await;
                }
                changed = server.changed() => {
                    is_gone = changed.is_err();
                    break;
                }
                changed = metrics.changed(), if !is_settled => {
                    is_gone = changed.is_err();
                    break;
                }
                () = &mut given_up => break,
            }
        }
    }
}

/// Whether nothing is followed but what `told` tells. Raft writes its metrics anew after each message, and so whoever waits for
/// them is woken by each heartbeat. Vote, state, leader and members it tells of only when they change, and then just before it
/// writes the metrics: `seen` may lag behind `told`, or the other way round.
fn is_settled(group: &Group, seen: &RaftMetrics<Types>, told: &RaftServerMetrics<Types>) -> bool {
    let is_in_step = seen.vote == told.vote
        && seen.state == told.state
        && seen.current_leader == told.current_leader
        && seen.membership_config == told.membership_config;
    // What else is followed is that entries are applied: the membership's, and the first one of a term that is led.
    let membership = seen.membership_config.log_id().as_ref().map(|id| id.index);
    let is_applied = |index| seen.last_applied.as_ref().map(|id| id.index) >= index;
    let has_own = || group.leadership.borrow().own.is_some();
    is_in_step && is_applied(membership) && (!seen.state.is_leader() || has_own())
}

/// Begins or voids the lease, and publishes who leads. Returns the lease of the term that this node leads,
/// if it leads, and whether it was found to be given up.
fn follow_leadership(group: &Group, seen: &RaftMetrics<Types>) -> (Option<Arc<TermLease>>, bool) {
    let term = seen.vote.leader_id.term;
    let leads = seen.state.is_leader() && term_led(&seen.vote, group.node()).is_some();
    let membership = seen.membership_config.membership();
    group.network.follow(&seen.membership_config);
    let in_force = quorums_of(&seen.membership_config);
    let lease = leads.then(|| group.lease.begin(term, in_force));
    if lease.is_none() {
        group.lease.void();
    }
    // A term that was given up must end, because nobody can take numbers in it any more (`Group::end_term`). Its
    // followers elect another leader, too, when they no longer hear from this one.
    let is_given_up = lease.as_ref().is_some_and(|lease| lease.is_void());

    let applied_own_term =
        seen.last_applied.as_ref().is_some_and(|id| id.committed_leader_id().term == term);
    if applied_own_term {
        group.lease.committed(term);
    }
    let mut now = Leadership {
        term,
        leader: seen.current_leader.and_then(|leader| {
            let member = membership.get_node(&leader)?;
            Some((leader, member.clone()))
        }),
        own: lease.clone().filter(|_| applied_own_term && !is_given_up),
    };
    if let Some(own) = &now.own
        && group.last_takeover.of(own.term()).is_none()
    {
        let (heard, stood) = (group.leader_heard(), group.network.peers.candidacy.lock().take());
        group.last_takeover.record(own, heard, stood, group.now());
    }
    group.leadership.send_if_modified(|before| {
        // A leader that was heard is known before Raft follows it (`hear_of_leader`). A term has one leader.
        if before.term > now.term {
            return false;
        }
        if before.term == now.term && now.leader.is_none() {
            now.leader = before.leader.clone();
        }
        let changed = *before != now;
        if changed {
            *before = now;
        }
        changed
    });
    (lease, is_given_up)
}

/// Stops the node if it is the only voter, now that its term was given up: nobody else can be elected, and Raft
/// holds no election while it leads.
async fn stop_if_stuck(group: &Group, lease: &TermLease, seen: &RaftMetrics<Types>) {
    let is_sole = quorums_of(&seen.membership_config).is_sole(group.node());
    if !is_sole || group.is_retiring() {
        return;
    }
    // If Raft itself has stopped, the reason is told elsewhere. If Raft has left the term, another one can
    // begin.
    let stuck = group.term_led_in_raft().await == Ok(Some(lease.term()));
    if stuck && !group.is_retiring() {
        group.stop_because(Fault::NeedsRestart(
            "this node gave its term up, and is the only voter: another term begins when it is \
             started again"
                .to_owned(),
        ));
    }
}
