//! Nodes in this process, on a network whose links can be cut.

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use ratchet::{
    clock::{BootClock, Clock},
    consensus::{GrpcTransport, RaftRpc, Transport},
    node::{Config, Node, Seams},
    proto::peer::*,
    storage::StoreOptions,
};
use tempfile::TempDir;
use tokio::sync::watch;
use tonic::Status;

use super::{Client, PATIENCE, free_ports, own_ip};

/// Which links are cut, by sender's id and receiver's peer address, and how many snapshots are to be
/// damaged on their way.
#[derive(Clone)]
pub struct Links(Arc<watch::Sender<HashSet<(u64, String)>>>, Arc<AtomicU32>);

impl Default for Links {
    fn default() -> Self {
        Links(Arc::new(watch::Sender::default()), Arc::default())
    }
}

impl Links {
    fn is_cut(&self, from: u64, to: &str) -> bool {
        self.0.borrow().contains(&(from, to.to_owned()))
    }

    /// Ends when the link is cut.
    async fn cut(&self, from: u64, to: String) {
        let mut links = self.0.subscribe();
        // The sender lives as long as `self`.
        let _ = links
            .wait_for(|cut| cut.contains(&(from, to.clone())))
            .await;
    }
}

/// One node's transport: real gRPC over links that may be cut. What is sent over a cut link
/// vanishes, as on a real network; what is on its way when it is cut does too.
struct Breakable {
    from: u64,
    links: Links,
    inner: GrpcTransport,
}

impl Breakable {
    async fn over<T>(
        &self,
        to: &str,
        timeout: Duration,
        exchange: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let vanish = async {
            tokio::time::sleep(timeout).await;
            Err(Status::deadline_exceeded("the link is cut"))
        };
        if self.links.is_cut(self.from, to) {
            return vanish.await;
        }
        tokio::select! {
            done = exchange => done,
            () = self.links.cut(self.from, to.to_owned()) => vanish.await,
        }
    }
}

#[async_trait]
impl Transport for Breakable {
    async fn raft(
        &self,
        address: &str,
        rpc: RaftRpc,
        message: RaftMessage,
        timeout: Duration,
    ) -> Result<RaftReply, Status> {
        let exchange = self.inner.raft(address, rpc, message, timeout);
        self.over(address, timeout, exchange).await
    }

    async fn install_snapshot(
        &self,
        address: &str,
        parts: BoxStream<'static, SnapshotPart>,
    ) -> Result<RaftReply, Status> {
        let one_less = |left: u32| left.checked_sub(1);
        let damaged = self.links.1.fetch_update(Relaxed, Relaxed, one_less);
        let parts = match damaged {
            Ok(_) => parts.enumerate().map(damage_second).boxed(),
            Err(_) => parts,
        };
        let exchange = self.inner.install_snapshot(address, parts);
        self.over(address, PATIENCE, exchange).await
    }

    async fn hello(
        &self,
        address: &str,
        request: HelloRequest,
        timeout: Duration,
    ) -> Result<HelloResponse, Status> {
        let exchange = self.inner.hello(address, request, timeout);
        self.over(address, timeout, exchange).await
    }

    async fn forward(
        &self,
        address: &str,
        requests: BoxStream<'static, ForwardRequests>,
    ) -> Result<BoxStream<'static, Result<ForwardReplies, Status>>, Status> {
        let exchange = self.inner.forward(address, requests);
        let replies = self.over(address, PATIENCE, exchange).await?;
        let (links, from, to) = (self.links.clone(), self.from, address.to_owned());
        let cut = async move { links.cut(from, to).await };
        Ok(replies.take_until(cut).boxed())
    }

    async fn administer(
        &self,
        address: &str,
        request: AdministerRequest,
        timeout: Duration,
    ) -> Result<AdministerReply, Status> {
        let exchange = self.inner.administer(address, request, timeout);
        self.over(address, timeout, exchange).await
    }

    fn keep(&self, addresses: std::collections::BTreeSet<String>) {
        self.inner.keep(addresses);
    }
}

/// Flips a bit in the middle of the second part: the first that holds records.
fn damage_second((at, mut part): (usize, SnapshotPart)) -> SnapshotPart {
    if at == 1 {
        let mut payload = part.payload.to_vec();
        let middle = payload.len() / 2;
        payload[middle] ^= 1;
        part.payload = payload.into();
    }
    part
}

/// A cluster in this process. Dropping it removes its directories.
pub struct Cluster {
    pub links: Links,
    pub configs: BTreeMap<u64, Config>,
    pub nodes: BTreeMap<u64, Node>,
    dirs: Mutex<Vec<TempDir>>,
    clock: Arc<dyn Clock>,
}

impl Cluster {
    /// `n` founding nodes, configured by `change`, started, and answering.
    pub async fn start(n: u64, change: impl Fn(&mut Config)) -> Cluster {
        let mut cluster = Cluster::configured(n, change);
        for id in 1..=n {
            cluster.start_node(id).await;
        }
        for id in 1..=n {
            cluster.client(id).next_at_last(u64::MAX).await;
        }
        cluster
    }

