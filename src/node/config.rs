//! A node's configuration, and how its parts must go together.
//!
//! Invariant: a configuration that passes [`Config::check`] cannot break the lease's argument: the
//! leader's lease ends before its followers' by the margin for drift.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

pub use crate::allocator::FenceKind;
use crate::sequence::NodeId;

/// No time is longer, in milliseconds.
const TIME_MS_MAX: u64 = 60_000;
/// No limit on `count` is higher.
const COUNT_MAX: u64 = 1_000_000_000;
/// No cache is larger, in MB.
const BLOCK_CACHE_MB_MAX: u64 = 1 << 20;

/// A node's configuration. Times are in milliseconds.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster's name: 1 to 64 characters out of `A-Z a-z 0-9 . _ -`, the same on all nodes.
    pub cluster: String,
    /// This node, at least 1, never reused.
    pub node_id: NodeId,
    /// Where it keeps its data.
    pub data_dir: PathBuf,
    /// Where it listens for clients.
    pub listen: SocketAddr,
    /// Where it listens for peers.
    pub peer_listen: SocketAddr,
    /// Where it listens for Prometheus, if it does.
    pub metrics_listen: Option<SocketAddr>,
    /// Where clients reach it, if not at `listen`.
    pub advertise: Option<String>,
    /// Where peers reach it, if neither as `peers` says nor at `peer_listen`.
    pub peer_advertise: Option<String>,
    /// The founding voters and their peer addresses, this node among them; empty for a cluster of
    /// one.
    pub peers: BTreeMap<NodeId, String>,
    /// Whether it waits to be added to a running cluster.
    pub join: bool,
    /// What its answers pass when it leads.
    pub fence: FenceKind,
    /// How often a leader is heard of.
    pub heartbeat_ms: u64,
    /// How long a follower keeps out of elections after it heard of a leader. The same on all nodes.
    pub election_timeout_ms: u64,
    /// How long a leader's answers are in order after a majority acknowledged it.
    pub lease_ms: u64,
    /// By how much clocks may drift during a lease.
    pub drift_margin_ms: u64,
    /// The greatest `count` of one request.
    pub count_max: u64,
    /// How long a request without a deadline may take.
    pub request_timeout_ms: u64,
    /// How long any request may take, whatever deadline its caller sets.
    pub request_timeout_max_ms: u64,
    /// How many megabytes (2^20 bytes) requests that wait may hold, and answers that are not sent yet.
    pub memory_requests_max_mb: u64,
    /// How many connections clients may have at a time.
    pub client_connections_max: u64,
    /// How long a connection without a call under way is kept.
    pub connection_idle_ms: u64,
    /// How long a handover gives ceilings back, and how long a node that stops then waits for callers.
    pub shutdown_timeout_ms: u64,
    /// How many bytes of the applied log are kept, at least: a node that lags further behind gets a
    /// snapshot.
    pub log_keep_bytes: u64,
    /// How much memory is for what is read of the database, in MB (2^20 bytes).
    pub block_cache_mb: u64,
}

impl Default for Config {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Config {
            cluster: "ratchet".to_owned(),
            node_id: 1,
            data_dir: "./ratchet-data".into(),
            listen: loopback(7600),
            peer_listen: loopback(7601),
            metrics_listen: Some(loopback(7602)),
            advertise: None,
            peer_advertise: None,
            peers: BTreeMap::new(),
            join: false,
            fence: FenceKind::Lease,
            heartbeat_ms: 50,
            election_timeout_ms: 300,
            lease_ms: 200,
            drift_margin_ms: 50,
            count_max: 1_000_000,
            request_timeout_ms: 5_000,
            request_timeout_max_ms: 60_000,
            memory_requests_max_mb: 256,
            client_connections_max: 10_000,
            connection_idle_ms: 600_000,
            shutdown_timeout_ms: 5_000,
            log_keep_bytes: 256 << 20,
            block_cache_mb: 64,
        }
    }
}

