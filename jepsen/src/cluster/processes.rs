//! The nodes of a cluster, with their addresses, disks and clocks.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use super::{
    config::{ClusterConfig, Fence, Product},
    pods::Pods,
    ports::{CLIENT_PORT, HTTP_PORT, METRICS_PORT, PEER_PORT, RESP_PORT},
    process::Process,
    secrets::{CLUSTER, Secrets},
};
use crate::{
    address::Address,
    client::Client,
    clock::{self, Clock},
    disk::Disk,
    network::{self, Network, Port},
    nodes::Starts,
};

/// The text of any panic in a node's log.
const PANICKED: &str = " panicked";

/// One node.
pub struct Node {
    process: Process,
    disk: Option<Disk>,
    data_dir: PathBuf,
    /// Its clocks, where the preload works.
    pub clock: Option<Clock>,
    is_founder: bool,
}

/// A cluster. Dropping it kills its processes.
pub struct Cluster {
    /// The configuration of the cluster.
    pub config: ClusterConfig,
    /// Its network; `None` on loopback addresses, where links cannot fail.
    pub network: Option<Network>,
    /// The pods that nodes run in; `None` without a manifest.
    pub pods: Option<Pods>,
    nodes: BTreeMap<Port, Node>,
    /// How often each node was started.
    pub starts: Starts,
    dir: PathBuf,
    preload: Option<PathBuf>,
    /// `None` if the cluster is not secure.
    secrets: Option<Secrets>,
}

impl Cluster {
    /// Creates all nodes with their network, disks and clocks, and starts the founding ones.
    ///
    /// # Errors
    /// The network, a disk, a clock's file or a certificate cannot be made here, or the program cannot be run.
    pub fn start(config: ClusterConfig, dir: &Path) -> io::Result<Cluster> {
        let network =
            config.isolated.then(|| Network::start(config.room(), config.seed)).transpose()?;
        let preload = clock::build(dir)
            .inspect_err(|error| eprintln!("clocks cannot be changed here: {error}"))
            .ok();
        let mut cluster = Cluster {
            network,
            pods: None,
            nodes: BTreeMap::new(),
            starts: Starts::default(),
            dir: dir.to_owned(),
            preload,
            secrets: None,
            config,
        };
        cluster.secrets = cluster.make_secrets()?;
        cluster.pods = cluster.first_pods()?;
        for id in 1..=cluster.config.room() {
            let node = cluster.create_node(id)?;
            cluster.nodes.insert(id, node);
        }
        for id in 1..=cluster.config.nodes {
            cluster.spawn(id)?;
        }
        Ok(cluster)
    }

    /// Each founder runs in the pod whose number it has.
    fn first_pods(&self) -> io::Result<Option<Pods>> {
        let Some(manifest) = &self.config.manifest else {
            return Ok(None);
        };
        let numbers = manifest.numbers()?;
        let mut pods = Pods::start(manifest.clone(), &self.dir)?;
        if numbers != (1..u64::from(self.config.nodes) + 1) {
            let why = format!("the manifest has pods {numbers:?}, and {} nodes", self.config.nodes);
            return Err(io::Error::other(why));
        }
        for id in 1..=self.config.nodes {
            pods.assign(id, id.into());
        }
        Ok(Some(pods))
    }

    fn make_secrets(&self) -> io::Result<Option<Secrets>> {
        if !self.config.secure {
            return Ok(None);
        }
        let nodes: Vec<(Port, IpAddr)> =
            (1..=self.config.room()).map(|id| (id, self.host(id))).collect();
        let (binary, preload) = (&self.config.binary, self.preload.as_deref());
        Secrets::make(binary, &self.dir, preload, &nodes).map(Some)
    }

    /// Sees that no file below `dir`, where the run is told of, tells a token or a private key of the cluster.
    ///
    /// # Errors
    /// A file does, or cannot be read.
    pub fn check_secrets_untold(&self, dir: &Path) -> io::Result<()> {
        self.secrets.as_ref().map_or(Ok(()), |secrets| secrets.check_untold(dir))
    }

    fn create_node(&self, id: Port) -> io::Result<Node> {
        let mount = self.dir.join(format!("disk-{id}"));
        fs::create_dir_all(&mount)?;
        let seed = self.config.seed.wrapping_add(id.into());
        let disk = self.config.faulty_disks.then(|| Disk::mount(&mount, seed)).transpose()?;
        let clock = match &self.preload {
            Some(_) => Some(Clock::new(self.dir.join(format!("clock-{id}")))?),
            None => None,
        };
        Ok(Node {
            process: Process::NotStarted,
            disk,
            data_dir: mount.join("data"),
            clock,
            is_founder: id <= self.config.nodes,
        })
    }

    fn host(&self, id: Port) -> IpAddr {
        if self.network.is_some() {
            network::address(id).into()
        } else {
            let process = (std::process::id() % (250 * 250)) as u16;
            let (high, low) = ((process / 250) as u8, (process % 250) as u8);
            Ipv4Addr::new(127, 2 + high % 90, low, id).into()
        }
    }

