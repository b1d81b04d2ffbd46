//! Lets one fault run its course, or several at once.

use std::io;

use rand::RngExt;

use super::{
    fault::{Begun, Strike, Wound},
    injector::Stage,
    kind::Nemesis,
};

impl Stage {
    /// Lets one fault run its course, and waits until numbers flow again.
    ///
    /// # Errors
    /// The harness itself cannot go on.
    pub async fn strike(&mut self, nemesis: Nemesis) -> io::Result<Vec<Strike>> {
        if nemesis == Nemesis::Composed {
            return self.strike_two().await;
        }
        if nemesis == Nemesis::SlowReader {
            return self.strike_slow_readers().await;
        }
        let from_ns = self.recorder.now();
        let mut begun = self.begin(nemesis).await?;
        self.hold().await;
        let without_power = match &begun.wound {
            Wound::Down(nodes) if nemesis == Nemesis::DiskNames => nodes.clone(),
            _ => Vec::new(),
        };
        self.end(begun.take_wound()).await?;
        let broken = self.unless_back(&without_power).await;
        begun.broken = begun.broken.or(broken);
        Ok(vec![self.over(nemesis, from_ns, begun).await])
    }

    async fn strike_two(&mut self) -> io::Result<Vec<Strike>> {
        use Nemesis::*;
        // One from each list: what two of one list do would undo each other.
        let mut lists = vec![vec![
            KillOne,
            KillLeader,
            KillLeader,
            KillAll,
            RestartFast,
            PauseLeader,
            PauseOne,
            Transfer,
        ]];
        let mut second = vec![WallClock, SlowReader];
        if self.cluster.preload_works() {
            second.push(ClockRate);
        }
        if self.cluster.network.is_some() {
            second.extend([
                PartitionHalves,
                PartitionOneWay,
                PeersCut,
                SlowLinks,
                FlakyLinks,
            ]);
        }
        if self.cluster.plan.faulty_disks {
            lists[0].extend([PowerCut, DiskNames, DiskSync]);
            second.push(DiskSlow);
        }
        lists.push(second);
        if self.rng.random_bool(0.5) {
            lists.reverse();
        }
        let mut begun = Vec::new();
        for list in lists {
            let nemesis = list[self.rng.random_range(0..list.len())];
            begun.push((nemesis, self.recorder.now(), self.begin(nemesis).await?));
            self.hold().await;
        }
        let mut strikes = Vec::new();
        for (nemesis, from_ns, mut begun) in begun {
            self.end(begun.take_wound()).await?;
            strikes.push((nemesis, from_ns, begun));
        }
        let mut over = Vec::new();
        for (nemesis, from_ns, begun) in strikes {
            over.push(self.over(nemesis, from_ns, begun).await);
        }
        Ok(over)
    }

    async fn begin(&mut self, nemesis: Nemesis) -> io::Result<Begun> {
        use Nemesis::*;
        match nemesis {
            None | Composed => Ok(Begun::new("nothing", Wound::Healed, true)),
            KillOne | KillLeader | KillAll | RestartFast | PauseLeader | PauseOne | Rolling => {
                self.begin_process(nemesis).await
            }
            PartitionLeader | PartitionHalves | PartitionRing | PartitionOneWay | PeersCut
            | SlowLinks | FlakyLinks => self.begin_links(nemesis).await,
            CutInSteps | RestartInLease | LateAnswers => self.begin_edge(nemesis).await,
            ClockRate => self.bend_clock_rate().await,
            WallClock => self.jump_wall_clock().await,
            PowerCut => Ok(self.cut_power()),
            DiskNames => self.lose_names().await,
            SlowReader => Ok(self.begin_slow_readers().await),
            DiskSync | DiskFull | DiskSlow | WalTruncate | WalFlip | DirWiped | DirOld => {
                self.begin_disk(nemesis).await
            }
            SnapshotStorm | Membership | Transfer | TransferSlow => {
                self.begin_members(nemesis).await
            }
        }
    }
}
