//! Readiness: whether load balancers and orchestrators should send requests to this node.
//!
//! Invariant: it is worked out from this node's clock and from what it has heard. It asks nobody. However many watch it, one
//! task works it out for them.

use std::{sync::Arc, time::Duration};

use super::services::Readiness;
use crate::ordered_watch;

/// Why requests should go to another node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node {node} is not ready: {why}")]
pub struct NotReady {
    node: u64,
    why: String,
}

impl Readiness {
    /// A node is ready if it leads under a valid lease, or has heard of the leader within the election timeout, so
    /// that it can forward to it. A node that stops is not ready, from before it hands over.
    ///
    /// # Errors
    /// [`NotReady`] with the reason, if it is not.
    pub fn check(&self) -> Result<(), NotReady> {
        let not = |why: String| Err(NotReady { node: self.led.config.node_id, why });
        if self.led.leaving.is_cancelled() {
            return not("it stops".to_owned());
        }
        let now = self.led.clock.now();
        if self.led.serving().is_some_and(|term| term.lease().is_valid(now)) {
            return Ok(());
        }
        let leadership = self.led.group.leadership().borrow().clone();
        let limit_ms = self.led.config.election_timeout_ms;
        match leadership.leader {
            Some((leader, _)) if leader == self.led.config.node_id => {
                not(format!("it leads term {} and holds no lease", leadership.term))
            }
            Some((leader, _)) => match self.led.group.leader_heard() {
                Some(heard) if now.since(heard) < Duration::from_millis(limit_ms) => Ok(()),
                _ => not(format!(
                    "it has not heard of node {leader}, which leads term {}, for {limit_ms} ms",
                    leadership.term
                )),
            },
            None if self.led.group.is_formed() => {
                not(format!("no leader is known in term {}", leadership.term))
            }
            None => not(self.founding.what_it_waits_for()),
        }
    }

    /// Whether this node is ready, now and from now on, while [`Readiness::follow`] runs.
    pub fn watch(&self) -> ordered_watch::Receiver<bool> {
        self.note();
        self.last.subscribe()
    }

    /// Tells those who watch whether this node is ready, whenever that changes.
    pub async fn follow(self: Arc<Self>) {
        loop {
            self.note();
            self.may_change().await;
        }
    }

    fn note(&self) {
        self.last.send_if_modified(|is_ready| {
            let now = self.check().is_ok();
            std::mem::replace(is_ready, now) != now
        });
    }

    /// Waits until the readiness may have changed. A lease that expires and a leader that falls silent are not
    /// events, so this returns at least once in each heartbeat interval.
    async fn may_change(&self) {
        let mut leadership = self.led.group.leadership();
        let beat = Duration::from_millis(self.led.config.heartbeat_ms);
        tokio::select! {
            Ok(()) = leadership.changed() => {}
            () = self.led.leaving.cancelled(), if !self.led.leaving.is_cancelled() => {}
            () = tokio::time::sleep(beat) => {}
        }
    }
}
