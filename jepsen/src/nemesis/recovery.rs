//! What must be so when a fault is over.

use std::time::Duration;

use super::{
    fault::{Begun, Strike},
    injector::Stage,
    kind::Nemesis,
};
use crate::{client::Target, history::Action, network::Port, workload::OWN};

/// How long numbers may fail to flow after a fault is over.
pub const RECOVERY: Duration = Duration::from_secs(10);

const BETWEEN_TRIES: Duration = Duration::from_millis(100);

impl Stage {
    pub(super) async fn over(&mut self, nemesis: Nemesis, from_ns: u64, begun: Begun) -> Strike {
        let to_ns = self.recorder.now();
        let flows = tokio::time::timeout(RECOVERY, self.recorder.answered_since(to_ns)).await;
        let stuck = flows.is_err().then(|| {
            let limit = RECOVERY.as_secs();
            format!("no number within {limit} s after {nemesis:?} was over")
        });
        Strike {
            nemesis,
            from_ns,
            to_ns,
            what: begun.what,
            bit: begun.bit,
            broken: begun.broken.or(stuck),
        }
    }

    /// What is wrong with nodes that were down, where it is so: that they end by themselves, or that
    /// numbers cannot be read through them.
    pub(super) async fn unless_back(&mut self, nodes: &[Port]) -> Option<String> {
        let mut wrong = None;
        for id in nodes {
            let back = tokio::time::timeout(RECOVERY, self.back(*id)).await;
            let slow = || format!("node {id} was not back within {} s", RECOVERY.as_secs());
            wrong = wrong.or(back.unwrap_or_else(|_| Err(slow())).err());
        }
        wrong
    }

    async fn back(&mut self, id: Port) -> Result<(), String> {
        let mut client = self.cluster.client(id);
        // Nobody asks for it: it is not in the history.
        let nobodys = Target {
            namespace: OWN,
            id: u64::MAX,
        };
        loop {
            if let Some(status) = self.cluster.exit(id) {
                return Err(format!("node {id} did not come back: {status}"));
            }
            match client.ask(&nobodys, Action::Current).await {
                Ok(_) => return Ok(()),
                Err(status) if status.code() == tonic::Code::NotFound => {
                    return Err(format!("node {id} came back without data: {status}"));
                }
                Err(_) => tokio::time::sleep(BETWEEN_TRIES).await,
            }
        }
    }
}
