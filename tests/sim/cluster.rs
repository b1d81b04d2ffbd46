//! The nodes of one run: each a host of its own, which crashes as a machine does.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt;
use rand::{RngExt, rngs::StdRng};
use ratchet::{
    clock::Clock,
    node::{Addresses, Config, Node, Seams},
    server::PeerService,
};

use crate::{
    clock::{self, NodeClock},
    disk::Disk,
    network::{Doors, Host, Network},
    trace::Trace,
    transport::{SimTransport, peer_address},
};

/// What all hosts of a run share.
pub struct World {
    pub network: Network,
    pub trace: Arc<Trace>,
    /// What every node is configured with, but for who it is.
    pub config: Config,
    pub founders: u64,
    state: Mutex<BTreeMap<Host, Machine>>,
}

/// A node's machine, which outlives its process.
pub struct Machine {
    pub disk: Arc<Disk>,
    pub clock: Arc<NodeClock>,
    pub condition: Condition,
    /// The term that it leads, and hands out numbers in.
    pub leads: Option<u64>,
}

/// What a node's process does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Running,
    /// It ended by itself, and is still to be cleared away.
    Ended(String),
    Down,
    /// It was removed from the cluster and does not come back.
    Gone,
}

impl World {
    pub fn new(network: Network, trace: Arc<Trace>, config: Config, founders: u64) -> Arc<World> {
        Arc::new(World {
            network,
            trace,
            config,
            founders,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, BTreeMap<Host, Machine>> {
        self.state.lock().expect("the world")
    }

    /// A new machine, on which nothing runs yet.
    pub fn add_machine(&self, id: Host, rng: &mut StdRng) {
        let offset = Duration::from_millis(rng.random_range(0..10_000_000));
        let machine = Machine {
            disk: Disk::new(rng.random()),
            clock: Arc::new(NodeClock::new(offset, rng.random_range(0.9..1.1))),
            condition: Condition::Running,
            leads: None,
        };
        self.state().insert(id, machine);
    }

    /// A text without the places of data directories, which differ from run to run.
    pub fn without_places(&self, text: &str) -> String {
        let state = self.state();
        state.values().fold(text.to_owned(), |text, machine| {
            text.replace(&machine.disk.parent().display().to_string(), "")
        })
    }

    /// What a status says.
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

    /// Those that belong to the cluster, or may.
    pub fn members(&self) -> BTreeSet<Host> {
        self.nodes(|condition| *condition != Condition::Gone)
    }

    /// Who leads, where somebody says that he does.
    pub fn leader(&self) -> Option<Host> {
        let state = self.state();
        let leaders = state.iter().filter_map(|(id, m)| Some((m.leads?, *id)));
        leaders.max().map(|(_, id)| id)
    }

    fn config_of(&self, id: Host) -> Config {
        let founding = id <= self.founders;
        let address = |id| (id, peer_address(id).to_string());
        Config {
            node_id: id,
            data_dir: self.with(id, |machine| machine.disk.data_dir()),
            listen: client_address(id),
            peer_listen: peer_address(id),
            metrics_listen: None,
            join: !founding,
            peers: match founding {
                true => (1..=self.founders).map(address).collect(),
                false => BTreeMap::new(),
            },
            ..self.config.clone()
        }
    }

    /// What runs on a node's host: the node, until it crashes or ends by itself.
    pub async fn run_node(self: Arc<Self>, id: Host) {
        let config = self.config_of(id);
        let (clock, disk) = self.with(id, |machine| {
            machine.condition = Condition::Running;
            (machine.clock.clone(), machine.disk.clone())
        });
        let clock: Arc<dyn Clock> = clock;
        let seams = Seams {
            clock: clock.clone(),
            transport: Arc::new(SimTransport {
                from: id,
                network: self.network.clone(),
            }),
            storage: disk.options(clock),
        };
        let addresses = Addresses {
            client: client_address(id),
            peer: peer_address(id),
            metrics: None,
        };
        let ended = match Node::start(config, seams, addresses).await {
            Ok(node) => self.clone().serve(id, &node).await,
            Err(error) => error.to_string(),
        };
        self.network.close(id);
        self.with(id, |machine| {
            machine.condition = Condition::Ended(ended);
            machine.leads = None;
        });
        // Whatever the node still has running is cleared away by the crash that follows.
        std::future::pending().await
    }

    async fn serve(self: Arc<Self>, id: Host, node: &Node) -> String {
        let doors = Doors {
            shared: node.context().clone(),
            peers: Arc::new(PeerService::new(node.context().clone(), node.stopping())),
        };
        let mut messages = self.network.open(id);
        self.trace
            .event(clock::now(), "start", format!("node {id} is up"));
        tokio::spawn(self.clone().watch_leadership(id, doors.clone()));
        let mut failed = std::pin::pin!(node.failed().fuse());
        tokio::select! {
            biased;
            fault = &mut failed => fault.to_string(),
            () = self.network.deliver(id, &mut messages, &doors) => "its inbox is gone".to_owned(),
        }
    }

    async fn watch_leadership(self: Arc<Self>, id: Host, doors: Doors) {
        let mut leadership = doors.shared.group.leadership();
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
            if leadership.changed().await.is_err() {
                return;
            }
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

    /// How long the run has taken, truly.
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
            self.world
                .trace
                .note(self.now(), "crash that lost writes", id);
        }
        self.world.trace.event(self.now(), "crash", text);
    }

    /// The power comes back.
    pub fn restart(&mut self, id: Host) {
        self.world
            .with(id, |machine| machine.condition = Condition::Running);
        self.sim.bounce(host_name(id));
    }

    /// Clears away nodes that ended by themselves: as after a crash, what they did not sync is gone.
    pub fn clear_away(&mut self) -> BTreeSet<Host> {
        let ended = self
            .world
            .nodes(|condition| matches!(condition, Condition::Ended(_)));
        for &id in &ended {
            let why = self
                .world
                .with(id, |machine| match machine.condition.clone() {
                    Condition::Ended(why) => why,
                    _ => String::new(),
                });
            let why = self.world.without_places(&why);
            self.world
                .trace
                .event(self.now(), "end", format!("node {id}: {why}"));
            self.crash(id, "ended by itself");
        }
        ended
    }
}
