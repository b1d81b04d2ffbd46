//! An operator who changes the steps of namespaces while they are used.

use std::{io, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tonic::Status;

use crate::{
    client::{Client, bounded},
    nodes::KnownNodes,
    proto::UpdateNamespaceRequest,
    target::{NAMED, OWN, SHARED},
};

/// How long the operator waits between two changes, in milliseconds.
const EVERY_MS: std::ops::Range<u64> = 200..1_500;

/// The operator.
pub struct Operator {
    nodes: KnownNodes,
    step_max: u64,
    rng: StdRng,
}

impl Operator {
    /// An operator who has made a first change. No step is greater than `step_max`, the step by which the promise is judged.
    ///
    /// # Errors
    /// The change was refused. No fault disturbs it yet.
    pub async fn start(nodes: KnownNodes, step_max: u64, seed: u64) -> io::Result<Operator> {
        let rng = StdRng::seed_from_u64(seed.wrapping_add(2_000));
        let mut operator = Operator { nodes, step_max, rng };
        operator.change().await.map_err(io::Error::other)?;
        Ok(operator)
    }

    /// Goes on until it is dropped.
    pub async fn keep_changing(mut self) {
        loop {
            let pause_ms = self.rng.random_range(EVERY_MS);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            // Under faults, many changes fail. Whether one was made is no matter: numbers are right before and after it.
            let _ = self.change().await;
        }
    }

    async fn change(&mut self) -> Result<(), Status> {
        let name = [OWN, SHARED, NAMED][self.rng.random_range(0..3)];
        let change = UpdateNamespaceRequest {
            namespace: name.to_owned(),
            step: Some(self.rng.random_range(self.step_max / 2..=self.step_max)),
            ..UpdateNamespaceRequest::default()
        };
        let address = {
            let nodes = self.nodes.read();
            nodes[self.rng.random_range(0..nodes.len())].1.clone()
        };
        Client::new(address).admin().update_namespace(bounded(change)).await.map(drop)
    }
}
