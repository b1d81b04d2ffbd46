//! The product's own client, which callers share.

use parking_lot::Mutex;

use crate::{
    client,
    nodes::{KnownNodes, NodeAddresses},
};

/// The product's client. It is built anew when the nodes change.
pub struct ProductClient {
    nodes: KnownNodes,
    built: Mutex<Option<(NodeAddresses, ratchet_client::Client)>>,
}

impl ProductClient {
    /// A client of these nodes.
    pub fn new(nodes: KnownNodes) -> ProductClient {
        ProductClient {
            nodes,
            built: Mutex::default(),
        }
    }

    /// The client of the nodes as of now.
    ///
    /// # Errors
    /// A client cannot be built for these addresses.
    pub fn get(&self) -> Result<ratchet_client::Client, ratchet_client::Error> {
        let nodes = self.nodes.read().clone();
        let mut built = self.built.lock();
        if let Some((servers, client)) = &*built
            && *servers == nodes
        {
            return Ok(client.clone());
        }
        let servers: Vec<String> = nodes.iter().map(|node| node.1.to_string()).collect();
        let client = ratchet_client::Client::builder()
            .servers(servers)
            .timeout(client::DEADLINE)
            .build()?;
        *built = Some((nodes, client.clone()));
        Ok(client)
    }
}
