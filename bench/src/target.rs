//! What is measured: a cluster, or something to compare it with.

use std::time::Duration;

use futures::future::join_all;
use tonic::transport::{Channel, Endpoint};

use crate::{
    child::{Process, cpu_nanos},
    failed::Failed,
    options::{Door, Via},
};
use ratchet_client::Client;

/// The namespace whose keys are used.
pub const NAMESPACE: &str = "bench";

/// A server of a target.
pub struct Server {
    pub id: u64,
    pub address: String,
    pub process: Option<Process>,
}

/// How a target is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Door(Door),
    Redis,
    Etcd,
    TsOracle,
}

/// Something that hands out numbers.
pub struct Target {
    pub name: &'static str,
    pub servers: Vec<Server>,
    pub leader: u64,
    pub way: Way,
    /// The servers that are asked: one, or for the client library all that it may go to, the chosen one
    /// first.
    pub asked: Vec<String>,
    /// Whether the client library is not to follow the leader.
    pub stays: bool,
    /// Whether its numbers must grow.
    pub is_checked: bool,
}

impl Target {
    /// A target that is asked at its leader.
    pub fn new(name: &'static str, servers: Vec<Server>, leader: u64) -> Target {
        Target {
            name,
            asked: (servers.iter().filter(|server| server.id == leader))
                .map(|server| server.address.clone())
                .collect(),
            servers,
            leader,
            way: Way::Door(Door::Unary),
            stays: false,
            is_checked: name != "echo",
        }
    }

    /// The same servers, for another name; their processes stay with the first.
    pub fn without_processes(&self, name: &'static str) -> Target {
        let servers = self.servers.iter().map(|server| Server {
            id: server.id,
            address: server.address.clone(),
            process: None,
        });
        Target::new(name, servers.collect(), self.leader)
    }

    /// Chooses the door, and the node that is asked.
    ///
    /// # Errors
    /// Where there is no such node.
    pub fn choose(&mut self, door: Door, via: Via) -> Result<(), Failed> {
        self.way = Way::Door(door);
        let leader = self.leader;
        let wanted = |server: &&Server| (server.id == leader) == (via == Via::Leader);
        let server = self.servers.iter().find(wanted).ok_or_else(|| {
            Failed::other(format!(
                "the cluster of {} nodes has no follower",
                self.servers.len()
            ))
        })?;
        self.stays = via == Via::Follower;
        self.asked = vec![server.address.clone()];
        if door == Door::Client && !self.stays {
            let others = self.servers.iter().filter(|other| other.id != server.id);
            self.asked.extend(others.map(|other| other.address.clone()));
        }
        Ok(())
    }

    /// Has each key hand out a number, so that none is cold.
    ///
    /// # Errors
    /// The cluster's.
    pub async fn warm(&self, keys: u64) -> Result<(), Failed> {
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

    /// CPU time of the server that is asked, and of all of them, so far.
    pub fn cpu(&self) -> Option<(u64, u64)> {
        let (mut asked, mut all) = (0, 0);
        for server in &self.servers {
            let nanos = cpu_nanos(server.process.as_ref()?.id())?;
            all += nanos;
            asked += if server.id == self.leader { nanos } else { 0 };
        }
        Some((asked, all))
    }

    /// Connections to the server that is asked.
    pub async fn channels(&self, count: usize) -> Result<Vec<Channel>, Failed> {
        let mut channels = Vec::with_capacity(count);
        for server in self.asked.iter().cycle().take(count) {
            channels.push(connect(server).await?);
        }
        Ok(channels)
    }
}

/// A connection to a server.
///
/// # Errors
/// Where it does not let us in.
pub async fn connect(server: &str) -> Result<Channel, Failed> {
    let failed = |error: tonic::transport::Error| {
        Failed::other(format!(
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
    fn the_client_library_is_given_all_nodes_and_the_other_doors_the_one_that_is_measured() {
        let asked = |door, via| {
            let mut target = target();
            target.choose(door, via).expect("there is one");
            target.asked.join(" ")
        };
        let all = "node-2:7600 node-1:7600 node-3:7600";
        assert_eq!(asked(Door::Client, Via::Leader), all);
        assert_eq!(asked(Door::Client, Via::Follower), "node-1:7600");
        assert_eq!(asked(Door::Unary, Via::Leader), "node-2:7600");
        assert_eq!(asked(Door::Stream, Via::Follower), "node-1:7600");
    }
}
