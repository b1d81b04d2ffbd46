//! All callers: started together, and stopped together.

use std::sync::Arc;

use tokio::{sync::watch, task::JoinSet};

use super::{caller::Caller, config::WorkloadConfig, product_client::ProductClient};
use crate::{
    client::DEADLINE,
    nodes::KnownNodes,
    record::{Flow, Recorder},
};

/// Callers at work.
pub struct Callers {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Callers {
    /// Starts `count` callers. Half of them stay at one node, half change nodes.
    pub fn start(
        config: WorkloadConfig, count: usize, nodes: &KnownNodes, recorder: &Arc<Recorder>,
    ) -> Callers {
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
            let mut stopped = stop.subscribe();
            tasks.spawn(async move {
                while !*stopped.borrow_and_update() {
                    caller.call().await;
                }
            });
        }
        Callers { tasks, stop }
    }

    /// Stops them, each after its current call.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a caller panicked");
        }
    }
}
