//! File descriptors: some are kept back for the disk and the peers, so that no number of clients can
//! keep the node from its log.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::node::{Config, StartError, config::ConfigError};

/// What the node needs besides clients: RocksDB's files (256 at most), peers' connections in both
/// directions, the metrics port, snapshots, and what every process has.
const RESERVED: u64 = 512;
/// With fewer clients than this a node is of no use.
const CLIENTS_MIN: u64 = 64;

/// How many client connections there may be at a time: as many as the configuration says, and as file
/// descriptors are left for them.
///
/// # Errors
/// [`ConfigError`] if the process may not even open those that the node itself needs.
pub fn client_connections(config: &Config) -> Result<u64, StartError> {
    let files_max = files_max();
    let left = files_max.saturating_sub(RESERVED);
    if left < CLIENTS_MIN {
        return Err(ConfigError(format!(
            "the process may open {files_max} files; a node needs {RESERVED} for its disk and its \
             peers, and {CLIENTS_MIN} for clients: allow more, with ulimit -n, or with LimitNOFILE= \
             in a systemd unit"
        ))
        .into());
    }
    let clients = config.client_connections_max.min(left);
    if clients < config.client_connections_max {
        tracing::warn!(
            files_max,
            client_connections_max = config.client_connections_max,
            "only {clients} client connections: the process may open no more files, and {RESERVED} \
             are kept for the disk and the peers; allow more with ulimit -n, or LimitNOFILE="
        );
    } else {
        tracing::info!(files_max, "up to {clients} client connections");
    }
    Ok(clients)
}

/// How many files the process may open; it takes all that it may have. What is low by default is the
/// soft limit, for the sake of programs that use select(2).
fn files_max() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: maximum,
        maximum,
    };
    let taken = match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    taken.unwrap_or(u64::MAX)
}
