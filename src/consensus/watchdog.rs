//! Notices that the log's disk hangs, and gives the leadership up.
//!
//! Heartbeats do not touch the disk. Without this, followers would follow a leader whose disk hangs for
//! ever, although nothing can be logged.
//!
//! Invariant: the term of a sole voter is never ended, because no other node could take over.

use std::{sync::Arc, time::Duration};

use crate::{clock::Clock, consensus::group::Group};

/// Watches until Raft stops. A write that takes longer than twice the election timeout counts as a hang:
/// in that time another node would have been elected if this one had died.
pub async fn watch(group: Arc<Group>, clock: Arc<dyn Clock>) {
    let limit = Duration::from_millis(2 * group.config().election_timeout_ms);
    let mut stopped = group.stopped();
    let health = group.store().health();
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(Option::is_some) => return,
            () = tokio::time::sleep(limit / 4) => {}
        }
        let Some(since) = health.oldest_pending() else {
            continue;
        };
        let pending = clock.now().since(since);
        let leads = group.leadership().borrow().own.clone();
        if let Some(lease) = leads
            && pending > limit
            && !group.is_sole_voter()
        {
            tracing::error!(
                pending_ms = pending.as_millis(),
                directory = %group.store().dir().display(),
                "the disk of the log does not answer; giving the leadership up"
            );
            lease.void();
        }
    }
}
