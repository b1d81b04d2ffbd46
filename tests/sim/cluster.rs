//! The nodes of one run. Each is a host of its own, and crashes as a machine does.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use rand::{RngExt, rngs::StdRng};
use ratchet::{
    clock::Clock,
    metrics::{Metrics, SkipCause, TermStart},
    node::{Addresses, Asker, Config, Node, NodeContext, Seams},
    proto::v1::FoundRequest,
    server::PeerServices,
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{self, NodeClock},
    disk::Disk,
    network::{Answering, Host, Network},
    trace::Trace,
    transport::{SimTransport, peer_address},
};

/// How long to wait for a founder, and after how long to ask it again.
const FOUNDING_PATIENCE: Duration = Duration::from_secs(1);
const FOUNDING_PAUSE: Duration = Duration::from_millis(50);

/// The message of a founding node that lost its process after it was claimed, and before its first vote was on the disk: it is
/// to be replaced, and the cluster goes on without it.
const UNKNOWN_FOUNDER: &str = "the one here is new. Put back the lost directory itself";

/// The state that all hosts of a run share.
pub struct World {
    pub network: Network,
    pub trace: Arc<Trace>,
    /// The configuration of every node, except for its id and addresses.
    pub config: Config,
    pub founders: u64,
    /// A founder has said that the cluster is founded.
    is_founded: AtomicBool,
    state: Mutex<BTreeMap<Host, Machine>>,
    /// The counters of every process of the run, also of processes that ended.
    counted: Mutex<Vec<Arc<Metrics>>>,
}

/// A node's machine, which outlives its process.
pub struct Machine {
    pub disk: Arc<Disk>,
    pub clock: Arc<NodeClock>,
    pub condition: Condition,
    /// The term that the node leads and hands out numbers in.
    pub leads: Option<u64>,
    /// Cancelled when the node is told to stop, as SIGTERM does.
    pub told_to_stop: CancellationToken,
}

/// The state of a node's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Running,
    /// It ended by itself, and is not cleared away yet.
    Ended(String),
    Down,
    /// It was removed from the cluster and does not come back.
    Gone,
}

