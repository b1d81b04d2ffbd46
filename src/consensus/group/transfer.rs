//! Hands the leadership to another node.

use std::time::Duration;

use openraft::errors::Fatal;

use super::{error::ProposeError, group::Group, leadership::Leadership};
use crate::{consensus::lease::TermLease, sequence::NodeId, storage::Types};

impl Group {
    /// Gives up the term of `lease`, and asks Raft to let `to` lead. Waits until a later term has a
    /// leader. The caller has closed the term's allocator for good.
    ///
    /// # Errors
    /// * [`ProposeError::NotLeader`] if the term is over already. Raft would transfer a later term of this
    ///   node, whose allocator is open.
    /// * [`ProposeError::Unknown`] if nobody leads a later term within `timeout`. This node then keeps
    ///   silent until somebody does.
    /// * [`ProposeError::Stopped`] if Raft has stopped.
    pub async fn transfer(
        &self, lease: &TermLease, to: NodeId, timeout: Duration,
    ) -> Result<Leadership, ProposeError> {
        let own = self.leadership.borrow().own.clone();
        if lease.is_void() || own.is_none_or(|own| own.term() != lease.term()) {
            return Err(ProposeError::NotLeader(lease.term()));
        }
        self.trigger_transfer(lease, to).await.map_err(|e| ProposeError::Stopped(e.to_string()))?;
        let mut leadership = self.leadership();
        let later = leadership.wait_for(|now| now.term > lease.term() && now.leader.is_some());
        match tokio::time::timeout(timeout, later).await {
            Ok(Ok(now)) => Ok(now),
            Ok(Err(_)) | Err(_) => Err(ProposeError::Unknown(lease.term())),
        }
    }

    /// Voids `lease`, and makes Raft transfer the leadership.
    ///
    /// Raft transfers the term that it leads when it handles the request. That may be a later term of
    /// this node, of which nothing here has heard yet. So the lease of that term is voided, too.
    async fn trigger_transfer(&self, lease: &TermLease, to: NodeId) -> Result<(), Fatal<Types>> {
        // A lease that begins before Raft has handled the request begins void.
        let pending = self.lease.void_while_pending(u64::MAX);
        self.raft.trigger().transfer_leader(to).await?;
        // Raft's core takes its messages in order, so this is answered after the transfer.
        if let Some(term) = self.term_led_in_raft().await?
            && term > lease.term()
        {
            self.lease.void_before(term + 1);
        }
        pending.rejected();
        Ok(())
    }
}
