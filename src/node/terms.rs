//! The terms of a Raft group that this node leads: each begins with chunks, or with the memory that the last leader handed off
//! to this node.
//!
//! `own.rs` says which term this node leads, and whether its allocator is open. `leadership.rs` gets each term its chunks and
//! opens its allocator, and `founding.rs` logs before that what a fresh cluster comes with. `recent_records.rs` keeps the
//! records at hand that a term will need. `take_memory.rs` takes in a memory that a leader sends, and `held_memory.rs` keeps it
//! until a term begins. `leader_change.rs` shows how long a leader change took, until its first answer (`awaited_answer.rs`).
//!
//! Invariant: the allocator in use belongs to the term that Raft last said this node leads, or there is none.

mod awaited_answer;
mod founding;
mod held_memory;
mod leader_change;
mod leadership;
mod own;
pub(super) mod recent_records;
mod take_memory;

use std::sync::Arc;

use arc_swap::Guard;

use self::{awaited_answer::AwaitedAnswer, held_memory::HeldMemory, own::OwnTerm};
use super::{Config, common::Common, stopping::Stopping};
use crate::{
    allocator::Term,
    clock::Clock,
    consensus::{Group, RpcHandler, TermLease},
    metrics::Metrics,
    ordered_watch,
};

/// The terms of a Raft group that this node leads.
pub struct LedTerms {
    config: Arc<Config>,
    group: Arc<Group>,
    /// Says from whom a memory may come, and how long to wait for its parts.
    rpc_handler: Arc<RpcHandler>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// The term that this node leads, and its allocator.
    own: OwnTerm<Term>,
    /// Counts changes of leadership. A change is counted once the allocator belongs to it.
    changes: ordered_watch::Sender<u64>,
    awaited_answer: AwaitedAnswer,
    /// The memory that a leader that hands over has sent to this node.
    held_memory: HeldMemory,
    stopping: Stopping,
}

impl LedTerms {
    /// None yet.
    pub(super) fn new(common: &Common, rpc_handler: Arc<RpcHandler>) -> Self {
        LedTerms {
            config: common.config.clone(),
            group: common.group.clone(),
            rpc_handler,
            clock: common.clock.clone(),
            metrics: common.metrics.clone(),
            own: OwnTerm::default(),
            changes: ordered_watch::Sender::default(),
            awaited_answer: AwaitedAnswer::default(),
            held_memory: HeldMemory::default(),
            stopping: common.stopping.clone(),
        }
    }

    /// The term that this node leads, or led last. It may be over. One atomic load.
    pub(super) fn look(&self) -> Guard<Option<Arc<Term>>> {
        self.own.look()
    }

    /// As [`LedTerms::look`], to be kept.
    pub(super) fn current(&self) -> Option<Arc<Term>> {
        self.own.opened()
    }

    /// The term that this node serves as leader; `None` if it leads none, or the term is over.
    pub(super) fn serving(&self) -> Option<Arc<Term>> {
        self.current().filter(|term| !term.is_over())
    }

    /// The lease of [`LedTerms::serving`].
    pub(super) fn serving_lease(&self) -> Option<Arc<TermLease>> {
        Some(self.serving()?.lease().clone())
    }

    /// Waits until this node serves a term as leader. A node that does not lead is not woken for what a leader looks after.
    pub(super) async fn until_serving(&self) -> Arc<Term> {
        let mut changes = self.changes();
        loop {
            changes.borrow_and_update();
            if let Some(term) = self.serving() {
                return term;
            }
            if changes.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Tells of changes of the leadership: of each once the allocator belongs to it. Of none any more once the node has
    /// stopped.
    pub(super) fn changes(&self) -> ordered_watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// How many bytes the memory of a term may hold: the group's share of what the node may use.
    fn memory_bytes_max(&self) -> usize {
        usize::try_from(self.group.budget.memory_bytes).unwrap_or(usize::MAX)
    }

    /// Answers nothing more, because the node stops.
    pub(super) fn stop(&self) {
        drop(self.own.stop());
    }
}
