//! Who may make a node without data a member of a cluster.
//!
//! Invariants: of two nodes that meet each other in order to found a cluster, one at most does. A node that a leader is about
//! to add founds no cluster meanwhile, and one that founds a cluster, or was met by its founder, is added to no other.
//!
//! A founder meets all others before it founds, and only fresh nodes with the same `peers` let themselves be met. So of two
//! founders each meets the other. The one with the greater id is not met while the smaller one founds, and gives way when the
//! smaller one meets it, unless it has decided before; then it is not met.

use parking_lot::Mutex;
use tonic::Status;

use crate::{
    proto::{refused, v1::Reason},
    sequence::NodeId,
};

/// What a node without data was told, since it was started.
#[derive(Debug, Default)]
pub struct FoundingClaim(Mutex<Claim>);

#[derive(Debug, Default)]
struct Claim {
    stage: Stage,
    /// The last founder that met this node.
    met_by: Option<NodeId>,
    /// The leader that said last that it is about to add this node.
    added_by: Option<NodeId>,
}

/// How far this node's own founding is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// It meets the others.
    Meets,
    /// It has met all, and founds.
    Decided,
}

impl FoundingClaim {
    /// This node begins to meet the others.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if a leader is about to add it.
    pub fn begin(&self) -> Result<(), Status> {
        let mut claim = self.0.lock();
        if let Some(leader) = claim.added_by {
            return Err(Status::failed_precondition(format!(
                "node {leader} leads a cluster and was about to add this node to it: see ratchet status there; if this node \
                 is to found a cluster all the same, start it again, and ask again"
            )));
        }
        claim.stage = Stage::Meets;
        Ok(())
    }

    /// This node has met all others. True if it founds now; false if it gave way to another founder.
    pub fn decide(&self) -> bool {
        let mut claim = self.0.lock();
        let decides = claim.stage == Stage::Meets;
        if decides {
            claim.stage = Stage::Decided;
        }
        decides
    }

    /// This node could not meet all others. True if another founder has met it.
    pub fn give_up(&self) -> bool {
        let mut claim = self.0.lock();
        claim.stage = Stage::Idle;
        claim.met_by.is_some()
    }

    /// The founder `founder` meets this node, `me`.
    ///
    /// # Errors
    /// UNAVAILABLE while this node founds the cluster itself; FAILED_PRECONDITION if a leader is about to add it.
    pub fn meet(&self, founder: NodeId, me: NodeId) -> Result<(), Status> {
        let mut claim = self.0.lock();
        if let Some(leader) = claim.added_by {
            return Err(Status::failed_precondition(format!(
                "node {leader} leads a cluster and was about to add node {me} to it; if node {me} is to be a founder all the \
                 same, start it again"
            )));
        }
        match claim.stage {
            Stage::Idle => {}
            Stage::Meets if founder < me => claim.stage = Stage::Idle,
            Stage::Meets | Stage::Decided => {
                let why = format!("node {me} founds the cluster");
                return Err(refused(Reason::NotFounded, why));
            }
        }
        claim.met_by = Some(founder);
        Ok(())
    }

    /// The leader `leader` is about to add this node, `me`, to its cluster.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if this node founds a cluster, or was met by a founder.
    pub fn add(&self, leader: NodeId, me: NodeId) -> Result<(), Status> {
        let mut claim = self.0.lock();
        let founder = match claim.stage {
            Stage::Idle => claim.met_by,
            Stage::Meets | Stage::Decided => Some(me),
        };
        if let Some(founder) = founder {
            return Err(Status::failed_precondition(format!(
                "node {founder} was asked to found another cluster with node {me}; if that was given up, start node {me} again"
            )));
        }
        claim.added_by = Some(leader);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of two founders decide, whatever the order in which they meet each other and decide.
    #[test]
    fn of_two_founders_one_at_most_decides_in_every_order_of_events() {
        // Each founder begins, meets the other, and decides if it did: three events, in this order.
        let orders = (0..1_u32 << 6).filter(|order| order.count_ones() == 3);
        let mut decided = 0;
        for order in orders {
            let claims = [FoundingClaim::default(), FoundingClaim::default()];
            let (mut next, mut met, mut founds) = ([0; 2], [false; 2], [false; 2]);
            for event in 0..6 {
                let who = (order >> event & 1) as usize;
                let other = 1 - who;
                match next[who] {
                    0 => claims[who].begin().expect("nobody adds it"),
                    1 => met[who] = claims[other].meet(who as u64 + 1, other as u64 + 1).is_ok(),
                    _ if met[who] => founds[who] = claims[who].decide(),
                    _ => drop(claims[who].give_up()),
                }
                next[who] += 1;
            }
            assert!(!(founds[0] && founds[1]), "order {order:06b}");
            decided += u32::from(founds[0] || founds[1]);
        }
        assert_eq!(decided, 20, "one decides in every order");
    }

    #[test]
    fn a_node_that_is_about_to_be_added_founds_nothing_and_a_founder_is_not_added() {
        let claim = FoundingClaim::default();
        claim.add(7, 1).expect("it is free");
        claim.add(7, 1).expect("again");
        assert!(claim.begin().expect_err("refused").message().contains("node 7 leads"));
        assert!(claim.meet(2, 1).expect_err("refused").message().contains("node 7 leads"));
        let claim = FoundingClaim::default();
        claim.meet(2, 1).expect("it is free");
        assert!(claim.add(7, 1).expect_err("refused").message().contains("node 2 was asked"));
        let claim = FoundingClaim::default();
        claim.begin().expect("it is free");
        assert!(claim.add(7, 1).expect_err("refused").message().contains("node 1 was asked"));
    }
}
