//! Makes this node stand for election soon after its promise to a silent leader has ended.
//!
//! Raft would do so by itself, half an election timeout to a whole one later. This file only says when. Whether
//! the node may stand, and who is elected, Raft decides as ever: it refuses while this node's own promise lasts,
//! it asks a majority first whether they would vote (pre-vote), and it gives up when it hears the leader meanwhile.
//!
//! Invariant: an election is started only as a pre-vote. The other kind ignores this node's promise.

use std::{sync::Arc, time::Duration};

use super::{
    election_turns::{ElectionTurns, Place},
    group::Group,
    raft_state::term_led,
};
use crate::{clock::Instant, sequence::NodeId};

/// Watches until Raft stops.
pub async fn watch(group: Arc<Group>) {
    let turns = ElectionTurns::new(group.config());
    let mut stopped = group.stopped();
    loop {
        let heard = group.leader_heard.last();
        let next = heard.and_then(|heard| until_next_turn(&group, &turns, heard));
        // Without a turn in sight it looks again after one promise: a leader that is heard meanwhile has not
        // been silent for so long then.
        let wait = next.unwrap_or(group.follower_lease());
        tokio::select! {
            biased;
            _ = stopped.wait_for(Option::is_some) => return,
            () = tokio::time::sleep(wait) => {}
        }
        if group.is_retiring() {
            return;
        }
        if next.is_none() || group.leader_heard.last() != heard || !follows(&group, heard) {
            continue;
        }
        tracing::debug!("the leader is silent: standing for election");
        if group.raft.trigger().elect(true).await.is_err() {
            // Raft has stopped. The watch over it says why.
            return;
        }
    }
}

/// How long it is until this node's next turn, if it has one.
fn until_next_turn(
    group: &Group, turns: &ElectionTurns, (leader, at): (NodeId, Instant),
) -> Option<Duration> {
    let seen = group.metrics();
    let voters = seen.membership_config.membership().voter_ids().collect();
    let place = Place::of(group.node(), leader, &voters)?;
    turns.until_next(place, group.now().since(at))
}

/// True if this node's vote is still with the leader that it heard. It is not once the node leads, or has voted
/// for a candidate: that election takes the time that it takes, and another one would void its votes.
fn follows(group: &Group, heard: Option<(NodeId, Instant)>) -> bool {
    let vote = group.metrics().vote;
    heard.is_some_and(|(leader, _)| term_led(&vote, leader).is_some())
}
