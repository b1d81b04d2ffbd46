//! Readiness: whether load balancers and orchestrators should send requests to this node.
//!
//! Invariant: it is worked out from this node's clock and from what it has heard. It asks nobody. However many watch
//! it, one task works it out for them. While nobody watches, that task is not woken.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::sync::Notify;

use crate::{
    clock::Clock,
    consensus::{Group, Leadership},
    node::{
        Config, common::Common, members::formation::Formation, stopping::Stopping, terms::LedTerms,
    },
    ordered_watch,
};

/// Why requests should go to another node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node {node} is not ready: {why}")]
pub struct NotReady {
    node: u64,
    why: String,
}

/// Whether this node is ready.
pub struct Readiness {
    config: Arc<Config>,
    group: Arc<Group>,
    clock: Arc<dyn Clock>,
    stopping: Stopping,
    led: Arc<LedTerms>,
    formation: Arc<Formation>,
    /// Whether it was ready when that was last worked out.
    last: ordered_watch::Sender<bool>,
    /// Notified when somebody begins to watch.
    watch_begun: Notify,
}

impl Readiness {
    /// That of the node.
    pub(in crate::node) fn new(
        common: &Common, led: Arc<LedTerms>, formation: Arc<Formation>,
    ) -> Self {
        Readiness {
            config: common.config.clone(),
            group: common.group.clone(),
            clock: common.clock.clone(),
            stopping: common.stopping.clone(),
            led,
            formation,
            last: ordered_watch::Sender::default(),
            watch_begun: Notify::new(),
        }
    }

    /// A node is ready if it leads under a valid lease, or has heard of the leader within the election timeout, so
    /// that it can forward to it. A node that stops is not ready, from before it hands over.
    ///
    /// # Errors
    /// [`NotReady`] with the reason, if it is not.
    pub fn check(&self) -> Result<(), NotReady> {
        self.ready_for().map(drop)
    }

    /// How long this node is ready from now on, unless it hears more of a leader or a majority, or stops.
    ///
    /// # Errors
    /// [`NotReady`] with the reason, if it is not ready now.
    fn ready_for(&self) -> Result<Duration, NotReady> {
        let not = |why: String| Err(NotReady { node: self.config.node_id, why });
        if self.stopping.leaving().is_cancelled() {
            return not("it stops".to_owned());
        }
        let now = self.clock.now();
        if let Some(term) = self.led.serving().filter(|term| term.lease().is_valid(now)) {
            return Ok(term.lease().deadline().since(now));
        }
        let leadership = self.group.leadership().borrow().clone();
        let limit_ms = self.config.election_timeout_ms;
        let limit = Duration::from_millis(limit_ms);
        match leadership.leader {
            Some((leader, _)) if leader == self.config.node_id => {
                not(format!("it leads term {} and holds no lease", leadership.term))
            }
            Some((leader, _)) => match self.group.leader_heard() {
                Some(heard) if now.since(heard) < limit => Ok(limit - now.since(heard)),
                _ => not(format!(
                    "it has not heard of node {leader}, which leads term {}, for {limit_ms} ms",
                    leadership.term
                )),
            },
            None if self.group.is_formed() => {
                not(format!("no leader is known in term {}", leadership.term))
            }
            // Strangers may read this, and do not learn where the data directory is.
            None => not(self.formation.what_it_waits_for(Path::new("DATA_DIR"))),
        }
    }

    /// Whether this node is ready, now and from now on, while [`Readiness::follow`] runs.
    pub fn watch(&self) -> ordered_watch::Receiver<bool> {
        self.note();
        let ready = self.last.subscribe();
        self.watch_begun.notify_one();
        ready
    }

    /// Tells those who watch whether this node is ready, whenever that changes.
    pub async fn follow(self: Arc<Self>) {
        loop {
            // A notification that comes before the wait is kept for it.
            while !self.last.is_watched() {
                self.watch_begun.notified().await;
            }
            let leadership = self.group.leadership();
            let ready = self.note();
            self.may_change(leadership, ready).await;
        }
    }

    /// Keeps whether this node is ready, and returns for how long at least, unless something happens.
    fn note(&self) -> Option<Duration> {
        let mut ready = None;
        self.last.send_if_modified(|is_ready| {
            ready = self.ready_for().ok();
            let now = ready.is_some();
            std::mem::replace(is_ready, now) != now
        });
        ready
    }

    /// Waits until the readiness may have changed. A lease that expires and a leader that falls silent are not events: a node
    /// that is ready looks when that would be. That a leader, or a majority, is heard again is no event either: a node that is
    /// not ready looks once in each heartbeat interval.
    async fn may_change(
        &self, mut leadership: ordered_watch::Receiver<Leadership>, ready: Option<Duration>,
    ) {
        let beat = Duration::from_millis(self.config.heartbeat_ms);
        let pause = ready.map_or(beat, |ready| ready + Duration::from_millis(1));
        tokio::select! {
            biased;
            Ok(()) = leadership.changed() => {}
            () = self.stopping.leaving().cancelled(), if !self.stopping.leaving().is_cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}
