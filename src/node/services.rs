//! The services of a node: what each of them owns and uses. What they do stands in the files of their subjects.
//!
//! A service uses those above it in this file. None of them gets the whole node: that is for the interfaces.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use tokio::{sync::Mutex, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Config, Forwarder,
    access::{Access, Principal},
    callers::{Caller, Callers},
    handover::state::{AwaitedAnswer, CurrentHandover, HeldInheritance},
    ids::{
        key_queues::{Dates, KeyQueues, KeyTimes},
        sources::IdSources,
    },
    members::introductions::{Advertised, FoundingClaim, Introductions},
    request_memory::RequestMemory,
    seams::{Addresses, Reload, Seams},
    slow_calls::SlowCalls,
    status::recent_activity::Activity,
    traces::Traces,
    workers::{desk::WorkerDesk, ids_time::IdsTime},
};
use crate::{
    allocator::Term,
    clock::Clock,
    consensus::{Group, Transport},
    metrics::Metrics,
    ordered_watch,
    tasks::Fault,
};

/// The members of the cluster, as this node knows them, and what it tells them of itself.
pub struct Members {
    pub(super) config: Arc<Config>,
    pub(super) group: Arc<Group>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) advertised: Advertised,
    /// What the others told of themselves.
    pub(super) introductions: Introductions,
}

/// How a node without data becomes a member.
pub struct Founding {
    pub(super) config: Arc<Config>,
    pub(super) group: Arc<Group>,
    pub(super) members: Arc<Members>,
    /// Who may make this node a member, while it holds no data.
    pub(super) claim: Arc<Mutex<FoundingClaim>>,
    /// From when on a cluster may be founded with this node: it has listened until then.
    pub(super) listens_until: Instant,
    /// Held while the cluster is founded.
    pub(super) turn: Mutex<()>,
    /// Cancelled when the node stops.
    pub(super) leaving: CancellationToken,
}

/// The terms of a Raft group that this node leads.
pub struct LedTerms {
    pub(super) config: Arc<Config>,
    pub(super) group: Arc<Group>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    /// The allocator of the term that this node leads; empty if it does not lead.
    pub(super) term: ArcSwapOption<Term>,
    /// Counts changes of leadership. A change is counted once the allocator belongs to it.
    pub(super) changes: ordered_watch::Sender<u64>,
    pub(super) awaited_answer: AwaitedAnswer,
    /// The memory that a leader that hands over has sent to this node.
    pub(super) inheritance: HeldInheritance,
    /// Cancelled first of all when the node stops.
    pub(super) leaving: CancellationToken,
    /// Cancelled once the node hands nothing over any more, and answers what is under way: [`LedTerms::changes`] counts no further
    /// change.
    pub(super) stopped: CancellationToken,
}

/// The handovers of a Raft group's leadership to other nodes.
pub struct Handovers {
    pub(super) config: Arc<Config>,
    pub(super) group: Arc<Group>,
    pub(super) led: Arc<LedTerms>,
    pub(super) members: Arc<Members>,
    /// The one that is under way, or was last.
    pub(super) current: CurrentHandover,
}

/// What the leader of a Raft group does for ids.
pub struct LeaderIds {
    pub(super) led: Arc<LedTerms>,
    /// The time by which worker ids are leased, and ids of keys are made.
    pub(super) time: IdsTime,
    /// Where worker ids are leased, and dates are logged.
    pub(super) desk: WorkerDesk,
    /// The dates of ids, as this node knows them while it leads.
    pub(super) dates: Dates,
    /// The times of namespaces whose ids of keys lie ahead.
    pub(super) key_times: KeyTimes,
}

/// The namespaces of a Raft group.
pub struct Namespaces {
    pub(super) group: Arc<Group>,
    pub(super) access: Arc<Access>,
    /// The time in which the formats of new namespaces begin.
    pub(super) time: IdsTime,
}

/// What a node tells of itself and of the cluster: its status, its metrics, what it did of late.
pub struct Status {
    pub(super) config: Arc<Config>,
    pub(super) group: Arc<Group>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) led: Arc<LedTerms>,
    pub(super) members: Arc<Members>,
    /// The time of ids: the status tells whether it is believed.
    pub(super) time: IdsTime,
    /// What this node did in the last seconds.
    pub(super) recent: Activity,
    /// Held while a scrape reads what may block: a disk that hangs holds one thread, however often somebody
    /// scrapes.
    pub(super) scrape_lock: Arc<Mutex<()>>,
}

