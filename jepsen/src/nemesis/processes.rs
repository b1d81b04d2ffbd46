//! Kills, pauses, restarts.

use std::{io, time::Duration};

use super::{
    fault::{Begun, Wound},
    injector::Stage,
    kind::Nemesis,
};
use crate::network::Port;

const STOPPING: Duration = Duration::from_secs(10);

impl Stage {
    pub(super) async fn begin_process(&mut self, nemesis: Nemesis) -> io::Result<Begun> {
        Ok(match nemesis {
            Nemesis::KillAll => {
                let all = self.members.clone();
                let killed = all.iter().filter(|id| self.cluster.kill(**id)).count();
                Begun::new("kill -9 of all", Wound::Down(all), killed > 1)
            }
            Nemesis::KillLeader => {
                let victim = self.leader();
                self.killed(victim, "the leader, ")
            }
            Nemesis::RestartFast => {
                let victim = self.any();
                let killed = self.cluster.kill(victim);
                self.cluster.spawn(victim)?;
                let what = format!("node {victim} killed and started again at once");
                Begun::new(what, Wound::Healed, killed)
            }
            Nemesis::PauseLeader => {
                let victim = self.leader();
                self.paused(victim, "the leader, ")
            }
            Nemesis::PauseOne => {
                let victim = self.any();
                self.paused(victim, "")
            }
            Nemesis::Rolling => self.roll().await?,
            _ => {
                let victim = self.any();
                self.killed(victim, "")
            }
        })
    }

    fn killed(&mut self, victim: Port, who: &str) -> Begun {
        let killed = self.cluster.kill(victim);
        let what = format!("kill -9 of {who}node {victim}");
        Begun::new(what, Wound::Down(vec![victim]), killed)
    }

    fn paused(&mut self, victim: Port, who: &str) -> Begun {
        let stands = self.cluster.pause(victim);
        let what = format!("SIGSTOP of {who}node {victim}");
        Begun::new(what, Wound::Paused(victim), stands)
    }

    async fn roll(&mut self) -> io::Result<Begun> {
        let mut broken = None;
        for id in self.members.clone() {
            self.cluster.terminate(id);
            match self.cluster.ends(id, STOPPING).await {
                Some(status) if status.success() => {}
                Some(status) => broken = Some(format!("node {id}, told to stop, ended: {status}")),
                None => {
                    broken = Some(format!("node {id} did not stop when told to"));
                    self.cluster.kill(id);
                }
            }
            self.cluster.spawn(id)?;
            let since = self.recorder.now();
            // What does not flow again is found when the strike is over.
            let _ = tokio::time::timeout(
                super::recovery::RECOVERY,
                self.recorder.answered_since(since),
            )
            .await;
        }
        self.handed_over += 1;
        let what = "all nodes stopped and started in turn";
        Ok(Begun::new(what, Wound::Healed, true).broken(broken))
    }
}
