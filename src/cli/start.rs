//! `ratchet start`: a configuration out of flags, environment and a file, and a node that runs on it.

use std::{collections::BTreeMap, io::IsTerminal, net::SocketAddr, path::PathBuf};

use clap::{Args, ValueEnum, builder::PossibleValue};
use serde::Deserialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::Failed;
use crate::{
    node::{Config, Seams, StartError, config::FenceKind},
    server,
};

/// What is logged by default. Raft's library warns of every message that a peer which is down does not
/// answer, some twenty times a second; that a leader is lost, or found, we tell ourselves.
const LOG_FILTER: &str = "info,openraft=error";

/// `ratchet start`.
#[derive(Debug, Args)]
pub struct Start {
    /// A TOML file with any of the settings below, named as the flags with _ for -; flags and
    /// environment win over it
    #[arg(long, env = "RATCHET_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Each setting, where it is given: on the command line, in the environment, or in the file.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// The cluster's name, the same on all nodes [default: ratchet]
    #[arg(long, env = "RATCHET_CLUSTER")]
    cluster: Option<String>,
    /// This node's id, at least 1 [default: 1]
    #[arg(long, env = "RATCHET_NODE_ID")]
    node_id: Option<u64>,
    /// Where the node keeps its data [default: ./ratchet-data]
    #[arg(long, env = "RATCHET_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Where to listen for clients [default: 127.0.0.1:7600]
    #[arg(long, env = "RATCHET_LISTEN")]
    listen: Option<SocketAddr>,
    /// Where to listen for peers [default: 127.0.0.1:7601]
    #[arg(long, env = "RATCHET_PEER_LISTEN")]
    peer_listen: Option<SocketAddr>,
    /// Where to serve /metrics, /livez and /readyz, or "off" [default: 127.0.0.1:7602]
    #[arg(long, env = "RATCHET_METRICS_LISTEN")]
    metrics_listen: Option<String>,
    /// Where clients reach this node, "host:port" [default: the address of --listen]
    #[arg(long, env = "RATCHET_ADVERTISE")]
    advertise: Option<String>,
    /// Where peers reach this node, "host:port" [default: as in --peers, or the address of
    /// --peer-listen]
    #[arg(long, env = "RATCHET_PEER_ADVERTISE")]
    peer_advertise: Option<String>,
    /// The founding voters, this one among them: "1=host:port,2=host:port,..." with their peer
    /// addresses; without any, a cluster of one
    #[arg(long, env = "RATCHET_PEERS", value_parser = parse_peers)]
    peers: Option<Peers>,
    /// Wait to be added to a running cluster (ratchet node add) instead of founding one
    #[arg(long, env = "RATCHET_JOIN", num_args = 0..=1, default_missing_value = "true")]
    join: Option<bool>,
    /// What answers pass when this node leads [default: lease]
    #[arg(long, env = "RATCHET_FENCE")]
    fence: Option<FenceKind>,
    /// How often a leader is heard of, in milliseconds [default: 50]
    #[arg(long, env = "RATCHET_HEARTBEAT_MS")]
    heartbeat_ms: Option<u64>,
    /// How long a follower keeps out of elections after it heard of a leader, in milliseconds; the
    /// same on all nodes [default: 300]
    #[arg(long, env = "RATCHET_ELECTION_TIMEOUT_MS")]
    election_timeout_ms: Option<u64>,
    /// How long a leader's answers are in order after a majority acknowledged it, in milliseconds
    /// [default: 200]
    #[arg(long, env = "RATCHET_LEASE_MS")]
    lease_ms: Option<u64>,
    /// By how much clocks may drift apart during a lease, in milliseconds [default: 50]
    #[arg(long, env = "RATCHET_DRIFT_MARGIN_MS")]
    drift_margin_ms: Option<u64>,
    /// The greatest count of one request [default: 1000000]
    #[arg(long, env = "RATCHET_COUNT_MAX")]
    count_max: Option<u64>,
    /// How long a request without a deadline may take, in milliseconds [default: 5000]
    #[arg(long, env = "RATCHET_REQUEST_TIMEOUT_MS")]
    request_timeout_ms: Option<u64>,
    /// How long any request may take, whatever deadline its caller sets, in milliseconds
    /// [default: 60000]
    #[arg(long, env = "RATCHET_REQUEST_TIMEOUT_MAX_MS")]
    request_timeout_max_ms: Option<u64>,
    /// How many megabytes requests that wait may hold, and answers that are not sent yet; more are
    /// refused [default: 256]
    #[arg(long, env = "RATCHET_MEMORY_REQUESTS_MAX_MB")]
    memory_requests_max_mb: Option<u64>,
    /// How many connections clients may have at a time; fewer where the process may not open as many
    /// files [default: 10000]
    #[arg(long, env = "RATCHET_CLIENT_CONNECTIONS_MAX")]
    client_connections_max: Option<u64>,
    /// How long a connection without a call under way is kept, in milliseconds [default: 600000]
    #[arg(long, env = "RATCHET_CONNECTION_IDLE_MS")]
    connection_idle_ms: Option<u64>,
    /// How long a handover gives ceilings back, and how long a node that stops then waits for callers,
    /// in milliseconds [default: 5000]
    #[arg(long, env = "RATCHET_SHUTDOWN_TIMEOUT_MS")]
    shutdown_timeout_ms: Option<u64>,
    /// How many bytes of the applied log are kept, at least, for nodes that lag; one that lags
    /// further gets a snapshot [default: 268435456]
    #[arg(long, env = "RATCHET_LOG_KEEP_BYTES")]
    log_keep_bytes: Option<u64>,
    /// How much memory is for what is read of the database, in MB [default: 64]
    #[arg(long, env = "RATCHET_BLOCK_CACHE_MB")]
    block_cache_mb: Option<u64>,
    /// What to log, as a tracing filter [default: info,openraft=error]
    #[arg(long, env = "RATCHET_LOG")]
    log: Option<String>,
    /// How to log [default: human]
    #[arg(long, env = "RATCHET_LOG_FORMAT")]
    log_format: Option<LogFormat>,
}

