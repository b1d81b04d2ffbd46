//! Sends the memory of the term that this node leads to the node that is to lead next. What the memory holds is decided
//! above.

use futures::{Stream, StreamExt, stream};
use serde::Serialize;
use tonic::Status;

use super::group::Group;
use crate::{
    consensus::network::payload,
    proto::peer::MemoryPart,
    sequence::{MemoryDigest, NodeId},
};

impl Group {
    /// Sends the memory of `term`, which this node leads, to node `to`: `announcement`, and then `parts`. Waits until
    /// all of it has arrived. Returns what has.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if this node does not lead `term`, or `to` is not a member. UNIMPLEMENTED if `to` runs a
    /// release that takes no memory. The receiver's own errors, and the network's.
    pub async fn send_memory<H: Serialize>(
        &self,
        term: u64,
        to: NodeId,
        announcement: H,
        parts: impl Stream<Item = Vec<u8>> + Send + 'static,
    ) -> Result<MemoryDigest, Status> {
        let metrics = self.metrics();
        let vote = metrics.vote;
        let leads = vote.committed && vote.leader_id.voted_for == self.node();
        if vote.leader_id.term != term || !leads {
            return Err(Status::failed_precondition(format!(
                "node {} does not lead term {term}",
                self.node()
            )));
        }
        let membership = metrics.membership_config.membership();
        let Some(member) = membership.get_node(&to) else {
            let text = format!("node {to} is not a member");
            return Err(Status::failed_precondition(text));
        };
        let client = self.network.client(to, member);
        let announcement = payload::encode(&(vote, announcement));
        let announcement = announcement.map_err(|e| Status::internal(e.to_string()))?;
        let first = MemoryPart {
            header: Some(client.header.clone()),
            payload: announcement.into(),
        };
        let parts = parts.map(|payload| MemoryPart {
            header: None,
            payload: payload.into(),
        });
        let reply = client.take_memory(stream::iter([first]).chain(parts).boxed());
        let reply = reply.await?;
        Ok(MemoryDigest {
            messages: reply.messages,
            checksum: reply.checksum,
        })
    }
}
