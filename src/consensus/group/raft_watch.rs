//! Follows what Raft says: begins and voids leases, publishes who leads, and ends terms that were given
//! up.
//!
//! Invariant: a change from leader to leader shows as a new term even if the states in between were not seen.

use std::{pin::pin, sync::Arc, time::Duration};

use openraft::{RaftMetrics, metrics::RaftServerMetrics};
use tokio::time::MissedTickBehavior;

use super::{group::Group, leadership::Leadership, quorums::quorums_of};
use crate::{
    consensus::lease::TermLease,
    storage::{Types, term_led},
    tasks::Fault,
};

/// A panic of Raft's core is waited for so long, in case that the core has gone without one.
const UNWINDING_MAX: Duration = Duration::from_secs(10);

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
        if is_gone && why.is_none() {
            until_panic_is_told(&group).await;
        }
        if let Some(why) = why.or(is_gone.then(|| "its core is gone".to_owned())) {
            group.stop_because(Fault::CannotGoOn(why));
            group.leadership.end();
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

/// Raft's core has panicked: its channels close while it unwinds, and the panic is told only afterwards. Waits for that, so
/// that the node ends with the panic as its reason.
async fn until_panic_is_told(group: &Group) {
    group.lease.void();
    let mut failed = group.this_node.tasks.failed();
    let _ = tokio::time::timeout(UNWINDING_MAX, failed.wait_for(Option::is_some)).await;
}

/// Whether nothing is followed but what `told` tells. Raft writes its metrics anew after each message, and so a task that waits
/// for them is woken by each heartbeat. Vote, state, leader and members it tells of only when they change, and then just before
/// it writes the metrics: `seen` may lag behind `told`, or the other way round.
fn is_settled(group: &Group, seen: &RaftMetrics<Types>, told: &RaftServerMetrics<Types>) -> bool {
    let is_in_step = seen.vote == told.vote
        && seen.state == told.state
        && seen.current_leader == told.current_leader
        && seen.membership_config == told.membership_config;
    // It is followed as well that entries are applied: the membership's, and the first one of a term that is led.
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
    let now = Leadership {
        term,
        leader: seen.current_leader.and_then(|leader| {
            let member = membership.get_node(&leader)?;
            Some((leader, member.clone()))
        }),
        own: lease.clone().filter(|_| applied_own_term && !is_given_up),
    };
    if let Some(own) = &now.own
        && group.last_leader_change.of(own.term()).is_none()
    {
        let (heard, stood) = (group.leader_heard(), group.network.peers.end_candidacy());
        group.last_leader_change.record(own, heard, stood, group.now());
    }
    group.leadership.follow(now);
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
