//! The product's own client, as callers share it.

use parking_lot::Mutex;

use crate::{
    client,
    nodes::{Known, Nodes},
};

/// The product's client, made anew when the nodes change.
pub struct Library {
    nodes: Nodes,
    made: Mutex<Option<(Known, ratchet_client::Client)>>,
}

impl Library {
    pub fn new(nodes: Nodes) -> Library {
        Library {
            nodes,
            made: Mutex::default(),
        }
    }

    pub fn client(&self) -> Option<ratchet_client::Client> {
        let nodes = self.nodes.read().clone();
        let mut made = self.made.lock();
        if made.as_ref().is_none_or(|(of, _)| *of != nodes) {
            let servers: Vec<String> = nodes.iter().map(|node| node.1.to_string()).collect();
            let client = ratchet_client::Client::builder()
                .servers(servers)
                .timeout(client::DEADLINE)
                .build()
                .ok()?;
            *made = Some((nodes, client));
        }
        made.as_ref().map(|(_, client)| client.clone())
    }
}
