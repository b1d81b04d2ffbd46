//! Clocks that run at another rate, or jump.

use std::{io, time::Duration};

use rand::RngExt;
use tokio::time::timeout;

use super::{
    fault::{ActiveFault, Repair},
    injector::Injector,
};
use crate::cluster::Fence;

/// The rates of a single node's clocks that the `lease` fence survives.
///
/// A lease lasts 200 ms, and followers keep out of elections for 300 ms. The fence holds while the rates of
/// any two nodes differ by less than 300 / 200 = 1.5.
pub(super) const LEASE_RATES: (f64, f64) = (0.75, 1.4);
/// The rates that are tried under the `quorum` fence, which uses no clock.
const QUORUM_RATES: (f64, f64) = (0.5, 2.0);
/// How long a node that was started may take to read its clocks.
const STARTING_MAX: Duration = Duration::from_secs(5);
/// How far a wall clock jumps at most, ahead or back, in seconds: six hours.
pub const WALL_JUMP_MAX_S: i64 = 6 * 3_600;

/// The slowest and the fastest rate at which a node's clocks run.
pub fn slowest_and_fastest(fence: Fence) -> (f64, f64) {
    match fence {
        Fence::Lease => LEASE_RATES,
        Fence::Quorum => QUORUM_RATES,
    }
}

impl Injector {
    pub(super) async fn change_clock_rate(&mut self) -> io::Result<ActiveFault> {
        let (slowest, fastest) = slowest_and_fastest(self.cluster.config.fence);
        let (victim, rate) = (self.random_member(), self.rng.random_range(slowest..fastest));
        self.set_clock(victim, rate, 0)?;
        let description = format!("node {victim}'s clocks run at {rate:.2}");
        let took_effect = self.cluster.uses_its_clock(victim).await;
        let repair = Repair::ResetClocks(vec![victim]);
        Ok(ActiveFault::new(description, repair, took_effect))
    }

    pub(super) async fn jump_wall_clock(&mut self) -> io::Result<ActiveFault> {
        let mut victim = self.leader_or_random_member();
        if !self.cluster.running().contains(&victim) {
            victim = self.random_member();
        }
        let offset_s = self.wall_jump_s();
        self.set_clock(victim, 1.0, offset_s)?;
        let description = format!("node {victim}'s wall clock jumps by {offset_s} s");
        let took_effect = self.cluster.uses_its_clock(victim).await;
        let repair = Repair::ResetClocks(vec![victim]);
        Ok(ActiveFault::new(description, repair, took_effect))
    }

    /// Starts all nodes again, each with a wall clock that is wrong: no node has an earlier time that it could go by.
    pub(super) async fn start_with_wrong_clocks(&mut self) -> io::Result<ActiveFault> {
        let all = self.members.clone();
        let killed = all.iter().filter(|id| self.cluster.kill(**id)).count();
        let mut offsets_s = Vec::new();
        for id in &all {
            let offset_s = self.wall_jump_s();
            self.set_clock(*id, 1.0, offset_s)?;
            self.cluster.spawn(*id)?;
            offsets_s.push(offset_s);
        }
        let reading = async {
            for id in &all {
                while !self.cluster.uses_its_clock(*id).await {}
            }
        };
        let all_read = timeout(STARTING_MAX, reading).await.is_ok();
        let took_effect = killed > 1 && all_read;
        let description =
            format!("all nodes start again, their wall clocks off by {offsets_s:?} s");
        Ok(ActiveFault::new(description, Repair::ResetClocks(all), took_effect))
    }

    fn wall_jump_s(&mut self) -> i64 {
        self.rng.random_range(-WALL_JUMP_MAX_S..=WALL_JUMP_MAX_S)
    }
}
