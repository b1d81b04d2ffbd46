//! The trait of requests that go the way to the leader. Each kind of request implements it beside the code that answers it
//! here.

use tokio::time::Instant;

use super::{
    attempt::{Attempt, SoFar},
    effect::Effect,
    origin::Origin,
};
use crate::{
    node::request_memory::Reservation,
    proto::Refusal,
    sequence::{NamespaceId, NodeId},
    storage::Member,
};

/// The wait of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// For its answer from here, which is under way.
    Here,
    /// For a leader: this node has no answer.
    ForLeader,
}

/// A request that the leader answers, whichever node it was sent to.
pub trait ForLeader: Sync {
    /// The part of the node that answers it here.
    type Here: Sync;

    /// Its answer.
    type Answer: Send;

    /// The namespace that this node (`here`), which may know an old configuration, takes the request's name for. If the
    /// leader's namespace of that name is another one, the leader does nothing. `None`: the leader is not to compare.
    /// `trusts_itself` is false once the leader has said that the namespace was another one.
    fn taken_for(&self, _here: &Self::Here, _trusts_itself: bool) -> Option<NamespaceId> {
        None
    }

    /// Whether another leader may be asked while one that is deposed still owes the answer, to the request for the namespace
    /// `taken_for`. A request for numbers may then also be repeated after its answer was lost; what a lost answer of another
    /// request means is up to that.
    fn may_be_asked_again(&self, here: &Self::Here, taken_for: Option<NamespaceId>) -> bool;

    /// Sees that its caller may still have it: that may have changed while the leader was looked for.
    ///
    /// # Errors
    /// Those of `Access::check`.
    fn check_asker(&self, here: &Self::Here) -> Result<(), Refusal>;

    /// Answers it if this node leads. `from` has its origin, and the outcome of the attempts before.
    fn serve_locally(
        &self, here: &Self::Here, from: (Origin, SoFar), deadline: Instant,
    ) -> impl Future<Output = Attempt<Self::Answer>> + Send;

    /// Has the `leader` answer it. `so_far` is the outcome of the attempts before.
    fn serve_remotely(
        &self, here: &Self::Here, leader: (NodeId, &Member), taken_for: Option<NamespaceId>,
        so_far: SoFar, deadline: Instant,
    ) -> impl Future<Output = Attempt<Self::Answer>> + Send;

    /// Its effect, if it was carried out and nobody gets the answer.
    fn effect(&self) -> Effect;

    /// Reserves what it holds while it waits: for an answer from here that is under way, or for another leader. It is called
    /// before that, and for a leader only if nothing was reserved before.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if others hold the memory. For what is under way here, it says whether that may be done.
    fn begin_to_wait(
        &self, _here: &Self::Here, _waits: Waits,
    ) -> Result<Option<Reservation>, Refusal> {
        Ok(None)
    }

    /// The answer while no leader answers; `None` if only a leader has one.
    fn serve_without_leader(&self, _here: &Self::Here) -> Option<Self::Answer> {
        None
    }
}