/// Whether this node is ready.
pub struct Readiness {
    pub(super) led: Arc<LedTerms>,
    pub(super) founding: Arc<Founding>,
    /// Whether it was ready when that was last worked out.
    pub(super) last: ordered_watch::Sender<bool>,
}

/// What belongs to one Raft group: a node with several has several of these.
pub struct GroupServices {
    /// The terms that this node leads.
    pub led: Arc<LedTerms>,
    /// Transfers of the leadership.
    pub handovers: Arc<Handovers>,
    /// Worker ids, and the numbers of ids.
    pub leader_ids: LeaderIds,
    /// The namespaces and their keys.
    pub namespaces: Namespaces,
}

/// The services that carry operations out.
pub struct OperationServices {
    /// Who may do what.
    pub access: Arc<Access>,
    /// Those of members.
    pub members: Arc<Members>,
    /// The founding of the cluster.
    pub founding: Arc<Founding>,
    /// Those of the Raft group.
    pub of_group: GroupServices,
    /// The status.
    pub status: Arc<Status>,
    /// What reads the certificates again.
    pub certificates: Arc<dyn Reload>,
}

/// The leader, whichever node that is: it has requests answered, here or there.
pub struct Leader {
    pub(super) config: Arc<Config>,
    pub(super) group: Arc<Group>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) request_memory: Arc<RequestMemory>,
    pub(super) forwarder: Forwarder,
    pub(super) slow_calls: SlowCalls,
    pub(super) access: Arc<Access>,
    pub(super) led: Arc<LedTerms>,
    pub(super) services: Arc<OperationServices>,
}

/// The ids that this node makes, under worker ids that it holds or of numbers that the leader takes.
pub struct Ids {
    pub(super) config: Arc<Config>,
    pub(super) group: Arc<Group>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) request_memory: Arc<RequestMemory>,
    pub(super) led: Arc<LedTerms>,
    pub(super) leader: Arc<Leader>,
    /// The time by which worker ids are leased, and ids of keys are made.
    pub(super) time: IdsTime,
    /// The worker ids that this node holds.
    pub(super) sources: IdSources,
    /// The callers of this node that wait for ids of a key.
    pub(super) queues: KeyQueues,
}

/// What the interfaces to callers use of a node.
pub struct NodeContext {
    /// The configuration.
    pub config: Arc<Config>,
    /// The Raft group.
    pub group: Arc<Group>,
    /// The node's metrics.
    pub metrics: Arc<Metrics>,
    /// The memory of waiting requests and unsent answers.
    pub request_memory: Arc<RequestMemory>,
    /// Which calls are traced.
    pub traces: Traces,
    /// What the callers of each address hold.
    pub callers: Arc<Callers>,
    /// Who answers requests for numbers, and operations.
    pub leader: Arc<Leader>,
    /// The ids that this node makes.
    pub ids: Arc<Ids>,
    /// Whether the node is ready.
    pub readiness: Arc<Readiness>,
    /// What carries operations out.
    pub services: Arc<OperationServices>,
}

impl LedTerms {
    /// The term that this node serves as leader; `None` if it leads none, or the term is over.
    pub(super) fn serving(&self) -> Option<Arc<Term>> {
        self.term.load_full().filter(|term| !term.is_over())
    }

    /// Waits until this node serves a term as leader. A node that does not lead is not woken for what a leader looks after.
    pub(super) async fn until_serving(&self) -> Arc<Term> {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(term) = self.serving() {
                return term;
            }
            if changes.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }
}

