//! Formation: a fresh node founds its cluster, or waits for the founding node.
//!
//! Invariant: a cluster is founded once. The founding node is the one with the smallest id in `peers`. It founds
//! the cluster only after every other node has said that it belongs to none. It records which data directory
//! each of them has, so that a node whose directory is wiped later is not taken for the same node.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tonic::{Code, Status};

use super::NodeContext;
use crate::{sequence::NodeId, storage::Member, tasks::Fault};

/// How soon a node that does not listen yet is greeted again.
const RETRY: Duration = Duration::from_millis(100);

/// Founds the cluster if this node is the founding one. Returns when nothing is left to do.
pub async fn form(context: Arc<NodeContext>) {
    let config = &context.config;
    if context.group.is_formed() || config.join {
        return;
    }
    let founder = config.peers.keys().next().copied().unwrap_or(config.node_id);
    if founder != config.node_id {
        tracing::info!(founder, "waiting for the founding node");
        return;
    }
    let mut members = BTreeMap::from([(config.node_id, context.as_member())]);
    for (&id, address) in config.peers.iter().filter(|(id, _)| **id != config.node_id) {
        match context.meet(id, address).await {
            Ok(member) => members.insert(id, member),
            Err(status) => {
                let why = status.message().to_owned();
                return context.group.tasks().fail(match status.code() {
                    // This node may have lost its data, and founded a cluster before.
                    Code::AlreadyExists => Fault::CannotGoOn(why),
                    _ => Fault::Founding(why),
                });
            }
        };
    }
    match context.group.found(members).await {
        Ok(()) => tracing::info!(cluster = config.cluster, "cluster founded"),
        Err(error) => context.fail(error.to_string()),
    }
}

impl NodeContext {
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
