//! A target: what is measured, a cluster or a server to compare it with.

use std::time::Duration;

use futures::future::join_all;
use tonic::transport::{Channel, Endpoint};

use crate::{
    child::{Process, cpu_nanos},
    error::Error,
    options::{Door, Via},
};
use ratchet_client::Client;

/// The namespace whose numbers are used up.
pub const NAMESPACE: &str = "bench";

/// A server of a target.
pub struct Server {
    pub id: u64,
    pub address: String,
    pub process: Option<Process>,
}

/// The protocol by which a target is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Ratchet(Door),
    Redis,
    Etcd,
    TsOracle,
}

/// A cluster or server that hands out numbers.
pub struct Target {
    pub name: &'static str,
    pub servers: Vec<Server>,
    pub leader: u64,
    pub protocol: Protocol,
    /// The addresses that are asked: one; for the client library all that it may use, the chosen one first.
    pub addresses: Vec<String>,
    /// Whether the client library follows the leader.
    pub follow_leader: bool,
    /// Whether the numbers are checked to grow.
    pub is_checked: bool,
}

impl Target {
    /// A target that is asked at its leader, by unary calls.
    pub fn new(name: &'static str, servers: Vec<Server>, leader: u64) -> Target {
        Target {
            name,
            addresses: (servers.iter().filter(|server| server.id == leader))
                .map(|server| server.address.clone())
                .collect(),
            servers,
            leader,
            protocol: Protocol::Ratchet(Door::Unary),
            follow_leader: true,
            is_checked: name != "echo",
        }
    }

    /// The same servers under another name. Their processes stay with this target.
    pub fn without_processes(&self, name: &'static str) -> Target {
        let servers = self.servers.iter().map(|server| Server {
            id: server.id,
            address: server.address.clone(),
            process: None,
        });
        Target::new(name, servers.collect(), self.leader)
    }

    /// Chooses how numbers are requested, and from which node.
    ///
    /// # Errors
    /// If the cluster has no such node.
    pub fn choose(&mut self, door: Door, via: Via) -> Result<(), Error> {
        self.protocol = Protocol::Ratchet(door);
        let leader = self.leader;
        let wanted = |server: &&Server| (server.id == leader) == (via == Via::Leader);
        let server = self.servers.iter().find(wanted).ok_or_else(|| {
            Error::other(format!(
                "the cluster of {} nodes has no follower",
                self.servers.len()
            ))
        })?;
        self.follow_leader = via == Via::Leader;
        self.addresses = vec![server.address.clone()];
        if door == Door::Client && self.follow_leader {
            let others = self.servers.iter().filter(|other| other.id != server.id);
            self.addresses
                .extend(others.map(|other| other.address.clone()));
        }
        Ok(())
    }

    /// Takes a number of each key, so that no key is cold.
    ///
    /// # Errors
    /// If the cluster does not answer.
    pub async fn warm(&self, keys: u64) -> Result<(), Error> {
        let servers: Vec<String> = self.servers.iter().map(|s| s.address.clone()).collect();
        let client = Client::builder()
            .servers(servers)
            .timeout(Duration::from_secs(60))
            .build()?;
        let all: Vec<u64> = (0..keys).collect();
        for some in all.chunks(32_768) {
            let asked = some.iter().map(|key| client.next(NAMESPACE, *key));
            for answer in join_all(asked).await {
                answer?;
            }
        }
        Ok(())
    }

    /// The CPU time of the leader, and of all servers, so far; `None` if they run elsewhere.
    pub fn cpu(&self) -> Option<(u64, u64)> {
        let (mut asked, mut all) = (0, 0);
        for server in &self.servers {
            let nanos = cpu_nanos(server.process.as_ref()?.id())?;
            all += nanos;
            asked += if server.id == self.leader { nanos } else { 0 };
        }
        Some((asked, all))
    }

    /// Opens `count` connections to the servers that are asked.
    ///
    /// # Errors
    /// If a server cannot be connected to.
    pub async fn channels(&self, count: usize) -> Result<Vec<Channel>, Error> {
        let mut channels = Vec::with_capacity(count);
        for server in self.addresses.iter().cycle().take(count) {
            channels.push(connect(server).await?);
        }
        Ok(channels)
    }
}

/// Connects to a server.
///
/// # Errors
/// If the server cannot be connected to.
pub async fn connect(server: &str) -> Result<Channel, Error> {
    let failed = |error: tonic::transport::Error| {
        Error::other(format!(
            "cannot connect to {server}: {error}; is it running?"
        ))
    };
    let endpoint = Endpoint::from_shared(format!("http://{server}")).map_err(failed)?;
    endpoint.tcp_nodelay(true).connect().await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        let servers = (1..=3).map(|id| Server {
            id,
            address: format!("node-{id}:7600"),
            process: None,
        });
        Target::new("ratchet", servers.collect(), 2)
    }

    #[test]
    fn the_client_library_gets_all_nodes_and_the_other_doors_only_the_measured_one() {
        let asked = |door, via| {
            let mut target = target();
            target.choose(door, via).expect("there is one");
            target.addresses.join(" ")
        };
        let all = "node-2:7600 node-1:7600 node-3:7600";
        assert_eq!(asked(Door::Client, Via::Leader), all);
        assert_eq!(asked(Door::Client, Via::Follower), "node-1:7600");
        assert_eq!(asked(Door::Unary, Via::Leader), "node-2:7600");
        assert_eq!(asked(Door::Stream, Via::Follower), "node-1:7600");
    }
}
