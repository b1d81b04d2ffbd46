//! What this node's wall clock is worth while it leads: looked at again and again, so that a wrong one is told before somebody
//! asks for an id.

use std::{sync::Arc, time::Duration};

use super::{
    NodeContext,
    believed_time::{Belief, ClockDoubt},
};
use crate::proto::v1;

/// How often the wall clock is looked at.
const CHECK_EVERY: Duration = Duration::from_secs(1);

impl NodeContext {
    /// Looks at the wall clock for as long as the node runs. One that does not lead looks as well: it may lead next.
    pub(super) async fn follow_clock(self: Arc<Self>) {
        let mut checks = tokio::time::interval(CHECK_EVERY);
        loop {
            checks.tick().await;
            match self.term_led() {
                Some(term) => drop(self.ids_time.look(term)),
                None => self.ids_time.follow(),
            }
        }
    }

    /// What this node's clock shows, and whether it is believed. `None` if this node does not lead.
    pub(super) fn clock_status(&self) -> Option<v1::ClockStatus> {
        let belief = self.ids_time.look(self.term_led()?);
        let apart_max_ms = self.config.clock_apart_max_ms;
        let (doubt, makes_ids) = match belief {
            Belief::Agreed { .. } => (None, true),
            Belief::RunsOn { doubt, .. } => (Some(doubt), true),
            Belief::Doubted(doubt) => (Some(doubt), false),
        };
        let distance = doubt.and_then(|ClockDoubt { distance, .. }| distance);
        Some(v1::ClockStatus {
            wall_ms: self.clock.wall_ms(),
            believed: doubt.is_none(),
            makes_ids,
            ahead_ms: distance.map(|distance| distance.signed_ms()),
            apart_max_ms,
            alone: self.group.is_sole_voter(),
        })
    }

    /// The term that this node serves as leader.
    fn term_led(&self) -> Option<u64> {
        let term = self.allocator.load();
        term.as_ref().filter(|term| !term.is_over()).map(|term| term.term())
    }
}
