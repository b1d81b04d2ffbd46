//! Clocks that run wrong.

use std::io;

use rand::RngExt;

use super::{
    fault::{Begun, Wound},
    injector::Stage,
};
use crate::cluster::Fence;

/// Rates of a single node's clocks that the lease fence survives: with a lease of 200 ms, and
/// 300 ms during which followers keep out of elections, it holds while the rates of any two nodes
/// differ by less than 300 / 200 = 1.5.
pub const LEASE_RATES: (f64, f64) = (0.75, 1.4);
/// What is tried under the fence that no clock is part of.
pub const QUORUM_RATES: (f64, f64) = (0.5, 2.0);

impl Stage {
    pub(super) async fn bend_clock_rate(&mut self) -> io::Result<Begun> {
        let (slowest, fastest) = match self.cluster.plan.fence {
            Fence::Lease => LEASE_RATES,
            Fence::Quorum => QUORUM_RATES,
        };
        let (victim, rate) = (self.any(), self.rng.random_range(slowest..fastest));
        self.set_clock(victim, rate, 0)?;
        let what = format!("node {victim}'s clocks run at {rate:.2}");
        let bends = self.cluster.bends_clock(victim).await;
        Ok(Begun::new(what, Wound::Clock(victim), bends))
    }

    pub(super) async fn jump_wall_clock(&mut self) -> io::Result<Begun> {
        let (victim, off) = (self.any(), self.rng.random_range(-3_600..3_600));
        self.set_clock(victim, 1.0, off)?;
        let what = format!("node {victim}'s wall clock jumps by {off} s");
        let bends = self.cluster.bends_clock(victim).await;
        Ok(Begun::new(what, Wound::Clock(victim), bends))
    }
}
