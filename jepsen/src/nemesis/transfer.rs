//! Leaders that hand over.

use std::time::Duration;

use super::{
    fault::{Begun, Wound},
    injector::Stage,
    members::CHANGING,
};
use crate::{network::Link, proto::TransferLeadershipRequest};

/// Longer than it takes to elect a leader that is told to stand, shorter than a message may take.
const HEARD_LATE: Duration = Duration::from_millis(25);

impl Stage {
    pub(super) async fn transfer(&mut self) -> Begun {
        let (leader, to) = (self.leader(), self.follower());
        let asked = self.any();
        let mut client = self.cluster.client(asked);
        let request = TransferLeadershipRequest {
            to: Some(u64::from(to)),
        };
        let answer = tokio::time::timeout(CHANGING, client.admin().transfer_leadership(request));
        let (done, how) = match answer.await {
            Ok(Ok(answer)) => (true, format!("done in term {}", answer.into_inner().term)),
            // Another fault may be under way; then it is no graceful change, and counted as none.
            Ok(Err(status)) => (false, status.message().to_owned()),
            Err(_) => (false, "no answer".to_owned()),
        };
        self.handed_over += u64::from(done);
        let what = format!("transfer from {leader} to {to}, asked at {asked}: {how}");
        Begun::new(what, Wound::Healed, done)
    }

    /// The old leader hears of its successor later than clients do.
    pub(super) async fn transfer_slowly(&mut self) -> Begun {
        let leader = self.leader();
        let others = self.members.iter().filter(|id| **id != leader);
        let Some(network) = &self.cluster.network else {
            return Begun::new("links are not slow here", Wound::Healed, false);
        };
        let slow = Link {
            delay: HEARD_LATE,
            ..Link::default()
        };
        let before = network.tally().delayed;
        others.for_each(|other| network.set(*other, leader, slow));
        let mut begun = self.transfer().await;
        begun.what.push_str(", heard of late by the old leader");
        begun.wound = Wound::Links;
        let delayed = self
            .cluster
            .network
            .as_ref()
            .map(|network| network.tally().delayed);
        begun.bit &= delayed > Some(before);
        begun
    }
}
