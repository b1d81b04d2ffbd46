//! The processes under test: real ones, each on a machine of its own as far as this one can pretend.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    client::Client,
    clock::{self, Clock},
    disk::Disk,
    network::{self, Network, Port},
};

use super::config::{Fence, Plan, Product};

const CLIENT_PORT: u16 = 7_600;
const PEER_PORT: u16 = 7_601;
/// Where a node tells its metrics, at the host where it answers callers.
pub const METRICS_PORT: u16 = 7_602;

/// What a node's process is doing.
#[derive(Debug)]
enum Process {
    Never,
    Running(Child),
    Paused(Child),
    Ended(ExitStatus),
}

/// One node.
pub struct Node {
    /// Its id, and its port at the switch.
    pub id: Port,
    process: Process,
    disk: Option<Disk>,
    dir: PathBuf,
    /// Its clocks, where the preload works.
    pub clock: Option<Clock>,
    founding: bool,
}

/// A cluster. Dropping it kills its processes.
pub struct Cluster {
    /// How it was meant to be.
    pub plan: Plan,
    /// Its network, where it has one.
    pub network: Option<Network>,
    nodes: BTreeMap<Port, Node>,
    dir: PathBuf,
    preload: Option<PathBuf>,
}

impl Cluster {
    /// Makes the machines and starts the founding nodes.
    ///
    /// # Errors
    /// What this machine refused.
    pub fn start(plan: Plan, dir: &Path) -> io::Result<Cluster> {
        let room = plan.nodes + plan.spare;
        let network = plan
            .isolated
            .then(|| Network::start(room, plan.seed))
            .transpose()?;
        let preload = clock::build(dir)
            .inspect_err(|error| eprintln!("clocks cannot be bent here: {error}"))
            .ok();
        let mut cluster = Cluster {
            network,
            nodes: BTreeMap::new(),
            dir: dir.to_owned(),
            preload,
            plan,
        };
        for id in 1..=room {
            let node = cluster.make(id)?;
            cluster.nodes.insert(id, node);
        }
        for id in 1..=cluster.plan.nodes {
            cluster.spawn(id)?;
        }
        Ok(cluster)
    }

