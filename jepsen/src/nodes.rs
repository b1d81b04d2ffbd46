//! The nodes that callers and the monitor know.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::{Mutex, RwLock};
use ratchet_client::{Client, Error};

use crate::address::Address;

/// The ids of nodes, and where they listen for callers.
pub type NodeAddresses = Vec<(u64, Address)>;

/// The members of the cluster as of now. A membership change replaces one of them during a run.
pub type KnownNodes = Arc<RwLock<NodeAddresses>>;

/// The product's client of these nodes, which waits so long for an answer.
///
/// # Errors
/// A client cannot be built for these addresses.
pub fn product_client(nodes: &[(u64, Address)], timeout: Duration) -> Result<Client, Error> {
    let servers = nodes.iter().map(|(_, address)| address.at.to_string());
    let builder = Client::builder().servers(servers).timeout(timeout);
    match nodes.first().and_then(|(_, address)| address.access()) {
        Some(access) => access.of_client(builder),
        None => builder,
    }
    .build()
}

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
