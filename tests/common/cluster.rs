//! Nodes in this process, with links between them that a test can cut.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use ratchet::{
    clock::{BootClock, Clock},
    node::{Asker, Config, Node, NodeContext, Seams, StartError},
    proto::{
        Refusal,
        v1::{FoundRequest, FoundResponse},
    },
    storage::{Margin, Recovery, StoreError, StoreOptions},
};
use tempfile::TempDir;
use tokio::time::Instant;

use super::{
    Client, PATIENCE, eventually, free_ports, in_time,
    links::{LinkedTransport, Links},
    other_than, own_ip, unhurried, until,
};

/// A cluster in this process. Dropping it removes its directories.
pub struct Cluster {
    pub links: Links,
    pub configs: BTreeMap<u64, Config>,
    pub nodes: BTreeMap<u64, Node>,
    dirs: Mutex<Vec<TempDir>>,
    clock: Arc<dyn Clock>,
}

/// Has a node found a cluster.
pub async fn have_it_found(
    node: &Arc<NodeContext>, deadline: Instant,
) -> Result<FoundResponse, Refusal> {
    let (founded, _) =
        node.operations.ask(&FoundRequest::default(), &Asker::node(1), deadline).await?;
    Ok(founded)
}

impl Cluster {
    /// `n` founding nodes, configured by `change`, started, founded, and answering.
    pub async fn start(n: u64, change: impl Fn(&mut Config)) -> Cluster {
        let mut cluster = Cluster::configured(n, change);
        for id in 1..=n {
            cluster.start_node(id).await;
        }
        cluster.all_answer().await;
        cluster
    }

    /// Founds the cluster, unless it is founded. Its nodes must run.
    pub async fn found(&self) {
        let (_, node) = self.nodes.iter().next().expect("a running node");
        let founded = have_it_found(node.context(), Instant::now() + PATIENCE).await;
        founded.expect("the cluster is founded");
    }

    /// Founds the cluster, unless it is founded, and waits until every configured node hands out numbers.
    pub async fn all_answer(&self) {
        self.found().await;
        for id in self.configs.keys() {
            self.client(*id).next_at_last(u64::MAX).await;
        }
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
        let mut config = Config {
            cluster: "test".to_owned(),
            node_id: id,
            data_dir: dir.path().join("data"),
            listen,
            peer_listen,
            metrics_listen: None,
            http_listen: None,
            resp_listen: None,
            ..Config::default()
        };
        unhurried(&mut config);
        self.dirs.lock().unwrap().push(dir);
        self.configs.insert(id, config);
        self.configs.get_mut(&id).expect("just inserted")
    }

    /// How node `id` sends to its peers.
    pub fn transport(&self, id: u64) -> LinkedTransport {
        LinkedTransport::new(id, self.links.clone())
    }

    pub fn seams(&self, id: u64) -> Seams {
        self.seams_with(self.transport(id))
    }

    /// The seams of a node that sends by `transport`.
    pub fn seams_with(&self, transport: LinkedTransport) -> Seams {
        Seams {
            clock: self.clock.clone(),
            transport: Arc::new(transport),
            storage: StoreOptions::new(self.clock.clone()),
            listens_before_founding: Duration::ZERO,
            certificates: Arc::new(()),
        }
    }

    pub async fn start_node(&mut self, id: u64) {
        let seams = self.seams(id);
        self.start_node_with(id, seams).await;
    }

    pub async fn start_node_with(&mut self, id: u64, seams: Seams) {
        let node = self.try_start(id, seams).await.expect("the node starts");
        self.nodes.insert(id, node);
    }

    /// Starts a node, if it can start.
    pub async fn try_start(&self, id: u64, seams: Seams) -> Result<Node, StartError> {
        start_at_last(&self.configs[&id], seams).await
    }