impl World {
    pub fn new(network: Network, trace: Arc<Trace>, config: Config, founders: u64) -> Arc<World> {
        let (is_founded, state, counted) = Default::default();
        Arc::new(World { network, trace, config, founders, is_founded, state, counted })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, BTreeMap<Host, Machine>> {
        self.state.lock().expect("the world")
    }

    /// How many numbers all processes counted as skipped.
    pub fn skipped(&self, cause: SkipCause) -> u64 {
        let counted = self.counted.lock().expect("metrics");
        counted.iter().map(|metrics| metrics.skipped(cause)).sum()
    }

    /// How many numbers all processes answered as leaders.
    pub fn numbers_answered(&self) -> u64 {
        let counted = self.counted.lock().expect("metrics");
        counted.iter().map(|metrics| metrics.numbers.get()).sum()
    }

    /// A new machine, on which nothing runs yet.
    pub fn add_machine(&self, id: Host, rng: &mut StdRng) {
        let offset = Duration::from_millis(rng.random_range(0..10_000_000));
        let machine = Machine {
            disk: Disk::new(rng.random()),
            clock: Arc::new(NodeClock::new(offset, rng.random_range(0.9..1.1))),
            condition: Condition::Running,
            leads: None,
            told_to_stop: CancellationToken::new(),
        };
        self.state().insert(id, machine);
    }

    /// A text without the paths of data directories, which differ from run to run.
    pub fn without_places(&self, text: &str) -> String {
        let state = self.state();
        state.values().fold(text.to_owned(), |text, machine| {
            text.replace(&machine.disk.parent().display().to_string(), "")
        })
    }

    /// The text of a status, without paths.
    pub fn legible(&self, status: &tonic::Status) -> String {
        let text = format!("{:?}: {}", status.code(), status.message());
        self.without_places(&text)
    }

    pub fn with<T>(&self, id: Host, f: impl FnOnce(&mut Machine) -> T) -> T {
        f(self.state().get_mut(&id).expect("a machine"))
    }

    /// The machines whose condition fits.
    pub fn nodes(&self, fits: impl Fn(&Condition) -> bool) -> BTreeSet<Host> {
        let state = self.state();
        let fitting = state.iter().filter(|(_, m)| fits(&m.condition));
        fitting.map(|(id, _)| *id).collect()
    }

    pub fn running(&self) -> BTreeSet<Host> {
        self.nodes(|condition| *condition == Condition::Running)
    }

    /// The nodes that were not removed from the cluster.
    pub fn members(&self) -> BTreeSet<Host> {
        self.nodes(|condition| *condition != Condition::Gone)
    }

    /// The node that leads the latest term, if any says that it leads.
    pub fn leader(&self) -> Option<Host> {
        let state = self.state();
        let leaders = state.iter().filter_map(|(id, m)| Some((m.leads?, *id)));
        leaders.max().map(|(_, id)| id)
    }

    /// Has a node stop as SIGTERM does: it hands the leadership over, if it leads.
    pub fn stop(&self, id: Host, now: Duration) {
        self.with(id, |machine| machine.told_to_stop.cancel());
        self.trace.event(now, "stop", format!("node {id}"));
    }

    fn config_of(&self, id: Host) -> Config {
        let founding = id <= self.founders;
        let address = |id| (id, peer_address(id).to_string());
        Config {
            node_id: id,
            data_dir: self.with(id, |machine| machine.disk.data_dir()),
            listen: client_address(id),
            peer_listen: peer_address(id),
            // Nobody else is on the simulated network.
            insecure: true,
            metrics_listen: None,
            http_listen: None,
            resp_listen: None,
            peers: match founding {
                true => (1..=self.founders).map(address).collect(),
                false => BTreeMap::new(),
            },
            ..self.config.clone()
        }
    }

    /// Runs a node's host: the node, until it crashes or ends by itself.
    pub async fn run_node(self: Arc<Self>, id: Host) {
        let config = self.config_of(id);
        let (clock, disk) = self.with(id, |machine| {
            machine.condition = Condition::Running;
            machine.told_to_stop = CancellationToken::new();
            (machine.clock.clone(), machine.disk.clone())
        });
        let clock: Arc<dyn Clock> = clock;
        let seams = Seams {
            clock: clock.clone(),
            transport: Arc::new(SimTransport { from: id, network: self.network.clone() }),
            storage: disk.options(clock),
            listens_before_founding: Duration::ZERO,
            certificates: Arc::new(()),
        };
        let addresses = Addresses {
            client: client_address(id),
            peer: peer_address(id),
            metrics: None,
            http: None,
            resp: None,
            admin: None,
        };
        let ended = match Node::start(config, seams, addresses).await {
            Ok(node) => self.clone().serve(id, node).await,
            Err(error) => error.to_string(),
        };
        self.network.close(id);
        self.with(id, |machine| {
            machine.condition = Condition::Ended(ended);
            machine.leads = None;
        });
        // The crash that follows ends the tasks that the node still has.
        std::future::pending().await
    }

    /// Serves until the node fails, or has stopped because it was told to.
    async fn serve(self: Arc<Self>, id: Host, node: Node) -> String {
        self.counted.lock().expect("metrics").push(node.context().metrics.clone());
        let answering = Answering {
            shared: node.context().clone(),
            peers: PeerServices { context: node.context().clone(), stop: node.stopping() },
        };
        let mut messages = self.network.open(id);
        self.trace.event(clock::now(), "start", format!("node {id} is up"));
        tokio::spawn(self.clone().watch_leadership(id, answering.clone()));
        if id <= self.founders {
            tokio::spawn(self.clone().found(id, answering.shared.clone()));
        }
        let told_to_stop = self.with(id, |machine| machine.told_to_stop.clone());
        let mut delivering = std::pin::pin!(self.network.deliver(id, &mut messages, &answering));
        tokio::select! {
            biased;
            fault = node.failed() => return fault.to_string(),
            () = &mut delivering => return "its inbox is gone".to_owned(),
            () = told_to_stop.cancelled() => {}
        }
        // It answers until it has handed over.
        tokio::select! {
            biased;
            () = node.stop() => "it was told to stop".to_owned(),
            () = &mut delivering => "its inbox is gone".to_owned(),
        }
    }

    /// Has a founder found the cluster, again and again until one of them has. All are asked at the same time.
    async fn found(self: Arc<Self>, id: Host, context: Arc<NodeContext>) {
        while !self.is_founded.load(Relaxed) {
            let deadline = tokio::time::Instant::now() + FOUNDING_PATIENCE;
            match context.operations.ask(&FoundRequest::default(), &Asker::node(1), deadline).await
            {
                Ok((answer, _)) => {
                    self.is_founded.store(true, Relaxed);
                    let text = format!("node {id} says so, founded: {}", answer.founded);
                    self.trace.event(clock::now(), "founded", text);
                }
                Err(refusal) => {
                    let text = format!("node {id}: {}", self.legible(&refusal.into()));
                    self.trace.event(clock::now(), "not founded", text);
                    tokio::time::sleep(FOUNDING_PAUSE).await;
                }
            }
        }
    }

    async fn watch_leadership(self: Arc<Self>, id: Host, answering: Answering) {
        let mut leadership = answering.shared.group.leadership();
        let mut begun = (0, 0);
        loop {
            let own = leadership.borrow_and_update().own.clone();
            let leads = own.map(|lease| lease.term());
            let before = self.with(id, |machine| std::mem::replace(&mut machine.leads, leads));
            if leads != before {
                let (kind, text) = match leads {
                    Some(term) => ("leader", format!("node {id} leads term {term}")),
                    None => ("leader gone", format!("node {id} does not lead any more")),
                };
                self.trace.event(clock::now(), kind, text);
            }
            let changed = tokio::select! {
                biased;
                changed = leadership.changed() => changed,
                never = self.note_term(id, &answering.shared.metrics, &mut begun), if leads.is_some() => match never {},
            };
            if changed.is_err() {
                return;
            }
        }
    }

    /// Notes how a term begins, and that it evicts shared sections.
    async fn note_term(
        &self, id: Host, metrics: &Metrics, begun: &mut (u64, u64),
    ) -> std::convert::Infallible {
        self.note_beginning(id, metrics, begun).await;
        let mut gone = metrics.of_set(1).evicted_shared_sections.get();
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = metrics.of_set(1).evicted_shared_sections.get();
            if std::mem::replace(&mut gone, now) != now {
                let text = format!("node {id}");
                self.trace.event(clock::now(), "shared section evicted", text);
            }
        }
    }

