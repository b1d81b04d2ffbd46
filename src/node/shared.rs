//! What the front doors and the node's own tasks share, and how it follows the leadership.

use std::{net::SocketAddr, sync::Arc};

use arc_swap::ArcSwapOption;
use tokio_util::sync::CancellationToken;

use super::{
    Addresses, Config, Forwarder, Seams, builds::Builds, handover::Handovers, measure::Reading,
    request_memory::RequestMemory,
};
use crate::{
    allocator::Term,
    clock::Clock,
    consensus::{Group, Sender, TermLease, Transport},
    metrics::Metrics,
    sequence::{Command, NamespaceConfig, Outcome},
    tasks::Fault,
    watch,
};

/// What the front doors and the node's own tasks share.
pub struct Shared {
    /// The configuration.
    pub config: Config,
    /// The Raft group.
    pub group: Arc<Group>,
    /// What the node counts.
    pub metrics: Arc<Metrics>,
    /// What requests and answers hold.
    pub request_memory: Arc<RequestMemory>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) sender: Arc<Sender>,
    pub(super) forwarder: Forwarder,
    /// Where clients and peers find this node.
    pub client_address: String,
    pub(super) peer_address: String,
    /// The allocator of the term that this node leads.
    pub(super) allocator: ArcSwapOption<Term>,
    /// Counts changes of leadership, each once the allocator fits it.
    pub(super) changes: watch::Sender<u64>,
    pub(super) handovers: Handovers,
    /// Cancelled before anything else is done when the node stops.
    pub(super) leaving: CancellationToken,
    pub(super) builds: Builds,
    pub(super) reading: Reading,
}

impl Shared {
    pub(super) fn new(
        config: Config,
        seams: Seams,
        group: Arc<Group>,
        metrics: Arc<Metrics>,
        addresses: Addresses,
    ) -> Shared {
        let sender = group.sender().clone();
        let advertised = |name: &Option<String>, address: SocketAddr| {
            name.clone().unwrap_or_else(|| address.to_string())
        };
        Shared {
            client_address: advertised(&config.advertise, addresses.client),
            peer_address: advertised(
                &config
                    .peer_advertise
                    .clone()
                    .or(config.peers.get(&config.node_id).cloned()),
                addresses.peer,
            ),
            forwarder: Forwarder::new(sender.clone(), seams.transport.clone(), metrics.clone()),
            request_memory: RequestMemory::new(config.memory_requests_max_mb, &metrics),
            config,
            group,
            metrics,
            clock: seams.clock,
            transport: seams.transport,
            sender,
            allocator: ArcSwapOption::empty(),
            changes: watch::Sender::default(),
            handovers: Handovers::default(),
            leaving: CancellationToken::new(),
            builds: Builds::default(),
            reading: Reading::default(),
        }
    }

    /// Stops the node for a reason that it cannot get over.
    pub fn fail(&self, reason: String) {
        self.group.tasks().fail(Fault::Other(reason));
    }

    /// Why the node must stop, once it must.
    pub fn fault(&self) -> Option<Fault> {
        self.group.tasks().failed().borrow().clone()
    }

    /// Follows the leadership: opens an allocator for each term that this node leads, and drops it
    /// when the term is over.
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
                    self.changes.send_modify(|n| *n += 1);
                    self.found_namespaces(lease).await;
                    let term = Term::open(
                        self.group.clone(),
                        lease.clone(),
                        self.config.fence,
                        self.clock.clone(),
                        self.metrics.clone(),
                    );
                    tracing::info!(term = lease.term(), "leading: numbers come from here");
                    self.allocator.store(Some(Arc::new(term)));
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
            self.changes.send_modify(|n| *n += 1);
            if leadership.changed().await.is_err() {
                return;
            }
        }
    }

    /// A fresh cluster comes with namespaces. They cannot be removed, so that a missing one means
    /// that the cluster is fresh, or that its first leader did not get so far.
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
                    // The next term's leader goes on with it; this one, which would answer that
                    // there is no such namespace, must end.
                    tracing::info!(name, %error, "namespace not created");
                    return lease.void();
                }
            }
        }
    }

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
