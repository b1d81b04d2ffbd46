//! Puts a whole fault together: begin, last, repair, check.

use std::io;

use rand::RngExt;

use super::{
    fault::{ActiveFault, Fault, Repair},
    injector::Injector,
    kind::Nemesis,
    recovery::Limit,
};
use crate::{cluster::Product, finding::Finding};

impl Injector {
    /// Injects one fault, or two for [`Nemesis::Composed`], and waits until numbers flow again.
    ///
    /// # Errors
    /// The harness itself cannot go on.
    pub async fn inject(&mut self, nemesis: Nemesis) -> io::Result<Vec<Fault>> {
        match nemesis {
            Nemesis::Composed => return self.inject_two().await,
            Nemesis::SlowReader => return self.inject_slow_readers().await,
            Nemesis::Pods => return self.play_pods().await,
            _ => {}
        }
        let whole = match nemesis.stops_at_once() && self.cluster.config.product == Product::Ratchet
        {
            true => self.wait_until_whole().await,
            false => Ok(()),
        };
        let from_ns = self.recorder.now();
        let mut fault = match nemesis {
            Nemesis::DiskSlow => self.slow_one_disk().await,
            _ => self.begin(nemesis).await?,
        };
        fault.found(Finding::Node, whole.err());
        let outage = nemesis.stops_at_once().then(|| self.begin_outage());
        self.wait_fault_duration().await;
        if let Some(outage) = outage {
            let silent = self.end_outage(outage, &fault.description).await;
            fault.found(Finding::Silence, silent);
        }
        let to_come_back = match (&fault.repair, nemesis) {
            (Repair::Start(nodes), Nemesis::DiskNames)
            | (Repair::ResetDisks(nodes), Nemesis::DiskHangs) => nodes.clone(),
            _ => Vec::new(),
        };
        self.repair(fault.take_repair())?;
        let not_back = self.wait_until_back(&to_come_back).await;
        fault.found(Finding::Node, not_back);
        let limit = Limit::after(nemesis);
        Ok(vec![self.conclude((nemesis, limit), from_ns, fault).await])
    }

    /// Begins two faults one after the other, and repairs them in the same order.
    async fn inject_two(&mut self) -> io::Result<Vec<Fault>> {
        let handed_over = self.handed_over.clone();
        let mut lists = [self.process_faults(), self.environment_faults()];
        if self.rng.random_bool(0.5) {
            lists.reverse();
        }
        let mut active = Vec::new();
        for list in lists {
            let nemesis = list[self.rng.random_range(0..list.len())];
            active.push((nemesis, self.recorder.now(), self.begin(nemesis).await?));
            self.wait_fault_duration().await;
        }
        for (_, _, fault) in &mut active {
            let repair = fault.take_repair();
            self.repair(repair)?;
        }
        let mut faults = Vec::new();
        for (nemesis, from_ns, fault) in active {
            // Of two faults the one may leave no majority to the other.
            let ended = (nemesis, Limit::Someday);
            faults.push(self.conclude(ended, from_ns, fault).await);
        }
        // The outcome of a handover is uncertain while another fault lasts.
        self.handed_over = handed_over;
        Ok(faults)
    }

    /// The composed faults of which one is active at a time: the repair of one would undo another.
    fn process_faults(&self) -> Vec<Nemesis> {
        use Nemesis::*;
        let mut faults = vec![
            KillOne,
            KillLeader,
            KillLeader,
            KillAll,
            RestartFast,
            PauseLeader,
            PauseOne,
            Transfer,
        ];
        if self.cluster.config.faulty_disks {
            faults.extend([PowerCut, DiskNames, DiskSync]);
        }
        faults
    }

    /// The composed faults that go together with one of [`Self::process_faults`].
    fn environment_faults(&self) -> Vec<Nemesis> {
        use Nemesis::*;
        let mut faults = vec![WallClock, SlowReader];
        if self.cluster.has_clocks() {
            faults.push(ClockRate);
        }
        if self.cluster.network.is_some() {
            faults.extend([PartitionHalves, PartitionOneWay, PeersCut, SlowLinks, FlakyLinks]);
        }
        if self.cluster.config.faulty_disks {
            faults.push(DiskSlow);
        }
        faults
    }

    /// Begins one fault.
    async fn begin(&mut self, nemesis: Nemesis) -> io::Result<ActiveFault> {
        Ok(match nemesis {
            Nemesis::None | Nemesis::Composed | Nemesis::Pods => {
                ActiveFault::new("nothing", Repair::Nothing, true)
            }
            Nemesis::KillOne => self.kill_one(),
            Nemesis::KillLeader => self.kill_leader(),
            Nemesis::KillAll => self.kill_all(),
            Nemesis::RestartFast => self.restart_fast()?,
            Nemesis::PauseLeader => self.pause_leader(),
            Nemesis::PauseOne => self.pause_one(),
            Nemesis::Rolling => self.restart_in_turn().await?,
            Nemesis::PartitionLeader => {
                let faulty = self.leader_cut_off();
                self.break_links(faulty).await
            }
            Nemesis::PeersCut => {
                let faulty = self.leader_cut_off_from_peers();
                self.break_links(faulty).await
            }
            Nemesis::PartitionHalves => {
                let faulty = self.halves();
                self.break_links(faulty).await
            }
            Nemesis::PartitionRing => {
                let faulty = self.ring();
                self.break_links(faulty).await
            }
            Nemesis::PartitionOneWay => {
                let faulty = self.one_way();
                self.break_links(faulty).await
            }
            Nemesis::SlowLinks => {
                let faulty = self.slow_links();
                self.break_links(faulty).await
            }
            Nemesis::FlakyLinks => {
                let faulty = self.flaky_links();
                self.break_links(faulty).await
            }
            Nemesis::CutInSteps => self.cut_in_steps().await?,
            Nemesis::RestartInLease => self.restart_in_lease().await?,
            Nemesis::LateAnswers => self.delay_last_answers().await?,
            Nemesis::ClockRate => self.change_clock_rate().await?,
            Nemesis::WallClock => self.jump_wall_clock().await?,
            Nemesis::WrongClocks => self.start_with_wrong_clocks().await?,
            Nemesis::PowerCut => self.cut_power(),
            Nemesis::DiskNames => self.lose_names().await?,
            Nemesis::DiskSync => self.fail_fsync().await?,
            Nemesis::DiskFull => self.fill_disk().await?,
            Nemesis::DiskSlow => self.slow_fsync().await,
            Nemesis::DisksSlow => self.slow_all_disks().await?,
            Nemesis::DiskHangs => self.hang_disk().await?,
            Nemesis::WalTruncate => self.truncate_log().await?,
            Nemesis::WalFlip => self.flip_bit_of_log().await?,
            Nemesis::DirWiped => self.wipe_directory().await?,
            Nemesis::DirOld => self.restore_older_copy().await?,
            Nemesis::SnapshotStorm => self.make_snapshot_needed().await?,
            Nemesis::Membership => self.change_membership().await?,
            Nemesis::Transfer => self.transfer().await,
            Nemesis::TransferSlow => self.transfer_slowly().await,
            Nemesis::SlowReader => self.begin_slow_readers().await,
        })
    }
}
