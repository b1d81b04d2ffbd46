//! What the front doors and the node's own tasks share.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Config, Forwarder,
    awaited_answer::AwaitedAnswer,
    callers::Callers,
    current_handover::CurrentHandover,
    dates::Dates,
    founding_claim::FoundingClaim,
    held_inheritance::HeldInheritance,
    id_sources::IdSources,
    ids_time::IdsTime,
    introductions::{Introductions, door_address},
    key_queues::KeyQueues,
    key_times::KeyTimes,
    recent_activity::Activity,
    request_memory::RequestMemory,
    seams::{Addresses, Seams},
    worker_desk::WorkerDesk,
};
use crate::{
    allocator::Term,
    clock::Clock,
    consensus::{Group, Sender, Transport},
    metrics::Metrics,
    ordered_watch,
    sequence::ClusterId,
    tasks::Fault,
};

/// What the front doors and the node's own tasks share.
pub struct NodeContext {
    /// The configuration.
    pub config: Config,
    /// The Raft group.
    pub group: Arc<Group>,
    /// The node's metrics.
    pub metrics: Arc<Metrics>,
    /// The memory of waiting requests and unsent answers.
    pub request_memory: Arc<RequestMemory>,
    /// What the callers of each address hold.
    pub callers: Arc<Callers>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) sender: Arc<Sender>,
    pub(super) forwarder: Forwarder,
    /// Where clients reach this node.
    pub client_address: String,
    pub(super) peer_address: String,
    /// Where Redis clients reach this node. Empty if it does not serve them.
    pub(super) resp_address: String,
    /// Where HTTP clients reach this node. Empty if it does not serve them.
    pub(super) http_address: String,
    /// The allocator of the term that this node leads; empty if it does not lead.
    pub(super) allocator: ArcSwapOption<Term>,
    /// Counts changes of leadership. A change is counted once the allocator belongs to it.
    pub(super) leadership_changes: ordered_watch::Sender<u64>,
    pub(super) current_handover: CurrentHandover,
    pub(super) awaited_answer: AwaitedAnswer,
    /// The memory that a leader that hands over has sent to this node.
    pub(super) inheritance: HeldInheritance,
    /// The worker ids that this node holds.
    pub(super) id_sources: IdSources,
    /// The time by which worker ids are leased, and ids of keys are made.
    pub(super) ids_time: IdsTime,
    /// Where worker ids are leased.
    pub(super) worker_desk: WorkerDesk,
    /// The dates of ids, as this node knows them while it leads.
    pub(super) dates: Dates,
    /// The callers of this node that wait for ids of a key.
    pub(super) key_queues: KeyQueues,
    /// The times of namespaces whose ids of keys lie ahead.
    pub(super) key_times: KeyTimes,
    /// Cancelled first of all when the node stops.
    pub(super) leaving: CancellationToken,
    /// Whether this node was ready when that was last worked out.
    pub(super) is_ready: ordered_watch::Sender<bool>,
    pub(super) introductions: Introductions,
    /// Who may make this node a member, while it holds no data.
    pub(super) founding_claim: Arc<tokio::sync::Mutex<FoundingClaim>>,
    /// From when on a cluster may be founded with this node: it has listened until then.
    pub(super) listens_until: Instant,
    /// Held while the cluster is founded.
    pub(super) founding_turn: tokio::sync::Mutex<()>,
    pub(super) activity: Activity,
    /// Held while a scrape reads what may block: a disk that hangs holds one thread, however often somebody
    /// scrapes.
    pub(super) scrape_lock: Arc<tokio::sync::Mutex<()>>,
}

impl NodeContext {
    pub(super) fn new(
        config: Config, seams: Seams, group: Arc<Group>, metrics: Arc<Metrics>,
        addresses: Addresses,
    ) -> NodeContext {
        let sender = group.sender().clone();
        let advertised = |name: &Option<String>, address: SocketAddr| {
            name.clone().unwrap_or_else(|| address.to_string())
        };
        let client_address = advertised(&config.advertise, addresses.client);
        let door = |at: SocketAddr| door_address(&client_address, addresses.client, at);
        let ids_time = IdsTime::new(
            config.node_id,
            seams.clock.clone(),
            group.clone(),
            config.clock_apart_max_ms,
            metrics.clone(),
        );
        let listens = match config.dev {
            true => Duration::ZERO,
            false => seams.listens_before_founding,
        };
        NodeContext {
            worker_desk: WorkerDesk::open(group.clone(), ids_time.clone(), metrics.clone()),
            id_sources: IdSources::default(),
            dates: Dates::default(),
            key_queues: KeyQueues::default(),
            key_times: KeyTimes::default(),
            ids_time,
            resp_address: addresses.resp.map(door).unwrap_or_default(),
            http_address: addresses.http.map(door).unwrap_or_default(),
            client_address,
            peer_address: advertised(
                &config.peer_advertise.clone().or(config.peers.get(&config.node_id).cloned()),
                addresses.peer,
            ),
            forwarder: Forwarder::new(sender.clone(), seams.transport.clone(), metrics.clone()),
            request_memory: RequestMemory::new(&config, &metrics),
            callers: Callers::new(&config, &metrics),
            config,
            group,
            metrics,
            clock: seams.clock,
            transport: seams.transport,
            sender,
            allocator: ArcSwapOption::empty(),
            leadership_changes: ordered_watch::Sender::default(),
            current_handover: CurrentHandover::default(),
            awaited_answer: AwaitedAnswer::default(),
            inheritance: HeldInheritance::default(),
            leaving: CancellationToken::new(),
            is_ready: ordered_watch::Sender::default(),
            introductions: Introductions::default(),
            founding_claim: Arc::default(),
            listens_until: Instant::now() + listens,
            founding_turn: tokio::sync::Mutex::default(),
            activity: Activity::default(),
            scrape_lock: Arc::default(),
        }
    }

    /// True if browsers may ask this node by the name or address `host`.
    pub fn serves_browsers_as(&self, host: &str) -> bool {
        let advertised = self.client_address.rsplit_once(':');
        let advertised = advertised.map_or(&self.client_address[..], |(name, _)| name);
        let mut listed = self.config.http_hosts.split(',').map(str::trim);
        host.parse::<std::net::IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || host.eq_ignore_ascii_case(advertised)
            || listed.any(|name| !name.is_empty() && host.eq_ignore_ascii_case(name))
    }

    /// The id of the cluster; `None` if this node belongs to none, or does not know it yet. One atomic load.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.group.view().cluster_id()
    }

    /// The id of the cluster as it is printed; empty if this node does not know it.
    pub fn printed_cluster_id(&self) -> String {
        self.cluster_id().map(|id| id.to_string()).unwrap_or_default()
    }

    /// Stops the node: it cannot go on.
    pub fn fail(&self, reason: String) {
        self.group.tasks().fail(Fault::CannotGoOn(reason));
    }

    /// Why the node must stop, once it must.
    pub fn fault(&self) -> Option<Fault> {
        self.group.tasks().failed().borrow().clone()
    }
}
