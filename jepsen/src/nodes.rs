//! The nodes that callers and the monitor know.

use std::{net::SocketAddr, sync::Arc};

use parking_lot::RwLock;

/// The ids of nodes, and where they listen for callers.
pub type NodeAddresses = Vec<(u64, SocketAddr)>;

/// The members of the cluster as of now. A membership change replaces one of them during a run.
pub type KnownNodes = Arc<RwLock<NodeAddresses>>;
