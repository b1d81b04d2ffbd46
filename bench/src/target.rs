//! A target of a measurement: a cluster, or a server to compare it with.

use std::sync::Arc;

use tonic::transport::{Channel, ClientTlsConfig};

use crate::{
    child::{Process, cpu_nanos},
    connection::{Connection, connect},
    error::Error,
    handshake::Kind,
    options::{Interface, Via},
    socket::Manner,
    tls::Certificates,
    token::Token,
};

/// The namespace whose numbers are used up.
pub const NAMESPACE: &str = "bench";
/// The namespace whose ids are made.
pub const IDS_NAMESPACE: &str = "ids";

/// A server of a target.
pub struct Server {
    pub id: u64,
    /// Where it speaks gRPC, or another product's protocol.
    pub address: String,
    /// Where it speaks HTTP; `None` for other products' servers, and for the nodes of a running cluster.
    pub http: Option<String>,
    /// Where it serves Redis clients; `None` as for HTTP.
    pub redis: Option<String>,
    /// Where it serves /metrics; `None` as for HTTP.
    pub metrics: Option<String>,
    pub process: Option<Process>,
}

impl Server {
    /// A server that runs elsewhere, and is known to have one interface.
    pub fn new(id: u64, address: String) -> Server {
        Server { id, address, http: None, redis: None, metrics: None, process: None }
    }

    /// Where it is asked through `interface`; `None` if it does not have that one.
    pub fn address_of(&self, interface: Interface) -> Option<&String> {
        match interface {
            Interface::Unary | Interface::Stream | Interface::Client => Some(&self.address),
            Interface::Http => self.http.as_ref(),
            Interface::Redis => self.redis.as_ref(),
        }
    }
}

/// The protocol by which a target is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Ratchet(Interface),
    /// The stream of ids that have a format.
    Ids,
    Redis,
    Etcd,
    TsOracle,
    /// Handshakes of TLS, and nothing after them.
    Handshakes(Kind),
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
    /// The certificates for connections; `None` if they are plain.
    pub tls: Option<Arc<Certificates>>,
    /// The token that callers show; `None` if they show none.
    pub token: Option<Token>,
    /// Whether the numbers are checked to grow.
    pub is_checked: bool,
}

impl Target {
    /// A target that is asked at its leader, by unary calls.
    pub fn new(name: &'static str, servers: Vec<Server>, leader: u64) -> Target {
        Target {
            name,
            addresses: addresses(&servers, leader, Interface::Unary, Via::Leader),
            servers,
            leader,
            protocol: Protocol::Ratchet(Interface::Unary),
            follow_leader: true,
            tls: None,
            token: None,
            is_checked: name != "echo",
        }
    }

    /// The same servers under another name. Their processes stay with this target.
    pub fn without_processes(&self, name: &'static str) -> Target {
        let servers = self.servers.iter().map(|server| Server {
            http: server.http.clone(),
            redis: server.redis.clone(),
            metrics: server.metrics.clone(),
            ..Server::new(server.id, server.address.clone())
        });
        let target = Target::new(name, servers.collect(), self.leader);
        Target { tls: self.tls.clone(), token: self.token.clone(), ..target }
    }

    /// Chooses how numbers are requested, and from which node.
    ///
    /// # Errors
    /// If the cluster has no such node, or its nodes no such interface.
    pub fn choose(&mut self, interface: Interface, via: Via) -> Result<(), Error> {
        if via == Via::Follower && self.servers.len() < 2 {
            return Err(Error::other("a cluster of one node has no follower"));
        }
        let addresses = addresses(&self.servers, self.leader, interface, via);
        if addresses.is_empty() {
            return Err(Error::config(format!(
                "interface {} of {} is not known; a cluster that is started for the run has all interfaces, one that --server \
                 names unary, stream and client, the echo unary, stream and http",
                interface.name(),
                self.name
            )));
        }
        self.protocol = Protocol::Ratchet(interface);
        self.follow_leader = via == Via::Leader;
        self.addresses = addresses;
        Ok(())
    }