impl NodeContext {
    pub(super) fn new(
        config: Config, seams: Seams, group: Arc<Group>, metrics: Arc<Metrics>,
        addresses: Addresses,
    ) -> NodeContext {
        let (config, clock, leaving) = (Arc::new(config), seams.clock, CancellationToken::new());
        let time = IdsTime::new(
            config.node_id,
            clock.clone(),
            group.clone(),
            config.clock_apart_max_ms,
            metrics.clone(),
        );
        let access = Arc::new(Access::new(config.clone(), group.clone(), metrics.clone()));
        let advertised = Advertised::new(&config, addresses);
        let members = Arc::new(Members {
            config: config.clone(),
            group: group.clone(),
            transport: seams.transport.clone(),
            advertised,
            introductions: Introductions::default(),
        });
        let listens = match config.dev {
            true => Duration::ZERO,
            false => seams.listens_before_founding,
        };
        let founding = Arc::new(Founding {
            config: config.clone(),
            group: group.clone(),
            members: members.clone(),
            claim: Arc::default(),
            listens_until: Instant::now() + listens,
            turn: Mutex::default(),
            leaving: leaving.clone(),
        });
        let led = Arc::new(LedTerms {
            config: config.clone(),
            group: group.clone(),
            clock,
            metrics: metrics.clone(),
            term: ArcSwapOption::empty(),
            changes: ordered_watch::Sender::default(),
            awaited_answer: AwaitedAnswer::default(),
            inheritance: HeldInheritance::default(),
            leaving,
            stopped: CancellationToken::new(),
        });
        let of_group = GroupServices {
            handovers: Arc::new(Handovers {
                config: config.clone(),
                group: group.clone(),
                led: led.clone(),
                members: members.clone(),
                current: CurrentHandover::default(),
            }),
            leader_ids: LeaderIds {
                led: led.clone(),
                desk: WorkerDesk::open(group.clone(), time.clone(), metrics.clone()),
                dates: Dates::default(),
                key_times: KeyTimes::default(),
                time: time.clone(),
            },
            namespaces: Namespaces {
                group: group.clone(),
                access: access.clone(),
                time: time.clone(),
            },
            led: led.clone(),
        };
        let services = Arc::new(OperationServices {
            access: access.clone(),
            of_group,
            status: Arc::new(Status {
                config: config.clone(),
                group: group.clone(),
                metrics: metrics.clone(),
                led: led.clone(),
                members: members.clone(),
                time: time.clone(),
                recent: Activity::default(),
                scrape_lock: Arc::default(),
            }),
            founding: founding.clone(),
            members,
            certificates: seams.certificates,
        });
        let request_memory = RequestMemory::new(&config, &metrics);
        let sender = group.sender().clone();
        let leader = Arc::new(Leader {
            config: config.clone(),
            group: group.clone(),
            metrics: metrics.clone(),
            request_memory: request_memory.clone(),
            access,
            forwarder: Forwarder::new(sender, seams.transport, metrics.clone()),
            slow_calls: SlowCalls::new(&config, metrics.clone()),
            led: led.clone(),
            services: services.clone(),
        });
        let ids = Arc::new(Ids {
            config: config.clone(),
            group: group.clone(),
            metrics: metrics.clone(),
            request_memory: request_memory.clone(),
            led: led.clone(),
            leader: leader.clone(),
            time,
            sources: IdSources::default(),
            queues: KeyQueues::default(),
        });
        NodeContext {
            traces: Traces::new(&config, metrics.clone()),
            callers: Callers::new(&config, &metrics, {
                let group = group.clone();
                move |network| group.view.principals().are_closed_to(network)
            }),
            readiness: Arc::new(Readiness {
                led,
                founding,
                last: ordered_watch::Sender::default(),
            }),
            config,
            group,
            metrics,
            request_memory,
            leader,
            ids,
            services,
        }
    }

    /// Whose it is what is held for a request that a peer passes on: its principal's, if this node knows that, or else of whom the
    /// peer has `told`. `None` if it is a node's own.
    pub fn caller_of(&self, by: &Principal, told: Option<u64>) -> Option<Arc<Caller>> {
        let id = self.services.access.id_of(by).or(told);
        id.map(|id| self.callers.caller(id))
    }

    /// Stops the node: it cannot go on.
    pub fn fail(&self, reason: String) {
        self.group.tasks.fail(Fault::CannotGoOn(reason));
    }

    /// Why the node must stop, once it must.
    pub fn fault(&self) -> Option<Fault> {
        self.group.tasks.failed().borrow().clone()
    }
}
