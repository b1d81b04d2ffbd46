//! The memory that a leader has sent to this node, its successor. At most one is kept: the last that has arrived whole. It is
//! used by the next term that this node leads. It is dropped once another node leads, and a while after it
//! arrived (`KEEP_TIMEOUTS` in `take_memory.rs`).
//!
//! Invariant: a memory leaves here once. Whether it may be used is decided by the state machine.

use parking_lot::Mutex;

use crate::{
    allocator::ReceivedMemory,
    consensus::Leadership,
    sequence::{MemoryDigest, NodeId},
};

/// The memory that this node holds for the next term that it leads.
#[derive(Default)]
pub struct HeldMemory(Mutex<HeldState>);

#[derive(Default)]
struct HeldState {
    /// How many have begun to arrive.
    begun: u64,
    whole: Option<(ReceivedMemory, MemoryDigest)>,
}

impl HeldMemory {
    /// Another one begins to arrive: drops what is here. Returns its number.
    pub(super) fn begin(&self) -> u64 {
        let mut holding = self.0.lock();
        holding.whole = None;
        holding.begun += 1;
        holding.begun
    }

    /// True if none has begun to arrive after number `number`.
    pub(super) fn is_latest(&self, number: u64) -> bool {
        self.0.lock().begun == number
    }

    /// Keeps number `number`, unless a later one has begun to arrive.
    pub(super) fn keep(&self, number: u64, received: ReceivedMemory, digest: MemoryDigest) -> bool {
        let mut holding = self.0.lock();
        let is_latest = holding.begun == number;
        if is_latest {
            holding.whole = Some((received, digest));
        }
        is_latest
    }

    /// Drops number `number`, if it is here.
    pub(super) fn give_up(&self, number: u64) {
        let mut holding = self.0.lock();
        if holding.begun == number && holding.whole.take().is_some() {
            tracing::warn!(
                "no term has come to take over the memory that the last leader sent; it is dropped"
            );
        }
    }

    /// Takes the memory of a term before `term`, for `term` to take it over.
    pub(super) fn take(&self, term: u64) -> Option<(ReceivedMemory, MemoryDigest)> {
        let whole = self.0.lock().whole.take();
        whole.filter(|(received, _)| received.term() < term)
    }

    /// Drops the memory if a node other than `me` leads a later term.
    pub(super) fn follow(&self, now: &Leadership, me: NodeId) {
        let mut holding = self.0.lock();
        let leads_other = (now.leader.as_ref()).is_some_and(|(leader, _)| *leader != me);
        if leads_other && holding.whole.as_ref().is_some_and(|(it, _)| it.term() < now.term) {
            holding.whole = None;
        }
    }
}
