//! What must hold when a fault is over: numbers flow, and nodes are back.

use std::time::Duration;

use tonic::Code;

use super::{
    fault::{ActiveFault, Fault},
    injector::Injector,
    kind::Nemesis,
    retry::RETRY_EVERY,
};
use crate::{history::Action, network::Port, target::Target};

/// How long numbers may fail to flow after a fault is over.
pub const RECOVERY_MAX: Duration = Duration::from_secs(10);

impl Injector {
    /// Waits until numbers flow again after a fault was repaired, and records the fault.
    pub(super) async fn conclude(
        &mut self, nemesis: Nemesis, from_ns: u64, fault: ActiveFault,
    ) -> Fault {
        let to_ns = self.recorder.now();
        let flowing = tokio::time::timeout(RECOVERY_MAX, self.recorder.answered_since(to_ns)).await;
        let stuck = flowing.is_err().then(|| {
            let limit = RECOVERY_MAX.as_secs();
            format!("no number was handed out within {limit} s after {nemesis:?} was over")
        });
        Fault {
            nemesis,
            from_ns,
            to_ns,
            description: fault.description,
            took_effect: fault.took_effect,
            violation: fault.violation.or(stuck),
        }
    }

    /// Waits until each of these nodes, which were started again, answers a read. Returns what is wrong with
    /// the first one that ends by itself or does not answer in time.
    pub(super) async fn wait_until_back(&mut self, nodes: &[Port]) -> Option<String> {
        let mut wrong = None;
        for id in nodes {
            let back = tokio::time::timeout(RECOVERY_MAX, self.answers(*id)).await;
            let slow = || {
                let limit = RECOVERY_MAX.as_secs();
                format!("node {id} did not answer within {limit} s after it was started again")
            };
            wrong = wrong.or(back.unwrap_or_else(|_| Err(slow())).err());
        }
        wrong
    }

    async fn answers(&mut self, id: Port) -> Result<(), String> {
        let mut client = self.cluster.client(id);
        loop {
            if let Some(status) = self.cluster.exit_status(id) {
                return Err(format!("node {id} did not come back: {status}"));
            }
            match client.ask(&Target::UNUSED, Action::Current).await {
                Ok(_) => return Ok(()),
                Err(status) if status.code() == Code::NotFound => {
                    return Err(format!("node {id} came back without data: {status}"));
                }
                Err(_) => tokio::time::sleep(RETRY_EVERY).await,
            }
        }
    }
}
