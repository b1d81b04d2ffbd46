//! The leader and its term, as far as this node knows them.

use std::sync::Arc;

use crate::{consensus::lease::TermLease, sequence::NodeId, storage::Member};

/// The leader and its term, as far as this node knows them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Leadership {
    /// The term.
    pub term: u64,
    /// The leader of the term, if it is known.
    pub leader: Option<(NodeId, Member)>,
    /// This node's lease. It is there if this node leads, has applied an entry of its term (so that it
    /// knows all that its predecessors committed), and has not given the term up.
    pub own: Option<Arc<TermLease>>,
}
