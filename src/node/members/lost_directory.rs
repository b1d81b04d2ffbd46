//! A fresh node that its cluster knows with another data directory: the files of that one were lost.
//!
//! Messages of its members say so, and so may any stranger's. Invariant: only the peers that the node itself was given are
//! believed.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Members, greeting::HELLO_TIMEOUT};
use crate::{
    consensus::Destination, node::Config, sequence::NodeId, storage::replacing, tasks::Fault,
};

/// How soon the peers are asked again, and the log tells of it again.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// Stops this node if it belongs to no cluster and one of its peers belongs to one that knows it with another data
/// directory. Returns once it belongs to a cluster.
pub(in crate::node) async fn watch_for_lost_directory(members: Arc<Members>) {
    let (group, config) = (&members.group, &members.config);
    let mut taken = members.this_node.taken_for_another();
    let mut is_news = taken.borrow().is_some();
    while !group.is_formed() {
        if !is_news && taken.changed().await.is_err() {
            return;
        }
        is_news = false;
        if group.is_formed() {
            return;
        }
        let asked = Instant::now();
        if let Some(peer) = peer_of_a_cluster(&members).await {
            return members.this_node.tasks.fail(Fault::CannotGoOn(lost_directory(config, peer)));
        }
        tracing::error!(
            "a message for node {} of cluster {:?} is for another data directory than {}, and none of the peers in the \
             configuration belongs to a cluster; if the files of the other directory were lost, {}",
            config.node_id,
            config.cluster,
            config.data_dir.display(),
            replacing(config.node_id)
        );
        tokio::time::sleep_until(asked + ASK_EVERY).await;
    }
}

/// A peer of the configuration that belongs to a cluster already.
async fn peer_of_a_cluster(members: &Members) -> Option<NodeId> {
    for (&id, address) in &members.config.peers {
        let hello = members.greeting_to(id);
        let to = Destination { node: id, address };
        match members.transport.hello(to, hello, HELLO_TIMEOUT).await {
            Ok(hello) if hello.formed => return Some(id),
            Ok(_) => {}
            Err(refusal) => tracing::debug!(peer = id, %refusal, "no greeting"),
        }
    }
    None
}

fn lost_directory(config: &Config, peer: NodeId) -> String {
    format!(
        "node {peer} belongs to the cluster {:?}, which knows node {id} with another data directory than {}: the one here \
         is new. Put back the lost directory itself, not a backup; or {}. If node {id} was only added, and was started again \
         before the leader reached it, nothing is lost: ratchet node remove {id}, start it again, then ratchet node add {id}",
        config.cluster,
        config.data_dir.display(),
        replacing(config.node_id),
        id = config.node_id
    )
}
