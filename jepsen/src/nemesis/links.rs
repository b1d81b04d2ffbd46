//! Partitions, slow links, flaky links.

use std::{io, time::Duration};

use rand::{RngExt, seq::SliceRandom};

use super::{
    fault::{Begun, Wound},
    injector::Stage,
    kind::Nemesis,
};
use crate::network::{CLIENTS, Link, Port};

impl Stage {
    pub(super) async fn begin_links(&mut self, nemesis: Nemesis) -> io::Result<Begun> {
        let (what, links) = self.draw_links(nemesis);
        let Some(network) = &self.cluster.network else {
            return Ok(Begun::new("links do not fail here", Wound::Healed, false));
        };
        let before = network.tally();
        for (from, to, link) in links {
            network.set(from, to, link);
        }
        // Heartbeats alone make sure that something is on every link by then.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let after = network.tally();
        let bit = match nemesis {
            Nemesis::SlowLinks => after.delayed > before.delayed,
            Nemesis::FlakyLinks => {
                after.dropped > before.dropped && after.duplicated > before.duplicated
            }
            _ => after.dropped > before.dropped,
        };
        Ok(Begun::new(what, Wound::Links, bit))
    }

    fn draw_links(&mut self, nemesis: Nemesis) -> (String, Vec<(Port, Port, Link)>) {
        let members = self.members.clone();
        let both = |one: Port, other: Port| [(one, other, Link::CUT), (other, one, Link::CUT)];
        match nemesis {
            Nemesis::PartitionLeader | Nemesis::PeersCut => {
                let leader = self.leader();
                let mut others: Vec<Port> =
                    members.into_iter().filter(|id| *id != leader).collect();
                let mut what = format!("leader {leader} cut off from its peers");
                if nemesis == Nemesis::PartitionLeader {
                    others.push(CLIENTS);
                    what.push_str(" and from clients");
                }
                let cut = others.into_iter().flat_map(|other| both(leader, other));
                (what, cut.collect())
            }
            Nemesis::PartitionHalves => {
                let mut shuffled = members;
                shuffled.shuffle(&mut self.rng);
                let (few, many) = shuffled.split_at((shuffled.len() - 1) / 2);
                let cut = few
                    .iter()
                    .flat_map(|one| many.iter().flat_map(move |other| both(*one, *other)));
                (format!("{few:?} cut off from {many:?}"), cut.collect())
            }
            Nemesis::PartitionRing => {
                let count = members.len();
                let mut cut = Vec::new();
                for one in 0..count {
                    for other in one + 1..count {
                        let apart = (other - one).min(count - (other - one));
                        if apart > 1 {
                            cut.extend(both(members[one], members[other]));
                        }
                    }
                }
                ("each node reaches its two neighbours only".to_owned(), cut)
            }
            Nemesis::PartitionOneWay => {
                let victim = if self.rng.random_bool(0.5) {
                    self.leader()
                } else {
                    self.any()
                };
                let others = members.into_iter().filter(|id| *id != victim);
                if self.rng.random_bool(0.5) {
                    let what = format!("node {victim} hears nothing of its peers");
                    (
                        what,
                        others.map(|other| (other, victim, Link::CUT)).collect(),
                    )
                } else {
                    let what = format!("node {victim} is not heard by its peers");
                    (
                        what,
                        others.map(|other| (victim, other, Link::CUT)).collect(),
                    )
                }
            }
            _ => self.draw_bad_links(nemesis == Nemesis::FlakyLinks),
        }
    }

    /// Some of all links, those of the clients included.
    fn draw_bad_links(&mut self, flaky: bool) -> (String, Vec<(Port, Port, Link)>) {
        let mut ends = self.members.clone();
        ends.push(CLIENTS);
        let mut bad = Vec::new();
        for from in &ends {
            for to in &ends {
                if from == to || self.rng.random_bool(0.4) {
                    continue;
                }
                let link = if flaky {
                    Link {
                        loss: self.rng.random_range(0.01..0.15),
                        duplicates: self.rng.random_range(0.01..0.2),
                        delay: Duration::from_millis(1),
                        jitter: Duration::from_millis(self.rng.random_range(1..15)),
                    }
                } else {
                    Link {
                        delay: Duration::from_millis(self.rng.random_range(5..120)),
                        jitter: Duration::from_millis(self.rng.random_range(0..40)),
                        ..Link::default()
                    }
                };
                bad.push((*from, *to, link));
            }
        }
        let how = if flaky { "flaky" } else { "slow" };
        (format!("{} links are {how}", bad.len()), bad)
    }
}
