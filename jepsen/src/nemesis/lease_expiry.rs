//! Faults aimed at the last moments of a lease.

use std::{io, time::Duration};

use rand::RngExt;

use super::{
    clocks::LEASE_RATES,
    fault::{ActiveFault, Repair},
    injector::Injector,
    links::no_faulty_links,
};
use crate::network::{Link, Port};

/// A delay longer than a lease.
const LATE: Link =
    Link { loss: 0.0, duplicates: 0.0, delay: Duration::from_millis(280), jitter: Duration::ZERO };

/// A leader whose lease rests on one follower's promise alone.
struct Isolated {
    leader: Port,
    last_follower: Port,
    description: String,
}

impl Isolated {
    fn fault(self, ending: &str, took_effect: bool) -> ActiveFault {
        let description = self.description + ending;
        let repair = Repair::HealLinksAndResetClock(self.leader);
        ActiveFault::new(description, repair, took_effect)
    }
}

impl Injector {
    /// The leader loses its last follower, too.
    pub(super) async fn cut_in_steps(&mut self) -> io::Result<ActiveFault> {
        let Some(isolated) = self.leave_one_follower().await? else {
            return Ok(no_faulty_links());
        };
        self.cut(isolated.leader, isolated.last_follower);
        Ok(isolated.fault("that too", true))
    }

    /// The leader loses its last follower, which is killed and started again at once.
    pub(super) async fn restart_in_lease(&mut self) -> io::Result<ActiveFault> {
        let Some(isolated) = self.leave_one_follower().await? else {
            return Ok(no_faulty_links());
        };
        self.cut(isolated.leader, isolated.last_follower);
        let killed = self.cluster.kill(isolated.last_follower);
        self.cluster.spawn(isolated.last_follower)?;
        Ok(isolated.fault("that, killed and started again at once", killed))
    }

    /// The last follower hears no more of the leader; its earlier answers still arrive, too late.
    pub(super) async fn delay_last_answers(&mut self) -> io::Result<ActiveFault> {
        let Some(isolated) = self.leave_one_follower().await? else {
            return Ok(no_faulty_links());
        };
        self.set_link(isolated.last_follower, isolated.leader, LATE);
        tokio::time::sleep(LATE.delay).await;
        self.set_link(isolated.leader, isolated.last_follower, Link::CUT);
        Ok(isolated.fault("that, whose late answers still arrive", true))
    }

    /// Cuts the leader off from all followers but one. The others then keep asking that one for its vote.
    /// `None` where links cannot fail.
    async fn leave_one_follower(&mut self) -> io::Result<Option<Isolated>> {
        let leader = self.leader();
        let last_follower = self.random_follower();
        if self.cluster.network.is_none() || last_follower == leader {
            return Ok(None);
        }
        // With the slowest clock that the lease must survive, the lease lasts longest.
        let rate = LEASE_RATES.0;
        self.set_clock(leader, rate, 0)?;
        for candidate in self.members_except(leader) {
            if candidate != last_follower {
                self.cut(leader, candidate);
            }
        }
        let campaigning_ms = self.rng.random_range(500..900);
        tokio::time::sleep(Duration::from_millis(campaigning_ms)).await;
        Ok(Some(Isolated {
            leader,
            last_follower,
            description: format!(
                "leader {leader}, its clock at {rate}, lost all but node {last_follower}, then "
            ),
        }))
    }

    fn cut(&self, one: Port, other: Port) {
        for (from, to, link) in Link::cut_both_ways(one, other) {
            self.set_link(from, to, link);
        }
    }
}
