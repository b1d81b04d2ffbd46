//! The claim on a node without data: one founder's process, or one cluster, may make it a member.
//!
//! Invariant: a claim stands until the claimed process ends, or another one claims the node after [`LASTS`]. The node's
//! incarnation ends with the claim (`storage/identity.rs`), so a claim never outlives the directory that it is for: the
//! former claimant does not reach the node any more. So a founder's next process takes over at once what the last one
//! claimed.
//!
//! A founder claims all members, itself among them, asks each a second time, and founds the cluster then. Its claim of
//! itself does not run out: the founder takes it back when it gives up, and never once it has decided. So of two founders
//! of the same `peers` one at most decides, whatever ids they have: each needs the claim of every member. If members
//! were started again in between, or claims ran out, both may decide, but no member is then a member of both. All claim
//! in the order of ids, so no two wait for each other: the founder with the first member's claim goes on.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    proto::{Refusal, refusal},
    sequence::{ClusterId, NodeId, TokenHash},
};

/// How long a claim keeps others off after its claimant made it last. The claimant needs a fraction of it until its first
/// message as a leader.
pub const LASTS: Duration = Duration::from_secs(10);

/// The last claim on this node, and its time.
#[derive(Debug, Default, Clone)]
pub struct FoundingClaim(Option<(Claim, Instant)>);

/// A claimant of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// A founder.
    Founder(Founder),
    /// The cluster whose leader is about to add the node.
    Cluster(ClusterId),
}

/// A founder's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Founder {
    /// The founder.
    pub id: NodeId,
    /// Its incarnation: it names one process, even if two machines were given the same id.
    pub incarnation: u64,
    /// The token with which it founds the cluster.
    pub admin: Option<TokenHash>,
}

/// Another one holds the node, which may be claimed later. The text says who, and until when.
#[derive(Debug)]
pub struct HeldByAnother(pub Refusal);

impl FoundingClaim {
    /// Claims this node, `me`. True if an earlier claim has run out: the node is to take another incarnation before anybody
    /// is told that it is claimed.
    ///
    /// # Errors
    /// [`HeldByAnother`] while another one holds it.
    pub fn claim(&mut self, claim: Claim, me: NodeId, now: Instant) -> Result<bool, HeldByAnother> {
        let other = self.0.filter(|(held, _)| *held != claim);
        if let Some((held, since)) = other {
            let left = (since + LASTS).saturating_duration_since(now);
            let is_of = |id| matches!(held, Claim::Founder(founder) if founder.id == id);
            // A founder that was started again, or has another incarnation, need not wait for what it claimed before.
            let is_his = matches!(claim, Claim::Founder(founder) if is_of(founder.id));
            if is_of(me) || !left.is_zero() && !is_his {
                let who = match held {
                    Claim::Founder(held) => {
                        format!("node {} founds a cluster with it", held.id)
                    }
                    Claim::Cluster(id) => {
                        format!("the leader of the cluster with the id {id} adds it")
                    }
                };
                return Err(HeldByAnother(refusal!(
                    NotFounded,
                    "node {me} is claimed: {who}. If that was given up, ask again in {} s: the claim has run out then",
                    left.as_secs() + 1
                )));
            }
        }
        self.0 = Some((claim, now));
        Ok(other.is_some())
    }

    /// The founder has given its attempt up.
    pub fn give_up(&mut self, founder: Founder) {
        self.0.take_if(|(held, _)| *held == Claim::Founder(founder));
    }

    /// True if a founder other than node `me` has claimed this node.
    pub fn is_held_by_another_founder(&self, me: NodeId) -> bool {
        matches!(self.0, Some((Claim::Founder(held), _)) if held.id != me)
    }
}

#[cfg(test)]
mod tests;
