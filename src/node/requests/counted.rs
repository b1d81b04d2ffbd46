//! Counts calls, and those that are refused, for the namespace that they are about: at the node that the caller asked.

use std::sync::Arc;

use crate::{
    consensus::Group,
    metrics::{CountsGuard, Metrics},
    node::common::Common,
    proto::v1::Reason,
    sequence::NamespaceId,
};

/// Counts calls for the namespaces of a Raft group.
pub struct CallCounts {
    group: Arc<Group>,
    metrics: Arc<Metrics>,
}

impl CallCounts {
    /// Counts in the node's metrics.
    pub(in crate::node) fn new(common: &Common) -> Self {
        CallCounts { group: common.group.clone(), metrics: common.metrics.clone() }
    }

    /// The counts of the namespace of this name. All names that this node does not know have the counts of namespaces without
    /// a place: a caller may name anything.
    pub fn of(&self, name: &str) -> CountsGuard {
        let namespaces = self.group.view.namespaces();
        match namespaces.by_name(name) {
            Some(known) => self.metrics.namespaces().of(known.id.0, name),
            None => self.metrics.namespaces().others(),
        }
    }

    /// Counts a call that is about a namespace, which has this id if it is known, and what is `refused` of it, if anything is:
    /// the reasons, and how many keys for each, or 1 for the whole call.
    #[inline]
    pub(in crate::node) fn count(
        &self, namespace: &str, id: Option<NamespaceId>,
        refused: impl IntoIterator<Item = (Reason, u64)>,
    ) {
        let counts = match id {
            Some(id) => self.metrics.namespaces().of(id.0, namespace),
            None => self.of(namespace),
        };
        counts.call();
        for (reason, times) in refused {
            counts.refuse(reason, times);
        }
    }
}