    /// The address of a node, and the credentials of its callers.
    pub fn address(&self, id: Port) -> Address {
        let access = self.secrets.as_ref().map(|secrets| secrets.access.clone());
        Address::new(self.client_address(id), access)
    }

    fn client_address(&self, id: Port) -> SocketAddr {
        (self.host(id), CLIENT_PORT).into()
    }

    /// Where a node's peers reach it.
    pub fn peer_address(&self, id: Port) -> SocketAddr {
        (self.host(id), PEER_PORT).into()
    }

    /// Where its peers reach a node, as they are told.
    ///
    /// # Errors
    /// The node shall run in a pod, and has none.
    pub fn peer_name(&self, id: Port) -> io::Result<String> {
        match &self.pods {
            Some(pods) => pods.peer_address(id, PEER_PORT),
            None => Ok(self.peer_address(id).to_string()),
        }
    }

    /// Removes the pod of a node that does not run. It gets another one at its next start.
    ///
    /// # Errors
    /// The network cannot be changed.
    pub fn remove_pod(&mut self, id: Port) -> io::Result<Option<u8>> {
        match (&mut self.pods, &self.network) {
            (Some(pods), Some(network)) => pods.remove(id, network),
            _ => Ok(None),
        }
    }

    /// Makes the pod of a node with this address.
    ///
    /// # Errors
    /// The network cannot be changed.
    pub fn make_pod_at(&mut self, id: Port, host: u8) -> io::Result<()> {
        match (&mut self.pods, &self.network) {
            (Some(pods), Some(network)) => pods.make_at(id, host, network),
            _ => Ok(()),
        }
    }

    /// A node's address at this port, as callers reach it.
    pub fn at(&self, id: Port, port: u16) -> SocketAddr {
        (self.host(id), port).into()
    }

    /// A connection to a node.
    pub fn client(&self, id: Port) -> Client {
        Client::new(self.address(id))
    }

    /// The file with a node's log.
    pub fn log(&self, id: Port) -> PathBuf {
        self.dir.join(format!("node-{id}.log"))
    }