    /// Has this server asked for ids, whether it leads or not.
    pub fn choose_ids_of(&mut self, id: u64) {
        let servers = self.servers.iter().filter(|server| server.id == id);
        self.addresses = servers.map(|server| server.address.clone()).collect();
        self.protocol = Protocol::Ids;
        self.follow_leader = false;
    }

    /// The id of the server that is asked first, if it is a follower.
    pub fn first_follower(&self) -> Option<u64> {
        let first = self.addresses.first();
        let Protocol::Ratchet(interface) = self.protocol else {
            return None;
        };
        let first = (self.servers.iter()).find(|server| server.address_of(interface) == first);
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
        let tls = self.tls();
        let connections = (0..count).map(|_| {
            let connection = Connection::new(&self.addresses, self.follow_leader, tls.as_ref());
            Ok(connection?.showing(self.token.as_ref()))
        });
        connections.collect()
    }

    /// Whether its callers speak TLS, and show a token.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some() && self.token.is_some()
    }

    /// The certificates for connections.
    ///
    /// # Errors
    /// If connections are plain.
    pub fn certificates(&self) -> Result<&Certificates, Error> {
        let plain = || Error::other(format!("{} does not speak TLS", self.name));
        self.tls.as_deref().ok_or_else(plain)
    }

    /// How connections are made that do not speak gRPC. They offer this ALPN protocol, if there is one.
    ///
    /// # Errors
    /// If a certificate cannot be used.
    pub fn manner(&self, protocol: Option<&str>) -> Result<Manner, Error> {
        let tls = self.tls.as_ref().map(|tls| tls.of_socket(protocol)).transpose()?;
        Ok(Manner { tls: tls.map(Arc::new), token: self.token.clone() })
    }

    /// How connections over gRPC are made; `None` if they are plain.
    pub fn tls(&self) -> Option<ClientTlsConfig> {
        self.tls.as_ref().map(|tls| tls.of_connection())
    }

    /// Opens `count` connections to the server that is asked, which is another product's.
    ///
    /// # Errors
    /// If the server cannot be connected to.
    pub async fn channels(&self, count: usize) -> Result<Vec<Channel>, Error> {
        let mut channels = Vec::with_capacity(count);
        for server in self.addresses.iter().take(1).cycle().take(count) {
            channels.push(connect(server, None).await?);
        }
        Ok(channels)
    }
}

/// Where `servers` are asked through `interface`: the leader first, or last. Servers without the interface are left out.
fn addresses(servers: &[Server], leader: u64, interface: Interface, via: Via) -> Vec<String> {
    let mut servers: Vec<&Server> = servers.iter().collect();
    servers.sort_by_key(|server| (server.id == leader) != (via == Via::Leader));
    let addresses = servers.iter().filter_map(|server| server.address_of(interface));
    addresses.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        let servers = (1..=3).map(|id| Server {
            http: Some(format!("node-{id}:7603")),
            ..Server::new(id, format!("node-{id}:7600"))
        });
        Target::new("ratchet", servers.collect(), 2)
    }

    #[test]
    fn the_chosen_server_is_asked_first_and_the_others_if_it_fails() {
        let asked = |interface, via| {
            let mut target = target();
            target.choose(interface, via).expect("there is one");
            (target.addresses.join(" "), target.follow_leader)
        };
        let leader_first = "node-2:7600 node-1:7600 node-3:7600".to_owned();
        assert_eq!(asked(Interface::Unary, Via::Leader), (leader_first, true));
        let leader_last = "node-1:7600 node-3:7600 node-2:7600".to_owned();
        assert_eq!(asked(Interface::Unary, Via::Follower), (leader_last, false));
        let over_http = "node-2:7603 node-1:7603 node-3:7603".to_owned();
        assert_eq!(asked(Interface::Http, Via::Leader), (over_http, true));
    }

    #[test]
    fn an_interface_whose_address_is_not_known_is_refused() {
        let refused = target().choose(Interface::Redis, Via::Leader);
        assert!(refused.is_err());
    }
}
