//! A target: what is measured, a cluster or a server to compare it with.

use tonic::transport::Channel;

use crate::{
    child::{Process, cpu_nanos},
    connection::{Connection, connect},
    error::Error,
    options::{Door, Via},
};

/// The namespace whose numbers are used up.
pub const NAMESPACE: &str = "bench";

/// A server of a target.
pub struct Server {
    pub id: u64,
    pub address: String,
    /// Where it serves /metrics; `None` for other products' servers, and for those of a running cluster.
    pub metrics: Option<String>,
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
    /// The addresses of all servers, the one that is asked first. The others are asked if it fails.
    pub addresses: Vec<String>,
    /// Whether callers move with the leader. Otherwise they stay with a server until it fails.
    pub follow_leader: bool,
    /// Whether the numbers are checked to grow.
    pub is_checked: bool,
}

impl Target {
    /// A target that is asked at its leader, by unary calls.
    pub fn new(name: &'static str, servers: Vec<Server>, leader: u64) -> Target {
        let mut target = Target {
            name,
            addresses: Vec::new(),
            servers,
            leader,
            protocol: Protocol::Ratchet(Door::Unary),
            follow_leader: true,
            is_checked: name != "echo",
        };
        target.order_addresses(Via::Leader);
        target
    }

    /// The same servers under another name. Their processes stay with this target.
    pub fn without_processes(&self, name: &'static str) -> Target {
        let servers = self.servers.iter().map(|server| Server {
            id: server.id,
            address: server.address.clone(),
            metrics: server.metrics.clone(),
            process: None,
        });
        Target::new(name, servers.collect(), self.leader)
    }

    /// Chooses how numbers are requested, and from which node.
    ///
    /// # Errors
    /// If the cluster has no such node.
    pub fn choose(&mut self, door: Door, via: Via) -> Result<(), Error> {
        if via == Via::Follower && self.servers.len() < 2 {
            return Err(Error::other("a cluster of one node has no follower"));
        }
        self.protocol = Protocol::Ratchet(door);
        self.follow_leader = via == Via::Leader;
        self.order_addresses(via);
        Ok(())
    }

    /// Puts the leader first, or last.
    fn order_addresses(&mut self, via: Via) {
        let mut servers: Vec<&Server> = self.servers.iter().collect();
        servers.sort_by_key(|server| (server.id == self.leader) != (via == Via::Leader));
        self.addresses = servers
            .iter()
            .map(|server| server.address.clone())
            .collect();
    }

    /// The id of the server that is asked first, if it is a follower.
    pub fn first_follower(&self) -> Option<u64> {
        let first = self.addresses.first();
        let first = (self.servers.iter()).find(|server| Some(&server.address) == first);
        first.map(|first| first.id).filter(|id| *id != self.leader)
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

    /// `count` connections to Ratchet.
    ///
    /// # Errors
    /// If an address cannot be used.
    pub fn connections(&self, count: usize) -> Result<Vec<Connection>, Error> {
        let connections = (0..count).map(|_| Connection::new(&self.addresses, self.follow_leader));
        connections.collect()
    }

    /// Opens `count` connections to the server that is asked, which is another product's.
    ///
    /// # Errors
    /// If the server cannot be connected to.
    pub async fn channels(&self, count: usize) -> Result<Vec<Channel>, Error> {
        let mut channels = Vec::with_capacity(count);
        for server in self.addresses.iter().take(1).cycle().take(count) {
            channels.push(connect(server).await?);
        }
        Ok(channels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        let servers = (1..=3).map(|id| Server {
            id,
            address: format!("node-{id}:7600"),
            metrics: None,
            process: None,
        });
        Target::new("ratchet", servers.collect(), 2)
    }

    #[test]
    fn the_chosen_server_is_asked_first_and_the_others_if_it_fails() {
        let asked = |via| {
            let mut target = target();
            target.choose(Door::Unary, via).expect("there is one");
            (target.addresses.join(" "), target.follow_leader)
        };
        let leader_first = "node-2:7600 node-1:7600 node-3:7600".to_owned();
        assert_eq!(asked(Via::Leader), (leader_first, true));
        let leader_last = "node-1:7600 node-3:7600 node-2:7600".to_owned();
        assert_eq!(asked(Via::Follower), (leader_last, false));
    }
}