    /// `n` founding nodes, configured and not started.
    pub fn configured(n: u64, change: impl Fn(&mut Config)) -> Cluster {
        let mut cluster = Cluster {
            links: Links::default(),
            configs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            dirs: Mutex::default(),
            clock: Arc::new(BootClock),
        };
        for id in 1..=n {
            cluster.configure(id);
        }
        let peers: BTreeMap<u64, String> = cluster
            .configs
            .iter()
            .map(|(id, config)| (*id, config.peer_listen.to_string()))
            .collect();
        for config in cluster.configs.values_mut() {
            config.peers = peers.clone();
            change(config);
        }
        cluster
    }

    /// Configures a further node, on an address and a directory of its own.
    pub fn configure(&mut self, id: u64) -> &mut Config {
        let [listen, peer_listen] = free_ports(own_ip());
        let dir = TempDir::new().expect("a temporary directory");
        let config = Config {
            cluster: "test".to_owned(),
            node_id: id,
            data_dir: dir.path().join("data"),
            listen,
            peer_listen,
            metrics_listen: None,
            ..Config::default()
        };
        self.dirs.lock().unwrap().push(dir);
        self.configs.insert(id, config);
        self.configs.get_mut(&id).expect("just inserted")
    }

    pub fn seams(&self, id: u64) -> Seams {
        Seams {
            clock: self.clock.clone(),
            transport: Arc::new(Breakable {
                from: id,
                links: self.links.clone(),
                inner: GrpcTransport::default(),
            }),
            storage: StoreOptions::new(self.clock.clone()),
        }
    }

    pub async fn start_node(&mut self, id: u64) {
        let seams = self.seams(id);
        self.start_node_with(id, seams).await;
    }

    pub async fn start_node_with(&mut self, id: u64, seams: Seams) {
        let config = self.configs[&id].clone();
        let starting = async {
            loop {
                match ratchet::server::start(config.clone(), seams.clone()).await {
                    // Parts of its last run are still letting go of the directory.
                    Err(error) if error.to_string().contains("in use by another process") => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    started => return started,
                }
            }
        };
        let node = tokio::time::timeout(PATIENCE, starting)
            .await
            .expect("in time");
        self.nodes.insert(id, node.expect("the node starts"));
    }

    /// Stops a node as a crash would.
    pub async fn crash(&mut self, id: u64) {
        let node = self.nodes.remove(&id).expect("a running node");
        node.halt().await;
    }

    pub fn client(&self, id: u64) -> Client {
        Client::new(self.address(id))
    }

    pub fn address(&self, id: u64) -> SocketAddr {
        self.configs[&id].listen
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.configs.values().map(|config| config.listen).collect()
    }

    pub fn data_dir(&self, id: u64) -> &Path {
        &self.configs[&id].data_dir
    }

    /// Waits until `id` has a leader that `fits`, and answers who.
    pub async fn leader_seen_by(&self, id: u64, fits: impl Fn(u64) -> bool) -> u64 {
        let mut leadership = self.nodes[&id].context().group.leadership();
        let seen = leadership.wait_for(|now| now.leader.as_ref().is_some_and(|(l, _)| fits(*l)));
        let now = tokio::time::timeout(PATIENCE, seen)
            .await
            .expect("a leader")
            .expect("a node");
        now.leader.as_ref().expect("checked").0
    }

    /// The leader of the latest term, once it hands out numbers.
    pub async fn leader(&self) -> u64 {
        let looking = async {
            loop {
                let seen = self.nodes.iter().map(|(id, node)| {
                    let now = node.context().group.leadership().borrow().clone();
                    (now.term, now.own.is_some(), *id)
                });
                if let Some((_, true, id)) = seen.max() {
                    return id;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looking)
            .await
            .expect("a leader")
    }

    /// Up to where `leader` knows the log to be on `id`'s disk.
    pub fn acknowledged(&self, leader: u64, id: u64) -> Option<u64> {
        let nodes = self.nodes[&leader].context().group.nodes();
        let node = nodes.into_iter().find(|node| node.id == id);
        node.and_then(|node| node.log_index)
    }

    /// Waits until `id` has acknowledged all that `leader` has now.
    pub async fn caught_up(&self, leader: u64, id: u64) {
        let last = self.acknowledged(leader, leader);
        let catching_up = async {
            while self.acknowledged(leader, id) < last {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, catching_up)
            .await
            .expect("it follows");
    }

    /// Cuts a node off from its peers, both ways; clients still reach it.
    pub fn cut_off(&self, id: u64) {
        let others = self.configs.keys().filter(|other| **other != id);
        self.links.0.send_modify(|cut| {
            for other in others {
                cut.insert((id, self.configs[other].peer_listen.to_string()));
                cut.insert((*other, self.configs[&id].peer_listen.to_string()));
            }
        });
    }

    /// Damages the next `n` snapshots on their way.
    pub fn damage_snapshots(&self, n: u32) {
        self.links.1.store(n, Relaxed);
    }

    /// Mends all links.
    pub fn mend(&self) {
        self.links.0.send_modify(HashSet::clear);
    }
}
