//! Makes this node stand for election soon after its promise to a silent leader has ended, and again, at random times,
//! until somebody leads.
//!
//! `turns` says when it is this node's turn, and `candidacy` when it stands, in its turn or at a random time. Whether it may
//! stand, and who is elected, Raft decides: it refuses while this node's own promise lasts, it asks a majority first whether
//! they would vote (pre-vote), and it gives up when it hears the leader meanwhile. Raft's own timer is off. It would begin
//! another term whenever votes take longer than an election timeout to the disks, and each term is two more writes to each.
//!
//! Invariant: an election is started only as a pre-vote. The other kind ignores this node's promise.

mod candidacy;
mod turns;

use std::sync::Arc;

use self::{candidacy::Candidacy, turns::ElectionTurns};
use super::group::Group;

/// Watches until Raft stops.
pub async fn watch(group: Arc<Group>) {
    let turns = ElectionTurns::new(&group.config);
    let mut candidacy = Candidacy::new(&group);
    let (mut metrics, mut server) = (group.raft.metrics(), group.raft.server_metrics());
    let mut stopped = group.stopped();
    loop {
        let told = server.borrow_and_update().clone();
        let seen = metrics.borrow_and_update().clone();
        // Raft tells its state and its vote twice, one after the other, whenever they change. Between the two, one lags.
        let is_settled = seen.state == told.state && seen.vote == told.vote;
        let leads = told.state.is_leader() && is_settled;
        let heard = group.heard_leader.last();
        let due = candidacy.due(&group, &turns, &seen, heard);
        // It looks again after one promise: a leader that is heard meanwhile has not been silent for so long then.
        let look = group.config.promise_time();
        tokio::select! {
            biased;
            _ = stopped.wait_for(Option::is_some) => return,
            // Before this node belongs to a cluster nothing changes for long, and then it is to stand at once.
            changed = metrics.changed(), if !group.is_formed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            // A leader does not stand. Nothing else is to be noticed until it leads no more.
            changed = server.changed(), if leads => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            () = tokio::time::sleep(due.unwrap_or(look).min(look)), if !leads => {}
        }
        if group.is_retiring() {
            return;
        }
        let is_due = due.is_some_and(|due| due <= look);
        let has_changed =
            || group.heard_leader.last() != heard || group.metrics().vote != seen.vote;
        if !is_due || has_changed() {
            continue;
        }
        candidacy.begin(group.now());
        tracing::debug!("no leader is heard: standing for election");
        let stands = group.canvass(seen.vote).await;
        if group.is_retiring() {
            return;
        }
        if stands && !has_changed() && group.raft.trigger().elect(true).await.is_err() {
            // Raft has stopped. The watch over it says why.
            return;
        }
    }
}
