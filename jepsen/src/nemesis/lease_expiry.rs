//! Faults aimed at the last moments of a lease.

use std::{io, time::Duration};

use rand::RngExt;

use super::{
    clocks::LEASE_RATES,
    fault::{Begun, Wound},
    injector::Stage,
    kind::Nemesis,
};
use crate::network::{Link, Port};

/// Longer than a lease.
const LATE: Link = Link {
    loss: 0.0,
    duplicates: 0.0,
    delay: Duration::from_millis(280),
    jitter: Duration::ZERO,
};

impl Stage {
    /// The leader's lease rests on one follower's promise alone, while another one begs that
    /// follower for its vote all the time. Then the leader loses that follower, too.
    pub(super) async fn begin_edge(&mut self, nemesis: Nemesis) -> io::Result<Begun> {
        let leader = self.leader();
        let last = self.follower();
        if self.cluster.network.is_none() || last == leader {
            return Ok(Begun::new("links do not fail here", Wound::Healed, false));
        }
        // The slowest clock that the lease must survive makes the lease last longest.
        self.set_clock(leader, LEASE_RATES.0, 0)?;
        let members = self.members.clone();
        let beggars = members.iter().filter(|id| **id != leader && **id != last);
        for beggar in beggars {
            self.cut(leader, *beggar);
        }
        let begging = self.rng.random_range(500..900);
        tokio::time::sleep(Duration::from_millis(begging)).await;
        let mut what = format!(
            "leader {leader}, its clock at {}, lost all but node {last}, then ",
            LEASE_RATES.0
        );
        let bit = match nemesis {
            Nemesis::RestartInLease => {
                self.cut(leader, last);
                let killed = self.cluster.kill(last);
                self.cluster.spawn(last)?;
                what.push_str("that, killed and started again at once");
                killed
            }
            Nemesis::LateAnswers => {
                self.set_link(last, leader, LATE);
                tokio::time::sleep(LATE.delay).await;
                self.set_link(leader, last, Link::CUT);
                what.push_str("that, whose late answers still arrive");
                true
            }
            _ => {
                self.cut(leader, last);
                what.push_str("that too");
                true
            }
        };
        Ok(Begun::new(what, Wound::LinksAndClock(leader), bit))
    }

    fn cut(&self, one: Port, other: Port) {
        self.set_link(one, other, Link::CUT);
        self.set_link(other, one, Link::CUT);
    }

    fn set_link(&self, from: Port, to: Port, link: Link) {
        if let Some(network) = &self.cluster.network {
            network.set(from, to, link);
        }
    }
}
