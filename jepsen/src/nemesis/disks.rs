//! Disks that fail, forget, or lie.

use std::{io, time::Duration};

use rand::RngExt;

use super::{
    fault::{Begun, Wound},
    injector::Stage,
    kind::Nemesis,
};
use crate::{disk::Faults, network::Port};

/// How long a node may take to notice that it cannot trust its disk.
const NOTICING: Duration = Duration::from_secs(5);

impl Stage {
    pub(super) async fn begin_disk(&mut self, nemesis: Nemesis) -> io::Result<Begun> {
        match nemesis {
            Nemesis::DiskSync | Nemesis::DiskFull => self.refuse_writes(nemesis).await,
            Nemesis::DiskSlow => {
                let victim = self.leader();
                let sync_takes = Duration::from_millis(self.rng.random_range(400..1_500));
                let Some(disk) = self.cluster.disk(victim) else {
                    return Ok(no_disks());
                };
                let before = disk.tally().sync_delayed;
                disk.set_faults(Faults {
                    sync_takes,
                    ..Faults::default()
                });
                self.hold().await;
                let bit = self.disk_tally(victim, |tally| tally.sync_delayed) > before;
                let what = format!(
                    "fsync takes {} ms on leader {victim}",
                    sync_takes.as_millis()
                );
                Ok(Begun::new(what, Wound::Disk(victim), bit))
            }
            Nemesis::DirOld => self.bring_back_older_copy().await,
            _ => self.damage(nemesis).await,
        }
    }

    fn disk_tally(&self, id: Port, of: impl Fn(crate::disk::Tally) -> u64) -> u64 {
        self.cluster.disk(id).map_or(0, |disk| of(disk.tally()))
    }

    /// The node must stop by itself: what it cannot write it must not vouch for.
    async fn refuse_writes(&mut self, nemesis: Nemesis) -> io::Result<Begun> {
        let full = nemesis == Nemesis::DiskFull;
        let victim = if self.rng.random_bool(0.5) {
            self.leader()
        } else {
            self.any()
        };
        let Some(disk) = self.cluster.disk(victim) else {
            return Ok(no_disks());
        };
        let before = disk.tally();
        disk.set_faults(Faults {
            full,
            sync_fails: !full,
            ..Faults::default()
        });
        let ended = self.cluster.ends(victim, NOTICING).await;
        let after = self
            .cluster
            .disk(victim)
            .map(|disk| disk.tally())
            .unwrap_or_default();
        let bit = if full {
            after.refused > before.refused
        } else {
            after.sync_failed > before.sync_failed
        };
        let broken = match ended {
            Some(status) if status.success() => {
                Some(format!("node {victim} ended as if all were well"))
            }
            Some(_) => None,
            None if bit => Some(format!("node {victim} went on, although its disk failed")),
            None => None,
        };
        self.cluster.kill(victim);
        self.mend_disk(victim);
        let lost = self
            .cluster
            .disk(victim)
            .map_or(0, |disk| disk.lose_unsynced(0));
        let how = if full {
            "the disk is full"
        } else {
            "fsync fails"
        };
        let ended = ended.map_or("was killed".to_owned(), |status| {
            format!("stopped: {status}")
        });
        let what = format!("{how} on node {victim}, which {ended}; {lost} unsynced bytes lost");
        Ok(Begun::new(what, Wound::Down(vec![victim]), bit).broken(broken))
    }
}

pub(super) fn no_disks() -> Begun {
    Begun::new("disks do not fail here", Wound::Healed, false)
}
