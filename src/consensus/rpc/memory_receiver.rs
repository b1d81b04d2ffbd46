//! From whom this node takes a memory. What the memory holds is decided above.
//!
//! Invariant: a memory comes from the leader that this node follows.

use serde::de::DeserializeOwned;
use tonic::Status;

use super::{
    sender_check::SenderRole,
    wire::{read, stopped},
};
use crate::{consensus::group::Group, proto::peer::MemoryPart, storage::Vote};

/// The leader that a memory comes from, in its term.
#[derive(Debug, Clone, Copy)]
pub struct MemoryOrigin(Vote);

impl MemoryOrigin {
    /// The term.
    pub fn term(&self) -> u64 {
        self.0.leader_id.term
    }
}

impl Group {
    /// Reads the announcement in the first part of a memory. Returns where it comes from, and what is announced.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the part cannot be read. FAILED_PRECONDITION if it is not meant for this node, or not from
    /// the leader that this node follows. UNAVAILABLE if Raft has stopped.
    pub async fn begin_memory<H: DeserializeOwned>(
        &self,
        first: &MemoryPart,
    ) -> Result<(MemoryOrigin, H), Status> {
        let header = self.check_header(first.header.as_ref())?;
        self.check_sender(header, SenderRole::Voter)?;
        let (vote, announcement): (Vote, H) = read(self.node(), &first.payload)?;
        self.check_vote(header, &vote, true)?;
        let origin = MemoryOrigin(vote);
        self.check_origin(&origin).await?;
        Ok((origin, announcement))
    }

    /// Checks that this node still follows the leader that a memory comes from.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if not. UNAVAILABLE if Raft has stopped.
    pub async fn check_origin(&self, origin: &MemoryOrigin) -> Result<(), Status> {
        let known = self.raft.with_raft_state(|state| *state.vote_ref()).await;
        let known = known.map_err(stopped)?;
        match known == origin.0 {
            true => Ok(()),
            false => Err(Status::failed_precondition(format!(
                "node {} does not follow the leader of term {}; it knows the vote {known}",
                self.node(),
                origin.term()
            ))),
        }
    }
}
