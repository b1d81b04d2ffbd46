//! Follows what Raft says: begins and voids leases, publishes who leads, and ends terms that were given
//! up.
//!
//! Invariant: what is published is ordered by term. A change from leader to leader shows as a new term
//! even if the states in between were not seen.

use std::sync::Arc;

use openraft::RaftMetrics;

use super::{
    group::Group,
    leadership::Leadership,
    raft_state::{quorums_of, term_led},
};
use crate::{consensus::lease::TermLease, storage::Types};

/// Watches until Raft stops.
pub async fn watch(group: Arc<Group>) {
    let mut metrics = group.raft.metrics();
    loop {
        let seen = metrics.borrow_and_update().clone();
        if let Err(reason) = &seen.running_state {
            group.stop_because(reason.to_string());
            group.leadership.send_replace(Leadership::default());
            return;
        }
        group.voters.follow(&seen);
        let lease = follow_leadership(&group, &seen);
        if let Some(lease) = &lease {
            stop_if_stuck(&group, lease, &seen).await;
        }
        let given_up = async {
            match &lease {
                Some(lease) if !lease.is_void() => lease.wait_until(TermLease::is_void).await,
                Some(_) | None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = metrics.changed() => if changed.is_err() {
                group.stop_because("its core is gone".to_owned());
                return;
            },
            () = given_up => {}
        }
    }
}

/// Begins or voids the lease, and publishes who leads. Returns the lease of the term that this node leads,
/// if it leads.
fn follow_leadership(group: &Group, seen: &RaftMetrics<Types>) -> Option<Arc<TermLease>> {
    let term = seen.vote.leader_id.term;
    let leads = seen.state.is_leader() && term_led(&seen.vote, group.node()).is_some();
    let membership = seen.membership_config.membership();
    group.network.follow(&seen.membership_config);
    let in_force = quorums_of(&seen.membership_config);
    let lease = leads.then(|| group.lease.begin(term, in_force));
    if lease.is_none() {
        group.lease.void();
    }
    // A term that was given up must end, because nobody can take numbers in it any more. Its followers
    // elect another leader when they no longer hear from this one.
    let given_up = lease.as_ref().is_some_and(|lease| lease.is_void());
    group.raft.runtime_config().heartbeat(!given_up);

    let applied_own_term =
        seen.last_applied.as_ref().is_some_and(|id| id.committed_leader_id().term == term);
    let now = Leadership {
        term,
        leader: seen.current_leader.and_then(|leader| {
            let member = membership.get_node(&leader)?;
            Some((leader, member.clone()))
        }),
        own: lease.clone().filter(|lease| applied_own_term && !lease.is_void()),
    };
    if let Some(own) = &now.own
        && group.last_takeover.of(own.term()).is_none()
    {
        let (heard, stood) = (group.leader_heard(), group.network.candidacy().end());
        group.last_takeover.record(own, heard, stood, group.now());
    }
    group.leadership.send_if_modified(|before| {
        let changed = !before.same_as(&now);
        if changed {
            *before = now;
        }
        changed
    });
    lease
}

/// Stops the node if it is the only voter and its term was given up: nobody else can be elected, and Raft
/// holds no election while it leads.
async fn stop_if_stuck(group: &Group, lease: &TermLease, seen: &RaftMetrics<Types>) {
    let is_sole = quorums_of(&seen.membership_config).is_sole(group.node());
    if !lease.is_void() || !is_sole || group.is_retiring() {
        return;
    }
    // If Raft itself has stopped, the reason is told elsewhere. If Raft has left the term, another one can
    // begin.
    let stuck = group.term_led_in_raft().await == Ok(Some(lease.term()));
    if stuck && !group.is_retiring() {
        group.stop_because(
            "this node gave its term up, and is the only voter: another term begins when it is \
             started again"
                .to_owned(),
        );
    }
}
