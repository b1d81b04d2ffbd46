//! Hands over when the wall clock of this leader is wrong: it makes no ids with a time then, and no other node can meanwhile.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior};

use super::{Handovers, handover_max};
use crate::node::wall_clock::{
    believed_time::{Belief, ClockDoubt},
    ids_time::IdsTime,
};

/// How often it is looked whether the clock is believed.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// How long the next attempt waits after a handover that failed: each sends the whole memory.
const PAUSE: Duration = Duration::from_secs(60);

impl Handovers {
    /// Hands each term over in which a majority doubts this node's wall clock, to a voter whose clock is believed. Where there
    /// is none, the term goes on, and `time` refuses.
    pub(in crate::node) async fn leave_doubted_terms(self: Arc<Self>, time: IdsTime) {
        let mut checks = tokio::time::interval(CHECK_EVERY);
        // A follower waits for a term below for as long as it follows: no look is made up for.
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            let term = self.led.until_serving().await.term();
            let (Belief::RunsOn { doubt, .. } | Belief::Doubted(doubt)) = time.look(term) else {
                continue;
            };
            // A leader that has just begun to lead does not know the others' clocks yet.
            if doubt.distance.is_some() {
                self.leave_doubted(term, doubt).await;
            }
        }
    }

    /// Hands `term` over, if there is a voter whose clock is believed.
    async fn leave_doubted(self: &Arc<Self>, term: u64, doubt: ClockDoubt) {
        let is_believed = |id| self.group.is_clock_believed(id, doubt.apart_max_ms);
        if self.group.successor_that(term, is_believed).is_none() {
            return;
        }
        tracing::warn!(
            term,
            "handing over to a node whose wall clock is believed: that of this one is not: {doubt}"
        );
        let deadline = Instant::now() + handover_max(&self.config);
        let handed_over = self.hand_over_to_one_that(term, is_believed, deadline).await;
        if let Err(refusal) = handed_over {
            tracing::warn!(reason = refusal.message(), "the term was not handed over as wanted");
            tokio::time::sleep(PAUSE).await;
        }
    }
}
