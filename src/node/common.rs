//! The parts of a node that most of its services need. A service takes shares in those that it needs, and none gets the whole
//! node.

use std::sync::Arc;

use super::{
    Config, callers::Callers, request_memory::RequestMemory, slow_calls::SlowCalls,
    stopping::Stopping,
};
use crate::{
    clock::Clock,
    consensus::{Group, ThisNode},
    metrics::Metrics,
};

/// The parts that most services of a node share.
pub struct Common {
    /// The configuration.
    pub config: Arc<Config>,
    /// The parts that the node has once, however many Raft groups run on it.
    pub this_node: Arc<ThisNode>,
    /// Whether the node stops.
    pub stopping: Stopping,
    /// The Raft group.
    pub group: Arc<Group>,
    /// The clock that leases are counted on.
    pub clock: Arc<dyn Clock>,
    /// The node's metrics.
    pub metrics: Arc<Metrics>,
    /// The memory of waiting requests and unsent answers.
    pub request_memory: Arc<RequestMemory>,
    /// The log of slow calls.
    pub slow_calls: Arc<SlowCalls>,
    /// The callers, and the bounds on each.
    pub callers: Arc<Callers>,
}

impl Common {
    /// The parts of a node with this configuration, on which `group` runs.
    pub fn new(
        config: Config, clock: Arc<dyn Clock>, group: Arc<Group>, metrics: Arc<Metrics>,
    ) -> Common {
        Common {
            request_memory: RequestMemory::new(&config, &metrics),
            slow_calls: Arc::new(SlowCalls::new(&config, metrics.clone())),
            callers: Callers::new(&config, &metrics, {
                let group = group.clone();
                move |network| group.view.principals().are_closed_to(network)
            }),
            config: Arc::new(config),
            this_node: group.this_node.clone(),
            stopping: Stopping::default(),
            group,
            clock,
            metrics,
        }
    }
}
