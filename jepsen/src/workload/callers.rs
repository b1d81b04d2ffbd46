//! Starts all callers.

use std::sync::Arc;

use tokio::{sync::watch, task::JoinSet};

use super::{caller::Caller, config::WorkloadConfig, product_client::ProductClient};
use crate::{
    callers::CallersAtWork,
    client::DEADLINE,
    nodes::KnownNodes,
    record::{Flow, Recorder},
};

/// Starts `count` callers. Half of them stay at one node, half change nodes.
pub fn start_callers(
    config: WorkloadConfig, count: usize, nodes: &KnownNodes, recorder: &Arc<Recorder>,
) -> CallersAtWork<()> {
    recorder.begin(Flow::Numbers);
    if config.workload.reads() {
        recorder.begin(Flow::LastNumbers);
    }
    let stop = watch::Sender::new(false);
    let product = Arc::new(ProductClient::new(nodes.clone(), DEADLINE));
    let mut tasks = JoinSet::new();
    for place in 0..count {
        let mut caller =
            Caller::new(config, place, nodes.clone(), product.clone(), recorder.clone());
        let stopped = stop.subscribe();
        tasks.spawn(async move {
            while !*stopped.borrow() {
                caller.call().await;
            }
        });
    }
    CallersAtWork { tasks, stop }
}
