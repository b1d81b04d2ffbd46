//! What faults work on.

use std::{io, sync::Arc, time::Duration};

use rand::{RngExt, rngs::StdRng};

use super::fault::Wound;
use crate::{
    cluster::Cluster, disk::Faults, monitor::Monitor, network::Port, nodes::Nodes, record::Recorder,
};

/// What faults work on.
pub struct Stage {
    /// The processes.
    pub cluster: Cluster,
    /// The history.
    pub recorder: Arc<Recorder>,
    /// Who leads.
    pub monitor: Monitor,
    /// Whom callers call.
    pub nodes: Nodes,
    /// Whom chance comes from.
    pub rng: StdRng,
    /// The members of the cluster.
    pub members: Vec<Port>,
    /// The next node that was never used.
    pub fresh: Port,
    /// How many leader changes were graceful.
    pub handed_over: u64,
    /// How many keys slow readers have asked for.
    pub cold_keys: u64,
}

impl Stage {
    /// Everything works again.
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn heal(&mut self) -> io::Result<()> {
        if let Some(network) = &self.cluster.network {
            network.mend();
        }
        for id in self.members.clone() {
            self.cluster.resume(id);
            self.mend_disk(id);
            self.set_clock(id, 1.0, 0)?;
            self.cluster.spawn(id)?;
        }
        Ok(())
    }

    pub(super) async fn end(&mut self, wound: Wound) -> io::Result<()> {
        match wound {
            Wound::Healed => {}
            Wound::Down(nodes) => {
                for id in nodes {
                    self.cluster.spawn(id)?;
                }
            }
            Wound::Paused(id) => self.cluster.resume(id),
            Wound::Links => {
                if let Some(network) = &self.cluster.network {
                    network.mend();
                }
            }
            Wound::Clock(id) => self.set_clock(id, 1.0, 0)?,
            Wound::LinksAndClock(id) => {
                if let Some(network) = &self.cluster.network {
                    network.mend();
                }
                self.set_clock(id, 1.0, 0)?;
            }
            Wound::Disk(id) => self.mend_disk(id),
            Wound::SlowReaders(readers) => drop(readers),
        }
        Ok(())
    }

    pub(super) async fn hold(&mut self) {
        let hold = self.rng.random_range(600..1_800);
        tokio::time::sleep(Duration::from_millis(hold)).await;
    }

    pub(super) fn set_clock(&mut self, id: Port, rate: f64, wall_offset: i64) -> io::Result<()> {
        if let Some(clock) = &mut self.cluster.node(id).clock {
            clock.set_rate(rate)?;
            clock.set_wall_offset(wall_offset)?;
        }
        Ok(())
    }

    /// Any member that runs.
    pub(super) fn any(&mut self) -> Port {
        let running: Vec<Port> = self.cluster.running();
        let members = self.members.iter().copied();
        let fit: Vec<Port> = members.filter(|id| running.contains(id)).collect();
        match fit.len() {
            0 => self.members[0],
            many => fit[self.rng.random_range(0..many)],
        }
    }

    /// The leader, or any member where none is known.
    pub(super) fn leader(&mut self) -> Port {
        let leader = self.monitor.leader().and_then(|id| Port::try_from(id).ok());
        match leader {
            Some(id) if self.members.contains(&id) => id,
            _ => self.any(),
        }
    }

    /// Any member but the leader.
    pub(super) fn follower(&mut self) -> Port {
        let leader = self.leader();
        let others: Vec<Port> = self
            .members
            .iter()
            .copied()
            .filter(|id| *id != leader)
            .collect();
        match others.len() {
            0 => leader,
            many => others[self.rng.random_range(0..many)],
        }
    }

    pub(super) fn mend_disk(&mut self, id: Port) {
        if let Some(disk) = self.cluster.disk(id) {
            disk.set_faults(Faults::default());
        }
    }
}
