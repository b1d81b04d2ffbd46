//! Clocks that run at another rate, or jump.

use std::io;

use rand::RngExt;

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

impl Injector {
    pub(super) async fn change_clock_rate(&mut self) -> io::Result<ActiveFault> {
        let (slowest, fastest) = match self.cluster.config.fence {
            Fence::Lease => LEASE_RATES,
            Fence::Quorum => QUORUM_RATES,
        };
        let (victim, rate) = (
            self.random_member(),
            self.rng.random_range(slowest..fastest),
        );
        self.set_clock(victim, rate, 0)?;
        let description = format!("node {victim}'s clocks run at {rate:.2}");
        let took_effect = self.cluster.uses_its_clock(victim).await;
        let repair = Repair::ResetClock(victim);
        Ok(ActiveFault::new(description, repair, took_effect))
    }

    pub(super) async fn jump_wall_clock(&mut self) -> io::Result<ActiveFault> {
        let (victim, offset_s) = (self.random_member(), self.rng.random_range(-3_600..3_600));
        self.set_clock(victim, 1.0, offset_s)?;
        let description = format!("node {victim}'s wall clock jumps by {offset_s} s");
        let took_effect = self.cluster.uses_its_clock(victim).await;
        let repair = Repair::ResetClock(victim);
        Ok(ActiveFault::new(description, repair, took_effect))
    }
}
