//! Follows the leadership: an allocator for each term that this node leads.
//!
//! Invariant: the allocator in use belongs to the term that Raft last said this node leads, or there is
//! none.

use std::sync::Arc;

use super::NodeContext;
use crate::{
    allocator::Term,
    consensus::TermLease,
    sequence::{Command, NamespaceConfig, Outcome},
};

impl NodeContext {
    /// Opens an allocator for each term that this node leads, and drops it when the term is over.
    pub(super) async fn follow_leadership(self: Arc<Self>) {
        let mut leadership = self.group.leadership();
        let mut told = None;
        loop {
            let now = leadership.borrow_and_update().clone();
            self.metrics.term.set(now.term.cast_signed());
            self.metrics.leads.set(i64::from(now.own.is_some()));
            let has_leader = i64::from(now.leader.is_some());
            self.metrics.has_leader.set(has_leader);
            let current = self.allocator.load().as_ref().map(|term| term.term());
            match &now.own {
                Some(lease) if current != Some(lease.term()) => {
                    self.allocator.store(None);
                    self.leadership_changes.send_modify(|n| *n += 1);
                    if let Some(lift) = self.lift(lease).await {
                        self.found_namespaces(lease).await;
                        self.open(lease, lift);
                    }
                }
                Some(_) => {}
                None => {
                    if let Some(term) = self.allocator.swap(None) {
                        tracing::info!(term = term.term(), "not leading any more");
                    }
                }
            }
            let leader = now.leader.as_ref().map(|(leader, _)| (now.term, *leader));
            if let Some((leader, member)) = &now.leader
                && told != Some((now.term, *leader))
            {
                self.metrics.leader_changes.inc();
                let address = &member.client_address;
                tracing::info!(term = now.term, leader, address, "leader");
            }
            told = leader;
            self.leadership_changes.send_modify(|n| *n += 1);
            if leadership.changed().await.is_err() {
                return;
            }
        }
    }

    /// Opens the allocator of the term, whose lift has the number `lift`.
    fn open(&self, lease: &Arc<TermLease>, lift: u64) {
        let term = Term::open(
            self.group.clone(),
            lease.clone(),
            lift,
            self.config.fence,
            self.clock.clone(),
            self.metrics.clone(),
        );
        tracing::info!(term = lease.term(), "leading: numbers come from here");
        self.show_takeover(lease);
        self.allocator.store(Some(Arc::new(term)));
    }

    /// Proposes the term's first entry, which gives it a chunk of every live section. Returns the number of the lift.
    /// `None` if the term got none, and must end.
    async fn lift(&self, lease: &TermLease) -> Option<u64> {
        let lifting = self.group.propose(lease.term(), Command::Lift);
        // A node that is cut off meanwhile would wait here, and not follow the leadership.
        let lifted = tokio::select! {
            biased;
            lifted = lifting => lifted,
            () = lease.wait_until(TermLease::is_void) => return None,
        };
        let why = match lifted {
            Ok(Outcome::Holds(lift)) => return Some(lift),
            Ok(outcome) => format!("the answer was {outcome:?}"),
            Err(error) => error.to_string(),
        };
        // No number can be taken in this term. It must end.
        tracing::info!(term = lease.term(), why, "the term holds no chunks");
        lease.void();
        None
    }

    /// Creates the namespaces that a fresh cluster comes with. They cannot be removed: if one is missing, the
    /// cluster is fresh, or its first leader ended before it had created all of them.
    async fn found_namespaces(&self, lease: &TermLease) {
        for config in NamespaceConfig::fresh_cluster() {
            if self
                .group
                .view()
                .namespaces()
                .by_name(&config.name)
                .is_some()
            {
                continue;
            }
            let name = config.name.clone();
            match self
                .group
                .propose(lease.term(), Command::create_namespace(config))
                .await
            {
                Ok(Outcome::Namespace(Ok(_))) => tracing::info!(name, "namespace created"),
                Ok(outcome) => tracing::info!(name, ?outcome, "namespace not created"),
                Err(error) => {
                    // This term must end: it would answer that the namespace does not exist. The next
                    // term's leader creates it.
                    tracing::info!(name, %error, "namespace not created");
                    return lease.void();
                }
            }
        }
    }

    /// Stops the node when Raft has stopped.
    pub(super) async fn stop_with_group(self: Arc<Self>) {
        let mut stopped = self.group.stopped();
        if let Ok(reason) = stopped.wait_for(Option::is_some).await
            && let Some(reason) = reason
        {
            let disk = self.group.store().health().failure();
            self.fail(disk.unwrap_or(reason));
        }
    }
}