impl ValueEnum for FenceKind {
    fn value_variants<'a>() -> &'a [Self] {
        &[FenceKind::Lease, FenceKind::Quorum]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            FenceKind::Lease => PossibleValue::new("lease")
                .help("A majority acknowledged this leader within its lease"),
            FenceKind::Quorum => {
                PossibleValue::new("quorum").help("A majority confirms each batch of answers")
            }
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LogFormat {
    /// For people
    Human,
    /// For machines: one object per line
    Json,
}

/// Founding voters: "1=host:port,2=host:port", or a table in TOML.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "PeersInFile")]
struct Peers(BTreeMap<u64, String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum PeersInFile {
    Text(String),
    Table(BTreeMap<String, String>),
}

impl TryFrom<PeersInFile> for Peers {
    type Error = String;

    fn try_from(peers: PeersInFile) -> Result<Self, String> {
        match peers {
            PeersInFile::Text(text) => parse_peers(&text),
            PeersInFile::Table(table) => table
                .into_iter()
                .map(|(id, address)| Ok((parse_id(&id)?, address)))
                .collect::<Result<_, _>>()
                .map(Peers),
        }
    }
}

fn parse_peers(text: &str) -> Result<Peers, String> {
    let mut peers = BTreeMap::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (id, address) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} is not of the form id=host:port"))?;
        if peers
            .insert(parse_id(id)?, address.trim().to_owned())
            .is_some()
        {
            return Err(format!("node {id} is named twice"));
        }
    }
    Ok(Peers(peers))
}

fn parse_id(id: &str) -> Result<u64, String> {
    id.trim()
        .parse()
        .map_err(|_| format!("{id:?} is not a node id, an integer from 1"))
}

impl Settings {
    /// These settings, and those of `other` where these have none.
    fn or(self, other: Settings) -> Settings {
        macro_rules! each {
            ($($field:ident),* $(,)?) => {
                Settings { $($field: self.$field.or(other.$field),)* }
            };
        }
        each!(
            cluster,
            node_id,
            data_dir,
            listen,
            peer_listen,
            metrics_listen,
            advertise,
            peer_advertise,
            peers,
            join,
            fence,
            heartbeat_ms,
            election_timeout_ms,
            lease_ms,
            drift_margin_ms,
            count_max,
            request_timeout_ms,
            request_timeout_max_ms,
            memory_requests_max_mb,
            client_connections_max,
            connection_idle_ms,
            shutdown_timeout_ms,
            log_keep_bytes,
            block_cache_mb,
            log,
            log_format,
        )
    }

