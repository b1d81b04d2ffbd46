//! A fresh node that its cluster knows with another data directory: the files of that one were lost.
//!
//! Messages of its members say so, and so may any stranger's. Only the peers that the node itself was given are believed.

use std::time::Duration;

use tokio::time::Instant;

use super::{greeting::HELLO_TIMEOUT, services::Members};
use crate::{sequence::NodeId, storage::replacing, tasks::Fault};

/// How soon the peers are asked again, and the log tells of it again.
const ASK_EVERY: Duration = Duration::from_secs(10);

impl Members {
    /// Stops this node if it belongs to no cluster and one of its peers belongs to one that knows it with another data
    /// directory. Returns once it belongs to a cluster.
    pub(super) async fn watch_for_lost_directory(&self) {
        let mut taken = self.group.taken_for_another();
        let mut is_news = self.group.taken_for_another_by().is_some();
        while !self.group.is_formed() {
            if !is_news && taken.changed().await.is_err() {
                return;
            }
            is_news = false;
            if self.group.is_formed() {
                return;
            }
            let asked = Instant::now();
            if let Some(peer) = self.peer_of_a_cluster().await {
                return self.group.tasks().fail(Fault::CannotGoOn(self.lost_directory(peer)));
            }
            tracing::error!(
                "a message for node {} of cluster {:?} is for another data directory than {}, and none of the peers in the \
                 configuration belongs to a cluster; if the files of the other directory were lost, {}",
                self.config.node_id,
                self.config.cluster,
                self.config.data_dir.display(),
                replacing(self.config.node_id)
            );
            tokio::time::sleep_until(asked + ASK_EVERY).await;
        }
    }

    /// A peer of the configuration that belongs to a cluster already.
    async fn peer_of_a_cluster(&self) -> Option<NodeId> {
        for (&id, address) in &self.config.peers {
            let hello = self.greeting_to(id);
            match self.transport.hello(address, hello, HELLO_TIMEOUT).await {
                Ok(hello) if hello.formed => return Some(id),
                Ok(_) => {}
                Err(refusal) => tracing::debug!(peer = id, %refusal, "no greeting"),
            }
        }
        None
    }

    fn lost_directory(&self, peer: NodeId) -> String {
        let config = &self.config;
        format!(
            "node {peer} belongs to the cluster {:?}, which knows node {} with another data directory than {}: the one here \
             is new. Put back the lost directory itself, not a backup; or {}",
            config.cluster,
            config.node_id,
            config.data_dir.display(),
            replacing(config.node_id)
        )
    }
}
