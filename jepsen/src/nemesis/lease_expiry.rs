//! Faults aimed at the last moments of a lease.

use std::{io, ops::Range, time::Duration};

use rand::RngExt;
use tokio::time::Instant;

use super::{
    clocks::LEASE_RATES,
    fault::{ActiveFault, Repair},
    injector::Injector,
    links::{UNTIL_USED, no_faulty_links},
    recovery::{LOOK_EVERY, RECOVERY_MAX},
};
use crate::network::{Link, PacketCounts, Port};

/// A delay longer than a lease.
const LATE: Link =
    Link { loss: 0.0, duplicates: 0.0, delay: Duration::from_millis(280), jitter: Duration::ZERO };
/// After this time, in milliseconds, a follower that does not hear the leader asks for votes.
const CAMPAIGNING_MS: Range<u64> = 500..900;
/// The same where leases are long.
const CAMPAIGNING_LONG_MS: Range<u64> = 900..1_400;

/// A leader whose lease rests on one follower's promise alone.
struct Isolated {
    leader: Port,
    last_follower: Port,
    /// Whether it said that it leads, with that one follower left.
    led: bool,
    description: String,
}

impl Isolated {
    /// The fault. `happened`: the action on the last follower certainly took place.
    fn fault(self, ending: &str, happened: bool) -> ActiveFault {
        let description = self.description + ending;
        let repair = Repair::HealLinksAndResetClock(self.leader);
        ActiveFault::new(description, repair, self.led && happened)
    }
}

/// The packets on the links between a leader and its last follower.
#[derive(Debug, Clone, Copy)]
struct Between {
    to_follower: PacketCounts,
    to_leader: PacketCounts,
}

impl Between {
    /// Whether the leader said something since `before` that the follower did not hear. The follower may have nothing to
    /// say then.
    fn is_cut_since(&self, before: &Between) -> bool {
        self.to_follower.dropped > before.to_follower.dropped
    }

    /// Whether answers were late since `before`, and the leader was not heard any more then.
    fn is_late_since(&self, before: &Between) -> bool {
        self.to_leader.delayed > before.to_leader.delayed && self.is_cut_since(before)
    }
}

impl Injector {
    /// The leader loses its last follower, too.
    pub(super) async fn cut_in_steps(&mut self) -> io::Result<ActiveFault> {
        let Some(isolated) = self.leave_one_follower(CAMPAIGNING_LONG_MS).await? else {
            return Ok(no_faulty_links());
        };
        let before = self.between(&isolated);
        self.cut(isolated.leader, isolated.last_follower);
        tokio::time::sleep(UNTIL_USED).await;
        let is_cut = self.between(&isolated).is_cut_since(&before);
        Ok(isolated.fault("that too", is_cut))
    }

    /// The leader loses its last follower, which is killed and started again at once.
    pub(super) async fn restart_in_lease(&mut self) -> io::Result<ActiveFault> {
        let Some(isolated) = self.leave_one_follower(CAMPAIGNING_LONG_MS).await? else {
            return Ok(no_faulty_links());
        };
        self.cut(isolated.leader, isolated.last_follower);
        let changes = self.monitor.changes();
        let killed = self.cluster.kill(isolated.last_follower);
        self.cluster.spawn(isolated.last_follower)?;
        self.wait_for_change(changes).await;
        Ok(isolated.fault("that, killed and started again at once", killed))
    }

    /// The last follower hears no more of the leader; its earlier answers still arrive, too late.
    pub(super) async fn delay_last_answers(&mut self) -> io::Result<ActiveFault> {
        let Some(isolated) = self.leave_one_follower(CAMPAIGNING_MS).await? else {
            return Ok(no_faulty_links());
        };
        let before = self.between(&isolated);
        self.set_link(isolated.last_follower, isolated.leader, LATE);
        tokio::time::sleep(LATE.delay).await;
        self.set_link(isolated.leader, isolated.last_follower, Link::CUT);
        tokio::time::sleep(UNTIL_USED).await;
        let is_late = self.between(&isolated).is_late_since(&before);
        Ok(isolated.fault("that, whose late answers still arrive", is_late))
    }

    /// Waits until a leader of another term is seen, beyond the changes that were seen before: without it the fault shows
    /// nothing. A follower that was started again votes for nobody until every promise that it may have made is over. If no
    /// leader comes, the run has too few changes.
    async fn wait_for_change(&self, changes: u64) {
        let end = Instant::now() + RECOVERY_MAX;
        while self.monitor.changes() <= changes && Instant::now() < end {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Cuts the leader off from all followers but one. The others then keep asking that one for its vote.
    /// `None` where links cannot fail.
    async fn leave_one_follower(
        &mut self, campaigning_ms: Range<u64>,
    ) -> io::Result<Option<Isolated>> {
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
        let campaigning_ms = self.rng.random_range(campaigning_ms);
        tokio::time::sleep(Duration::from_millis(campaigning_ms)).await;
        let led = self.term_led_by(leader).await.is_some();
        Ok(Some(Isolated {
            leader,
            last_follower,
            led,
            description: format!(
                "leader {leader}, its clock at {rate}, lost all but node {last_follower}, then "
            ),
        }))
    }

    fn between(&self, isolated: &Isolated) -> Between {
        let (leader, follower) = (isolated.leader, isolated.last_follower);
        let counts = |from, to| {
            let network = self.cluster.network.as_ref();
            network.map_or_else(PacketCounts::default, |network| network.counts_of(from, to))
        };
        Between { to_follower: counts(leader, follower), to_leader: counts(follower, leader) }
    }

    fn cut(&self, one: Port, other: Port) {
        for (from, to, link) in Link::cut_both_ways(one, other) {
            self.set_link(from, to, link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cluster::Timings, nemesis::kind::LONG_LEASE};

    #[test]
    fn the_slowest_long_lease_ends_before_the_promises_and_votes_are_asked_for_after_them() {
        let Timings { lease_ms, election_timeout_ms } = LONG_LEASE;
        let slowest_ms = lease_ms as f64 / LEASE_RATES.0;
        assert!(slowest_ms < election_timeout_ms as f64, "{slowest_ms}");
        assert!(CAMPAIGNING_LONG_MS.start > election_timeout_ms);
    }

    #[test]
    fn a_fault_took_effect_if_the_links_show_it_and_the_leader_led() {
        let counts = |dropped, delayed| PacketCounts { dropped, delayed, duplicated: 0 };
        let between = |to_follower, to_leader| Between { to_follower, to_leader };
        let before = between(counts(5, 0), counts(7, 2));
        for (now, is_cut, is_late) in [
            (before, false, false),
            (between(counts(6, 0), counts(7, 2)), true, false),
            (between(counts(6, 0), counts(7, 3)), true, true),
            (between(counts(5, 1), counts(8, 3)), false, false),
        ] {
            assert_eq!(now.is_cut_since(&before), is_cut, "{now:?}");
            assert_eq!(now.is_late_since(&before), is_late, "{now:?}");
        }
        let isolated =
            |led| Isolated { leader: 1, last_follower: 2, led, description: String::new() };
        assert!(isolated(true).fault("", true).took_effect);
        assert!(!isolated(false).fault("", true).took_effect);
        assert!(!isolated(true).fault("", false).took_effect);
    }
}