    /// Starts a node as production does. Its messages go over no links of the test's, and over TLS if `peer_tls` says so.
    pub async fn start_node_of_production(&mut self, id: u64) {
        let config = &self.configs[&id];
        let node = once_not_held(async || ratchet::server::start(config.clone()).await).await;
        self.nodes.insert(id, node.expect("the node starts"));
    }

    /// Recovers the data directory of a node that is stopped.
    pub async fn recover(&self, id: u64, margin: &Margin, dry_run: bool) -> Recovery {
        let dir = self.data_dir(id);
        let recovered = once_free(|| ratchet::node::recover(dir, margin, dry_run)).await;
        recovered.expect("it is recovered").0
    }

    /// Configures and starts a further node, which waits to be added; answers its peer address.
    pub async fn start_joining(&mut self, id: u64, change: impl FnOnce(&mut Config)) -> String {
        let config = self.configure(id);
        change(config);
        let peer_address = config.peer_listen.to_string();
        self.start_node(id).await;
        peer_address
    }

    /// Starts a further node, has it added as a learner by way of node `asked`, and waits until it has the log: before it has
    /// anything of it, a crash would make it another node.
    pub async fn add_learner(&mut self, asked: u64, id: u64) {
        let peer_address = self.start_joining(id, |_| {}).await;
        self.client(asked).add_node_at_last(id, peer_address).await;
        self.caught_up(self.leader().await, id).await;
    }

    /// Starts a further node, and has it added as a voter by way of node `asked`.
    pub async fn add_voter(&mut self, asked: u64, id: u64) {
        self.add_learner(asked, id).await;
        let promoted = self.client(asked).promote_node(id).await;
        promoted.expect("the node is promoted");
    }

    /// Stops a node as a crash would, and waits until its files are closed, as the end of its process would
    /// see to: a database that is being closed still removes files of its own. A process that another test starts has them, and
    /// the lock of the directory, until its own program begins.
    pub async fn crash(&mut self, id: u64) {
        let node = self.nodes.remove(&id).expect("a running node");
        node.halt().await;
        let data_dir = self.data_dir(id);
        until("the files of the node's last run are closed", || {
            open_files().iter().all(|file| !file.starts_with(data_dir))
        })
        .await;
        // A test may have taken the directory away.
        if let Ok(lock) = fs::metadata(data_dir.join("LOCK")) {
            until("nobody holds the lock of the directory", || !is_locked(lock.ino())).await;
        }
    }

    pub fn client(&self, id: u64) -> Client {
        Client::new(self.address(id))
    }

    pub fn address(&self, id: u64) -> SocketAddr {
        self.configs[&id].listen
    }

    /// Where administrators ask a node: at the port for them, if it has one.
    pub fn admin_address(&self, id: u64) -> SocketAddr {
        self.nodes[&id].addresses().admin.unwrap_or_else(|| self.address(id))
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.configs.values().map(|config| config.listen).collect()
    }

    pub fn data_dir(&self, id: u64) -> &Path {
        &self.configs[&id].data_dir
    }

    /// Crashes the leader, and starts it again once another node hands out numbers.
    pub async fn crash_leader_for_a_while(&mut self) {
        let leader = self.leader().await;
        self.crash(leader).await;
        let other = other_than(leader);
        self.leader_seen_by(other, |seen| seen != leader).await;
        self.client(other).next_at_last(1).await;
        self.start_node(leader).await;
    }

    /// Waits until `id` has a leader that `fits`, and returns the leader.
    pub async fn leader_seen_by(&self, id: u64, fits: impl Fn(u64) -> bool) -> u64 {
        let mut leadership = self.nodes[&id].context().group.leadership();
        let seen = leadership.wait_for(|now| now.leader.as_ref().is_some_and(|(l, _)| fits(*l)));
        let now = in_time("a leader that fits", seen).await;
        now.expect("a running node").leader.as_ref().expect("checked").0
    }

