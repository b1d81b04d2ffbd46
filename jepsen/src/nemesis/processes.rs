//! Processes that are killed, paused or restarted.

use std::{io, time::Duration};

use super::{
    fault::{ActiveFault, Repair},
    injector::Injector,
    recovery::RECOVERY_MAX,
};
use crate::network::Port;

/// How long a node that is told to stop may take to end.
const STOPPING_MAX: Duration = Duration::from_secs(10);

impl Injector {
    pub(super) fn kill_one(&mut self) -> ActiveFault {
        let victim = self.random_member();
        self.kill(victim, "")
    }

    pub(super) fn kill_leader(&mut self) -> ActiveFault {
        let victim = self.leader();
        self.kill(victim, "the leader, ")
    }

    fn kill(&mut self, victim: Port, role: &str) -> ActiveFault {
        let killed = self.cluster.kill(victim);
        let description = format!("kill -9 of {role}node {victim}");
        ActiveFault::new(description, Repair::Start(vec![victim]), killed)
    }

    pub(super) fn kill_all(&mut self) -> ActiveFault {
        let all = self.members.clone();
        let killed = all.iter().filter(|id| self.cluster.kill(**id)).count();
        ActiveFault::new("kill -9 of all", Repair::Start(all), killed > 1)
    }

    pub(super) fn restart_fast(&mut self) -> io::Result<ActiveFault> {
        let victim = self.random_member();
        let killed = self.cluster.kill(victim);
        self.cluster.spawn(victim)?;
        let description = format!("node {victim} killed and started again at once");
        Ok(ActiveFault::new(description, Repair::Nothing, killed))
    }

    pub(super) fn pause_one(&mut self) -> ActiveFault {
        let victim = self.random_member();
        self.pause(victim, "")
    }

    pub(super) fn pause_leader(&mut self) -> ActiveFault {
        let victim = self.leader();
        self.pause(victim, "the leader, ")
    }

    fn pause(&mut self, victim: Port, role: &str) -> ActiveFault {
        let paused = self.cluster.pause(victim);
        let description = format!("SIGSTOP of {role}node {victim}");
        ActiveFault::new(description, Repair::Resume(victim), paused)
    }

    pub(super) async fn restart_in_turn(&mut self) -> io::Result<ActiveFault> {
        let mut violation = None;
        for id in self.members.clone() {
            let wrong = self.stop(id, STOPPING_MAX).await;
            violation = violation.or(wrong);
            self.cluster.spawn(id)?;
            let since = self.recorder.now();
            // If numbers do not flow again, the check at the end of the fault notices.
            let _ = self.recorder.silent_flow(since, RECOVERY_MAX).await;
        }
        let description = "all nodes stopped and started in turn";
        Ok(ActiveFault::new(description, Repair::Nothing, true).with_violation(violation))
    }
}
