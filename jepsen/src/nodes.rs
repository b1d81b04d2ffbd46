//! The nodes that callers and the monitor know.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use parking_lot::{Mutex, RwLock};

/// The ids of nodes, and where they listen for callers.
pub type NodeAddresses = Vec<(u64, SocketAddr)>;

/// The members of the cluster as of now. A membership change replaces one of them during a run.
pub type KnownNodes = Arc<RwLock<NodeAddresses>>;

/// How often each node was started.
#[derive(Debug, Clone, Default)]
pub struct Starts(Arc<Mutex<BTreeMap<u64, u64>>>);

impl Starts {
    /// Notes that a node is started.
    pub fn note(&self, node: u64) {
        *self.0.lock().entry(node).or_default() += 1;
    }

    /// Which process of a node runs, or ran last, counted from 1.
    pub fn process_of(&self, node: u64) -> u64 {
        self.0.lock().get(&node).copied().unwrap_or_default()
    }
}
