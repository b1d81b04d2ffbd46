//! Measures the leader and its callers without and with idle connections, in alternating rounds.

use std::time::Duration;

use super::{
    connections::{Connections, INTERFACES},
    leader::Leader,
    options::IdleOptions,
    report::{Half, InterfaceCost, Report},
};
use crate::{
    child::Directory, cluster, error::Error, files, load::Load, options::ClusterOptions,
    output::Printed, round, target::Target, warm,
};

/// How many connections the leader may have besides the idle ones: the callers' connections.
const OTHER_CONNECTIONS: u64 = 256;
/// How many files a process may open besides the idle connections. A node keeps 512 for its disk and its peers.
const OTHER_FILES: u64 = 1_024;

impl IdleOptions {
    /// Measures, and reports.
    ///
    /// # Errors
    /// If so many connections are not possible, a node does not start or answer, the leader changes, or a number is out
    /// of order.
    pub async fn run(self) -> Result<Printed, Error> {
        files::allow(self.connections + OTHER_FILES)?;
        let directory = Directory::new()?;
        let connections_max = self.connections + OTHER_CONNECTIONS;
        let options = ClusterOptions {
            further: vec![
                format!("--client-connections-max={connections_max}"),
                // All callers have one address.
                "--client-share-percent=100".to_owned(),
            ],
            ..self.cluster.clone()
        };
        let target = cluster::start(&directory, "ratchet", self.nodes, &options).await?;
        let report = self.measure(&target).await?;
        Ok(Printed { json: report.to_json(), text: report.to_text() })
    }

    async fn measure(&self, target: &Target) -> Result<Report, Error> {
        let (load, leader) = (self.load(), Leader::of(target)?);
        warm::touch_all(target, &load, load.keys).await?;
        // The memory that the first load makes the leader allocate is no cost of the idle connections.
        round::drive(target, &load, self.time(), |_| {}).await?;
        let mut report = Report::new(self);
        for nth in 0..self.rounds {
            let without = self.half(nth, "without", target, &leader, &load).await?;
            leader.until_connections(0).await?;
            let (idle, interfaces) = self.open(&leader).await?;
            let with = self.half(nth, "with idle", target, &leader, &load).await?;
            leader.until_connections(self.connections).await?;
            drop(idle);
            let leads = cluster::leader(target).await?;
            if leads != target.leader {
                return Err(Error::other(format!(
                    "node {leads} leads instead of node {}, which was measured; run it again, on a machine that is less \
                     busy",
                    target.leader
                )));
            }
            report.add_round(with, without, interfaces);
        }
        Ok(report)
    }

    /// Watches the leader without callers, then with them.
    async fn half(
        &self, nth: u32, name: &str, target: &Target, leader: &Leader<'_>, load: &Load,
    ) -> Result<Half, Error> {
        let quiet_cpu = leader.cpu_per_second(self.time()).await?;
        let memory = leader.memory()?;
        let tell = |so_far: &_| round::tell(nth, self.rounds, name, so_far);
        Ok(Half { quiet_cpu, memory, load: round::drive(target, load, self.time(), tell).await? })
    }

    /// Opens the idle connections, interface by interface.
    async fn open(&self, leader: &Leader<'_>) -> Result<(Connections, Vec<InterfaceCost>), Error> {
        let mut idle = Connections::default();
        let mut costs = Vec::new();
        let interfaces = INTERFACES.len() as u64;
        for (nth, (name, interface)) in (0..).zip(INTERFACES) {
            let connections =
                self.connections / interfaces + u64::from(nth < self.connections % interfaces);
            let before = leader.memory()?;
            for _ in 0..connections {
                idle.open(leader.server, interface).await?;
            }
            costs.push(InterfaceCost {
                name,
                connections,
                bytes: leader.memory()?.saturating_sub(before),
            });
        }
        Ok((idle, costs))
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}
