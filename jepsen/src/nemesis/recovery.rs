//! The checks when a fault is over: numbers flow, and nodes are back.

use std::time::Duration;

use tokio::{task::JoinHandle, time::Instant};
use tonic::{Code, Status};

use super::{
    fault::{ActiveFault, Fault},
    injector::Injector,
    kind::Nemesis,
    retry::{RETRY_EVERY, retry},
};
use crate::{
    client::Client, finding::Finding, history::Action, network::Port, record::Flow, target::Target,
};

/// How long numbers may fail to flow while a majority lives.
const PROMISED: Duration = Duration::from_secs(1);
/// How long numbers may fail to flow after a fault is over during which no majority lived, or links failed.
pub const RECOVERY_MAX: Duration = Duration::from_secs(10);
/// The interval at which the nodes are asked for the leader.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(25);

/// A follower that lacks fewer entries has caught up.
const LAG_MAX: u64 = 100;

/// How soon numbers flow again after a fault.
#[derive(Debug, Clone, Copy)]
pub(super) enum Limit {
    /// Within a second.
    Promised,
    /// Nothing says how soon, but they come back.
    Someday,
}

impl Limit {
    /// The limit after one fault.
    pub fn after(nemesis: Nemesis) -> Limit {
        match nemesis.leaves_majority() {
            true => Limit::Promised,
            false => Limit::Someday,
        }
    }
}

/// The time since a moment at which a process ended or was paused.
pub(super) struct Outage {
    from_ns: u64,
    /// For each flow: becomes the moment at which something was answered that was asked for after that.
    ended_ns: Vec<(Flow, JoinHandle<u64>)>,
}

impl Injector {
    /// A process has ended just now, or is paused.
    pub(super) fn begin_outage(&self) -> Outage {
        let from_ns = self.recorder.now();
        let flows = self.recorder.flows().into_iter().map(|flow| {
            let recorder = self.recorder.clone();
            let ended_ns = tokio::spawn(async move {
                recorder.answered_since(flow, from_ns).await;
                recorder.now()
            });
            (flow, ended_ns)
        });
        Outage { from_ns, ended_ns: flows.collect() }
    }

    /// Waits until an outage is over. Returns the failure, if there was one.
    pub(super) async fn end_outage(&self, outage: Outage, what: &str) -> Option<String> {
        let Outage { from_ns, ended_ns } = outage;
        let latest = Instant::now() + RECOVERY_MAX;
        let mut wrong = None;
        for (flow, ended_ns) in ended_ns {
            let to_ns = match tokio::time::timeout_at(latest, ended_ns).await {
                Ok(Ok(to_ns)) => to_ns,
                Ok(Err(_)) | Err(_) => self.recorder.now(),
            };
            let lasted = Duration::from_nanos(to_ns.saturating_sub(from_ns));
            let stalled = self.stalls.between(from_ns, to_ns);
            if lasted > PROMISED + stalled {
                wrong.get_or_insert(format!(
                    "{flow} for {} ms after {what}; {} ms are allowed, and {} ms more because the machine \
                     stalled",
                    lasted.as_millis(),
                    PROMISED.as_millis(),
                    stalled.as_millis()
                ));
            }
        }
        wrong
    }

    /// Waits until numbers flow again after a fault was repaired, and records the fault.
    pub(super) async fn conclude(
        &mut self, (nemesis, limit): (Nemesis, Limit), from_ns: u64, mut fault: ActiveFault,
    ) -> Fault {
        let to_ns = self.recorder.now();
        let stuck = match limit {
            Limit::Promised => {
                self.end_outage(self.begin_outage(), &format!("{nemesis:?} was over")).await
            }
            Limit::Someday => {
                let silent = self.recorder.silent_flow(to_ns, RECOVERY_MAX).await;
                let limit = RECOVERY_MAX.as_secs();
                silent.map(|flow| format!("{flow} within {limit} s after {nemesis:?} was over"))
            }
        };
        fault.found(Finding::Silence, stuck);
        Fault {
            nemesis,
            from_ns,
            to_ns,
            description: fault.description,
            took_effect: fault.took_effect,
            violations: fault.violations,
        }
    }

    /// Waits until all members follow the leader closely. Before that, the end of one of them may leave a majority that cannot
    /// go on until another one has caught up.
    ///
    /// # Errors
    /// The members do not follow closely in time.
    pub(super) async fn wait_until_whole(&mut self) -> Result<(), String> {
        let members = self.members.clone();
        let following = || {
            let leader = self.leader();
            follow(self.cluster.client(leader), members.clone())
        };
        retry("following the leader", following).await
    }

    /// Waits until each of these nodes, which were started again, answers a read. Returns the failure of the first node that
    /// ends by itself or does not answer in time.
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

/// Whether these nodes follow the node that is asked, which leads, and lack few entries.
pub(super) async fn follow(mut client: Client, nodes: Vec<Port>) -> Result<(), Status> {
    let status = client.status().await?;
    for id in nodes {
        let told = status.nodes.iter().find(|node| node.id == u64::from(id));
        match told.map(|node| (node.missing, node.lag)) {
            Some((false, Some(lag))) if lag < LAG_MAX => {}
            told => {
                return Err(Status::unavailable(format!("node {id} (missing, lag): {told:?}")));
            }
        }
    }
    Ok(())
}
