//! Real `ratchet` processes.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
};

use ratchet::node::Config;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use super::{Client, PATIENCE, eventually, free_ports, own_ip, unhurried};

/// A process that is killed when it is dropped.
pub struct Process(pub Child);

impl Process {
    /// Waits until it ends by itself. One that does not is killed with the test.
    pub async fn ended(mut self) -> ExitStatus {
        let mut ended = || self.0.try_wait().expect("a child of this process");
        eventually("the end of a process", async || ended()).await
    }

    /// Waits until a node ends with 78, and returns the line of its log that says why: there is one, and nothing follows it.
    pub async fn ends_with_78(self, log: &Path) -> String {
        let status = self.ended().await;
        let log = std::fs::read_to_string(log).expect("a log");
        assert_eq!(status.code(), Some(78), "{log}");
        let errors: Vec<&str> = log.lines().filter(|line| line.starts_with("error: ")).collect();
        let [said] = errors[..] else {
            panic!("one line says why: {log}");
        };
        assert_eq!(log.lines().last(), Some(said), "nothing follows it");
        said.to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The `ratchet` command. A node has the times of [`unhurried`], and a client waits as long as the test does, unless their
/// flags say otherwise.
pub fn ratchet() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
    command.env_clear().stdin(Stdio::null());
    let mut times = Config::default();
    unhurried(&mut times);
    for (variable, time_ms) in [
        ("RATCHET_ELECTION_TIMEOUT_MS", times.election_timeout_ms),
        ("RATCHET_LEASE_MS", times.lease_ms),
        ("RATCHET_REQUEST_TIMEOUT_MS", times.request_timeout_ms),
        ("RATCHET_REQUEST_TIMEOUT_MAX_MS", times.request_timeout_max_ms),
        ("RATCHET_HANDOVER_TIMEOUT_MS", times.handover_timeout_ms),
        ("RATCHET_TIMEOUT_MS", PATIENCE.as_millis() as u64),
    ] {
        command.env(variable, time_ms.to_string());
    }
    command
}

/// Runs the command to its end.
pub fn run(args: &[&str]) -> Output {
    ratchet().args(args).output().expect("the command runs")
}

/// Where a node listens.
#[derive(Debug, Clone)]
pub struct Place {
    pub listen: SocketAddr,
    pub peer_listen: SocketAddr,
    pub metrics_listen: SocketAddr,
    pub http_listen: SocketAddr,
    pub resp_listen: SocketAddr,
}

/// A cluster of processes. Dropping it kills them.
pub struct Processes {
    pub places: BTreeMap<u64, Place>,
    pub running: BTreeMap<u64, Process>,
    pub dir: TempDir,
    flags: Vec<String>,
    /// Further flags of a node, from its next start on.
    pub own_flags: BTreeMap<u64, Vec<String>>,
}

impl Processes {
    /// Starts `n` founding nodes, each with `flags` as well, founds their cluster, and waits until all answer.
    pub async fn start(n: u64, flags: &[&str]) -> Processes {
        let cluster = Processes::unfounded(n, flags);
        cluster.found().await;
        for id in 1..=n {
            cluster.client(id).next_at_last(u64::MAX).await;
        }
        cluster
    }

    /// Starts `n` founding nodes, each with `flags` as well. They wait until somebody founds their cluster.
    pub fn unfounded(n: u64, flags: &[&str]) -> Processes {
        let mut cluster = Processes::configured(n, flags);
        for id in 1..=n {
            cluster.spawn(id);
        }
        cluster
    }

    /// The address of a node's local socket, as clients are given it.
    pub fn socket(&self, id: u64) -> String {
        format!("unix:{}", self.dir.path().join(format!("{id}/admin.sock")).display())
    }

    /// Founds the cluster through the local socket of node 1, with the command.
    pub async fn found_at_socket(&self) {
        eventually("the cluster is founded", async || {
            let mut found = ratchet();
            found.args(["found", "--server", &self.socket(1)]);
            let running = tokio::task::spawn_blocking(move || found.output().expect("it runs"));
            running.await.expect("no panic").status.success().then_some(())
        })
        .await;
    }

