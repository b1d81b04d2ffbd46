//! How far a member has this leader's log.

use openraft::RaftMetrics;

use crate::{sequence::NodeId, storage::Types};

/// Up to where the log of `id` is known to match this leader's log. `None` for a node that has nothing, and on a node that
/// does not lead.
pub fn replicated_index(metrics: &RaftMetrics<Types>, id: NodeId) -> Option<u64> {
    let progress = metrics.replication.as_ref()?.get(&id)?;
    progress.as_ref().map(|log_id| log_id.index)
}
