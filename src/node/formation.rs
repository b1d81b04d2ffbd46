//! How a fresh node comes into a cluster: it founds one, or waits to be found.
//!
//! Invariant: a cluster is founded once. The founding node (the smallest id of `peers`) does so only
//! after every other has said that it belongs to none, and writes down which data directory each of
//! them has: one that is wiped later is not taken for the same node.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tonic::{Code, Status};

use super::Shared;
use crate::{sequence::NodeId, storage::Member, tasks::Fault};

const RETRY: Duration = Duration::from_millis(100);

/// Founds the cluster if it is this node's part; returns when there is nothing left to do.
pub async fn form(shared: Arc<Shared>) {
    let config = &shared.config;
    if shared.group.is_formed() || config.join {
        return;
    }
    let founder = config
        .peers
        .keys()
        .next()
        .copied()
        .unwrap_or(config.node_id);
    if founder != config.node_id {
        tracing::info!(founder, "waiting for the founding node");
        return;
    }
    let mut members = BTreeMap::from([(config.node_id, shared.as_member())]);
    for (&id, address) in config.peers.iter().filter(|(id, _)| **id != config.node_id) {
        match shared.meet(id, address).await {
            Ok(member) => members.insert(id, member),
            Err(status) => {
                let why = status.message().to_owned();
                return shared.group.tasks().fail(match status.code() {
                    // This node may have lost its data, and founded a cluster before.
                    Code::AlreadyExists => Fault::Other(why),
                    _ => Fault::Founding(why),
                });
            }
        };
    }
    match shared.group.found(members).await {
        Ok(()) => tracing::info!(cluster = config.cluster, "cluster founded"),
        Err(error) => shared.fail(error.to_string()),
    }
}

impl Shared {
    /// Waits until the fresh node `id` listens at `address`.
    async fn meet(&self, id: NodeId, address: &str) -> Result<Member, Status> {
        let mut told = None;
        loop {
            match self.introduce(id, address).await {
                Err(status) if status.code() == Code::Unavailable => {
                    if told.as_deref() != Some(status.message()) {
                        tracing::info!("waiting for {}", status.message());
                        told = Some(status.message().to_owned());
                    }
                }
                answer => return answer,
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}