    /// Waits until the node hands out numbers in one more term than those that `begun` counts, and notes how that term got its
    /// chunks.
    async fn note_beginning(&self, id: Host, metrics: &Metrics, begun: &mut (u64, u64)) {
        loop {
            let count = |start| metrics.of_set(1).terms_begun.get(start);
            let now = (count(TermStart::hand_off), count(TermStart::epoch));
            if now != *begun {
                let kind = match now.0 > begun.0 {
                    true => "hand_off",
                    false => "epoch",
                };
                *begun = now;
                return self.trace.event(clock::now(), kind, format!("node {id}"));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn client_address(id: Host) -> std::net::SocketAddr {
    (peer_address(id).ip(), 7600).into()
}

/// The name of a node's host in turmoil.
pub fn host_name(id: Host) -> String {
    format!("node-{id}")
}

/// The simulation and its nodes.
pub struct Cluster<'a> {
    pub sim: turmoil::Sim<'a>,
    pub world: Arc<World>,
}

impl Cluster<'_> {
    /// A simulation under `seed`, with the founders of `world`.
    pub fn found(world: Arc<World>, seed: u64, rng: &mut StdRng) -> Self {
        let sim = turmoil::Builder::new()
            .simulation_duration(Duration::from_secs(3_600))
            .tick_duration(Duration::from_millis(1))
            .enable_random_order()
            .rng_seed(seed)
            .build();
        let founders = world.founders;
        let mut cluster = Cluster { sim, world };
        for id in 1..=founders {
            cluster.add(id, rng);
        }
        cluster
    }

    /// Starts a node on a machine of its own.
    pub fn add(&mut self, id: Host, rng: &mut StdRng) {
        self.world.add_machine(id, rng);
        let world = self.world.clone();
        self.sim.host(host_name(id), move || {
            let world = world.clone();
            async move {
                world.run_node(id).await;
                Ok(())
            }
        });
    }

    /// The simulated time since the start of the run.
    pub fn now(&self) -> Duration {
        self.sim.elapsed()
    }

    /// The power goes.
    pub fn crash(&mut self, id: Host, why: &str) {
        let lost = self.world.with(id, |machine| machine.disk.cut_power());
        self.world.network.close(id);
        self.sim.crash(host_name(id));
        self.world.with(id, |machine| {
            machine.disk.forget_the_past();
            machine.condition = Condition::Down;
            machine.leads = None;
        });
        let text = match lost {
            true => format!("node {id} ({why}), and loses what it had written last"),
            false => format!("node {id} ({why})"),
        };
        if lost {
            self.world.trace.note(self.now(), "crash that lost writes", id);
        }
        self.world.trace.event(self.now(), "crash", text);
    }

    /// The power comes back.
    pub fn restart(&mut self, id: Host) {
        self.world.with(id, |machine| machine.condition = Condition::Running);
        self.sim.bounce(host_name(id));
    }

    /// Clears away nodes that ended by themselves. The writes that they did not sync are lost, as after a crash.
    pub fn clear_away(&mut self) -> BTreeSet<Host> {
        let mut ended = self.world.nodes(|condition| matches!(condition, Condition::Ended(_)));
        for id in ended.clone() {
            let why = self.world.with(id, |machine| match machine.condition.clone() {
                Condition::Ended(why) => why,
                _ => String::new(),
            });
            let why = self.world.without_places(&why);
            self.world.trace.event(self.now(), "end", format!("node {id}: {why}"));
            self.crash(id, "ended by itself");
            if why.contains(UNKNOWN_FOUNDER) {
                self.world.with(id, |machine| machine.condition = Condition::Gone);
                ended.remove(&id);
            }
        }
        ended
    }
}