    /// `n` founding nodes, each with `flags` as well, configured and not started.
    pub fn configured(n: u64, flags: &[&str]) -> Processes {
        let places = (1..=n)
            .map(|id| {
                let [listen, peer_listen, metrics_listen, http_listen, resp_listen] =
                    free_ports(own_ip());
                let place = Place { listen, peer_listen, metrics_listen, http_listen, resp_listen };
                (id, place)
            })
            .collect();
        Processes {
            places,
            running: BTreeMap::new(),
            dir: TempDir::new().expect("a temporary directory"),
            flags: flags.iter().map(ToString::to_string).collect(),
            own_flags: BTreeMap::new(),
        }
    }

    /// Founds the cluster once its nodes listen.
    async fn found(&self) {
        let mut client = self.client(1);
        eventually("the cluster is founded", async || client.found().await.ok()).await;
    }

    /// Starts one node.
    pub fn spawn(&mut self, id: u64) {
        let place = &self.places[&id];
        let peers: Vec<String> =
            self.places.iter().map(|(id, place)| format!("{id}={}", place.peer_listen)).collect();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log(id))
            .expect("a log file");
        let also = log.try_clone().expect("a log file");
        let child = ratchet()
            .arg("start")
            .args(["--cluster", "test", "--node-id", &id.to_string()])
            .args(["--listen", &place.listen.to_string()])
            .args(["--peer-listen", &place.peer_listen.to_string()])
            .args(["--metrics-listen", &place.metrics_listen.to_string()])
            .args(["--http-listen", &place.http_listen.to_string()])
            .args(["--resp-listen", &place.resp_listen.to_string()])
            .args(["--peers", &peers.join(",")])
            .arg("--data-dir")
            .arg(self.dir.path().join(id.to_string()))
            .args(&self.flags)
            .args(self.own_flags.get(&id).into_iter().flatten())
            .stdout(also)
            .stderr(log)
            .spawn()
            .expect("the node starts");
        self.running.insert(id, Process(child));
    }

    pub fn log(&self, id: u64) -> std::path::PathBuf {
        self.dir.path().join(format!("{id}.log"))
    }

    /// How often a node has said this in its log.
    pub fn said(&self, id: u64, what: &str) -> usize {
        let log = std::fs::read_to_string(self.log(id)).expect("a log");
        log.matches(what).count()
    }

    pub fn client(&self, id: u64) -> Client {
        Client::new(self.places[&id].listen)
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.places.values().map(|place| place.listen).collect()
    }

    pub fn signal(&self, id: u64, signal: Signal) {
        let pid = Pid::from_child(&self.running[&id].0);
        kill_process(pid, signal).expect("a running node");
    }

    /// kill -9, and waits until it is gone.
    pub fn kill(&mut self, id: u64) {
        drop(self.running.remove(&id));
    }

    /// SIGSTOP, and waits until all of it has stopped.
    pub fn pause(&self, id: u64) {
        self.signal(id, Signal::STOP);
        let pid = Pid::from_child(&self.running[&id].0);
        let stopped = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED);
        stopped.expect("a child of this process").expect("it stopped");
    }

    pub fn resume(&self, id: u64) {
        self.signal(id, Signal::CONT);
    }

    /// SIGTERM, and waits until it is gone.
    pub async fn terminate(&mut self, id: u64) -> ExitStatus {
        self.stop_by(Signal::TERM, id).await
    }

    /// Sends a signal that stops the node, and waits until it is gone.
    pub async fn stop_by(&mut self, signal: Signal, id: u64) -> ExitStatus {
        self.signal(id, signal);
        let process = self.running.remove(&id).expect("a running node");
        process.ended().await
    }

    /// The leader, as the first running node that knows it says.
    pub async fn leader(&self) -> u64 {
        eventually("a node that knows the leader", async || {
            for id in self.running.keys() {
                let mut client = self.client(*id);
                client.next_at_last(u64::MAX).await;
                if let Ok(status) = client.status().await
                    && let Some(leader) = status.leader
                {
                    return Some(leader);
                }
            }
            None
        })
        .await
    }
}
