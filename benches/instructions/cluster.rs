//! Three nodes on this thread: their network is in memory, and their time stands still while there is something to do.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use ratchet::{
    clock::{Clock, Instant},
    consensus::{Destination, RaftRpc, Transport},
    node::{Addresses, Asker, Config, Node, Seams},
    proto::{
        Refusal,
        peer::{peer_server::Peer, *},
        v1::FoundRequest,
    },
    server::{PeerServices, Services},
    storage::BlockingExecutor,
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tonic::{Request, Response, Status};

const NODES: u64 = 3;
/// How long a call may take, in simulated time.
const PATIENCE: Duration = Duration::from_secs(60);
/// The wall clock at the start, in milliseconds since 1970.
const WALL_MS: u64 = 1_750_000_000_000;

/// The cluster. It does something only while [`Cluster::run`] runs.
pub struct Cluster {
    runtime: Runtime,
    network: Network,
    nodes: BTreeMap<u64, Node>,
    dir: TempDir,
}

impl Cluster {
    /// A cluster that is founded, and hands out numbers. `change` is made to the configuration of its nodes.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start(change: impl Fn(&mut Config)) -> Cluster {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        let dir = TempDir::new().expect("a temporary directory");
        let network = Network::default();
        let mut cluster = Cluster { runtime, network, nodes: BTreeMap::new(), dir };
        for id in 1..=NODES {
            cluster.start_node(id, &change);
        }
        let context = cluster.nodes[&1].context().clone();
        cluster.run(async {
            let deadline = tokio::time::Instant::now() + PATIENCE;
            let founded =
                context.operations.ask(&FoundRequest::default(), &Asker::node(1), deadline).await;
            founded.expect("the cluster is founded");
        });
        cluster
    }

    fn start_node(&mut self, id: u64, change: impl Fn(&mut Config)) {
        let addresses = Addresses {
            client: client_address(id),
            peer: peer_address(id),
            metrics: None,
            http: None,
            resp: None,
            admin: None,
        };
        let mut config = Config {
            cluster: "count".to_owned(),
            node_id: id,
            data_dir: self.dir.path().join(id.to_string()),
            listen: addresses.client,
            peer_listen: addresses.peer,
            metrics_listen: None,
            http_listen: None,
            resp_listen: None,
            peers: (1..=NODES).map(|id| (id, peer_address(id).to_string())).collect(),
            disk_reserve_mb: 0,
            ..Config::default()
        };
        change(&mut config);
        let transport = self.network.clone();
        let node = self.run(async move {
            let mut seams = Seams::real(Arc::new(transport));
            seams.clock = Arc::new(RuntimeClock(tokio::time::Instant::now()));
            seams.storage.clock = seams.clock.clone();
            seams.storage.blocking = BlockingExecutor::Inline;
            seams.listens_before_founding = Duration::ZERO;
            Node::start(config, seams, addresses).await.expect("a node")
        });
        let peers = PeerServices { context: node.context().clone(), stop: node.stopping() };
        self.network.0.lock().expect("the network").insert(peer_address(id).to_string(), peers);
        self.nodes.insert(id, node);
    }

    /// Runs something at the nodes.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// The node that leads the latest term, once it hands out numbers.
    pub fn leader(&self) -> u64 {
        self.run(async {
            loop {
                let seen = self.nodes.iter().map(|(id, node)| {
                    let now = node.context().group.leadership().borrow().clone();
                    (now.term, now.own.is_some(), *id)
                });
                if let Some((_, true, id)) = seen.max() {
                    return id;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    }

    /// The services that a node's interfaces call.
    pub fn services(&self, id: u64) -> Services {
        let node = &self.nodes[&id];
        Services { context: node.context().clone(), stop: node.stopping() }
    }

    /// The leader crashes. Returns the next one, once it hands out numbers.
    pub fn crash_leader(&mut self) -> u64 {
        let leader = self.leader();
        self.network.0.lock().expect("the network").remove(&peer_address(leader).to_string());
        let node = self.nodes.remove(&leader).expect("it runs");
        self.run(node.halt());
        self.leader()
    }
}

fn client_address(id: u64) -> SocketAddr {
    ([127, 0, 0, 1], 7_600 + u16::try_from(id).expect("few nodes")).into()
}

fn peer_address(id: u64) -> SocketAddr {
    ([127, 0, 0, 1], 7_700 + u16::try_from(id).expect("few nodes")).into()
}

/// The time of the runtime, since the start.
struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Instant {
        // A node takes 0 for no time.
        Instant::from_nanos(1).after(self.0.elapsed())
    }

    fn wall_ms(&self) -> u64 {
        WALL_MS + self.now().as_nanos() / 1_000_000
    }
}

/// The nodes, by their addresses for peers. A message is a call, and arrives at once.
#[derive(Clone, Default)]
struct Network(Arc<Mutex<BTreeMap<String, PeerServices>>>);

impl Network {
    fn at(&self, address: &str) -> Result<PeerServices, Refusal> {
        let known = self.0.lock().expect("the network").get(address).cloned();
        known.ok_or_else(|| Status::unavailable(format!("nobody listens at {address}")).into())
    }
}

async fn in_time<T>(
    timeout: Duration, call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Refusal> {
    let late = |_| Status::deadline_exceeded("no answer in time");
    let answered = tokio::time::timeout(timeout, call).await.map_err(late);
    Ok(answered.and_then(|answer| answer).map_err(Refusal::from)?.into_inner())
}

#[async_trait]
impl Transport for Network {
    async fn raft(
        &self, to: Destination<'_>, rpc: RaftRpc, message: RaftMessage, timeout: Duration,
    ) -> Result<RaftReply, Refusal> {
        let to = self.at(to.address)?;
        in_time(timeout, to.raft(rpc, Request::new(message))).await
    }

    async fn install_snapshot(
        &self, to: Destination<'_>, parts: BoxStream<'static, SnapshotPart>,
    ) -> Result<RaftReply, Refusal> {
        let to = self.at(to.address)?;
        to.take_snapshot(parts.map(Ok)).await.map_err(Refusal::from)
    }

    async fn send_memory(
        &self, to: Destination<'_>, parts: BoxStream<'static, MemoryPart>,
    ) -> Result<MemoryReply, Refusal> {
        let to = self.at(to.address)?;
        to.receive_memory(parts.map(Ok)).await.map_err(Refusal::from)
    }

    async fn hello(
        &self, to: Destination<'_>, request: HelloRequest, timeout: Duration,
    ) -> Result<HelloResponse, Refusal> {
        let to = self.at(to.address)?;
        in_time(timeout, to.hello(Request::new(request))).await
    }

    async fn forward(
        &self, to: Destination<'_>, requests: BoxStream<'static, ForwardRequests>,
    ) -> Result<BoxStream<'static, Result<ForwardReplies, Refusal>>, Refusal> {
        let to = self.at(to.address)?;
        let requests = requests.map(Ok).chain(stream::empty());
        Ok(to.answer_forwarded(requests.boxed()).map_err(Refusal::from).boxed())
    }

    async fn administer(
        &self, to: Destination<'_>, request: AdministerRequest, timeout: Duration,
    ) -> Result<AdministerReply, Refusal> {
        let to = self.at(to.address)?;
        in_time(timeout, to.administer(Request::new(request))).await
    }
}
