//! A leader's memory on its way to the node that is to lead next: who sends it, and from whom it is taken. The caller decides
//! what it holds.
//!
//! Invariant: a memory comes from the leader that the receiver follows.

use futures::{Stream, StreamExt, stream};
use serde::{Serialize, de::DeserializeOwned};

use super::RpcHandler;
use crate::{
    consensus::{
        group::Group,
        network::payload::{read, write},
    },
    proto::{Refusal, peer::MemoryPart, refuse},
    sequence::{MemoryDigest, NodeId},
    storage::Vote,
};

/// The leader that a memory comes from, in its term.
#[derive(Debug, Clone, Copy)]
pub struct MemoryOrigin(Vote);

impl MemoryOrigin {
    /// The term.
    pub fn term(&self) -> u64 {
        self.0.leader_id.term
    }
}

/// Sends the memory of `term`, which this node leads in `group`, to node `to`: `announcement`, and then `parts`. Waits until
/// all of it has arrived. Returns what has.
///
/// # Errors
/// FAILED_PRECONDITION if this node does not lead `term`, or `to` is not a member. UNIMPLEMENTED if `to` runs a
/// release that takes no memory. The receiver's own errors, and the network's.
pub async fn send_memory<H: Serialize>(
    group: &Group, term: u64, to: NodeId, announcement: H,
    parts: impl Stream<Item = Vec<u8>> + Send + 'static,
) -> Result<MemoryDigest, Refusal> {
    let metrics = group.metrics();
    let vote = metrics.vote;
    let leads = vote.committed && vote.leader_id.voted_for == group.node();
    if vote.leader_id.term != term || !leads {
        refuse!(WrongState, "node {} does not lead term {term}", group.node());
    }
    let membership = metrics.membership_config.membership();
    let Some(member) = membership.get_node(&to) else {
        refuse!(WrongState, "node {to} is not a member");
    };
    let client = group.network.client(to, member);
    let first = MemoryPart {
        header: Some(client.header.clone()),
        payload: write(&(vote, announcement))?.into(),
    };
    let parts = parts.map(|payload| MemoryPart { header: None, payload: payload.into() });
    let parts = stream::iter([first]).chain(parts).boxed();
    let reply = client.transport.send_memory(client.to(&client.address()), parts).await?;
    Ok(MemoryDigest { parts: reply.parts, checksum: reply.checksum })
}

impl RpcHandler {
    /// Reads the announcement in the first part of a memory. Returns where it comes from, and what is announced.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the part cannot be read. FAILED_PRECONDITION if it is not meant for this node, or not from
    /// the leader that this node follows. UNAVAILABLE if Raft has stopped.
    pub async fn begin_memory<H: DeserializeOwned>(
        &self, first: &MemoryPart,
    ) -> Result<(MemoryOrigin, H), Refusal> {
        let header = self.check_header(first.header.as_ref())?;
        self.check_sender(header, true)?;
        let (vote, announcement): (Vote, H) = read(self.group.node(), &first.payload)?;
        self.check_vote(header, &vote, true)?;
        let origin = MemoryOrigin(vote);
        self.check_origin(&origin).await?;
        Ok((origin, announcement))
    }

    /// Checks that this node still follows the leader that a memory comes from.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if not. UNAVAILABLE if Raft has stopped.
    pub async fn check_origin(&self, origin: &MemoryOrigin) -> Result<(), Refusal> {
        self.check_follows(&origin.0).await
    }
}