    /// The leader of the latest term, once it hands out numbers.
    pub async fn leader(&self) -> u64 {
        eventually("a leader", async || {
            let seen = self.nodes.iter().map(|(id, node)| {
                let now = node.context().group.leadership().borrow().clone();
                (now.term, now.own.is_some(), *id)
            });
            let (_, leads, id) = seen.max()?;
            leads.then_some(id)
        })
        .await
    }

    /// Has a node lead. On a slow machine the node may take over too late: then the leader of that moment is asked again.
    pub async fn lead(&self, node: u64) {
        eventually("the node leads", async || {
            let leader = self.leader().await;
            if leader == node {
                return Some(());
            }
            // Whether it leads is looked at next.
            let _ = self.client(leader).transfer(node).await;
            None
        })
        .await;
        self.leader_seen_by(node, |leader| leader == node).await;
    }

    /// Up to where `leader` knows the log to be on `id`'s disk.
    pub fn acknowledged(&self, leader: u64, id: u64) -> Option<u64> {
        let nodes = self.nodes[&leader].context().group.membership.nodes();
        let node = nodes.into_iter().find(|node| node.id == id);
        node.and_then(|node| node.log_index)
    }

    /// Waits until `id` has acknowledged all that `leader` has now.
    pub async fn caught_up(&self, leader: u64, id: u64) {
        let last = self.acknowledged(leader, leader);
        let has_all = || self.acknowledged(leader, id) >= last;
        until("the node acknowledges the whole log", has_all).await;
    }

    /// Cuts a node off from its peers, both ways; clients still reach it.
    pub fn cut_off(&self, id: u64) {
        let others = self.configs.keys().filter(|other| **other != id);
        let peer_address = |id: &u64| self.configs[id].peer_listen.to_string();
        for other in others {
            self.links.cut(id, peer_address(other));
            self.links.cut(*other, peer_address(&id));
        }
    }

    /// Mends all links.
    pub fn mend(&self) {
        self.links.mend();
    }
}

/// The paths of the files that this process has open.
fn open_files() -> Vec<PathBuf> {
    let descriptors = fs::read_dir("/proc/self/fd").expect("a process has a list of its files");
    // One that was closed meanwhile has no path.
    descriptors.filter_map(|descriptor| fs::read_link(descriptor.ok()?.path()).ok()).collect()
}

/// Whether anybody holds a lock of the file with this number.
fn is_locked(inode: u64) -> bool {
    let locks = fs::read_to_string("/proc/locks").expect("a list of all locks");
    let of_file = format!(":{inode}");
    locks.lines().any(|lock| lock.split_whitespace().any(|word| word.ends_with(&of_file)))
}

/// Starts a node with this configuration, if it can start, once its directory and its ports are free.
pub async fn start_at_last(config: &Config, seams: Seams) -> Result<Node, StartError> {
    once_not_held(async || ratchet::server::start_with(config.clone(), seams.clone()).await).await
}

/// The result of `starts`, once the node's directory and its ports are free.
async fn once_not_held(
    starts: impl AsyncFn() -> Result<Node, StartError>,
) -> Result<Node, StartError> {
    eventually("the directory and the ports of the node are free", async || match starts().await {
        Err(error) if is_held_for_a_moment(&error) => None,
        started => Some(started),
    })
    .await
}

/// Whether a node cannot start for the moment: its last run holds its directory, or a process that another test starts holds a
/// port. Such a process has all files of this one until its own program begins.
fn is_held_for_a_moment(error: &StartError) -> bool {
    match error {
        StartError::Listen { source, .. } => source.kind() == std::io::ErrorKind::AddrInUse,
        other => tells_of_a_held_directory(other),
    }
}

fn tells_of_a_held_directory(error: &impl ToString) -> bool {
    error.to_string().contains("in use by another process")
}

/// The result of `opens`, once no process that another test starts holds the data directory for a moment.
pub async fn once_free<T>(opens: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
    eventually("the data directory is free", async || match opens() {
        Err(error) if tells_of_a_held_directory(&error) => None,
        opened => Some(opened),
    })
    .await
}
