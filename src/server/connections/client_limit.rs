//! The limit on client connections that follows from the process's limit on file descriptors.
//!
//! Invariant: [`RESERVED`] descriptors stay free for the disk and the peers. However many clients connect, the node can open
//! its log.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::node::{Config, StartError, config::ConfigError};

/// The descriptors that the node needs besides those of clients: RocksDB's files (256 at most), the
/// connections to and from peers, the metrics port, administrators, the local socket, snapshots, and standard streams and the
/// like.
const RESERVED: u64 = 512;
/// The least number of client connections that makes a node useful.
const CLIENTS_MIN: u64 = 64;

/// How many client connections may be open at a time: `client_connections_max`, or fewer if the process may
/// not open as many files. Raises the process's own limit first.
///
/// # Errors
/// [`ConfigError`] if fewer than [`CLIENTS_MIN`] descriptors are left for clients.
pub fn client_connections(config: &Config) -> Result<u64, StartError> {
    let files_max = files_max();
    let left = files_max.saturating_sub(RESERVED);
    if left < CLIENTS_MIN {
        return Err(ConfigError(format!(
            "the process may open {files_max} files; a node needs {RESERVED} for its disk and its \
             peers, and at least {CLIENTS_MIN} for clients; raise the limit with ulimit -n, or with \
             LimitNOFILE= in a systemd unit"
        ))
        .into());
    }
    let clients = config.client_connections_max.min(left);
    if clients < config.client_connections_max {
        tracing::warn!(
            files_max,
            client_connections_max = config.client_connections_max,
            "only {clients} client connections are possible: the process may open no more files, and \
             {RESERVED} are reserved for the disk and the peers; raise the limit with ulimit -n, or \
             with LimitNOFILE= in a systemd unit"
        );
    } else {
        tracing::info!(files_max, "up to {clients} client connections are possible");
    }
    Ok(clients)
}

/// How many files the process may open, after its soft limit was raised to the hard one. The soft limit is
/// low by default only for the sake of programs that use select(2).
fn files_max() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: maximum, maximum };
    let taken = match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    taken.unwrap_or(u64::MAX)
}