    /// The lines in which nodes say that one of their tasks panicked. No fault may make them do that.
    pub fn panics(&self) -> Vec<String> {
        let logs = (1..=self.config.room()).map(|id| (id, self.log(id)));
        let found = logs.flat_map(|(id, log)| {
            // A node that was never started has no log.
            let text = fs::read(log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let panics = text.lines().filter(|line| line.contains(PANICKED));
            Vec::from_iter(panics.map(|line| format!("node {id}: {line}")))
        });
        found.collect()
    }

    fn founders(&self) -> String {
        let founders = 1..=self.config.nodes;
        let founders: Vec<String> =
            founders.map(|id| format!("{id}={}", self.peer_address(id))).collect();
        founders.join(",")
    }

    fn max_wins_arguments(&self, id: Port) -> Vec<String> {
        vec![
            "max-wins".to_owned(),
            format!("--listen={}", self.client_address(id)),
            format!("--peer-listen={}", self.peer_address(id)),
            format!("--peers={}", self.founders()),
        ]
    }

    /// The arguments that say where a node listens, and how it finds the others.
    fn place_arguments(&self, id: Port) -> Vec<String> {
        let peers = self.nodes[&id].is_founder.then(|| format!("--peers={}", self.founders()));
        let mut arguments = vec![
            "start".to_owned(),
            format!("--cluster={CLUSTER}"),
            format!("--node-id={id}"),
            format!("--listen={}", self.client_address(id)),
            format!("--peer-listen={}", self.peer_address(id)),
            format!("--metrics-listen={}", self.at(id, METRICS_PORT)),
            format!("--http-listen={}", self.at(id, HTTP_PORT)),
            format!("--resp-listen={}", self.at(id, RESP_PORT)),
            // In a network namespace the addresses are none of loopback, and nobody else is there.
            "--insecure".to_owned(),
        ];
        arguments.extend(peers);
        arguments
    }

    fn ratchet_arguments(&self, id: Port, placed: Vec<String>) -> Vec<String> {
        let node = &self.nodes[&id];
        let fence = match self.config.fence {
            Fence::Lease => "lease",
            Fence::Quorum => "quorum",
        };
        let mut arguments = placed;
        arguments.extend([
            format!("--data-dir={}", node.data_dir.display()),
            format!("--fence={fence}"),
            format!("--log-keep-bytes={}", self.config.log_keep_bytes),
            // Wall clocks that are hours apart are believed, so that ids are made under them.
            "--clock-apart-max-ms=86400000".to_owned(),
        ]);
        if let Some(timings) = self.config.timings {
            arguments.push(format!("--lease-ms={}", timings.lease_ms));
            arguments.push(format!("--election-timeout-ms={}", timings.election_timeout_ms));
        }
        arguments.extend(self.secrets.iter().flat_map(|secrets| secrets.of_node(id)));
        let limits = [
            ("key-idle-ms", self.config.key_idle_ms),
            ("memory-max-mb", self.config.memory_max_mb),
        ];
        let limits = limits.into_iter().filter_map(|(name, limit)| Some((name, limit?)));
        arguments.extend(limits.map(|(name, limit)| format!("--{name}={limit}")));
        arguments
    }

    /// A node's whole command line: its network namespace, its environment, the program, its arguments.
    ///
    /// # Errors
    /// The manifest does not state the command line.
    fn command_line(&self, id: Port) -> io::Result<Vec<String>> {
        let mut words: Vec<String> = Vec::new();
        if self.network.is_some() {
            words.extend(["ip", "netns", "exec"].map(str::to_owned));
            words.push(network::namespace(id));
        }
        words.push("env".to_owned());
        if let (Some(library), Some(clock)) = (&self.preload, &self.nodes[&id].clock) {
            words.push(format!("LD_PRELOAD={}", library.display()));
            words.push(format!("RATCHET_JEPSEN_CLOCK={}", clock.path().display()));
        }
        if let Some(bug) = &self.config.bug {
            words.push(format!("RATCHET_PLANTED_BUG={bug}"));
        }
        let placed = match &self.pods {
            None => self.place_arguments(id),
            Some(pods) => {
                let (variables, arguments) = pods.start_with(id)?;
                words.extend(variables);
                arguments
            }
        };
        words.push(self.config.binary.display().to_string());
        words.extend(match self.config.product {
            Product::MaxWins => self.max_wins_arguments(id),
            Product::Ratchet => self.ratchet_arguments(id, placed),
        });
        Ok(words)
    }

    /// Starts a node's process, unless it is alive.
    ///
    /// # Errors
    /// The node's log cannot be opened, or the program cannot be run.
    pub fn spawn(&mut self, id: Port) -> io::Result<()> {
        if self.node(id).process.is_alive() {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(self.log(id))?;
        if let (Some(pods), Some(network)) = (&mut self.pods, &self.network) {
            pods.make(id, network)?;
        }
        let words = self.command_line(id)?;
        self.starts.note(id.into());
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        self.node(id).process = Process::Running(child);
        Ok(())
    }

    /// A node.
    pub fn node(&mut self, id: Port) -> &mut Node {
        self.nodes.get_mut(&id).expect("nodes are never removed")
    }

    /// A node's disk; `None` where disks do not fail.
    pub fn disk(&self, id: Port) -> Option<&Disk> {
        self.nodes[&id].disk.as_ref()
    }

    /// A node's data directory.
    pub fn data_dir(&self, id: Port) -> &Path {
        &self.nodes[&id].data_dir
    }

    /// How a node's process ended, if it did.
    pub fn exit_status(&mut self, id: Port) -> Option<ExitStatus> {
        self.node(id).process.exit_status()
    }

    /// Waits until a node's process ends by itself; `None` if it does not within `limit`.
    pub async fn wait_for_exit(&mut self, id: Port, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.exit_status(id) {
                return Some(status);
            }
            if Instant::now() > end {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// kill -9. Waits until the process has ended; returns whether the signal ended it.
    pub fn kill(&mut self, id: Port) -> bool {
        let node = self.node(id);
        let killed = match &node.disk {
            Some(disk) => disk.without_waits(|| node.process.kill()),
            None => node.process.kill(),
        };
        // The disk answers in order: when it answers this, all that the process asked for is done.
        let _ = fs::metadata(&node.data_dir);
        killed
    }

    /// SIGTERM.
    pub fn terminate(&mut self, id: Port) {
        self.node(id).process.terminate();
    }

    /// SIGSTOP. Returns whether the process is paused now.
    pub fn pause(&mut self, id: Port) -> bool {
        self.node(id).process.pause()
    }

    /// SIGCONT.
    pub fn resume(&mut self, id: Port) {
        self.node(id).process.resume();
    }

    /// Whether nodes have clocks of their own.
    pub fn has_clocks(&self) -> bool {
        self.preload.is_some()
    }

    /// Whether a node's process really reads its own clock.
    pub async fn uses_its_clock(&mut self, id: Port) -> bool {
        let readings = |node: &Node| node.clock.as_ref().and_then(|clock| clock.readings().ok());
        let before = readings(&self.nodes[&id]);
        tokio::time::sleep(Duration::from_millis(100)).await;
        before.is_some() && readings(&self.nodes[&id]) > before
    }

    /// The ids of all nodes whose process is alive.
    pub fn running(&mut self) -> Vec<Port> {
        let nodes = self.nodes.iter_mut();
        let alive = nodes.filter_map(|(id, node)| node.process.is_alive().then_some(*id));
        alive.collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let all: Vec<Port> = self.nodes.keys().copied().collect();
        for id in all {
            self.kill(id);
        }
    }
}
