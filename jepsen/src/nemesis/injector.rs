//! The objects of faults: the cluster, and the seeded choice of nodes and durations.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use rand::{RngExt, rngs::StdRng};

use super::fault::Repair;
use crate::{
    cluster::Cluster,
    disk::DiskFaults,
    monitor::Monitor,
    network::{Link, Port},
    nodes::KnownNodes,
    record::Recorder,
    stalls::Stalls,
};

/// Injects faults into a cluster.
pub struct Injector {
    /// The processes.
    pub cluster: Cluster,
    /// The history so far.
    pub recorder: Arc<Recorder>,
    /// The watch over the leader.
    pub monitor: Monitor,
    /// The nodes that callers know.
    pub nodes: KnownNodes,
    /// The seeded random numbers of all faults.
    pub rng: StdRng,
    /// The members of the cluster.
    pub members: Vec<Port>,
    /// The next node that has never run.
    pub next_new_node: Port,
    /// The terms that were seen to be handed over, each with a moment at which it had not ended yet, in
    /// nanoseconds since the start of the run.
    pub handed_over: BTreeMap<u64, u64>,
    /// How late the machine wakes threads up.
    pub stalls: Stalls,
    /// How many keys slow readers have asked for.
    pub slow_reader_keys: u64,
}

impl Injector {
    /// Ends all faults.
    ///
    /// # Errors
    /// A process cannot be started, or a clock's file cannot be written.
    pub fn heal(&mut self) -> io::Result<()> {
        self.heal_links();
        for id in self.members.clone() {
            self.cluster.resume(id);
            self.reset_disk(id);
            self.reset_clock(id)?;
            self.cluster.spawn(id)?;
        }
        Ok(())
    }

    /// Ends one fault.
    pub(super) fn repair(&mut self, repair: Repair) -> io::Result<()> {
        match repair {
            Repair::Nothing => {}
            Repair::Start(nodes) => {
                for id in nodes {
                    self.cluster.spawn(id)?;
                }
            }
            Repair::Resume(id) => self.cluster.resume(id),
            Repair::HealLinks => self.heal_links(),
            Repair::ResetClocks(nodes) => {
                for id in nodes {
                    self.reset_clock(id)?;
                }
            }
            Repair::HealLinksAndResetClock(id) => {
                self.heal_links();
                self.reset_clock(id)?;
            }
            Repair::ResetDisks(nodes) => nodes.into_iter().for_each(|id| self.reset_disk(id)),
            Repair::EndSlowReaders(readers) => drop(readers),
        }
        Ok(())
    }

    fn heal_links(&self) {
        if let Some(network) = &self.cluster.network {
            network.heal();
        }
    }

    fn reset_clock(&mut self, id: Port) -> io::Result<()> {
        self.set_clock(id, 1.0, 0)
    }

    pub(super) fn reset_disk(&self, id: Port) {
        if let Some(disk) = self.cluster.disk(id) {
            disk.set_faults(DiskFaults::default());
        }
    }

    pub(super) fn set_clock(&mut self, id: Port, rate: f64, wall_offset_s: i64) -> io::Result<()> {
        if let Some(clock) = &mut self.cluster.node(id).clock {
            clock.set_rate(rate)?;
            clock.set_wall_offset(wall_offset_s)?;
        }
        Ok(())
    }

    pub(super) fn set_link(&self, from: Port, to: Port, link: Link) {
        if let Some(network) = &self.cluster.network {
            network.set(from, to, link);
        }
    }

    /// Waits as long as a fault lasts: 0.6 to 1.8 s.
    pub(super) async fn wait_fault_duration(&mut self) {
        let duration_ms = self.rng.random_range(600..1_800);
        tokio::time::sleep(Duration::from_millis(duration_ms)).await;
    }

    /// Any member that runs; the first member if none does.
    pub(super) fn random_member(&mut self) -> Port {
        let running = self.cluster.running();
        let members = self.members.iter().copied();
        let candidates: Vec<Port> = members.filter(|id| running.contains(id)).collect();
        match candidates.len() {
            0 => self.members[0],
            count => candidates[self.rng.random_range(0..count)],
        }
    }

    /// The leader, or any member if none is known.
    pub(super) fn leader(&mut self) -> Port {
        let leader = self.monitor.leader().and_then(|id| Port::try_from(id).ok());
        match leader {
            Some(id) if self.members.contains(&id) => id,
            Some(_) | None => self.random_member(),
        }
    }

    /// The leader half of the time, else any member.
    pub(super) fn leader_or_random_member(&mut self) -> Port {
        if self.rng.random_bool(0.5) { self.leader() } else { self.random_member() }
    }

    /// Any member but the leader.
    pub(super) fn random_follower(&mut self) -> Port {
        let leader = self.leader();
        let others = self.members_except(leader);
        match others.len() {
            0 => leader,
            count => others[self.rng.random_range(0..count)],
        }
    }

    pub(super) fn members_except(&self, excluded: Port) -> Vec<Port> {
        let members = self.members.iter().copied();
        members.filter(|id| *id != excluded).collect()
    }
}