/// Why a configuration cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Config {
    /// Checks every field and how they go together.
    ///
    /// # Errors
    /// [`ConfigError`], naming the fields, their values and what to change.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_names()?;
        self.check_times()?;
        self.check_addresses()?;
        self.check_peers()
    }

    fn check_names(&self) -> Result<(), ConfigError> {
        crate::sequence::check_name(&self.cluster).map_err(|_| {
            error(format!(
                "cluster is {:?}; it takes 1 to 64 characters out of A-Z a-z 0-9 . _ -",
                self.cluster
            ))
        })?;
        in_range("node_id", self.node_id, u64::MAX)
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        in_range("heartbeat_ms", self.heartbeat_ms, TIME_MS_MAX)?;
        in_range("election_timeout_ms", self.election_timeout_ms, TIME_MS_MAX)?;
        in_range("lease_ms", self.lease_ms, TIME_MS_MAX)?;
        in_range("drift_margin_ms", self.drift_margin_ms, TIME_MS_MAX)?;
        in_range(
            "request_timeout_max_ms",
            self.request_timeout_max_ms,
            3_600_000,
        )?;
        let longest = self.request_timeout_max_ms;
        if self.request_timeout_ms == 0 || self.request_timeout_ms > longest {
            return Err(error(format!(
                "request_timeout_ms is {}; it must lie between 1 and request_timeout_max_ms \
                 ({longest})",
                self.request_timeout_ms
            )));
        }
        let megabytes = self.memory_requests_max_mb;
        if !(16..=1 << 20).contains(&megabytes) {
            return Err(error(format!(
                "memory_requests_max_mb is {megabytes}; it must lie between 16 and {}, so that a few \
                 of the largest requests fit in",
                1 << 20
            )));
        }
        in_range(
            "client_connections_max",
            self.client_connections_max,
            1 << 20,
        )?;
        in_range("connection_idle_ms", self.connection_idle_ms, 86_400_000)?;
        in_range("shutdown_timeout_ms", self.shutdown_timeout_ms, 3_600_000)?;
        in_range("count_max", self.count_max, COUNT_MAX)?;
        in_range("log_keep_bytes", self.log_keep_bytes, 1 << 40)?;
        in_range("block_cache_mb", self.block_cache_mb, BLOCK_CACHE_MB_MAX)?;
        let (election, lease, margin) = (
            self.election_timeout_ms,
            self.lease_ms,
            self.drift_margin_ms,
        );
        if lease + margin >= election {
            return Err(error(format!(
                "lease_ms is {lease}; it must be less than election_timeout_ms ({election}) less \
                 drift_margin_ms ({margin}), or a deposed leader could answer after its successor: \
                 lower lease_ms, or raise election_timeout_ms on all nodes"
            )));
        }
        let heartbeat = self.heartbeat_ms;
        if heartbeat * 2 > lease || heartbeat * 2 >= election {
            return Err(error(format!(
                "heartbeat_ms is {heartbeat}; it must be at most half of lease_ms ({lease}) and less \
                 than half of election_timeout_ms ({election}), so that one lost heartbeat does no \
                 harm: lower it"
            )));
        }
        Ok(())
    }

    fn check_addresses(&self) -> Result<(), ConfigError> {
        let listeners = [
            ("listen", Some(self.listen)),
            ("peer_listen", Some(self.peer_listen)),
            ("metrics_listen", self.metrics_listen),
        ];
        for (at, (field, address)) in listeners.iter().enumerate() {
            for (other_field, other) in &listeners[at + 1..] {
                if let (Some(address), Some(other)) = (address, other)
                    && address == other
                    && address.port() != 0
                {
                    return Err(error(format!(
                        "{field} and {other_field} are both {address}; give each a port of its own"
                    )));
                }
            }
        }
        for (field, address, name_field, name) in [
            ("listen", self.listen, "advertise", &self.advertise),
            (
                "peer_listen",
                self.peer_listen,
                "peer_advertise",
                &self.peer_advertise,
            ),
        ] {
            let in_peers = field == "peer_listen" && self.peers.contains_key(&self.node_id);
            match name {
                Some(name) => check_address(name_field, name)?,
                None if in_peers => {}
                None if address.ip().is_unspecified() => {
                    return Err(error(format!(
                        "{field} is {address}, which tells nobody where this node is; set \
                         {name_field} to the host:port that others reach it at"
                    )));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn check_peers(&self) -> Result<(), ConfigError> {
        if self.peers.is_empty() {
            return Ok(());
        }
        if self.join {
            return Err(error(
                "join and peers exclude each other: peers found a cluster, a node that joins is \
                 added to a running one with: ratchet node add"
                    .to_owned(),
            ));
        }
        if !self.peers.contains_key(&self.node_id) {
            let ids: Vec<String> = self.peers.keys().map(u64::to_string).collect();
            return Err(error(format!(
                "peers names the nodes {}, not this one (node_id {}); add it",
                ids.join(", "),
                self.node_id
            )));
        }
        let mut seen = BTreeMap::new();
        for (id, address) in &self.peers {
            in_range("a node id in peers", *id, u64::MAX)?;
            check_address("peers", address)?;
            if let Some(other) = seen.insert(address, id) {
                return Err(error(format!(
                    "peers gives {address} to both node {other} and node {id}; correct one"
                )));
            }
        }
        Ok(())
    }
}

fn error(text: String) -> ConfigError {
    ConfigError(text)
}

fn in_range(field: &str, value: u64, max: u64) -> Result<(), ConfigError> {
    if (1..=max).contains(&value) {
        Ok(())
    } else {
        Err(error(format!(
            "{field} is {value}; it must lie between 1 and {max}"
        )))
    }
}

/// Checks that an address has the form host:port.
pub(super) fn check_address(field: &str, address: &str) -> Result<(), ConfigError> {
    let fits = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if fits {
        Ok(())
    } else {
        Err(error(format!(
            "{field} holds {address:?}; it takes host:port, as in 10.0.0.1:7601"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        config.check().expect_err("refused").0
    }

    #[test]
    fn the_defaults_work() {
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn a_lease_that_does_not_end_before_the_followers_by_the_margin_is_refused() {
        let text = refused(|c| c.lease_ms = 250);
        assert!(
            text.contains("lease_ms is 250") && text.contains("(300)") && text.contains("(50)")
        );
        assert!(refused(|c| c.drift_margin_ms = 100).contains("drift_margin_ms (100)"));
        let config = Config {
            lease_ms: 249,
            ..Config::default()
        };
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn times_and_limits_outside_their_ranges_are_refused_with_their_values() {
        assert!(refused(|c| c.heartbeat_ms = 0).contains("heartbeat_ms is 0"));
        assert!(refused(|c| c.heartbeat_ms = 101).contains("heartbeat_ms is 101"));
        assert!(refused(|c| c.election_timeout_ms = 60_001).contains("60001"));
        assert!(refused(|c| c.count_max = 0).contains("count_max is 0"));
        assert!(refused(|c| c.block_cache_mb = 0).contains("block_cache_mb is 0"));
        assert!(refused(|c| c.node_id = 0).contains("node_id is 0"));
        assert!(refused(|c| c.cluster = "a b".into()).contains("\"a b\""));
    }

    #[test]
    fn addresses_that_cannot_be_reached_or_collide_are_refused() {
        assert!(refused(|c| c.peer_listen = c.listen).contains("127.0.0.1:7600"));
        assert!(refused(|c| c.listen = ([0, 0, 0, 0], 7600).into()).contains("advertise"));
        assert!(refused(|c| c.advertise = Some("nowhere".into())).contains("\"nowhere\""));
    }

    #[test]
    fn peers_must_name_this_node_once_and_do_not_go_with_join() {
        let peers = |text: &[(u64, &str)]| -> BTreeMap<u64, String> {
            text.iter().map(|(id, a)| (*id, (*a).to_owned())).collect()
        };
        assert!(refused(|c| c.peers = peers(&[(2, "a:1"), (3, "b:1")])).contains("nodes 2, 3"));
        assert!(
            refused(|c| c.peers = peers(&[(1, "a:1"), (3, "a:1")])).contains("node 1 and node 3")
        );
        assert!(refused(|c| c.peers = peers(&[(1, "a:0")])).contains("\"a:0\""));
        let joining = refused(|c| (c.peers, c.join) = (peers(&[(1, "a:1")]), true));
        assert!(joining.contains("join and peers"));
    }
}
