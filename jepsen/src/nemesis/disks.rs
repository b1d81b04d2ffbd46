//! Disks that refuse writes or are slow.

use std::{io, time::Duration};

use rand::RngExt;

use super::{
    fault::{ActiveFault, Repair},
    injector::Injector,
};
use crate::disk::{DiskCounts, DiskFaults, Pace};

/// How long a node may take to notice that it cannot trust its disk.
const NOTICE_MAX: Duration = Duration::from_secs(5);

impl Injector {
    pub(super) async fn fail_fsync(&mut self) -> io::Result<ActiveFault> {
        let faults = DiskFaults { sync_fails: true, ..DiskFaults::default() };
        let refused = |counts: &DiskCounts| counts.sync_failed;
        self.refuse_writes(faults, "fsync fails", refused).await
    }

    pub(super) async fn fill_disk(&mut self) -> io::Result<ActiveFault> {
        let faults = DiskFaults { full: true, ..DiskFaults::default() };
        let refused = |counts: &DiskCounts| counts.refused;
        self.refuse_writes(faults, "the disk is full", refused).await
    }

    /// The node must stop by itself: it must not acknowledge an entry that it cannot write.
    async fn refuse_writes(
        &mut self, faults: DiskFaults, how: &str, refused: fn(&DiskCounts) -> u64,
    ) -> io::Result<ActiveFault> {
        let victim = self.leader_or_random_member();
        let Some(disk) = self.cluster.disk(victim) else {
            return Ok(no_faulty_disks());
        };
        let before = refused(&disk.counts());
        disk.set_faults(faults);
        let exit = self.cluster.wait_for_exit(victim, NOTICE_MAX).await;
        let after = self.cluster.disk(victim).map(|disk| refused(&disk.counts()));
        let took_effect = after > Some(before);
        let violation = match exit {
            Some(status) if status.success() => {
                Some(format!("node {victim} ended with exit code 0, although its disk failed"))
            }
            None if took_effect => Some(format!("node {victim} went on, although its disk failed")),
            Some(_) | None => None,
        };
        self.cluster.kill(victim);
        self.reset_disk(victim);
        let disk = self.cluster.disk(victim);
        let lost = disk.map_or(0, |disk| disk.lose_unsynced(0));
        let end = exit.map_or("was killed".to_owned(), |status| format!("stopped: {status}"));
        let description =
            format!("{how} on node {victim}, which {end}; {lost} unsynced bytes lost");
        let repair = Repair::Start(vec![victim]);
        Ok(ActiveFault::new(description, repair, took_effect).with_violation(violation))
    }

    /// The leader's disk is slow, while another fault may be active. So nothing is said of the leadership.
    pub(super) async fn slow_fsync(&mut self) -> ActiveFault {
        let victim = self.leader();
        let sync_takes = Duration::from_millis(self.rng.random_range(400..1_500));
        let Some(disk) = self.cluster.disk(victim) else {
            return no_faulty_disks();
        };
        let before = disk.counts().sync_delayed;
        let pace = Pace::Slow(sync_takes, sync_takes);
        disk.set_faults(DiskFaults { pace, ..DiskFaults::default() });
        self.wait_fault_duration().await;
        let disk = self.cluster.disk(victim);
        let took_effect = disk.is_some_and(|disk| disk.counts().sync_delayed > before);
        let takes_ms = sync_takes.as_millis();
        let description = format!("fsync takes {takes_ms} ms on leader {victim}");
        ActiveFault::new(description, Repair::ResetDisks(vec![victim]), took_effect)
    }
}

pub(super) fn no_faulty_disks() -> ActiveFault {
    ActiveFault::impossible("disks do not fail here")
}
