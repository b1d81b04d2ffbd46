//! Lets a founder or a cluster claim this node while it has no data.
//!
//! Invariant: one claim at a time is made. It counts once it is on the disk, with another incarnation if an earlier claim has
//! run out, and with the token of its founder.

use std::sync::Arc;

use tokio::{sync::Mutex, time::Instant};

use super::{
    founding_claim::{Claim, Founder, FoundingClaim, HeldByAnother},
    not_met::NotMet,
};
use crate::{
    consensus::ThisNode,
    node::common::Common,
    proto::{Refusal, refusal},
    sequence::{SetId, TokenHash},
    tasks::Fault,
};

/// This node, as far as others claim it.
pub struct ClaimedNode {
    this_node: Arc<ThisNode>,
    /// The set in which the token of a founder is recorded.
    set: SetId,
    /// The claim of the founder or the cluster that may make this node a member, while it holds no data.
    claim: Arc<Mutex<FoundingClaim>>,
}

impl ClaimedNode {
    /// Nobody has claimed it yet.
    pub fn new(common: &Common) -> Self {
        ClaimedNode {
            this_node: common.this_node.clone(),
            set: common.group.config.set,
            claim: Arc::default(),
        }
    }

    /// Lets this fresh node be held by the maker of `claim`. If an earlier claim has run out, the node takes another
    /// incarnation first: the one that held it does not reach it any more. The claim counts once that is on the disk, and what
    /// has begun goes on to its end even if the caller leaves.
    ///
    /// # Errors
    /// [`NotMet::NotYet`] while another one holds it. FAILED_PRECONDITION if a message of a cluster has reached the node;
    /// INTERNAL if the disk fails, and the node stops.
    pub async fn be_held_by(&self, claim: Claim) -> Result<(), NotMet> {
        let mut held = self.claim.clone().lock_owned().await;
        let (this_node, set) = (self.this_node.clone(), self.set);
        let me = this_node.id;
        let claiming = async move {
            let mut claimed = held.clone();
            let renews = claimed.claim(claim, me, Instant::now());
            let renews = renews.map_err(|HeldByAnother(why)| NotMet::NotYet(why))?;
            match this_node.be_claimed(renews).await {
                Ok(true) => {
                    // Whichever member leads first will need it.
                    if let Claim::Founder(Founder { admin, .. }) = claim {
                        record_founding_token(&this_node, set, admin).await?;
                    }
                    *held = claimed;
                    Ok(())
                }
                Ok(false) => Err(NotMet::Refused(refusal!(
                    WrongState,
                    "a message of a cluster has reached node {me} already; see ratchet status there"
                ))),
                Err(error) => {
                    this_node.tasks.fail(Fault::CannotGoOn(error.to_string()));
                    Err(NotMet::Refused(refusal!(Internal, "{error}")))
                }
            }
        };
        let claiming = tokio::spawn(self.this_node.tasks.watched("a claim", claiming));
        claiming.await.unwrap_or_else(|error| Err(NotMet::Refused(refusal!(Internal, "{error}"))))
    }

    /// The founder has given its attempt up.
    pub async fn give_up(&self, founder: Founder) {
        self.claim.lock().await.give_up(founder);
    }

    /// True if a founder on another node has claimed this one.
    pub async fn is_held_by_another_founder(&self) -> bool {
        self.claim.lock().await.is_held_by_another_founder(self.this_node.id)
    }
}

/// Records in `set` with which token the cluster is founded that has claimed this node.
///
/// # Errors
/// INTERNAL if the disk fails, and the node stops.
async fn record_founding_token(
    this_node: &ThisNode, set: SetId, token: Option<TokenHash>,
) -> Result<(), Refusal> {
    let store = this_node.store.clone();
    let recording = move || store.record_founding_token(set, token).map_err(|e| e.to_string());
    let recorded = this_node.store.blocking().run(recording).await;
    recorded.unwrap_or_else(|error| Err(error.to_string())).map_err(|error| {
        this_node.tasks.fail(Fault::CannotGoOn(error.clone()));
        refusal!(Internal, "{error}")
    })
}
