//! What the status page shows, gathered from the node.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    allocator::HotKey,
    metrics::{Label, SkipCause},
    node::{NodeContext, Second},
    proto::v1,
};

/// How many keys are shown.
const HOT_KEYS: usize = 10;
/// How many namespaces are shown.
pub const NAMESPACES_MAX: usize = 100;
/// How long the leader is asked for its view of the cluster.
const PATIENCE: Duration = Duration::from_millis(800);

/// What the page shows.
pub struct View {
    /// The node that shows it.
    pub node: u64,
    /// The leader's view of the cluster, or what this node last knew.
    pub status: v1::StatusResponse,
    /// Where the pages of the members are, "host:port", as far as they are known; in the order of the status.
    pub pages: Vec<Option<String>>,
    /// What this node did in the last seconds.
    pub activity: Vec<Second>,
    /// The keys that get the most numbers from this node.
    pub hottest: Vec<HotKey>,
    /// How many numbers this node knows to be skipped, by cause.
    pub skipped: Vec<(&'static str, u64)>,
    /// The first namespaces.
    pub namespaces: Vec<v1::Namespace>,
    /// How many there are.
    pub namespaces_count: usize,
}

impl View {
    /// Asks the node, which asks the leader.
    pub async fn gather(context: &Arc<NodeContext>) -> View {
        let asking = context.leader.ask(&v1::StatusRequest {}, Instant::now() + PATIENCE);
        let status =
            asking.await.map_or_else(|_| context.services.status.now(), |(status, _)| status);
        let page = |node: &v1::NodeStatus| {
            let told = context.services.members.introduction_of(node.id)?;
            Some(told.http_address).filter(|address| !address.is_empty())
        };
        let skipped = |cause: &SkipCause| {
            let name = SkipCause::VALUES[cause.place()];
            (name, context.metrics.skipped(*cause))
        };
        let (namespaces, namespaces_count) =
            context.services.of_group.namespaces.first(NAMESPACES_MAX);
        View {
            node: context.config.node_id,
            pages: status.nodes.iter().map(page).collect(),
            status,
            activity: context.services.status.activity(),
            hottest: context.services.status.hottest_keys(HOT_KEYS),
            skipped: SkipCause::ALL.iter().map(skipped).collect(),
            namespaces,
            namespaces_count,
        }
    }
}