    fn config(self) -> Result<Config, Failed> {
        let default = Config::default();
        let metrics_listen = match self.metrics_listen.as_deref() {
            None => default.metrics_listen,
            Some("off") => None,
            Some(address) => Some(address.parse().map_err(|_| {
                Failed::config(format!(
                    "metrics_listen is {address:?}; it takes an address as 127.0.0.1:7602, or \"off\""
                ))
            })?),
        };
        Ok(Config {
            cluster: self.cluster.unwrap_or(default.cluster),
            node_id: self.node_id.unwrap_or(default.node_id),
            data_dir: self.data_dir.unwrap_or(default.data_dir),
            listen: self.listen.unwrap_or(default.listen),
            peer_listen: self.peer_listen.unwrap_or(default.peer_listen),
            metrics_listen,
            advertise: self.advertise,
            peer_advertise: self.peer_advertise,
            peers: self.peers.map_or(default.peers, |peers| peers.0),
            join: self.join.unwrap_or(default.join),
            fence: self.fence.unwrap_or(default.fence),
            heartbeat_ms: self.heartbeat_ms.unwrap_or(default.heartbeat_ms),
            election_timeout_ms: self
                .election_timeout_ms
                .unwrap_or(default.election_timeout_ms),
            lease_ms: self.lease_ms.unwrap_or(default.lease_ms),
            drift_margin_ms: self.drift_margin_ms.unwrap_or(default.drift_margin_ms),
            count_max: self.count_max.unwrap_or(default.count_max),
            request_timeout_ms: self
                .request_timeout_ms
                .unwrap_or(default.request_timeout_ms),
            request_timeout_max_ms: self
                .request_timeout_max_ms
                .unwrap_or(default.request_timeout_max_ms),
            memory_requests_max_mb: self
                .memory_requests_max_mb
                .unwrap_or(default.memory_requests_max_mb),
            client_connections_max: self
                .client_connections_max
                .unwrap_or(default.client_connections_max),
            connection_idle_ms: self
                .connection_idle_ms
                .unwrap_or(default.connection_idle_ms),
            shutdown_timeout_ms: self
                .shutdown_timeout_ms
                .unwrap_or(default.shutdown_timeout_ms),
            log_keep_bytes: self.log_keep_bytes.unwrap_or(default.log_keep_bytes),
            block_cache_mb: self.block_cache_mb.unwrap_or(default.block_cache_mb),
        })
    }
}

impl Start {
    pub(super) async fn run(self) -> Result<(), Failed> {
        let file = match &self.config {
            Some(path) => read(path)?,
            None => Settings::default(),
        };
        let settings = self.settings.or(file);
        let format = settings.log_format.unwrap_or(LogFormat::Human);
        log_to_stderr(settings.log.as_deref(), format)?;
        let config = settings.config()?;
        let signals = || {
            Ok((
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
            ))
        };
        let signals = signals().map_err(|e: std::io::Error| {
            Failed::other(format!("cannot watch for SIGTERM and SIGINT: {e}"))
        })?;
        Ok(serve(config, signals).await?)
    }
}

/// Runs a node until it is asked to stop or cannot go on.
async fn serve(
    config: Config,
    (mut terminate, mut interrupt): (Signal, Signal),
) -> Result<(), StartError> {
    let starting = server::start(config, Seams::default());
    let node = tokio::select! {
        node = starting => node?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    tokio::select! {
        fault = node.failed() => {
            node.halt().await;
            return Err(fault.into());
        }
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
    }
    node.stop().await;
    Ok(())
}

fn read(path: &PathBuf) -> Result<Settings, Failed> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failed::config(format!(
            "cannot read the configuration {}: {error}",
            path.display()
        ))
    })?;
    toml::from_str(&text).map_err(|error| {
        Failed::config(format!(
            "the configuration {} is wrong: {error}",
            path.display()
        ))
    })
}

fn log_to_stderr(filter: Option<&str>, format: LogFormat) -> Result<(), Failed> {
    let filter = filter.unwrap_or(LOG_FILTER);
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failed::config(format!(
            "log is {filter:?}: {error}; it takes a filter as \"info\" or \"ratchet=debug,warn\""
        ))
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let set = match format {
        LogFormat::Human => subscriber.try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    };
    set.map_err(|error| Failed::other(format!("cannot log: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_first_wins_over_the_file_and_the_file_over_the_default() {
        let file: Settings =
            toml::from_str("node_id = 2\nlease_ms = 150\nfence = \"quorum\"").unwrap();
        let flags = Settings {
            node_id: Some(3),
            ..Settings::default()
        };
        let config = flags.or(file).config().unwrap();
        assert_eq!(
            (config.node_id, config.lease_ms, config.heartbeat_ms),
            (3, 150, 50)
        );
        assert_eq!(config.fence, FenceKind::Quorum);
    }

    #[test]
    fn an_unknown_setting_in_the_file_is_refused_by_name() {
        let error = toml::from_str::<Settings>("lease = 5")
            .unwrap_err()
            .to_string();
        assert!(error.contains("lease"), "{error}");
    }

    #[test]
    fn peers_are_a_list_or_a_table() {
        let expected = Peers(BTreeMap::from([(1, "a:1".into()), (2, "b:2".into())]));
        assert_eq!(parse_peers("1=a:1,2=b:2").unwrap(), expected);
        let file: Settings = toml::from_str("[peers]\n1 = \"a:1\"\n2 = \"b:2\"").unwrap();
        assert_eq!(file.peers.unwrap(), expected);
        assert!(parse_peers("1:a").unwrap_err().contains("\"1:a\""));
        assert!(parse_peers("x=a:1").unwrap_err().contains("\"x\""));
        assert!(parse_peers("1=a:1,1=b:1").unwrap_err().contains("twice"));
    }

    #[test]
    fn a_metrics_address_that_is_none_is_refused_with_its_value() {
        let settings = Settings {
            metrics_listen: Some("here".into()),
            ..Settings::default()
        };
        assert!(format!("{:?}", settings.config().unwrap_err()).contains("here"));
    }
}
