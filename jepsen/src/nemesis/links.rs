//! Partitions, slow links and flaky links.

use std::time::Duration;

use rand::{RngExt, seq::SliceRandom};

use super::{
    fault::{ActiveFault, Repair},
    injector::Injector,
};
use crate::{
    cluster::Cluster,
    network::{CLIENTS, Link, PacketCounts, Port},
};

/// Heartbeats alone make sure that every link has carried something by then.
pub(super) const UNTIL_USED: Duration = Duration::from_millis(300);

/// Links that are to fail.
pub(super) struct FaultyLinks {
    description: String,
    links: Vec<(Port, Port, Link)>,
    /// Whether the packets counted before and after show that they failed.
    took_effect: fn(&PacketCounts, &PacketCounts) -> bool,
}

impl FaultyLinks {
    fn cut(description: String, links: Vec<(Port, Port, Link)>) -> FaultyLinks {
        FaultyLinks {
            description,
            links,
            took_effect: |before, after| after.dropped > before.dropped,
        }
    }
}

impl Injector {
    pub(super) async fn break_links(&mut self, faulty: FaultyLinks) -> ActiveFault {
        let Some(network) = &self.cluster.network else {
            return no_faulty_links();
        };
        let before = network.counts();
        for (from, to, link) in faulty.links {
            network.set(from, to, link);
        }
        tokio::time::sleep(UNTIL_USED).await;
        let took_effect = (faulty.took_effect)(&before, &network.counts());
        ActiveFault::new(faulty.description, Repair::HealLinks, took_effect)
    }

    pub(super) fn leader_cut_off(&mut self) -> FaultyLinks {
        let leader = self.leader();
        let others = [self.members_except(leader), vec![CLIENTS]].concat();
        let description = format!("leader {leader} cut off from its peers and from clients");
        FaultyLinks::cut(description, cut_off(leader, others))
    }

    pub(super) fn leader_cut_off_from_peers(&mut self) -> FaultyLinks {
        let leader = self.leader();
        let description = format!("leader {leader} cut off from its peers");
        FaultyLinks::cut(description, cut_off(leader, self.members_except(leader)))
    }

    pub(super) fn halves(&mut self) -> FaultyLinks {
        let mut shuffled = self.members.clone();
        shuffled.shuffle(&mut self.rng);
        let (few, many) = shuffled.split_at((shuffled.len() - 1) / 2);
        let cut = few.iter().flat_map(|one| cut_off(*one, many.to_vec()));
        FaultyLinks::cut(format!("{few:?} cut off from {many:?}"), cut.collect())
    }

    pub(super) fn ring(&mut self) -> FaultyLinks {
        let count = self.members.len();
        let mut cut = Vec::new();
        for one in 0..count {
            for other in one + 1..count {
                let distance = (other - one).min(count - (other - one));
                if distance > 1 {
                    cut.extend(Link::cut_both_ways(self.members[one], self.members[other]));
                }
            }
        }
        FaultyLinks::cut("each node reaches its two neighbours only".to_owned(), cut)
    }

    pub(super) fn one_way(&mut self) -> FaultyLinks {
        let victim = self.leader_or_random_member();
        let others = self.members_except(victim).into_iter();
        if self.rng.random_bool(0.5) {
            let cut = others.map(|other| (other, victim, Link::CUT));
            let description = format!("node {victim} hears nothing of its peers");
            FaultyLinks::cut(description, cut.collect())
        } else {
            let cut = others.map(|other| (victim, other, Link::CUT));
            let description = format!("node {victim} is not heard by its peers");
            FaultyLinks::cut(description, cut.collect())
        }
    }

    pub(super) fn slow_links(&mut self) -> FaultyLinks {
        let links = self.some_links(|rng| Link {
            delay: Duration::from_millis(rng.random_range(5..120)),
            jitter: Duration::from_millis(rng.random_range(0..40)),
            ..Link::default()
        });
        FaultyLinks {
            description: format!("{} links are slow", links.len()),
            links,
            took_effect: |before, after| after.delayed > before.delayed,
        }
    }

    pub(super) fn flaky_links(&mut self) -> FaultyLinks {
        let links = self.some_links(|rng| Link {
            loss: rng.random_range(0.01..0.15),
            duplicates: rng.random_range(0.01..0.2),
            delay: Duration::from_millis(1),
            jitter: Duration::from_millis(rng.random_range(1..15)),
        });
        FaultyLinks {
            description: format!("{} links are flaky", links.len()),
            links,
            took_effect: |before, after| {
                after.dropped > before.dropped && after.duplicated > before.duplicated
            },
        }
    }

    /// Six of ten links, between nodes and to clients.
    fn some_links(
        &mut self, mut draw: impl FnMut(&mut rand::rngs::StdRng) -> Link,
    ) -> Vec<(Port, Port, Link)> {
        let mut ends = self.members.clone();
        ends.push(CLIENTS);
        let mut links = Vec::new();
        for from in &ends {
            for to in &ends {
                if from == to || self.rng.random_bool(0.4) {
                    continue;
                }
                links.push((*from, *to, draw(&mut self.rng)));
            }
        }
        links
    }
}

pub(super) fn cut_off(one: Port, others: Vec<Port>) -> Vec<(Port, Port, Link)> {
    let others = others.into_iter();
    others.flat_map(|other| Link::cut_both_ways(one, other)).collect()
}

/// How many packets the links have lost so far.
pub(super) fn packets_dropped(cluster: &Cluster) -> u64 {
    cluster.network.as_ref().map_or(0, |network| network.counts().dropped)
}

pub(super) fn no_faulty_links() -> ActiveFault {
    ActiveFault::impossible("links do not fail here")
}
