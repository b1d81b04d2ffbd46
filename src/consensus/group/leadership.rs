//! Who leads, as far as this node knows.

use std::sync::Arc;

use crate::{consensus::lease::TermLease, sequence::NodeId, storage::Member};

/// Who leads, as far as this node knows.
#[derive(Debug, Clone, Default)]
pub struct Leadership {
    /// The term.
    pub term: u64,
    /// The leader of the term, if it is known.
    pub leader: Option<(NodeId, Member)>,
    /// This node's lease. It is there if this node leads, has applied an entry of its term (so that it
    /// knows all that its predecessors committed), and has not given the term up.
    pub own: Option<Arc<TermLease>>,
}

impl Leadership {
    /// True if watchers need not be told of the change from `other` to this.
    pub(super) fn same_as(&self, other: &Leadership) -> bool {
        let own = |l: &Leadership| l.own.as_ref().map(|lease| lease.term());
        self.term == other.term && self.leader == other.leader && own(self) == own(other)
    }
}
