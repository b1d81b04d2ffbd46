//! The successor's part in a handover: it takes in the memory that a leader sends. The memory is kept for some election
//! timeouts, until this node leads and takes it over.

use std::{sync::Arc, time::Duration};

use futures::{Stream, TryStreamExt};

use super::LedTerms;
use crate::{
    allocator::{MemoryHeader, NotReceived, ReceivedMemory},
    proto::{
        Refusal,
        peer::{MemoryPart, MemoryReply},
        refusal, refuse,
    },
};

/// For how many election timeouts this node keeps a memory: a transfer takes no longer.
const KEEP_TIMEOUTS: u64 = 40;

impl LedTerms {
    /// Takes in the memory of the leader that this node follows. Returns what has arrived and is kept.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if a part is missing or damaged. FAILED_PRECONDITION if it is not from the leader that this
    /// node follows, or in another format. RESOURCE_EXHAUSTED if it needs more than what `memory_max_mb` allows. ABORTED
    /// if another one begins to arrive. DEADLINE_EXCEEDED if the next part does not come in time. UNAVAILABLE if this
    /// node stops. INTERNAL if a part makes it panic.
    pub async fn take_memory(
        self: &Arc<Self>, mut parts: impl Stream<Item = Result<MemoryPart, Refusal>> + Send + Unpin,
    ) -> Result<MemoryReply, Refusal> {
        let first = self.next_part(&mut parts).await?;
        let first = first.ok_or_else(|| refusal!(InvalidRequest, "the memory has no parts"))?;
        let (origin, header) = self.rpc_handler.begin_memory::<MemoryHeader>(&first).await?;
        if header.term != origin.term() {
            refuse!(
                InvalidRequest,
                "the leader of term {} sends the memory of term {}",
                origin.term(),
                header.term
            );
        }
        let bytes_max = self.memory_bytes_max().saturating_mul(2);
        let work = self.group.this_node.store.blocking();
        let mut received = ReceivedMemory::begin(&header, bytes_max, work)
            .map_err(|why| self.refuse_memory(why))?;
        let number = self.held_memory.begin();
        let given_up = || refusal!(HandoverLost, "another memory began to arrive");
        while let Some(part) = self.next_part(&mut parts).await? {
            if !self.held_memory.is_latest(number) {
                return Err(given_up());
            }
            let taking = work.run(move || {
                let taken = received.take_part(&part.payload);
                taken.map(|()| received)
            });
            let taken = taking.await;
            let taken = taken.map_err(|e| refusal!(Internal, "a memory was lost: {e}"))?;
            received = taken.map_err(|why| self.refuse_memory(why))?;
        }
        let digest = received.digest().map_err(|why| self.refuse_memory(why))?;
        // Another leader may have come meanwhile; then nobody can leave this to anybody.
        self.rpc_handler.check_origin(&origin).await?;
        if self.stopping.leaving().is_cancelled() {
            return Err(self.no_memory_while_stopping());
        }
        if !self.held_memory.keep(number, received, digest) {
            return Err(given_up());
        }
        let terms = self.clone();
        let patience = Duration::from_millis(KEEP_TIMEOUTS * self.config.election_timeout_ms);
        self.group.this_node.tasks.spawn("giving a memory up", async move {
            tokio::select! {
                biased;
                () = tokio::time::sleep(patience) => terms.held_memory.give_up(number),
                () = terms.stopping.leaving().cancelled() => {}
            }
        });
        Ok(MemoryReply { parts: digest.parts, checksum: digest.checksum })
    }

    /// The next part of a memory. `None` at its end.
    async fn next_part(
        &self, parts: &mut (impl Stream<Item = Result<MemoryPart, Refusal>> + Unpin),
    ) -> Result<Option<MemoryPart>, Refusal> {
        // Before the last parts the sender closes its term.
        let closing = Duration::from_millis(self.config.shutdown_timeout_ms);
        let patience = self.rpc_handler.part_timeout() + closing;
        let next = tokio::time::timeout(patience, parts.try_next());
        let part = tokio::select! {
            biased;
            () = self.stopping.leaving().cancelled() => return Err(self.no_memory_while_stopping()),
            part = next => part,
        };
        part.unwrap_or_else(|_| {
            Err(refusal!(
                DeadlineExceeded,
                "no part of the memory came for {} ms",
                patience.as_millis()
            ))
        })
    }

    fn no_memory_while_stopping(&self) -> Refusal {
        let node = self.config.node_id;
        refusal!(
            NodeStopping,
            "node {node} stops, and takes no memory in; hand over to another node"
        )
    }

    /// The refusal for the sender of a memory.
    fn refuse_memory(&self, why: NotReceived) -> Refusal {
        let (node, max_mb) = (self.config.node_id, 2 * (self.group.budget.memory_bytes >> 20));
        let refusal = match why {
            NotReceived::TooLarge => refusal!(
                MemoryFull,
                "the memory takes more than the {max_mb} MB that node {node} gives it, twice its memory_max_mb; give \
                 all nodes the same memory_max_mb"
            ),
            NotReceived::Format(_) => refusal!(WrongState, "{why}"),
            NotReceived::Codec(_) | NotReceived::Damaged(_) => {
                refusal!(InvalidRequest, "{why}")
            }
        };
        tracing::warn!(why = refusal.message(), "the memory of the leader is not taken");
        refusal
    }
}
