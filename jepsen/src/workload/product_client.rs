//! The product's own client, which callers share.

use std::time::Duration;

use parking_lot::Mutex;
use ratchet_client::Error;

use crate::{
    client::{self, FirstAndLast},
    connections::Failure,
    history::Action,
    nodes::{self, KnownNodes, NodeAddresses},
    target::Target,
};

/// The product's client. It is built anew when the nodes change.
pub struct ProductClient {
    nodes: KnownNodes,
    timeout: Duration,
    built: Mutex<Option<(NodeAddresses, ratchet_client::Client)>>,
}

impl ProductClient {
    /// A client of these nodes, which waits so long for an answer.
    pub fn new(nodes: KnownNodes, timeout: Duration) -> ProductClient {
        ProductClient { nodes, timeout, built: Mutex::default() }
    }

    /// Asks for each key, one after the other. It takes numbers only.
    pub async fn ask(
        &self, targets: &[Target], action: Action,
    ) -> Vec<Result<FirstAndLast, Failure>> {
        let mut answers = Vec::with_capacity(targets.len());
        for target in targets {
            answers.push(match action {
                Action::Next { count } => self.next(target, count).await,
                Action::Current | Action::Raise { .. } => {
                    Err(Failure::refused("such callers take numbers, and nothing else"))
                }
            });
        }
        answers
    }

    async fn next(&self, target: &Target, count: u64) -> Result<FirstAndLast, Failure> {
        let client = self.get();
        let client = client.map_err(|error| Failure::refused(error.to_string()))?;
        match client.next_range(target.namespace, target.id, count).await {
            Ok(numbers) => Ok((numbers.first, numbers.last)),
            // The client's own check refused this answer. The checker must see it.
            Err(Error::Disorder { number, .. }) => Ok((number, number)),
            Err(other) => Err(Failure::from(client::status_of(&other))),
        }
    }

    /// The client of the nodes as of now.
    ///
    /// # Errors
    /// A client cannot be built for these addresses.
    pub fn get(&self) -> Result<ratchet_client::Client, Error> {
        let nodes = self.nodes.read().clone();
        let mut built = self.built.lock();
        if let Some((servers, client)) = &*built
            && *servers == nodes
        {
            return Ok(client.clone());
        }
        let client = nodes::product_client(&nodes, self.timeout)?;
        *built = Some((nodes, client.clone()));
        Ok(client)
    }
}