    fn make(&self, id: Port) -> io::Result<Node> {
        let mount = self.dir.join(format!("disk-{id}"));
        fs::create_dir_all(&mount)?;
        let disk = self
            .plan
            .faulty_disks
            .then(|| Disk::mount(&mount))
            .transpose()?;
        let clock = match &self.preload {
            Some(_) => Some(Clock::new(self.dir.join(format!("clock-{id}")))?),
            None => None,
        };
        Ok(Node {
            id,
            process: Process::Never,
            disk,
            dir: mount.join("data"),
            clock,
            founding: id <= self.plan.nodes,
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

    /// Where a node's clients reach it.
    pub fn address(&self, id: Port) -> SocketAddr {
        (self.host(id), CLIENT_PORT).into()
    }

    /// Where a node's peers reach it.
    pub fn peer_address(&self, id: Port) -> SocketAddr {
        (self.host(id), PEER_PORT).into()
    }

    /// A client of a node.
    pub fn client(&self, id: Port) -> Client {
        Client::new(self.address(id))
    }

    /// Where a node's output goes.
    pub fn log(&self, id: Port) -> PathBuf {
        self.dir.join(format!("node-{id}.log"))
    }

    fn arguments(&self, id: Port) -> Vec<String> {
        let node = &self.nodes[&id];
        let peers: Vec<String> = (1..=self.plan.nodes)
            .map(|id| format!("{id}={}", self.peer_address(id)))
            .collect();
        let listen = self.address(id).to_string();
        let peer_listen = self.peer_address(id).to_string();
        if self.plan.product == Product::MaxWins {
            let own = format!("--peer-listen={peer_listen}");
            let listen = format!("--listen={listen}");
            return vec![
                "max-wins".into(),
                listen,
                own,
                format!("--peers={}", peers.join(",")),
            ];
        }
        let metrics = SocketAddr::from((self.host(id), METRICS_PORT));
        let fence = match self.plan.fence {
            Fence::Lease => "lease",
            Fence::Quorum => "quorum",
        };
        let mut arguments = vec![
            "start".to_owned(),
            "--cluster=jepsen".to_owned(),
            format!("--node-id={id}"),
            format!("--listen={listen}"),
            format!("--peer-listen={peer_listen}"),
            format!("--metrics-listen={metrics}"),
            format!("--data-dir={}", node.dir.display()),
            format!("--fence={fence}"),
            format!("--log-keep-bytes={}", self.plan.log_keep_bytes),
        ];
        arguments.push(if node.founding {
            format!("--peers={}", peers.join(","))
        } else {
            "--join".to_owned()
        });
        arguments
    }

    /// Starts a node's process.
    ///
    /// # Errors
    /// The program cannot be run.
    pub fn spawn(&mut self, id: Port) -> io::Result<()> {
        if self.is_running(id) {
            return Ok(());
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(id))?;
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
        if let Some(bug) = &self.plan.bug {
            words.push(format!("RATCHET_PLANTED_BUG={bug}"));
        }
        words.push(self.plan.binary.display().to_string());
        words.extend(self.arguments(id));
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

    /// Its disk, where it has one that fails on demand.
    pub fn disk(&self, id: Port) -> Option<&Disk> {
        self.nodes[&id].disk.as_ref()
    }

    /// Its data directory.
    pub fn data_dir(&self, id: Port) -> &Path {
        &self.nodes[&id].dir
    }

    /// Whether its process runs (or stands still).
    pub fn is_running(&mut self, id: Port) -> bool {
        self.exit(id).is_none() && !matches!(self.nodes[&id].process, Process::Never)
    }

    /// How its process ended, if it did.
    pub fn exit(&mut self, id: Port) -> Option<ExitStatus> {
        let node = self.node(id);
        if let Process::Running(child) = &mut node.process
            && let Ok(Some(status)) = child.try_wait()
        {
            node.process = Process::Ended(status);
        }
        match &node.process {
            Process::Ended(status) => Some(*status),
            _ => None,
        }
    }

    /// Waits until its process ends by itself; `None` where it does not in time.
    pub async fn ends(&mut self, id: Port, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.exit(id) {
                return Some(status);
            }
            if Instant::now() > end {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// kill -9, and waits until it is gone. Whether there was anything to kill.
    pub fn kill(&mut self, id: Port) -> bool {
        let node = self.node(id);
        let (Process::Running(child) | Process::Paused(child)) = &mut node.process else {
            return false;
        };
        // It may have ended by itself; then there is nothing to kill.
        let _ = child.kill();
        let Ok(status) = child.wait() else {
            return false;
        };
        node.process = Process::Ended(status);
        // The disk answers in order: once it answers this, what the process asked for is done.
        let _ = fs::metadata(&node.dir);
        status.signal() == Some(Signal::KILL.as_raw())
    }

    /// SIGTERM.
    pub fn terminate(&mut self, id: Port) {
        if let Process::Running(child) = &self.node(id).process {
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
    }

    /// SIGSTOP. Whether it stands still now.
    pub fn pause(&mut self, id: Port) -> bool {
        let node = self.node(id);
        let process = std::mem::replace(&mut node.process, Process::Never);
        node.process = match process {
            Process::Running(child)
                if kill_process(Pid::from_child(&child), Signal::STOP).is_ok() =>
            {
                Process::Paused(child)
            }
            other => other,
        };
        matches!(node.process, Process::Paused(_))
    }

    /// SIGCONT.
    pub fn resume(&mut self, id: Port) {
        let node = self.node(id);
        let process = std::mem::replace(&mut node.process, Process::Never);
        node.process = match process {
            Process::Paused(child) => {
                let _ = kill_process(Pid::from_child(&child), Signal::CONT);
                Process::Running(child)
            }
            other => other,
        };
    }

    /// Whether nodes have clocks of their own.
    pub fn preload_works(&self) -> bool {
        self.preload.is_some()
    }

    /// Whether a node really goes by its own clock: it asks it for the time.
    pub async fn bends_clock(&mut self, id: Port) -> bool {
        let readings = |node: &Node| node.clock.as_ref().and_then(|clock| clock.readings().ok());
        let before = readings(&self.nodes[&id]);
        tokio::time::sleep(Duration::from_millis(100)).await;
        before.is_some() && readings(&self.nodes[&id]) > before
    }

    /// The ids of all nodes whose process runs.
    pub fn running(&mut self) -> Vec<Port> {
        let all: Vec<Port> = self.nodes.keys().copied().collect();
        all.into_iter().filter(|id| self.is_running(*id)).collect()
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
